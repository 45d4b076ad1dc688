//! What the engine asks of its driver, and the words of their talk.
//!
//! A driver, per QP, under that QP's lock:
//! - posts: the fast path where [`passes`](super::engine::Engine::passes) says so, else
//!   [`post`](super::engine::Engine::post) for each WR of the chain, then [`feed`](super::engine::Engine::feed);
//! - polls of the application's CQ: [`primary_completed`](super::engine::Engine::primary_completed) for each send
//!   completion, then feed; what is swallowed does not count as polled. While
//!   [`waits_for_primary`](super::engine::Engine::waits_for_primary), somebody polls even if the application does not;
//! - the receiver's ring: while [`take_wish`](super::engine::Engine::take_wish) says that it would be of use, the driver
//!   asks for it; then [`set_ring`](super::engine::Engine::set_ring);
//! - polls of the lanes: [`chunk_completed`](super::engine::Engine::chunk_completed), then feed, this QP's and others';
//! - `ibv_modify_qp` and `ibv_destroy_qp`: [`stop`](super::engine::Engine::stop), wait for [`Driver::quiet`], the real
//!   call, [`state_changed`](super::engine::Engine::state_changed);
//! - creation: [`EXTRA_SEND_WRS`](super::engine::EXTRA_SEND_WRS) and [`EXTRA_CQES`](super::engine::EXTRA_CQES) more than
//!   the application asked for.

use super::wr::{Fields, Sge, WrRef};
use rdma_sys::ibv_wc_status;

/// An errno value, as `ibv_post_send` returns it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Errno(pub i32);

/// The queue is full, or memory is.
pub const NO_ROOM: Errno = Errno(libc::ENOMEM);
/// The WR can never be posted on this QP.
pub const INVALID: Errno = Errno(libc::EINVAL);

/// What a WR on the application's QP is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// The application's WR, whole.
    App,
    /// First piece of a split WR, whose completion says that everything before it is done.
    Head,
    /// Last piece of a split WR.
    Tail,
    /// A split WR after all, whole: lanes are gone, or refused it.
    Whole,
    /// Stands for a WR that was accepted, held, and then refused by the provider: it is to be flushed.
    StandIn,
}

/// A WR for the application's QP.
#[derive(Clone, Copy, Debug)]
pub struct Posting<'a> {
    /// What is to be posted; its `flags` are the ones to use, whatever `sq_sig_all` is. With `inline` not empty, that is
    /// the data, and `sges` is empty.
    pub wr: WrRef<'a>,
    /// Number of the application's WR that this is or belongs to, from 1 since the last RESET.
    pub seq: u64,
    /// What it is.
    pub why: Why,
}

/// A body piece for a lane. It is always signaled, and carries no immediate.
#[derive(Clone, Copy, Debug)]
pub struct LanePosting<'a> {
    /// Which lane.
    pub lane: usize,
    /// What the driver gives back with the completion: in `wr_id`, for instance.
    pub token: u64,
    /// Number of the application's WR that this belongs to.
    pub seq: u64,
    /// `IBV_WR_RDMA_WRITE` or `IBV_WR_RDMA_READ`.
    pub opcode: u32,
    /// First byte at the target.
    pub remote_addr: u64,
    /// Remote key.
    pub rkey: u32,
    /// Scatter/gather list; empty for data of the engine's own, which is in `inline`.
    pub sges: &'a [Sge],
    /// Inline data, [`RECORD_BYTES`](super::lengths::RECORD_BYTES) at most. Lanes must take it once the engine has a ring.
    pub inline: &'a [u8],
    /// Bytes.
    pub length: u32,
}

/// What the engine asks for. The engine calls these in the middle of its work: they must not call the engine, and what
/// they learn (a QP broken at once, say) they tell it after the engine's own call returned.
pub trait Driver {
    /// Posts on the application's QP.
    ///
    /// # Errors
    /// As the provider's. [`NO_ROOM`] is tried again at the QP's next completion, any other is final.
    fn post_primary(&mut self, p: &Posting<'_>) -> Result<(), Errno>;

    /// Posts on a lane, a list no longer than the application's `max_send_sge`. False: it took nothing, and is full for
    /// now.
    fn post_lane(&mut self, p: &LanePosting<'_>) -> bool;

    /// Moves the application's QP to ERR, then [`state_changed`](super::engine::Engine::state_changed).
    fn break_primary(&mut self);

    /// Has the peer reset its end of the broken lane, so that nothing that is still on its way can arrive; then
    /// [`lane_revoked`](super::engine::Engine::lane_revoked), or, if that cannot be had,
    /// [`lane_lost`](super::engine::Engine::lane_lost). Asked once per lane and failure.
    fn revoke_lane(&mut self, lane: usize);

    /// After `stop`, or once the QP broke: no piece of this QP is in flight any more. It may be said more than once.
    fn quiet(&mut self);
}

/// States of the application's QP, as far as they matter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// RESET, INIT, RTR; or about to be destroyed. Everything is forgotten.
    Reset,
    /// RTS.
    Ready,
    /// ERR (or SQE): what is held is flushed.
    Error,
}

/// A completion of the application's QP: the application's, or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is the engine's own: the application does not see it, and the poll goes on.
    Swallow,
    /// It is the application's, after these changes.
    Deliver(Fix),
}

/// What a completion must say instead of what it does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fix {
    /// `byte_len`: of the message, not of its tail. Natively defined for READs only; some providers set it for WRITEs.
    pub byte_len: Option<u32>,
    /// `status` and `vendor_err`.
    pub status: Option<(u32, u32)>,
    /// To be passed to [`delivered`](super::engine::Engine::delivered) when the application gets the completion.
    pub upto: u64,
}

/// What a failed piece means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Failure {
    /// The target refused it; nothing of it will arrive any more.
    RefusedThere,
    /// It was refused here, but some of it may be on its way.
    RefusedHere,
    /// The lane broke; it may or may not arrive.
    Lost,
}

/// Success.
pub const SUCCESS: u32 = ibv_wc_status::IBV_WC_SUCCESS;
/// Flushed.
pub const FLUSHED: u32 = ibv_wc_status::IBV_WC_WR_FLUSH_ERR;

/// The peer did not answer.
pub const RETRY_EXCEEDED: u32 = ibv_wc_status::IBV_WC_RETRY_EXC_ERR;

pub(super) fn failure(status: u32) -> Failure {
    use ibv_wc_status as s;
    match status {
        s::IBV_WC_REM_INV_REQ_ERR | s::IBV_WC_REM_ACCESS_ERR | s::IBV_WC_REM_OP_ERR => Failure::RefusedThere,
        s::IBV_WC_LOC_LEN_ERR | s::IBV_WC_LOC_QP_OP_ERR | s::IBV_WC_LOC_PROT_ERR | s::IBV_WC_LOC_ACCESS_ERR => {
            Failure::RefusedHere
        }
        _ => Failure::Lost,
    }
}

/// What an engine did, since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// WRs that passed, by [`Pass`](super::plan::Pass) number; those of the fast path are not among them.
    pub passed: [u64; super::plan::PASSES],
    /// WRs that were cut.
    pub split: u64,
    /// Pieces posted on lanes.
    pub chunks: u64,
    /// Of these, posted anew after a lane broke.
    pub replayed: u64,
    /// Pieces posted on the application's QP ahead of the bodies.
    pub heads: u64,
    /// WRs that were cut and then posted whole after all.
    pub whole: u64,
    /// WRs that had to wait for an earlier one.
    pub held: u64,
    /// WRITE_WITH_IMMs that were cut.
    pub split_imm: u64,
    /// Accepted WRs whose completion was lost because the provider refused even to flush them.
    pub dropped: u64,
    /// As `passed`, of the WRs that have the size from which messages are split; the fast path's are among these.
    pub large_passed: [u64; super::plan::PASSES],
    /// Of those that were cut, WRs of which a piece was posted.
    pub parted: u64,
    /// Of these, WRs that were posted whole after all.
    pub given_up: u64,
    /// Bytes of the WRs of which a piece was posted.
    pub moved: Moved,
    /// Of these, bytes of READs.
    pub moved_reads: Moved,
}

/// Bytes of WRs of which a piece was posted, and where they went.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moved {
    /// Their lengths.
    pub split: u64,
    /// Posted on lanes for them, what was posted anew counted again.
    pub on_lanes: u64,
    /// Posted for them on the application's QP.
    pub on_qp: u64,
}

impl Stats {
    /// Counts bytes of a WR in pieces, of this opcode.
    pub(super) fn moved(&mut self, opcode: u32, count: impl Fn(&mut Moved)) {
        count(&mut self.moved);
        if opcode == super::wr::READ {
            count(&mut self.moved_reads);
        }
    }
}

impl Posting<'_> {
    /// The flags to post with.
    pub fn flags(&self) -> u32 {
        self.wr.fields.flags
    }
}

/// The fields of a piece of a split WR: the same but for the address.
pub(super) fn piece_of(f: &Fields, offset: u32) -> Fields {
    Fields { remote_addr: f.remote_addr.wrapping_add(u64::from(offset)), ..*f }
}
