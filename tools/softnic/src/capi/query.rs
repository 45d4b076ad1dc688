//! What a device says of itself.

use super::device::{Context, guid};
use super::{errno, minus_one};
use crate::config::Link;
use crate::net::gid::Gid;
use core::mem::offset_of;
use rdma_sys::*;
use std::ffi::c_int;

/// Bytes of a message.
pub const MAX_MESSAGE: u32 = 1 << 31;

/// Attributes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_query_device(ctx: *mut ibv_context, attr: *mut ibv_device_attr) -> c_int {
    errno(|| {
        // SAFETY: the caller's.
        let (c, a) = unsafe {
            attr.write_bytes(0, 1);
            (Context::of(ctx), &mut *attr)
        };
        let l = &c.config().limits;
        for (to, from) in a.fw_ver.iter_mut().zip(env!("CARGO_PKG_VERSION").bytes()) {
            *to = from.cast_signed();
        }
        (a.node_guid, a.sys_image_guid) = (guid(c.device), guid(c.device));
        a.max_mr_size = u64::MAX;
        a.page_size_cap = 0xffff_f000;
        a.vendor_id = 0x00ff_ffff;
        a.vendor_part_id = 0x50f7;
        a.max_qp = l.qps as c_int;
        a.max_qp_wr = l.wrs as c_int;
        // MW types 1 and 2B, RNR NAKs, SRQ resize, XRC, port active events, memory management extensions.
        a.device_cap_flags = ibv_device_cap_flags::IBV_DEVICE_MEM_WINDOW.0
            | ibv_device_cap_flags::IBV_DEVICE_MEM_WINDOW_TYPE_2B.0
            | ibv_device_cap_flags::IBV_DEVICE_RC_RNR_NAK_GEN.0
            | ibv_device_cap_flags::IBV_DEVICE_PORT_ACTIVE_EVENT.0
            | ibv_device_cap_flags::IBV_DEVICE_CURR_QP_STATE_MOD.0
            | ibv_device_cap_flags::IBV_DEVICE_XRC.0;
        (a.max_sge, a.max_sge_rd, a.max_srq_sge) = (l.sges as c_int, l.sges as c_int, l.sges as c_int);
        (a.max_cq, a.max_mr, a.max_pd, a.max_ah, a.max_mw) = (1 << 16, 1 << 20, 1 << 20, 1 << 20, 1 << 20);
        a.max_cqe = l.cqes as c_int;
        (a.max_qp_rd_atom, a.max_qp_init_rd_atom) = (c_int::from(l.answers), c_int::from(l.answers));
        a.max_res_rd_atom = c_int::from(l.answers) * l.qps as c_int;
        a.atomic_cap = ibv_atomic_cap::IBV_ATOMIC_HCA;
        (a.max_srq, a.max_srq_wr) = (1 << 16, l.wrs as c_int);
        a.max_pkeys = 1;
        a.local_ca_ack_delay = 15;
        a.phys_port_cnt = c.config().ports.len() as u8;
        Ok(())
    })
}

/// Attributes, and those that came later, of which there are none.
pub unsafe extern "C" fn query_device_ex(
    ctx: *mut ibv_context,
    input: *const ibv_query_device_ex_input,
    attr: *mut ibv_device_attr_ex,
    len: usize,
) -> c_int {
    errno(|| {
        // SAFETY: the caller's: `len` bytes.
        unsafe {
            if input.as_ref().is_some_and(|i| i.comp_mask != 0) || len < size_of::<ibv_device_attr>() {
                return Err(libc::EINVAL);
            }
            attr.cast::<u8>().write_bytes(0, len);
            ibv_query_device(ctx, attr.cast());
            if len >= size_of::<ibv_device_attr_ex>() {
                (*attr).phys_port_cnt_ex = Context::of(ctx).config().ports.len() as u32;
                (*attr).completion_timestamp_mask = u64::MAX;
                (*attr).hca_core_clock = 1_000_000;
            }
        }
        Ok(())
    })
}

/// The time that completions are stamped with.
pub unsafe extern "C" fn query_rt_values(_ctx: *mut ibv_context, values: *mut ibv_values_ex) -> c_int {
    errno(|| {
        // SAFETY: the caller's.
        unsafe {
            if (*values).comp_mask & ibv_values_mask::IBV_VALUES_MASK_RAW_CLOCK.0 != 0 {
                let now = crate::nic::clock::now();
                // In ns: the clock says 1 GHz of itself.
                (*values).raw_clock.tv_sec = 0;
                (*values).raw_clock.tv_nsec = now.cast_signed();
            }
        }
        Ok(())
    })
}

/// Width and speed that make up so many Gb/s, as near as can be said: (`active_width`, `active_speed`).
fn speed(gbps: u32) -> (u8, u8) {
    const SPEEDS: [(u32, u8); 7] = [(100, 128), (50, 64), (25, 32), (14, 16), (10, 4), (5, 2), (2, 1)];
    const WIDTHS: [(u32, u8); 4] = [(1, 1), (2, 16), (4, 2), (8, 4)];
    let all = WIDTHS.iter().flat_map(|w| SPEEDS.iter().map(move |s| (w.0 * s.0, w.1, s.1)));
    // The common names of speeds are of four lanes.
    let near = |a: &(u32, u8, u8)| (a.0.abs_diff(gbps), a.1 != 2);
    all.min_by_key(near).map_or((2, 32), |(_, w, s)| (w, s))
}

fn port(c: &Context, number: u32) -> Result<(usize, &'static crate::config::Port), c_int> {
    let index = (number as usize).checked_sub(1).ok_or(libc::EINVAL)?;
    c.config().ports.get(index).map(|p| (index, p)).ok_or(libc::EINVAL)
}

/// A port's attributes, in a struct that may be older or newer than the one known here.
pub unsafe extern "C" fn query_port(ctx: *mut ibv_context, number: u8, attr: *mut ibv_port_attr, len: usize) -> c_int {
    errno(|| {
        // SAFETY: the caller's.
        let c = unsafe { Context::of(ctx) };
        let (index, p) = port(c, number.into())?;
        let up = c.host.is_up(c.device, index);
        // SAFETY: a plain C struct, of which zeros are a value.
        let mut a: ibv_port_attr = unsafe { core::mem::zeroed() };
        a.state = if up { ibv_port_state::IBV_PORT_ACTIVE } else { ibv_port_state::IBV_PORT_DOWN };
        (a.max_mtu, a.active_mtu) = (ibv_mtu::IBV_MTU_4096, ibv_mtu::IBV_MTU_4096);
        a.gid_tbl_len = p.gids.len() as c_int;
        a.port_cap_flags = 1 << 16 | 1 << 26; // connection management, GIDs that are IP addresses
        a.max_msg_sz = MAX_MESSAGE;
        a.pkey_tbl_len = 1;
        a.max_vl_num = 1;
        (a.active_width, a.active_speed) = speed(p.speed_gbps);
        a.phys_state = if up { 5 } else { 3 };
        if p.link == Link::Infiniband {
            a.link_layer = 1;
            // A subnet of one host: every port has the same LID, GIDs tell them apart.
            (a.lid, a.sm_lid) = (1, 1);
        } else {
            a.link_layer = 2;
            a.flags = 1; // GRH required
        }
        // SAFETY: the caller's: `len` bytes.
        unsafe {
            attr.cast::<u8>().write_bytes(0, len);
            attr.cast::<u8>().copy_from_nonoverlapping((&raw const a).cast(), len.min(size_of::<ibv_port_attr>()));
        }
        Ok(())
    })
}

/// As above, for callers that know the struct as it was at first.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_query_port(ctx: *mut ibv_context, number: u8, attr: *mut ibv_port_attr) -> c_int {
    // SAFETY: the caller's.
    unsafe { query_port(ctx, number, attr, offset_of!(ibv_port_attr, port_cap_flags2)) }
}

fn gid(c: &Context, number: u32, index: u32) -> Result<Gid, c_int> {
    port(c, number)?.1.gids.get(index as usize).copied().ok_or(libc::EINVAL)
}

/// A GID.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_query_gid(ctx: *mut ibv_context, number: u8, index: c_int, out: *mut ibv_gid) -> c_int {
    minus_one(|| {
        // SAFETY: the caller's.
        unsafe {
            let g = gid(Context::of(ctx), number.into(), u32::try_from(index).map_err(|_| libc::EINVAL)?)?;
            (*out).raw = g.0;
        }
        Ok(())
    })
}

const ROCE_V2: u32 = 2;
const IB: u32 = 0;

fn entry(c: &Context, number: u32, index: u32) -> Result<ibv_gid_entry, c_int> {
    let (_, p) = port(c, number)?;
    // SAFETY: a plain C struct, of which zeros are a value.
    let mut e: ibv_gid_entry = unsafe { core::mem::zeroed() };
    e.gid.raw = gid(c, number, index)?.0;
    (e.gid_index, e.port_num) = (index, number);
    e.gid_type = if p.link == Link::Ethernet { ROCE_V2 } else { IB };
    // The loopback interface, whose addresses they usually are.
    e.ndev_ifindex = if p.link == Link::Ethernet { 1 } else { 0 };
    Ok(e)
}

unsafe fn put(out: *mut ibv_gid_entry, n: usize, size: usize, e: &ibv_gid_entry) {
    // SAFETY: the caller's promise: a list of entries of this size, which is not less than the known one.
    unsafe {
        let at = out.cast::<u8>().add(n * size);
        at.write_bytes(0, size);
        at.copy_from_nonoverlapping(core::ptr::from_ref(e).cast(), size_of::<ibv_gid_entry>());
    }
}

/// A GID, with its type.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn _ibv_query_gid_ex(
    ctx: *mut ibv_context,
    number: u32,
    index: u32,
    out: *mut ibv_gid_entry,
    flags: u32,
    size: usize,
) -> c_int {
    errno(|| {
        if flags != 0 || size < size_of::<ibv_gid_entry>() {
            return Err(libc::EINVAL);
        }
        // SAFETY: the caller's.
        unsafe { put(out, 0, size, &entry(Context::of(ctx), number, index).map_err(|_| libc::ENODATA)?) };
        Ok(())
    })
}

/// All GIDs of all ports.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn _ibv_query_gid_table(
    ctx: *mut ibv_context,
    out: *mut ibv_gid_entry,
    max: usize,
    flags: u32,
    size: usize,
) -> isize {
    if flags != 0 || size < size_of::<ibv_gid_entry>() {
        return -libc::EINVAL as isize;
    }
    // SAFETY: the caller's.
    let c = unsafe { Context::of(ctx) };
    let all = c.config().ports.iter().enumerate().flat_map(|(p, port)| (0..port.gids.len()).map(move |i| (p, i)));
    let mut n = 0;
    for (p, i) in all.take(max) {
        if let Ok(e) = entry(c, p as u32 + 1, i as u32) {
            // SAFETY: the caller's: room for `max`.
            unsafe { put(out, n, size, &e) };
            n += 1;
        }
    }
    n as isize
}

/// A GID's type, for the library's own tools: 0 for InfiniBand and RoCE v1, 1 for RoCE v2.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_query_gid_type(ctx: *mut ibv_context, number: u8, index: u32, out: *mut u32) -> c_int {
    minus_one(|| {
        // SAFETY: the caller's.
        unsafe { *out = u32::from(entry(Context::of(ctx), number.into(), index)?.gid_type == ROCE_V2) };
        Ok(())
    })
}

/// There is one, the default.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_query_pkey(ctx: *mut ibv_context, number: u8, index: c_int, out: *mut u16) -> c_int {
    minus_one(|| {
        // SAFETY: the caller's.
        unsafe {
            port(Context::of(ctx), number.into())?;
            if index != 0 {
                return Err(libc::EINVAL);
            }
            *out = 0xffff;
        }
        Ok(())
    })
}

/// Where it is.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_get_pkey_index(ctx: *mut ibv_context, number: u8, pkey: u16) -> c_int {
    // SAFETY: the caller's.
    let there = unsafe { port(Context::of(ctx), number.into()).is_ok() };
    if there && pkey == 0xffff { 0 } else { -1 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_speed_is_said_as_nics_say_it() {
        // 4x EDR, 4x HDR, 4x NDR, 4x QDR.
        assert_eq!([100, 200, 400, 40].map(speed), [(2, 32), (2, 64), (2, 128), (2, 4)]);
        assert_eq!([10, 25].map(speed), [(1, 4), (1, 32)]);
    }
}
