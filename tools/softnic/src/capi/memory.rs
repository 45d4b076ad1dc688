//! Protection domains, memory regions, memory windows.

use super::device::Context;
use super::send::post_one;
use super::{code, errno, object, set_errno};
use crate::nic::keys::{self, Range};
use crate::nic::sender::Local;
use core::sync::atomic::{AtomicU32, Ordering::Relaxed};
use rdma_sys::*;
use std::ffi::{c_int, c_uint, c_void};

/// A protection domain.
#[repr(C)]
pub struct Pd {
    base: ibv_pd,
    /// What is in it.
    pub users: AtomicU32,
    /// A parent domain: its true domain.
    pub parent: *mut ibv_pd,
}

/// The true domain of a domain.
pub unsafe fn root<'a>(pd: *mut ibv_pd) -> &'a Pd {
    // SAFETY: the caller's.
    unsafe {
        let pd: &Pd = &*pd.cast();
        if pd.parent.is_null() { pd } else { &*pd.parent.cast() }
    }
}

impl Pd {
    /// Its number in the process.
    pub fn number(&self) -> u32 {
        self.base.handle
    }
}

/// Makes a domain; `parent`: the true one, if it is another name for it.
pub unsafe fn new_pd(ctx: *mut ibv_context, parent: *mut ibv_pd) -> *mut ibv_pd {
    // SAFETY: the caller's.
    let handle = unsafe { Context::of(ctx).host.domain() };
    Box::into_raw(Box::new(Pd { base: ibv_pd { context: ctx, handle }, users: AtomicU32::new(0), parent })).cast()
}

/// Makes a protection domain.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_alloc_pd(ctx: *mut ibv_context) -> *mut ibv_pd {
    // SAFETY: the caller's.
    object(|| Ok(unsafe { new_pd(ctx, core::ptr::null_mut()) }))
}

/// Removes it, if nothing is in it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_dealloc_pd(pd: *mut ibv_pd) -> c_int {
    errno(|| {
        // SAFETY: the caller's: made above, and not used any more.
        unsafe {
            let p: &Pd = &*pd.cast();
            if p.users.load(Relaxed) != 0 {
                return Err(libc::EBUSY);
            }
            if !p.parent.is_null() {
                root(pd).users.fetch_sub(1, Relaxed);
            }
            drop(Box::from_raw(pd.cast::<Pd>()));
        }
        Ok(())
    })
}

/// A region, with its windows.
#[repr(C)]
struct Mr {
    base: ibv_mr,
    access: u32,
    iova: u64,
}

fn check_access(access: u32) -> Result<(), c_int> {
    const OPTIONAL: u32 = 0x3ff0_0000;
    const KNOWN: u32 = 0xff | OPTIONAL;
    let remote = access & (keys::REMOTE_WRITE | keys::REMOTE_ATOMIC) != 0;
    if access & !KNOWN != 0 || (remote && access & keys::LOCAL_WRITE == 0) {
        return Err(libc::EINVAL);
    }
    Ok(())
}

/// Registers memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_reg_mr_iova2(
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    iova: u64,
    access: c_uint,
) -> *mut ibv_mr {
    object(|| {
        check_access(access)?;
        if (addr as usize).checked_add(length).is_none() || iova.checked_add(length as u64).is_none() {
            return Err(libc::EINVAL);
        }
        // SAFETY: the caller's.
        let (context, pd_) = unsafe { ((*pd).context, root(pd)) };
        // SAFETY: as above.
        let host = unsafe { Context::of(context).host };
        let iova = if access & keys::ZERO_BASED != 0 { 0 } else { iova };
        let range = Range { addr: addr as u64, len: length as u64, iova, access, pd: pd_.number(), kind: 0, qp: 0 };
        let key = host.keys.add(&host.me, &host.arena, range).map_err(code)?;
        pd_.users.fetch_add(1, Relaxed);
        let base = ibv_mr { context, pd, addr, length, handle: key, lkey: key, rkey: key };
        Ok(Box::into_raw(Box::new(Mr { base, access, iova })).cast())
    })
}

/// Registers memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_reg_mr(pd: *mut ibv_pd, addr: *mut c_void, len: usize, access: c_int) -> *mut ibv_mr {
    // SAFETY: the caller's.
    unsafe { ibv_reg_mr_iova2(pd, addr, len, addr as u64, access.cast_unsigned()) }
}

/// Registers memory that WRs call otherwise.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_reg_mr_iova(
    pd: *mut ibv_pd,
    addr: *mut c_void,
    len: usize,
    iova: u64,
    access: c_int,
) -> *mut ibv_mr {
    // SAFETY: the caller's.
    unsafe { ibv_reg_mr_iova2(pd, addr, len, iova, access.cast_unsigned()) }
}

/// There is no memory of devices here.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_reg_dmabuf_mr(
    _pd: *mut ibv_pd,
    _offset: u64,
    _len: usize,
    _iova: u64,
    _fd: c_int,
    _access: c_int,
) -> *mut ibv_mr {
    set_errno(libc::EOPNOTSUPP);
    core::ptr::null_mut()
}

/// Changes what a region stands for. Its keys stay.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_rereg_mr(
    mr: *mut ibv_mr,
    flags: c_int,
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    access: c_int,
) -> c_int {
    const TRANSLATION: c_int = 1;
    const PD: c_int = 2;
    const ACCESS: c_int = 4;
    const INPUT: c_int = -1;
    let bad = !(1..8).contains(&flags) || (flags & PD != 0 && pd.is_null());
    if bad || (flags & ACCESS != 0 && check_access(access.cast_unsigned()).is_err()) {
        set_errno(libc::EINVAL);
        return INPUT;
    }
    // SAFETY: the caller's.
    unsafe {
        let m: &mut Mr = &mut *mr.cast();
        let host = Context::of(m.base.context).host;
        if flags & TRANSLATION != 0 {
            (m.base.addr, m.base.length, m.iova) = (addr, length, addr as u64);
        }
        if flags & PD != 0 {
            root(m.base.pd).users.fetch_sub(1, Relaxed);
            root(pd).users.fetch_add(1, Relaxed);
            m.base.pd = pd;
        }
        if flags & ACCESS != 0 {
            m.access = access.cast_unsigned();
        }
        let range = Range {
            addr: m.base.addr as u64,
            len: m.base.length as u64,
            iova: m.iova,
            access: m.access,
            pd: root(m.base.pd).number(),
            kind: 0,
            qp: 0,
        };
        host.keys.change(&host.me, m.base.lkey, m.base.lkey, range);
    }
    0
}

/// Removes a region. Waits for whoever is just using it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_dereg_mr(mr: *mut ibv_mr) -> c_int {
    errno(|| {
        // SAFETY: the caller's: made above, and not used any more.
        unsafe {
            let m: Box<Mr> = Box::from_raw(mr.cast());
            let host = Context::of(m.base.context).host;
            if !host.is_inherited() {
                host.keys.remove(&host.me, m.base.lkey);
            }
            root(m.base.pd).users.fetch_sub(1, Relaxed);
        }
        Ok(())
    })
}

/// Makes a window, which stands for nothing yet.
pub unsafe extern "C" fn alloc_mw(pd: *mut ibv_pd, type_: ibv_mw_type::Type) -> *mut ibv_mw {
    object(|| {
        if !(1..=2).contains(&type_) {
            return Err(libc::EINVAL);
        }
        // SAFETY: the caller's.
        let (context, pd_) = unsafe { ((*pd).context, root(pd)) };
        // SAFETY: as above.
        let host = unsafe { Context::of(context).host };
        let range = Range { addr: 0, len: 0, iova: 0, access: 0, pd: pd_.number(), kind: type_, qp: 0 };
        let rkey = host.keys.add(&host.me, &host.arena, range).map_err(code)?;
        pd_.users.fetch_add(1, Relaxed);
        Ok(Box::into_raw(Box::new(ibv_mw { context, pd, rkey, handle: rkey, type_ })))
    })
}

/// Removes a window.
pub unsafe extern "C" fn dealloc_mw(mw: *mut ibv_mw) -> c_int {
    errno(|| {
        // SAFETY: the caller's: made above, and not used any more.
        unsafe {
            let m = Box::from_raw(mw);
            let host = Context::of(m.context).host;
            if !host.is_inherited() {
                host.keys.remove(&host.me, m.rkey);
            }
            root(m.pd).users.fetch_sub(1, Relaxed);
        }
        Ok(())
    })
}

/// What binding does, once its turn comes.
pub unsafe fn binding(mw: *mut ibv_mw, new: u32, info: &ibv_mw_bind_info) -> Result<Local, c_int> {
    // SAFETY: the caller's.
    unsafe {
        let region = match info.mr.as_ref() {
            Some(mr) => mr.lkey,
            None if info.length == 0 => 0,
            None => return Err(libc::EINVAL),
        };
        let range = Range {
            addr: info.addr,
            len: info.length,
            iova: info.addr,
            access: info.mw_access_flags,
            pd: root((*mw).pd).number(),
            kind: (*mw).type_,
            qp: 0,
        };
        Ok(Local::Bind { old: (*mw).rkey, new, region, range })
    }
}

/// The key after this one: the same window, by another name.
pub fn next_key(key: u32) -> u32 {
    key & !0xff | key.wrapping_add(1) & 0xff
}

/// Binds a window of type 1, which has a new key then.
pub unsafe extern "C" fn bind_mw(qp: *mut ibv_qp, mw: *mut ibv_mw, bind: *mut ibv_mw_bind) -> c_int {
    errno(|| {
        // SAFETY: the caller's.
        unsafe {
            if (*mw).type_ != 1 || (*mw).pd != (*qp).pd {
                return Err(libc::EINVAL);
            }
            let new = next_key((*mw).rkey);
            let local = binding(mw, new, &(*bind).bind_info)?;
            post_one(qp, (*bind).wr_id, 5, (*bind).send_flags, local)?;
            (*mw).rkey = new;
        }
        Ok(())
    })
}

/// Needs a kernel.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_import_pd(_ctx: *mut ibv_context, _handle: u32) -> *mut ibv_pd {
    set_errno(libc::EOPNOTSUPP);
    core::ptr::null_mut()
}

/// Needs a kernel.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_unimport_pd(_pd: *mut ibv_pd) {}

/// Needs a kernel.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_import_mr(_pd: *mut ibv_pd, _handle: u32) -> *mut ibv_mr {
    set_errno(libc::EOPNOTSUPP);
    core::ptr::null_mut()
}

/// Needs a kernel.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_unimport_mr(_mr: *mut ibv_mr) {}

/// Needs a kernel.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_import_dm(_ctx: *mut ibv_context, _handle: u32) -> *mut ibv_dm {
    set_errno(libc::EOPNOTSUPP);
    core::ptr::null_mut()
}

/// Needs a kernel.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_unimport_dm(_dm: *mut ibv_dm) {}

/// Nothing is to do: no memory is pinned, and a child has copies of its own.
#[unsafe(no_mangle)]
pub extern "C" fn ibv_fork_init() -> c_int {
    0
}

/// Not needed.
#[unsafe(no_mangle)]
pub extern "C" fn ibv_is_fork_initialized() -> u32 {
    2
}

/// Not needed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_dontfork_range(_base: *mut c_void, _size: usize) -> c_int {
    0
}

/// Not needed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_dofork_range(_base: *mut c_void, _size: usize) -> c_int {
    0
}
