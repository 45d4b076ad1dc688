//! View 4: the paths of multi-path, a line per lane, then one per QP that it leaves on one path. Shown once multi-path is on in
//! a process.

use super::list::{Column, column};
use crate::columns::Col;

/// Columns.
pub const COLUMNS: &[Column] = &[
    column(Col::Host, 8, 16, 3),
    column(Col::Pid, 7, 7, 1),
    column(Col::Rank, 4, 6, 10),
    column(Col::State, 4, 4, 9),
    column(Col::Port, 8, 18, 8),
    column(Col::Path, 4, 4, 0),
    column(Col::Local, 13, 39, 3),
    column(Col::Peer, 13, 39, 4),
    column(Col::Qp, 8, 8, 12),
    column(Col::Dest, 8, 8, 15),
    column(Col::Qps, 5, 5, 13),
    column(Col::Send, 9, 9, 2),
    column(Col::SendLong, 9, 9, 17),
    column(Col::Share, 5, 5, 5),
    column(Col::WrRate, 5, 5, 11),
    column(Col::Out, 5, 5, 7),
    column(Col::OutBytes, 7, 7, 14),
    column(Col::Errors, 4, 5, 6),
    column(Col::Sent, 7, 7, 16),
    column(Col::Command, 12, u16::MAX, 17),
];
