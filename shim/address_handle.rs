//! Address handles: which peer each leads to, for the datagrams that name it.

use crate::control_path::{address, counted, missing, real, telemetry};
use crate::library::{Library, Way};
use crate::nested::Inside;
use crate::{guard, linked, state};
use core::ffi::c_int;
use core::ptr::null_mut;
use rdma_sys::{ibv_ah, ibv_ah_attr, ibv_context, ibv_grh, ibv_pd, ibv_wc};

/// `ibv_init_ah_from_wc`.
type FromWc = unsafe extern "C" fn(*mut ibv_context, u8, *mut ibv_wc, *mut ibv_grh, *mut ibv_ah_attr) -> c_int;

pub unsafe fn ibv_create_ah(way: Way, pd: *mut ibv_pd, attr: *mut ibv_ah_attr) -> *mut ibv_ah {
    let (real, _inside) = real!(way.library, way.library.ibv_create_ah(), (pd, attr), null_mut());
    // SAFETY: the caller's promise, passed on.
    unsafe {
        let handle = real(pd, attr);
        if !handle.is_null() {
            guard::run(|| created((*pd).context, handle, Some(&*attr)));
        }
        handle
    }
}

pub unsafe fn ibv_create_ah_from_wc(
    way: Way,
    pd: *mut ibv_pd,
    wc: *mut ibv_wc,
    grh: *mut ibv_grh,
    port_num: u8,
) -> *mut ibv_ah {
    let real = way.library.ibv_create_ah_from_wc();
    let (real, _inside) = real!(way.library, real, (pd, wc, grh, port_num), null_mut());
    // SAFETY: the caller's promise, passed on; the call has just succeeded with these.
    unsafe {
        let handle = real(pd, wc, grh, port_num);
        if !handle.is_null() {
            guard::run(|| {
                let ctx = (*pd).context;
                let attr = counted(ctx).and_then(|_| attributes(way.library, ctx, (wc, grh), port_num));
                created(ctx, handle, attr.as_ref());
            });
        }
        handle
    }
}

/// What the library reads from a completion. It only asks for the port's GIDs besides, as it did for the program's own call.
///
/// # Safety
/// As ibv_init_ah_from_wc demands.
unsafe fn attributes(
    library: &Library,
    ctx: *mut ibv_context,
    (wc, grh): (*mut ibv_wc, *mut ibv_grh),
    port_num: u8,
) -> Option<ibv_ah_attr> {
    let address = linked::unhooked(library, c"ibv_init_ah_from_wc")?;
    // SAFETY: libibverbs's function of this name, whose type this is; the caller's promise. Attributes are plain numbers.
    unsafe {
        let init: FromWc = core::mem::transmute(address);
        let mut attr: ibv_ah_attr = core::mem::zeroed();
        (init(ctx, port_num, wc, grh, &raw mut attr) == 0).then_some(attr)
    }
}

fn created(ctx: *mut ibv_context, handle: *mut ibv_ah, attr: Option<&ibv_ah_attr>) {
    match (counted(ctx), attr) {
        (Some((t, device)), Some(a)) => {
            guard::fault_point("create_ah");
            t.create_handle(device, handle as usize, a.port_num, address(a));
        }
        // What had this address was destroyed behind our back.
        _ => _ = state::OBJECTS.handles.remove(handle as usize),
    }
}

pub unsafe fn ibv_destroy_ah(way: Way, handle: *mut ibv_ah) -> c_int {
    let (real, _inside) = real!(way.library, way.library.ibv_destroy_ah(), (handle), libc::ENOSYS);
    // SAFETY: the caller's promise: a handle that exists until the real call returns 0.
    unsafe {
        let hidden = guard::run(|| {
            let t = telemetry()?;
            Some((t, t.hide_handle(handle as usize)?))
        });
        let rc = real(handle);
        if let Some((t, peer)) = hidden.flatten()
            && rc != 0
        {
            guard::run(|| t.show_handle(handle as usize, peer));
        }
        rc
    }
}
