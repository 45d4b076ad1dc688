//! Send work requests between the application's C structs and the engine's terms.

use core::ffi::c_int;
use core::mem::{offset_of, zeroed};
use rdma_sys::{ibv_send_wr, ibv_sge, ibv_wr_opcode};
use telereduce::multipath::wr::{Fields, INLINE, Sge, WrRef};

// Lists are lent in both directions.
const _: () = assert!(
    size_of::<Sge>() == size_of::<ibv_sge>()
        && align_of::<Sge>() == align_of::<ibv_sge>()
        && offset_of!(Sge, addr) == offset_of!(ibv_sge, addr)
        && offset_of!(Sge, length) == offset_of!(ibv_sge, length)
        && offset_of!(Sge, lkey) == offset_of!(ibv_sge, lkey)
);

/// What belongs to the opcode, as the union of `ibv_send_wr` holds it.
const ATOMIC_CMP_AND_SWP: u32 = ibv_wr_opcode::IBV_WR_ATOMIC_CMP_AND_SWP;
const ATOMIC_FETCH_AND_ADD: u32 = ibv_wr_opcode::IBV_WR_ATOMIC_FETCH_AND_ADD;
const BIND_MW: u32 = ibv_wr_opcode::IBV_WR_BIND_MW;

/// The WR, borrowed; inline data is gathered into `data`. `None`: its list is not one that the QP takes, and the provider
/// will say so.
///
/// # Safety
/// `wr` is a WR of the application's, valid with its lists until the result is gone.
pub unsafe fn read<'a>(wr: &'a ibv_send_wr, max_sge: u32, data: &'a mut Vec<u8>) -> Option<WrRef<'a>> {
    let count = u32::try_from(wr.num_sge).ok().filter(|n| *n <= max_sge)?;
    let sges: &[Sge] = if count == 0 {
        &[]
    } else if wr.sg_list.is_null() {
        return None;
    } else {
        // SAFETY: the caller's promise; the layouts are the same.
        unsafe { core::slice::from_raw_parts(wr.sg_list.cast(), count as usize) }
    };
    let mut fields = Fields { wr_id: wr.wr_id, opcode: wr.opcode, flags: wr.send_flags, ..Fields::default() };
    // SAFETY: the members of the unions are numbers and pointers, for which every bit pattern is valid to copy.
    unsafe {
        fields.imm = wr.imm_data_invalidated_rkey_union.imm_data;
        match wr.opcode {
            ATOMIC_CMP_AND_SWP | ATOMIC_FETCH_AND_ADD => {
                let a = wr.wr.atomic;
                (fields.remote_addr, fields.rkey) = (a.remote_addr, a.rkey);
                (fields.compare_add, fields.swap) = (a.compare_add, a.swap);
            }
            BIND_MW => {
                let b = wr.bind_mw_tso_union.bind_mw;
                let info = b.bind_info;
                fields.extra = [
                    b.mw as u64,
                    u64::from(b.rkey),
                    info.mr as u64,
                    info.addr,
                    info.length,
                    u64::from(info.mw_access_flags),
                ];
            }
            _ => (fields.remote_addr, fields.rkey) = (wr.wr.rdma.remote_addr, wr.wr.rdma.rkey),
        }
    }
    if wr.send_flags & INLINE == 0 {
        return Some(WrRef { fields, sges, inline: &[] });
    }
    data.clear();
    for s in sges {
        // SAFETY: the application's memory, which ibv_post_send reads, too.
        data.extend_from_slice(unsafe { core::slice::from_raw_parts(s.addr as *const u8, s.length as usize) });
    }
    Some(WrRef { fields, sges: &[], inline: data })
}

/// Calls `post` with the WR as C has it, which lives as long as that call.
pub fn with_c<T>(wr: &WrRef<'_>, post: impl FnOnce(*mut ibv_send_wr) -> T) -> T {
    let f = &wr.fields;
    let mut inline = ibv_sge { addr: wr.inline.as_ptr() as u64, length: wr.inline.len() as u32, lkey: 0 };
    // SAFETY: numbers and pointers, for which zero is valid.
    let mut c: ibv_send_wr = unsafe { zeroed() };
    (c.wr_id, c.opcode, c.send_flags) = (f.wr_id, f.opcode, f.flags);
    c.imm_data_invalidated_rkey_union.imm_data = f.imm;
    if wr.inline.is_empty() {
        (c.sg_list, c.num_sge) = (wr.sges.as_ptr().cast_mut().cast(), wr.sges.len() as c_int);
    } else {
        (c.sg_list, c.num_sge) = (&raw mut inline, 1);
    }
    match f.opcode {
        ATOMIC_CMP_AND_SWP | ATOMIC_FETCH_AND_ADD => {
            // SAFETY: the member that the opcode uses, of a zeroed union.
            let a = unsafe { &mut c.wr.atomic };
            (a.remote_addr, a.rkey, a.compare_add, a.swap) = (f.remote_addr, f.rkey, f.compare_add, f.swap);
        }
        BIND_MW => {
            // SAFETY: as above.
            let b = unsafe { &mut c.bind_mw_tso_union.bind_mw };
            b.mw = f.extra[0] as *mut _;
            b.rkey = f.extra[1] as u32;
            b.bind_info.mr = f.extra[2] as *mut _;
            b.bind_info.addr = f.extra[3];
            b.bind_info.length = f.extra[4];
            b.bind_info.mw_access_flags = f.extra[5] as u32;
        }
        _ => {
            // SAFETY: as above.
            let r = unsafe { &mut c.wr.rdma };
            (r.remote_addr, r.rkey) = (f.remote_addr, f.rkey);
        }
    }
    post(&raw mut c)
}
