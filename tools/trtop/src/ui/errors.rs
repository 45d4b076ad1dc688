//! View 6: QPs with failed WRs, and those whose outstanding sends do not complete.

use super::list::{Column, column};
use crate::columns::Col;

/// Columns.
pub const COLUMNS: &[Column] = &[
    column(Col::Host, 8, 16, 5),
    column(Col::Pid, 7, 7, 3),
    column(Col::Rank, 4, 6, 5),
    column(Col::Qp, 8, 8, 0),
    column(Col::State, 4, 5, 9),
    column(Col::Port, 8, 18, 8),
    column(Col::Peer, 13, 39, 4),
    column(Col::Stuck, 6, 6, 1),
    column(Col::Out, 5, 5, 6),
    column(Col::OutBytes, 7, 7, 10),
    column(Col::Errors, 4, 5, 2),
    column(Col::Status, 13, 18, 7),
    column(Col::ErrorAt, 8, 8, 11),
    column(Col::Dest, 8, 8, 12),
    column(Col::Send, 9, 9, 13),
    column(Col::Command, 12, u16::MAX, 14),
];
