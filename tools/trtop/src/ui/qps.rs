//! View 2: queue pairs.

use super::list::{Column, column};
use crate::columns::Col;

/// Columns.
pub const COLUMNS: &[Column] = &[
    column(Col::Host, 8, 16, 3),
    column(Col::Pid, 7, 7, 1),
    column(Col::Rank, 4, 6, 9),
    column(Col::Qp, 8, 8, 0),
    column(Col::Type, 3, 4, 10),
    column(Col::State, 4, 5, 6),
    column(Col::Port, 8, 18, 8),
    column(Col::Peer, 13, 39, 3),
    column(Col::PeerRank, 6, 6, 9),
    column(Col::Comm, 7, 9, 9),
    column(Col::Channel, 3, 3, 10),
    column(Col::Func, 9, 13, 12),
    column(Col::Dest, 8, 8, 12),
    column(Col::Send, 9, 9, 2),
    column(Col::SendLong, 9, 9, 13),
    column(Col::Recv, 9, 9, 13),
    column(Col::WrRate, 5, 5, 11),
    column(Col::Out, 5, 5, 4),
    column(Col::OutBytes, 7, 7, 5),
    column(Col::RecvOut, 5, 5, 15),
    column(Col::High, 5, 5, 14),
    column(Col::HighBytes, 7, 7, 16),
    column(Col::Errors, 4, 5, 7),
    column(Col::Lanes, 5, 5, 20),
    column(Col::Why, 15, 19, 8),
    column(Col::Sent, 7, 7, 17),
    column(Col::Received, 7, 7, 18),
    column(Col::Command, 12, u16::MAX, 19),
];
