//! Address handles: where a datagram goes.

use super::device::Context;
use super::memory::root;
use super::{minus_one, object, set_errno};
use crate::net::gid::Gid;
use core::sync::atomic::Ordering::Relaxed;
use rdma_sys::*;
use std::ffi::c_int;

/// An address handle.
#[repr(C)]
pub struct Ah {
    base: ibv_ah,
    /// Source address.
    pub from: Gid,
    /// Destination address.
    pub to: Gid,
    /// From which port.
    pub port: u8,
}

/// The two addresses of an address vector, and its port's place.
pub unsafe fn resolve(ctx: *mut ibv_context, attr: &ibv_ah_attr) -> Result<(Gid, Gid, usize), c_int> {
    // SAFETY: the caller's.
    let c = unsafe { Context::of(ctx) };
    let port = usize::from(attr.port_num).checked_sub(1).ok_or(libc::EINVAL)?;
    let gids = &c.config().ports.get(port).ok_or(libc::EINVAL)?.gids;
    if attr.is_global == 0 {
        // InfiniBand, by LID: there is one, and all that have it are here.
        return Ok((gids[0], gids[0], port));
    }
    let from = *gids.get(usize::from(attr.grh.sgid_index)).ok_or(libc::EINVAL)?;
    // SAFETY: both halves of the union are bytes.
    Ok((from, Gid(unsafe { attr.grh.dgid.raw }), port))
}

/// Makes a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_create_ah(pd: *mut ibv_pd, attr: *mut ibv_ah_attr) -> *mut ibv_ah {
    object(|| {
        // SAFETY: the caller's.
        unsafe {
            let (from, to, _) = resolve((*pd).context, &*attr)?;
            root(pd).users.fetch_add(1, Relaxed);
            let base = ibv_ah { context: (*pd).context, pd, handle: 0 };
            Ok(Box::into_raw(Box::new(Ah { base, from, to, port: (*attr).port_num })).cast())
        }
    })
}

/// Removes it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_destroy_ah(ah: *mut ibv_ah) -> c_int {
    // SAFETY: the caller's: made above, and not used any more.
    unsafe {
        let a: Box<Ah> = Box::from_raw(ah.cast());
        root(a.base.pd).users.fetch_sub(1, Relaxed);
    }
    0
}

/// Whoever sent a datagram: its header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_init_ah_from_wc(
    ctx: *mut ibv_context,
    port: u8,
    wc: *mut ibv_wc,
    grh: *mut ibv_grh,
    attr: *mut ibv_ah_attr,
) -> c_int {
    minus_one(|| {
        // SAFETY: the caller's.
        unsafe {
            attr.write_bytes(0, 1);
            let a = &mut *attr;
            (a.port_num, a.sl) = (port, (*wc).sl);
            if (*wc).wc_flags & 1 == 0 {
                return Ok(());
            }
            // The header's bytes: source at 8, destination at 24.
            let bytes = grh.cast::<u8>();
            let at = |n: usize| -> [u8; 16] { core::array::from_fn(|i| *bytes.add(n + i)) };
            let gids =
                &Context::of(ctx).config().ports.get(usize::from(port).wrapping_sub(1)).ok_or(libc::EINVAL)?.gids;
            let own = gids.iter().position(|g| g.0 == at(24)).ok_or(libc::EINVAL)?;
            a.is_global = 1;
            a.grh.dgid.raw = at(8);
            a.grh.sgid_index = own as u8;
            a.grh.hop_limit = 64;
        }
        Ok(())
    })
}

/// A handle for whoever sent a datagram.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_create_ah_from_wc(
    pd: *mut ibv_pd,
    wc: *mut ibv_wc,
    grh: *mut ibv_grh,
    port: u8,
) -> *mut ibv_ah {
    // SAFETY: the caller's; a plain C struct, of which zeros are a value.
    unsafe {
        let mut attr: ibv_ah_attr = core::mem::zeroed();
        if ibv_init_ah_from_wc((*pd).context, port, wc, grh, &raw mut attr) != 0 {
            return core::ptr::null_mut();
        }
        ibv_create_ah(pd, &raw mut attr)
    }
}

/// There are no MAC addresses here.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_resolve_eth_l2_from_gid(
    _ctx: *mut ibv_context,
    _attr: *mut ibv_ah_attr,
    _mac: *mut u8,
    _vid: *mut u16,
) -> c_int {
    set_errno(libc::EOPNOTSUPP);
    -1
}

/// There is no multicast.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_attach_mcast(_qp: *mut ibv_qp, _gid: *const ibv_gid, _lid: u16) -> c_int {
    libc::EOPNOTSUPP
}

/// There is no multicast.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_detach_mcast(_qp: *mut ibv_qp, _gid: *const ibv_gid, _lid: u16) -> c_int {
    libc::EOPNOTSUPP
}
