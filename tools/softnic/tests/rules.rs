//! The rules of the verbs, each by what breaks it: keys, ranges, rights, domains, states, limits; what completes how.

mod common;

use common::play;
use common::verbs::*;
use rdma_sys::{ibv_qp_type, ibv_wc_status::*, ibv_wr_opcode::*};
use softnic::capi::{memory, qp};

fn alone(name: &str, part: &dyn Fn()) {
    play(name, "", &[&|_| part()]);
}

/// What a WRITE that breaks a rule completes with, and what becomes of the two QPs.
fn refused(d: &Dev, shapes: [&Shape; 2], w: &dyn Fn(&mut rdma_sys::ibv_send_wr)) -> (u32, [u32; 2]) {
    let q = Q::pair(d, shapes);
    let mut s = [sge(d.addr(), 64, d.key())];
    let mut one = rdma(wr(1, IBV_WR_RDMA_WRITE, SIGNALED, &mut s), d.addr() + 1024, d.key());
    w(&mut one);
    assert_eq!(q[0].post(&mut one), 0);
    let status = q[0].sent().status;
    // The peer's error is seen to by its owner's next poll.
    let _ = poll(q[1].cq);
    (status, [q[0].state(), q[1].state()])
}

const ERR: u32 = 6;
const RTS: u32 = 3;

#[test]
fn a_remote_key_is_checked() {
    alone("a_remote_key_is_checked", &|| {
        let d = Dev::open(4096);
        let s = Shape::default();
        let key = d.key();
        let end = d.addr() + 4096;
        // SAFETY: the union's member of a WRITE.
        let with = |addr: u64, rkey: u32| {
            move |w: &mut rdma_sys::ibv_send_wr| w.wr.rdma = rdma_sys::rdma_t { remote_addr: addr, rkey }
        };
        assert_eq!(refused(&d, [&s, &s], &with(end - 64, key)), (IBV_WC_SUCCESS, [RTS, RTS]));
        for (addr, rkey) in [
            (end - 63, key),
            (end, key),
            (d.addr() - 1, key),
            (u64::MAX - 8, key),
            (d.addr(), key + 1),
            (d.addr(), 0),
            (d.addr(), !0),
        ] {
            assert_eq!(
                refused(&d, [&s, &s], &with(addr, rkey)),
                (IBV_WC_REM_ACCESS_ERR, [ERR, ERR]),
                "{addr:x} {rkey:x}"
            );
        }
        // A region without the right, and one of another domain.
        // SAFETY: the buffer lives as long as the process.
        let (readable, foreign) = unsafe {
            let other = memory::ibv_alloc_pd(d.ctx);
            let at = d.buf.as_ptr().cast_mut().cast();
            ((*memory::ibv_reg_mr(d.pd, at, 4096, 4)).rkey, (*memory::ibv_reg_mr(other, at, 4096, ALL)).rkey)
        };
        for rkey in [readable, foreign] {
            assert_eq!(refused(&d, [&s, &s], &with(d.addr(), rkey)).0, IBV_WC_REM_ACCESS_ERR);
        }
        // A QP without the right.
        let none = Shape { access: 4, ..s };
        assert_eq!(refused(&d, [&s, &none], &with(d.addr(), key)).0, IBV_WC_REM_ACCESS_ERR);
        // Nothing is checked if nothing is written.
        assert_eq!(
            refused(&d, [&s, &s], &|w| {
                w.num_sge = 0;
                w.wr.rdma = rdma_sys::rdma_t { remote_addr: 1, rkey: 5 }
            })
            .0,
            IBV_WC_SUCCESS
        );
    });
}

#[test]
fn a_local_key_is_checked() {
    alone("a_local_key_is_checked", &|| {
        let d = Dev::open(4096);
        let s = Shape::default();
        for (addr, key) in [(d.addr() + 4090, d.key()), (d.addr(), d.key() + 256), (d.addr() - 1, d.key())] {
            let mut list = [sge(addr, 64, key)];
            let at = list.as_mut_ptr() as usize;
            assert_eq!(refused(&d, [&s, &s], &|w| w.sg_list = at as *mut _), (IBV_WC_LOC_PROT_ERR, [ERR, RTS]));
        }
        // A read writes locally.
        // SAFETY: the buffer lives as long as the process.
        let fixed = unsafe { (*memory::ibv_reg_mr(d.pd, d.buf.as_ptr().cast_mut().cast(), 4096, 0)).lkey };
        let mut list = [sge(d.addr(), 64, fixed)];
        let at = list.as_mut_ptr() as usize;
        assert_eq!(refused(&d, [&s, &s], &|w| w.sg_list = at as *mut _).0, IBV_WC_SUCCESS);
        assert_eq!(
            refused(&d, [&s, &s], &|w| {
                w.sg_list = at as *mut _;
                w.opcode = IBV_WR_RDMA_READ
            })
            .0,
            IBV_WC_LOC_PROT_ERR
        );
    });
}

#[test]
fn a_receive_must_be_long_enough() {
    alone("a_receive_must_be_long_enough", &|| {
        let d = Dev::open(4096);
        let s = Shape::default();
        let q = Q::pair(&d, [&s, &s]);
        assert_eq!(q[1].receive(5, &mut [sge(d.addr(), 10, d.key()), sge(d.addr() + 64, 10, d.key())]), 0);
        assert_eq!(q[1].receive(6, &mut []), 0);
        assert_eq!(q[0].post(&mut wr(1, IBV_WR_SEND, SIGNALED, &mut [sge(d.addr() + 2048, 21, d.key())])), 0);
        assert_eq!(q[0].sent().status, IBV_WC_REM_INV_REQ_ERR);
        let (first, second) = (q[1].received(), q[1].received());
        assert_eq!(
            [(first.wr_id, first.status), (second.wr_id, second.status)],
            [(5, IBV_WC_LOC_LEN_ERR), (6, IBV_WC_WR_FLUSH_ERR)]
        );
        assert_eq!(q[1].state(), ERR);
    });
}

#[test]
fn a_bad_receive_is_its_owners_fault() {
    alone("a_bad_receive_is_its_owners_fault", &|| {
        let d = Dev::open(4096);
        let s = Shape::default();
        let q = Q::pair(&d, [&s, &s]);
        assert_eq!(q[1].receive(5, &mut [sge(d.addr(), 64, d.key() + 512)]), 0);
        assert_eq!(q[0].post(&mut wr(1, IBV_WR_SEND, SIGNALED, &mut [sge(d.addr(), 64, d.key())])), 0);
        assert_eq!(q[0].sent().status, IBV_WC_REM_OP_ERR);
        assert_eq!(q[1].received().status, IBV_WC_LOC_PROT_ERR);
    });
}

#[test]
fn rnr_retries_end() {
    alone("rnr_retries_end", &|| {
        let d = Dev::open(4096);
        let s = Shape { rnr_retries: 2, ..Shape::default() };
        let q = Q::pair(&d, [&s, &s]);
        assert_eq!(q[0].post(&mut wr(1, IBV_WR_SEND, 0, &mut [])), 0);
        assert_eq!(q[0].post(&mut wr(2, IBV_WR_SEND, 0, &mut [])), 0);
        let (a, b) = (q[0].sent(), q[0].sent());
        assert_eq!(
            [(a.wr_id, a.status), (b.wr_id, b.status)],
            [(1, IBV_WC_RNR_RETRY_EXC_ERR), (2, IBV_WC_WR_FLUSH_ERR)]
        );
        // The peer knows nothing of it.
        assert_eq!([q[0].state(), q[1].state()], [ERR, RTS]);
    });
}

#[test]
fn a_late_receive_is_waited_for_without_anybody_polling() {
    alone("a_late_receive_is_waited_for_without_anybody_polling", &|| {
        let d = Dev::open(4096);
        let s = Shape::default();
        let q = Q::pair(&d, [&s, &s]);
        d.buf[..4].copy_from_slice(b"late");
        assert_eq!(
            q[0].post(&mut immediate(wr(1, IBV_WR_SEND_WITH_IMM, SIGNALED, &mut [sge(d.addr(), 4, d.key())]), 77)),
            0
        );
        assert!(q[1].poll(q[1].recv_cq).is_none());
        assert_eq!(q[1].receive(9, &mut [sge(d.addr() + 100, 64, d.key())]), 0);
        // The engine's thread is the only one that is left to do it.
        let until = std::time::Instant::now() + std::time::Duration::from_secs(5);
        while d.look(100) != *b"late" {
            assert!(std::time::Instant::now() < until, "it never came");
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        let r = q[1].received();
        assert_eq!((r.wr_id, r.status, r.byte_len, imm_of(&r), r.wc_flags), (9, IBV_WC_SUCCESS, 4, 77, 2));
        assert_eq!(q[0].sent().status, IBV_WC_SUCCESS);
    });
}

#[test]
fn error_flushes_in_order() {
    alone("error_flushes_in_order", &|| {
        let d = Dev::open(4096);
        let s = Shape::default();
        let q = Q::pair(&d, [&s, &s]);
        for id in 0..5 {
            assert_eq!(q[0].receive(100 + id, &mut []), 0);
            // Nothing is there to take them.
            assert_eq!(q[0].post(&mut wr(id, IBV_WR_SEND, 0, &mut [])), 0);
        }
        assert_eq!(q[0].to(ERR), 0);
        assert_eq!(q[0].post(&mut wr(5, IBV_WR_SEND, 0, &mut [])), 0);
        assert_eq!(q[0].receive(105, &mut []), 0);
        for id in 0..6 {
            let (a, b) = (q[0].sent(), q[0].received());
            assert_eq!(
                [(a.wr_id, a.status), (b.wr_id, b.status)],
                [(id, IBV_WC_WR_FLUSH_ERR), (100 + id, IBV_WC_WR_FLUSH_ERR)]
            );
        }
        assert_eq!(q[0].to(0), 0);
        assert!(q[0].poll(q[0].cq).is_none());
    });
}

#[test]
fn states_allow_what_they_allow() {
    alone("states_allow_what_they_allow", &|| {
        let d = Dev::open(4096);
        let s = Shape::default();
        let q = Q::new(&d, &s);
        assert_eq!(q.post(&mut wr(1, IBV_WR_SEND, 0, &mut [])), libc::EINVAL);
        assert_eq!(q.receive(1, &mut []), libc::EINVAL);
        assert_eq!(q.to(RTS), libc::EINVAL);
        q.init(&s);
        assert_eq!(q.receive(1, &mut []), 0);
        assert_eq!(q.post(&mut wr(1, IBV_WR_SEND, 0, &mut [])), libc::EINVAL);
        assert_eq!(q.to(2), libc::EINVAL);
        q.connect(&s, &q.name(&d, &s));
        // To itself.
        assert_eq!(q.post(&mut wr(2, IBV_WR_SEND, SIGNALED, &mut [])), 0);
        assert_eq!((q.sent().wr_id, q.received().wr_id), (2, 1));
        q.destroy();
    });
}

#[test]
fn limits_are_kept() {
    alone("limits_are_kept", &|| {
        let d = Dev::open(4096);
        let s = Shape { sq: 2, rq: 2, sges: 2, inline: 16, ..Shape::default() };
        let q = Q::pair(&d, [&s, &s]);
        let mut three = [sge(d.addr(), 1, d.key()); 3];
        assert_eq!(q[0].post(&mut wr(1, IBV_WR_SEND, 0, &mut three)), libc::EINVAL);
        assert_eq!(q[1].receive(1, &mut three), libc::EINVAL);
        assert_eq!(q[0].post(&mut wr(1, IBV_WR_SEND, INLINE, &mut [sge(d.addr(), 17, 0)])), libc::EINVAL);
        for id in 0..3 {
            let full = if id < 2 { 0 } else { libc::ENOMEM };
            assert_eq!(q[1].receive(id, &mut []), full);
            assert_eq!(q[0].post(&mut wr(id, IBV_WR_SEND, SIGNALED, &mut [])), full);
        }
        // A slot is free once its completion was polled.
        assert_eq!((q[0].sent().wr_id, q[1].received().wr_id), (0, 0));
        assert_eq!(q[1].receive(3, &mut []), 0);
        assert_eq!(q[0].post(&mut wr(3, IBV_WR_SEND, SIGNALED, &mut [])), 0);
        // SAFETY: a plain C struct, of which zeros are a value.
        let mut init: rdma_sys::ibv_qp_init_attr = unsafe { core::mem::zeroed() };
        (init.send_cq, init.recv_cq, init.qp_type) = (q[0].cq, q[0].cq, ibv_qp_type::IBV_QPT_RC);
        init.cap.max_send_wr = 1 << 20;
        // SAFETY: live objects.
        assert!(unsafe { qp::ibv_create_qp(d.pd, &raw mut init) }.is_null());
    });
}

#[test]
fn what_is_in_use_stays() {
    alone("what_is_in_use_stays", &|| {
        let d = Dev::open(4096);
        let s = Shape::default();
        let q = Q::new(&d, &s);
        // SAFETY: live objects.
        unsafe {
            assert_eq!(softnic::capi::cq::ibv_destroy_cq(q.cq), libc::EBUSY);
            assert_eq!(memory::ibv_dealloc_pd(d.pd), libc::EBUSY);
            q.destroy();
            assert_eq!(softnic::capi::cq::ibv_destroy_cq(q.cq), 0);
            assert_eq!(softnic::capi::cq::ibv_destroy_cq(q.recv_cq), 0);
            assert_eq!(memory::ibv_dereg_mr(d.mr), 0);
            assert_eq!(memory::ibv_dealloc_pd(d.pd), 0);
        }
    });
}

#[test]
fn a_cq_that_overruns_says_so() {
    alone("a_cq_that_overruns_says_so", &|| {
        let d = Dev::open(4096);
        let s = Shape::default();
        let q = Q::on(&d, &s, d.cq(2), d.cq(2));
        q.init(&s);
        q.connect(&s, &q.name(&d, &s));
        for id in 0..8 {
            assert_eq!(q.post(&mut wr(id, IBV_WR_RDMA_WRITE, SIGNALED, &mut [])), 0);
        }
        assert_eq!(d.event(), 0);
    });
}

#[test]
fn an_srq_is_shared_and_says_when_it_runs_low() {
    alone("an_srq_is_shared_and_says_when_it_runs_low", &|| {
        let d = Dev::open(8192);
        let srq = new_srq(&d, 16);
        let (s, with) = (Shape::default(), Shape { srq, ..Shape::default() });
        let (a, b) = (Q::pair(&d, [&s, &with]), Q::pair(&d, [&s, &with]));
        for id in 0..4 {
            assert_eq!(srq_receive(srq, id, &mut [sge(d.addr() + 4096 + id * 64, 64, d.key())]), 0);
        }
        srq_limit(srq, 3);
        for (i, q) in [&a[0], &b[0], &a[0]].into_iter().enumerate() {
            d.buf[i] = i as u8 + 1;
            assert_eq!(q.post(&mut wr(9, IBV_WR_SEND, SIGNALED, &mut [sge(d.addr() + i as u64, 1, d.key())])), 0);
            assert_eq!(q.sent().status, IBV_WC_SUCCESS);
        }
        assert_eq!([a[1].received(), b[1].received(), a[1].received()].map(|c| c.wr_id), [0, 1, 2]);
        assert_eq!([0, 1, 2].map(|i| d.buf[4096 + i * 64]), [1, 2, 3]);
        assert_eq!(d.event(), 15);
    });
}

#[test]
fn atomics_change_eight_bytes() {
    alone("atomics_change_eight_bytes", &|| {
        let d = Dev::open(4096);
        let s = Shape::default();
        let q = Q::pair(&d, [&s, &s]);
        let at = d.addr() + 64;
        let word = |d: &Dev, i: usize| u64::from_ne_bytes(d.buf[i..i + 8].try_into().expect("8 bytes"));
        let go = |w: rdma_sys::ibv_send_wr| {
            let mut w = w;
            assert_eq!(q[0].post(&mut w), 0);
            q[0].sent().status
        };
        let mut back = [sge(d.addr(), 8, d.key())];
        assert_eq!(go(atomic(wr(1, IBV_WR_ATOMIC_FETCH_AND_ADD, SIGNALED, &mut back), at, d.key(), 7, 0)), 0);
        assert_eq!((word(&d, 0), word(&d, 64)), (0, 7));
        assert_eq!(go(atomic(wr(1, IBV_WR_ATOMIC_CMP_AND_SWP, SIGNALED, &mut back), at, d.key(), 6, 100)), 0);
        assert_eq!((word(&d, 0), word(&d, 64)), (7, 7));
        assert_eq!(go(atomic(wr(1, IBV_WR_ATOMIC_CMP_AND_SWP, SIGNALED, &mut back), at, d.key(), 7, 100)), 0);
        assert_eq!((word(&d, 0), word(&d, 64)), (7, 100));
        assert_eq!(
            go(atomic(wr(1, IBV_WR_ATOMIC_FETCH_AND_ADD, SIGNALED, &mut back), at + 4, d.key(), 7, 0)),
            IBV_WC_REM_INV_REQ_ERR
        );
    });
}

#[test]
fn a_window_of_type_2_comes_and_goes() {
    alone("a_window_of_type_2_comes_and_goes", &|| {
        let d = Dev::open(4096);
        let s = Shape::default();
        let q = Q::pair(&d, [&s, &s]);
        // SAFETY: live objects; the union's members of a bind.
        let new = unsafe {
            let mw = (*d.ctx).ops.alloc_mw.expect("it can")(d.pd, 2);
            let new = (*mw).rkey + 5;
            let mut w = wr(1, IBV_WR_BIND_MW, SIGNALED, &mut []);
            let info = rdma_sys::ibv_mw_bind_info { mr: d.mr, addr: d.addr() + 256, length: 256, mw_access_flags: 2 };
            w.bind_mw_tso_union.bind_mw = rdma_sys::bind_mw_t { mw, rkey: new, bind_info: info };
            // By the responder: a window serves the QP that it was bound on.
            assert_eq!(q[1].post(&mut w), 0);
            assert_eq!(wait(q[1].cq).status, IBV_WC_SUCCESS);
            assert_eq!((*mw).rkey, new);
            new
        };
        let mut list = [sge(d.addr(), 16, d.key())];
        let mut inside = rdma(wr(2, IBV_WR_RDMA_WRITE, SIGNALED, &mut list), d.addr() + 256, new);
        assert_eq!(q[0].post(&mut inside), 0);
        assert_eq!(q[0].sent().status, IBV_WC_SUCCESS);
        assert_eq!(q[1].receive(7, &mut []), 0);
        assert_eq!(q[0].post(&mut immediate(wr(3, IBV_WR_SEND_WITH_INV, SIGNALED, &mut []), new)), 0);
        let r = q[1].received();
        assert_eq!((r.wr_id, r.wc_flags, imm_of(&r)), (7, 8, new));
        assert_eq!(q[0].sent().status, IBV_WC_SUCCESS);
        assert_eq!(q[0].post(&mut inside), 0);
        assert_eq!(q[0].sent().status, IBV_WC_REM_ACCESS_ERR);
    });
}
