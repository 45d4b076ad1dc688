//! View 3: peers, the far ends of connected QPs.

use super::list::{Column, column};
use crate::columns::Col;

/// Columns.
pub const COLUMNS: &[Column] = &[
    column(Col::Host, 8, 16, 3),
    column(Col::Pid, 7, 7, 1),
    column(Col::Rank, 4, 6, 6),
    column(Col::State, 4, 4, 7),
    column(Col::Peer, 15, 39, 0),
    column(Col::PeerRank, 6, 6, 6),
    column(Col::Port, 8, 18, 5),
    column(Col::Qps, 5, 5, 9),
    column(Col::Send, 9, 9, 2),
    column(Col::SendLong, 9, 9, 13),
    column(Col::Recv, 9, 9, 8),
    column(Col::WrRate, 5, 5, 11),
    column(Col::Out, 5, 5, 3),
    column(Col::OutBytes, 7, 7, 4),
    column(Col::RecvOut, 5, 5, 16),
    column(Col::High, 5, 5, 12),
    column(Col::HighBytes, 7, 7, 15),
    column(Col::Errors, 4, 5, 10),
    column(Col::Sent, 7, 7, 13),
    column(Col::Received, 7, 7, 14),
    column(Col::Command, 12, u16::MAX, 17),
];
