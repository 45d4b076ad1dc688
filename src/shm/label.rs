//! Whom QPs work for, as plain numbers.

use super::layout::{LabelRecord, label_flags};
use super::model::gid_of;
use crate::attribution::Attribution;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

/// Whom a QP works for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LabelView {
    /// The address that it sends from, if it is known.
    pub local_gid: Option<[u8; 16]>,
    /// What NCCL said of its last WR, if it said anything.
    pub last: Option<Attribution>,
    /// WRs of which it did.
    pub wr_labelled: u64,
    /// How often the communicator, the peer, the channel or the direction changed.
    pub changes: u64,
}

/// From a segment.
pub(super) fn view(r: &LabelRecord) -> LabelView {
    let get = |w: &AtomicU32| w.load(Relaxed);
    let long = |w: &AtomicU64| w.load(Relaxed);
    let known = get(&r.known);
    let is = |bit: u32| known & bit != 0;
    let gid = gid_of(&r.local_gid);
    let last = (is(label_flags::LABELLED) && get(&r.seq).is_multiple_of(2)).then(|| Attribution {
        group: is(label_flags::GROUP).then(|| long(&r.group)),
        rank: is(label_flags::GROUP).then(|| get(&r.rank)),
        peer_rank: is(label_flags::PEER).then(|| get(&r.peer_rank)),
        channel: get(&r.channel),
        sends: is(label_flags::SENDS),
        func: is(label_flags::FUNC).then(|| get(&r.func) as u8),
        times: Some(long(&r.func_times)).filter(|n| *n > 0),
    });
    LabelView {
        local_gid: (gid != [0; 16]).then_some(gid),
        last,
        wr_labelled: long(&r.wr_labelled),
        changes: long(&r.changes),
    }
}
