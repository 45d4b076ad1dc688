//! Where providers differ.

use crate::objects;
use core::ffi::c_int;
use telereduce::verbs::PostSend;

/// `send_ops_flags` up to `IBV_QP_EX_WITH_SEND_WITH_INV`: what follows, ibv_post_send cannot do on an RC QP.
const PLAIN: u64 = (1 << 10) - 1;
/// `IBV_QP_EX_WITH_BIND_MW`.
const BIND_MW: u64 = 1 << 8;

/// Whether this function of a provider's is soft-RoCE's.
pub fn is_soft_roce(address: usize) -> bool {
    objects::find(|o| o.contains(address).then(|| o.is_called(b"librxe"))).unwrap_or(false)
}

/// Whether all that a QP with these operations can do by `ibv_wr_*` can be done by `ibv_post_send`, too.
pub fn posts_plainly(post_send: PostSend, operations: u64) -> bool {
    // Soft-RoCE's ibv_post_send leaves the window out.
    operations & !PLAIN == 0 && (operations & BIND_MW == 0 || !is_soft_roce(post_send as *const () as usize))
}

/// WRs that a send queue takes which was made for `asked`: soft-RoCE fills its ring, whose size is a power of two, but for
/// one, and tells nobody.
pub fn send_queue(post_send: PostSend, asked: u32) -> u32 {
    if is_soft_roce(post_send as *const () as usize) { ring_of(asked) } else { asked }
}

fn ring_of(asked: u32) -> u32 {
    asked.checked_add(1).and_then(u32::checked_next_power_of_two).map_or(asked, |slots| slots - 1)
}

/// What `ibv_wr_complete` answers when there is no room.
pub fn refusal(post_send: PostSend) -> c_int {
    if is_soft_roce(post_send as *const () as usize) { libc::ENOSPC } else { libc::ENOMEM }
}

#[cfg(test)]
mod tests {
    use super::ring_of;

    #[test]
    fn a_ring_is_filled_but_for_one() {
        for (asked, taken) in [(1, 1), (2, 3), (16, 31), (31, 31), (32, 63), (u32::MAX, u32::MAX)] {
            assert_eq!(ring_of(asked), taken);
        }
    }
}
