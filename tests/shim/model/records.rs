//! Records of objects that come and go.

use super::*;

/// Objects that come and go for as long as the program runs need no more records than those that exist, and some.
#[test]
fn records_of_destroyed_cqs_are_used_again() {
    let dir = Dir::new();
    let world = World::new(&dir, 1);
    for _ in 0..20_000 {
        world.t.create_cq(world.device, cq_address(50), CQ_SPEC);
        let cq = world.t.hide_cq(cq_address(50)).expect("just made");
        world.t.forget_cq(cq);
    }
    let mut reader = Reader::open(world.t.segment().path()).expect("our segment");
    let s = snapshot::segment(&mut reader, false).expect("our segment");
    assert!(s.cqs.len() <= 2 * RETAINED, "{} records", s.cqs.len());
    assert_nothing_missed(&s);
    world.t.segment().unlink();
}

#[test]
fn records_of_destroyed_srqs_are_used_again_and_the_port_keeps_what_they_dropped() {
    let dir = Dir::new();
    let world = World::new(&dir, 1);
    for _ in 0..20_000 {
        world.t.create_srq(world.device, cq_address(50), no_post, 64, 1);
        let srq = world.t.hide_srq(cq_address(50)).expect("just made");
        let mut element = ibv_sge { addr: 0, length: 100, lkey: 0 };
        let wr = ibv_recv_wr { wr_id: 7, next: core::ptr::null_mut(), sg_list: &mut element, num_sge: 1 };
        // SAFETY: a chain of one.
        unsafe { srq.start(&wr) }.accepted();
        world.t.forget_srq(srq);
    }
    let mut reader = Reader::open(world.t.segment().path()).expect("our segment");
    let s = snapshot::segment(&mut reader, false).expect("our segment");
    assert!(s.srqs.len() <= 2 * RETAINED, "{} records", s.srqs.len());
    let recv = &s.ports[0].line.recv;
    assert_eq!((recv.wr_posted, recv.wr_dropped, recv.wr_outstanding), (20_000, 20_000, 0));
    assert_eq!((recv.bytes_posted, recv.bytes_dropped, recv.bytes_outstanding), (2_000_000, 2_000_000, 0));
    assert_nothing_missed(&s);
    world.t.segment().unlink();
}
