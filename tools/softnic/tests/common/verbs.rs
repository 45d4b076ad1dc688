//! The verbs, by way of the library's own C surface: control calls by name, posts and polls through the context's
//! operations, as programs reach them.

use rdma_sys::*;
use softnic::capi::{async_events, cq, device, memory, modify, qp, query, srq};
use std::ptr::null_mut;
use std::time::{Duration, Instant};

/// All rights.
pub const ALL: i32 = 1 | 2 | 4 | 8 | 16;
pub const SIGNALED: u32 = 2;
pub const INLINE: u32 = 8;
pub const FENCE: u32 = 1;

/// An open device, with a domain and a registered buffer.
pub struct Dev {
    pub ctx: *mut ibv_context,
    pub pd: *mut ibv_pd,
    pub mr: *mut ibv_mr,
    pub buf: &'static mut [u8],
}

impl Dev {
    pub fn open(bytes: usize) -> Dev {
        Dev::open_with(bytes, ALL)
    }

    pub fn open_with(bytes: usize, access: i32) -> Dev {
        // SAFETY: a verb, or what one gave, with objects that live as long as the test.
        unsafe {
            let list = device::ibv_get_device_list(null_mut());
            assert!(!list.is_null() && !(*list).is_null(), "a device");
            let ctx = device::ibv_open_device(*list);
            device::ibv_free_device_list(list);
            let pd = memory::ibv_alloc_pd(ctx);
            // On a boundary of 64, so that atomics find theirs.
            let words = Box::leak(vec![0u64; bytes / 8 + 8].into_boxed_slice());
            let buf = core::slice::from_raw_parts_mut(words.as_mut_ptr().cast::<u8>(), bytes);
            let mr = memory::ibv_reg_mr(pd, buf.as_mut_ptr().cast(), bytes, access);
            assert!(!mr.is_null(), "a region");
            Dev { ctx, pd, mr, buf }
        }
    }

    pub fn addr(&self) -> u64 {
        self.buf.as_ptr() as u64
    }

    /// What is in the buffer right now: others write to it.
    pub fn look<const N: usize>(&self, at: usize) -> [u8; N] {
        // SAFETY: a verb, or what one gave, with objects that live as long as the test.
        core::array::from_fn(|i| unsafe { (&raw const self.buf[at + i]).read_volatile() })
    }

    pub fn key(&self) -> u32 {
        // SAFETY: a verb, or what one gave, with objects that live as long as the test.
        unsafe { (*self.mr).lkey }
    }

    pub fn cq(&self, cqe: i32) -> *mut ibv_cq {
        // SAFETY: a verb, or what one gave, with objects that live as long as the test.
        let cq = unsafe { cq::ibv_create_cq(self.ctx, cqe, null_mut(), null_mut(), 0) };
        assert!(!cq.is_null(), "a CQ");
        cq
    }

    pub fn gid(&self, index: i32) -> [u8; 16] {
        let mut gid = ibv_gid { raw: [0; 16] };
        // SAFETY: a verb, or what one gave, with objects that live as long as the test.
        assert_eq!(unsafe { query::ibv_query_gid(self.ctx, 1, index, &raw mut gid) }, 0);
        // SAFETY: a verb, or what one gave, with objects that live as long as the test.
        unsafe { gid.raw }
    }

    pub fn event(&self) -> u32 {
        // SAFETY: a verb, or what one gave, with objects that live as long as the test.
        unsafe {
            let mut e: ibv_async_event = core::mem::zeroed();
            assert_eq!(async_events::ibv_get_async_event(self.ctx, &raw mut e), 0);
            let kind = e.event_type as u32;
            async_events::ibv_ack_async_event(&raw mut e);
            kind
        }
    }
}

/// A QP, and what it is connected by.
#[derive(Clone, Copy)]
pub struct Q {
    pub qp: *mut ibv_qp,
    pub cq: *mut ibv_cq,
    pub recv_cq: *mut ibv_cq,
}

/// How a QP is set up.
#[derive(Clone, Copy)]
pub struct Shape {
    pub kind: u32,
    pub sq: u32,
    pub rq: u32,
    pub sges: u32,
    pub inline: u32,
    pub all_signaled: bool,
    pub srq: *mut ibv_srq,
    pub access: u32,
    pub gid: u8,
    pub timeout: u8,
    pub retries: u8,
    pub rnr_retries: u8,
    pub reads: u8,
}

impl Default for Shape {
    fn default() -> Shape {
        Shape {
            kind: ibv_qp_type::IBV_QPT_RC,
            sq: 64,
            rq: 64,
            sges: 4,
            inline: 128,
            all_signaled: false,
            srq: null_mut(),
            access: 2 | 4 | 8,
            gid: 1,
            timeout: 10,
            retries: 7,
            rnr_retries: 7,
            reads: 4,
        }
    }
}

/// The name of a QP, as its peer needs it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Name {
    pub qpn: u32,
    pub gid: [u8; 16],
    pub addr: u64,
    pub key: u32,
}

impl Name {
    pub fn text(&self) -> String {
        format!("{} {} {} {}", self.qpn, u128::from_be_bytes(self.gid), self.addr, self.key)
    }

    pub fn parse(text: &str) -> Name {
        let f: Vec<_> = text.split(' ').collect();
        Name {
            qpn: f[0].parse().expect("a number"),
            gid: f[1].parse::<u128>().expect("a GID").to_be_bytes(),
            addr: f[2].parse().expect("an address"),
            key: f[3].parse().expect("a key"),
        }
    }
}

impl Q {
    pub fn new(d: &Dev, shape: &Shape) -> Q {
        Q::on(d, shape, d.cq(256), d.cq(256))
    }

    pub fn on(d: &Dev, shape: &Shape, cq: *mut ibv_cq, recv_cq: *mut ibv_cq) -> Q {
        // SAFETY: a verb, or what one gave, with objects that live as long as the test.
        unsafe {
            let mut init: ibv_qp_init_attr = core::mem::zeroed();
            (init.send_cq, init.recv_cq, init.srq) = (cq, recv_cq, shape.srq);
            init.cap.max_send_wr = shape.sq;
            init.cap.max_recv_wr = shape.rq;
            (init.cap.max_send_sge, init.cap.max_recv_sge) = (shape.sges, shape.sges);
            init.cap.max_inline_data = shape.inline;
            init.qp_type = shape.kind;
            init.sq_sig_all = i32::from(shape.all_signaled);
            let qp = qp::ibv_create_qp(d.pd, &raw mut init);
            assert!(!qp.is_null(), "a QP");
            Q { qp, cq, recv_cq }
        }
    }

    pub fn name(&self, d: &Dev, shape: &Shape) -> Name {
        // SAFETY: a verb, or what one gave, with objects that live as long as the test.
        Name { qpn: unsafe { (*self.qp).qp_num }, gid: d.gid(shape.gid.into()), addr: d.addr(), key: d.key() }
    }

    pub fn modify(&self, attr: &mut ibv_qp_attr, mask: u32) -> i32 {
        // SAFETY: a verb, or what one gave, with objects that live as long as the test.
        unsafe { modify::ibv_modify_qp(self.qp, attr, mask.cast_signed()) }
    }

    pub fn to(&self, state: u32) -> i32 {
        // SAFETY: a verb, or what one gave, with objects that live as long as the test.
        let mut a: ibv_qp_attr = unsafe { core::mem::zeroed() };
        a.qp_state = state;
        self.modify(&mut a, 1)
    }

    pub fn state(&self) -> u32 {
        // SAFETY: a verb, or what one gave, with objects that live as long as the test.
        unsafe {
            let (mut a, mut i): (ibv_qp_attr, ibv_qp_init_attr) = core::mem::zeroed();
            assert_eq!(qp::ibv_query_qp(self.qp, &raw mut a, 1, &raw mut i), 0);
            a.qp_state
        }
    }

    /// RESET to INIT.
    pub fn init(&self, shape: &Shape) {
        // SAFETY: a verb, or what one gave, with objects that live as long as the test.
        let mut a: ibv_qp_attr = unsafe { core::mem::zeroed() };
        (a.qp_state, a.port_num, a.qp_access_flags) = (1, 1, shape.access);
        assert_eq!(self.modify(&mut a, 0x39), 0, "INIT");
    }

    /// INIT to RTS, with this peer.
    pub fn connect(&self, shape: &Shape, peer: &Name) {
        // SAFETY: a verb, or what one gave, with objects that live as long as the test.
        let mut a: ibv_qp_attr = unsafe { core::mem::zeroed() };
        let reliable = shape.kind == ibv_qp_type::IBV_QPT_RC;
        (a.qp_state, a.path_mtu, a.dest_qp_num, a.rq_psn) = (2, 3, peer.qpn, 0xff_fff0);
        (a.max_dest_rd_atomic, a.min_rnr_timer) = (shape.reads, 1);
        (a.ah_attr.is_global, a.ah_attr.port_num) = (1, 1);
        (a.ah_attr.grh.dgid.raw, a.ah_attr.grh.sgid_index) = (peer.gid, shape.gid);
        assert_eq!(self.modify(&mut a, if reliable { 0x12_9181 } else { 0x10_1181 }), 0, "RTR");
        (a.qp_state, a.sq_psn, a.timeout, a.retry_cnt) = (3, 0xff_fff0, shape.timeout, shape.retries);
        (a.rnr_retry, a.max_rd_atomic) = (shape.rnr_retries, shape.reads);
        assert_eq!(self.modify(&mut a, if reliable { 0x1_2e01 } else { 0x1_0001 }), 0, "RTS");
    }

    /// Both of two QPs of one process.
    pub fn pair(d: &Dev, shapes: [&Shape; 2]) -> [Q; 2] {
        let q = shapes.map(|s| Q::new(d, s));
        q[0].init(shapes[0]);
        q[1].init(shapes[1]);
        q[0].connect(shapes[0], &q[1].name(d, shapes[1]));
        q[1].connect(shapes[1], &q[0].name(d, shapes[0]));
        q
    }

    pub fn post(&self, wr: &mut ibv_send_wr) -> i32 {
        // SAFETY: a verb, or what one gave, with objects that live as long as the test.
        unsafe {
            let mut bad = null_mut();
            let post = (*(*self.qp).context).ops.post_send.expect("it can");
            post(self.qp, wr, &raw mut bad)
        }
    }

    pub fn receive(&self, id: u64, sges: &mut [ibv_sge]) -> i32 {
        // SAFETY: a verb, or what one gave, with objects that live as long as the test.
        unsafe {
            let mut wr: ibv_recv_wr = core::mem::zeroed();
            (wr.wr_id, wr.sg_list, wr.num_sge) = (id, sges.as_mut_ptr(), sges.len() as i32);
            let mut bad = null_mut();
            let post = (*(*self.qp).context).ops.post_recv.expect("it can");
            post(self.qp, &raw mut wr, &raw mut bad)
        }
    }

    pub fn poll(&self, cq: *mut ibv_cq) -> Option<ibv_wc> {
        poll(cq)
    }

    /// The next completion of a send, within 20 s.
    pub fn sent(&self) -> ibv_wc {
        wait(self.cq)
    }

    /// The next completion of a receive.
    pub fn received(&self) -> ibv_wc {
        wait(self.recv_cq)
    }

    pub fn destroy(self) {
        // SAFETY: a verb, or what one gave, with objects that live as long as the test.
        assert_eq!(unsafe { qp::ibv_destroy_qp(self.qp) }, 0);
    }
}

pub fn poll(cq: *mut ibv_cq) -> Option<ibv_wc> {
    // SAFETY: a verb, or what one gave, with objects that live as long as the test.
    unsafe {
        let mut wc: ibv_wc = core::mem::zeroed();
        let n = (*(*cq).context).ops.poll_cq.expect("it can")(cq, 1, &raw mut wc);
        assert!(n >= 0, "poll: {n}");
        (n == 1).then_some(wc)
    }
}

pub fn wait(cq: *mut ibv_cq) -> ibv_wc {
    let until = Instant::now() + Duration::from_secs(20);
    loop {
        if let Some(wc) = poll(cq) {
            return wc;
        }
        assert!(Instant::now() < until, "no completion");
        std::thread::yield_now();
    }
}

pub fn sge(addr: u64, length: u32, lkey: u32) -> ibv_sge {
    ibv_sge { addr, length, lkey }
}

/// A send WR of an opcode.
pub fn wr(id: u64, opcode: u32, flags: u32, sges: &mut [ibv_sge]) -> ibv_send_wr {
    // SAFETY: a verb, or what one gave, with objects that live as long as the test.
    let mut w: ibv_send_wr = unsafe { core::mem::zeroed() };
    (w.wr_id, w.opcode, w.send_flags) = (id, opcode, flags);
    (w.sg_list, w.num_sge) = (sges.as_mut_ptr(), sges.len() as i32);
    w
}

pub fn rdma(mut w: ibv_send_wr, addr: u64, rkey: u32) -> ibv_send_wr {
    w.wr.rdma = rdma_t { remote_addr: addr, rkey };
    w
}

pub fn atomic(mut w: ibv_send_wr, addr: u64, rkey: u32, compare_add: u64, swap: u64) -> ibv_send_wr {
    w.wr.atomic = atomic_t { remote_addr: addr, compare_add, swap, rkey };
    w
}

pub fn immediate(mut w: ibv_send_wr, imm: u32) -> ibv_send_wr {
    w.imm_data_invalidated_rkey_union.imm_data = imm;
    w
}

pub fn imm_of(wc: &ibv_wc) -> u32 {
    // SAFETY: a verb, or what one gave, with objects that live as long as the test.
    unsafe { wc.imm_data_invalidated_rkey_union.imm_data }
}

pub fn new_srq(d: &Dev, max_wr: u32) -> *mut ibv_srq {
    // SAFETY: a verb, or what one gave, with objects that live as long as the test.
    unsafe {
        let mut init: ibv_srq_init_attr = core::mem::zeroed();
        (init.attr.max_wr, init.attr.max_sge) = (max_wr, 2);
        let srq = srq::ibv_create_srq(d.pd, &raw mut init);
        assert!(!srq.is_null(), "an SRQ");
        srq
    }
}

pub fn srq_receive(srq: *mut ibv_srq, id: u64, sges: &mut [ibv_sge]) -> i32 {
    // SAFETY: a verb, or what one gave, with objects that live as long as the test.
    unsafe {
        let mut wr: ibv_recv_wr = core::mem::zeroed();
        (wr.wr_id, wr.sg_list, wr.num_sge) = (id, sges.as_mut_ptr(), sges.len() as i32);
        let mut bad = null_mut();
        (*(*srq).context).ops.post_srq_recv.expect("it can")(srq, &raw mut wr, &raw mut bad)
    }
}

pub fn srq_limit(srq: *mut ibv_srq, limit: u32) {
    // SAFETY: a verb, or what one gave, with objects that live as long as the test.
    unsafe {
        let mut a: ibv_srq_attr = core::mem::zeroed();
        a.srq_limit = limit;
        assert_eq!(srq::ibv_modify_srq(srq, &raw mut a, 2), 0);
    }
}
