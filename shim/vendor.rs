//! Calls of providers' own libraries that lead around verbs: what is used by them is *opaque* from then on.
//!
//! They are hooked as libibverbs's are, where the program has such a library; none is ever needed or loaded. A QP or CQ
//! that such a call makes is counted as far as it is used by verbs, which may be all. One that is opened up by
//! mlx5dv_init_obj, or made as a bare queue by DevX, is used without them.

use crate::control_path::{How, counted, cq_made_by_vendor, missing, qp_created, real};
use crate::library::Way;
use crate::nested::Inside;
use crate::{Function, guard, linked, state};
use core::ffi::{c_int, c_void};
use core::ptr::null_mut;
use rdma_sys::{
    ibv_context, ibv_cq, ibv_cq_ex, ibv_cq_init_attr_ex, ibv_pd, ibv_qp, ibv_qp_init_attr, ibv_qp_init_attr_ex,
};

/// What mlx5dv_init_obj is given: for each kind of object, the object and where its description goes.
#[repr(C)]
struct Obj {
    places: [(*mut c_void, *mut c_void); 4],
}

/// Bits of `obj_type`: QP, CQ, SRQ, work queue.
const OBJ_QP: u64 = 1;
const OBJ_CQ: u64 = 2;
const OBJ_OTHER_QUEUES: [u64; 2] = [4, 8];

pub unsafe fn mlx5dv_init_obj(way: Way, obj: *mut c_void, obj_type: u64) -> c_int {
    let (real, _inside) = real!(way.library, way.library.mlx5dv_init_obj(), (obj, obj_type), libc::ENOSYS);
    // SAFETY: the caller's promise, passed on; of the kinds that it names, the objects are valid.
    unsafe {
        let rc = real(obj, obj_type);
        // A library that looks at its own objects does so for calls of verbs.
        if rc == 0 && !linked::calls_itself(way, Function::mlx5dv_init_obj) {
            guard::run(|| opened_up(&*obj.cast::<Obj>(), obj_type));
        }
        rc
    }
}

fn opened_up(obj: &Obj, obj_type: u64) {
    let (Some(s), objects) = (state::get(), &state::OBJECTS) else { return };
    if obj_type & OBJ_QP != 0
        && let Some(qp) = objects.qps.find(obj.places[0].0.cast::<ibv_qp>())
    {
        s.telemetry.qp_is_opaque(qp);
    }
    if obj_type & OBJ_CQ != 0
        && let Some(cq) = objects.cqs.find(obj.places[1].0.cast::<ibv_cq>())
    {
        s.telemetry.cq_is_opaque(cq);
    }
    s.telemetry.others_are_opaque(OBJ_OTHER_QUEUES.iter().filter(|bit| obj_type & **bit != 0).count() as u64);
}

pub unsafe fn mlx5dv_create_qp(
    way: Way,
    ctx: *mut ibv_context,
    attr: *mut ibv_qp_init_attr_ex,
    own: *mut c_void,
) -> *mut ibv_qp {
    let (real, _inside) = real!(way.library, way.library.mlx5dv_create_qp(), (ctx, attr, own), null_mut());
    // SAFETY: the caller's promise, passed on; the provider has written the granted capabilities.
    unsafe {
        let qp = real(ctx, attr, own);
        guard::run(|| qp_created(qp, &(*attr).cap, (*attr).sq_sig_all != 0, How::asked(&*attr, true)));
        qp
    }
}

pub unsafe fn mlx5dv_devx_obj_create(
    way: Way,
    ctx: *mut ibv_context,
    command: *const c_void,
    bytes: usize,
    answer: *mut c_void,
    answer_bytes: usize,
) -> *mut c_void {
    let real = way.library.mlx5dv_devx_obj_create();
    let (real, _inside) = real!(way.library, real, (ctx, command, bytes, answer, answer_bytes), null_mut());
    // SAFETY: the caller's promise, passed on.
    unsafe {
        let obj = real(ctx, command, bytes, answer, answer_bytes);
        let own = linked::calls_itself(way, Function::mlx5dv_devx_obj_create);
        if !obj.is_null() && bytes >= 2 && !command.is_null() && !own {
            guard::run(|| {
                // A command begins with its opcode.
                let opcode = u16::from_be_bytes(command.cast::<[u8; 2]>().read_unaligned());
                if is_queue(opcode)
                    && let Some((t, _)) = counted(ctx)
                {
                    t.others_are_opaque(1);
                }
            });
        }
        obj
    }
}

/// Whether a command of the device makes something that moves data: CQ, QP, DCT, XRQ, SQ, RQ, RMP. Others make keys,
/// tables and so on.
fn is_queue(opcode: u16) -> bool {
    matches!(opcode, 0x400 | 0x500 | 0x710 | 0x717 | 0x904 | 0x908 | 0x90c)
}

pub unsafe fn efadv_create_qp_ex(
    way: Way,
    ctx: *mut ibv_context,
    attr: *mut ibv_qp_init_attr_ex,
    own: *mut c_void,
    own_bytes: u32,
) -> *mut ibv_qp {
    let real = way.library.efadv_create_qp_ex();
    let (real, _inside) = real!(way.library, real, (ctx, attr, own, own_bytes), null_mut());
    // SAFETY: as in `mlx5dv_create_qp`.
    unsafe {
        let qp = real(ctx, attr, own, own_bytes);
        guard::run(|| qp_created(qp, &(*attr).cap, (*attr).sq_sig_all != 0, How::asked(&*attr, true)));
        qp
    }
}

pub unsafe fn efadv_create_driver_qp(
    way: Way,
    pd: *mut ibv_pd,
    attr: *mut ibv_qp_init_attr,
    driver_qp_type: u32,
) -> *mut ibv_qp {
    let real = way.library.efadv_create_driver_qp();
    let (real, _inside) = real!(way.library, real, (pd, attr, driver_qp_type), null_mut());
    // SAFETY: as in `mlx5dv_create_qp`.
    unsafe {
        let qp = real(pd, attr, driver_qp_type);
        let how = How { send_ops: None, opaque: true };
        guard::run(|| qp_created(qp, &(*attr).cap, (*attr).sq_sig_all != 0, how));
        qp
    }
}

pub unsafe fn efadv_create_cq(
    way: Way,
    ctx: *mut ibv_context,
    attr: *mut ibv_cq_init_attr_ex,
    own: *mut c_void,
    own_bytes: u32,
) -> *mut ibv_cq_ex {
    let real = way.library.efadv_create_cq();
    let (real, _inside) = real!(way.library, real, (ctx, attr, own, own_bytes), null_mut());
    // SAFETY: the caller's promise, passed on.
    unsafe {
        let cq = real(ctx, attr, own, own_bytes);
        guard::run(|| cq_made_by_vendor(ctx, cq));
        cq
    }
}
