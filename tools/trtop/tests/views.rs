//! What the views besides ports, QPs, peers and paths show, and other ways to look at those: matrix, charts, ranks, the mouse.

#[path = "support/screen.rs"]
mod screen;
mod support;

use ratatui::crossterm::event::KeyModifiers;
use screen::{app, busy, draw, line, press, screen};
use support::{connected, segment, who};
use trtop::app::App;
use trtop::frame::Frame;
use trtop::rows::View;
use trtop::sampler::Sampler;

#[test]
fn latency_has_percentiles_of_ports_and_peers_and_a_histogram() {
    let dir = tempfile::tempdir().unwrap();
    let (mut sampler, frame) = busy(dir.path());
    let mut a = app();
    press(&mut a, "5");
    sampler.view = a.view;
    let frame = sampler.detail(frame, None);
    let s = screen(&mut a, &frame, 80, 24);
    assert_eq!(
        s[3],
        "    PID PORT     PEER              TIMED     P50     P90     P99   P99.9     MAX",
        "{}",
        s.join("\n")
    );
    assert_eq!(
        s[4].split_whitespace().take(6).collect::<Vec<_>>(),
        ["4000", "mlx5_0:1", "-", "2", "2.56", "us"],
        "{}",
        s[4]
    );
    line(&s, "latency, 2 in the highest");
    line(&s, "████");
    let s = screen(&mut a, &frame, 200, 60);
    assert!(s[3].contains("P99.9") && s[3].contains("COMMAND"), "{}", s[3]);
    let peer = s[4..].iter().find(|l| l.contains(" 10.0.0.1 ")).unwrap();
    assert!(peer.contains("3.00 us"), "{peer}");
}

#[test]
fn errors_lists_what_failed_and_what_stands_still() {
    let dir = tempfile::tempdir().unwrap();
    let (mut sampler, mut frame) = busy(dir.path());
    let mut a = app();
    press(&mut a, "6");
    sampler.view = a.view;
    frame = sampler.sample(frame, None);
    let s = screen(&mut a, &frame, 80, 24);
    assert!(line(&s, " 1002 ").contains("RETRY_EXC_ERR"), "{}", s.join("\n"));
    // The refresh says that two minutes have passed, in which nothing completed.
    for p in &mut frame.processes {
        p.take_stock(frame.realtime_ns + 125_000_000_000);
    }
    for (w, h) in [(80, 24), (200, 60)] {
        let s = screen(&mut a, &frame, w, h);
        assert!(s[3].contains("STUCK"), "{}", s[3]);
        assert!(s[4].contains(" 1000 ") && s[4].contains(" 2m0"), "{}", s.join("\n"));
        assert!(s[5].contains(" 1002 ") && s[5].contains(" - "), "{}", s[5]);
    }
}

#[test]
fn events_are_there_newest_first() {
    use std::sync::atomic::Ordering::Relaxed;
    let dir = tempfile::tempdir().unwrap();
    let made = segment(dir.path(), &who(4000, "x", Some(3)), 3);
    for (i, status, kind) in [(0u64, 0u64, 0u64), (1, 0, 0), (2, 12, 0), (3, 0, 1), (4, 0, 2)] {
        let e = &made.rings[0].events[i as usize];
        e.end_ns.store((3723 + i) * 1_000_000_000, Relaxed);
        e.bytes.store(65536 << i, Relaxed);
        e.wr_outstanding.store(7, Relaxed);
        e.latency_ns.store(3000, Relaxed);
        e.qp.store(((i % 3) << 32) | (1000 + i % 3), Relaxed);
        e.place.store(((i % 3) << 32) | (status << 8) | kind, Relaxed);
        e.seq.store(2 * (i + 1), Relaxed);
    }
    made.rings[0].head.store(5, Relaxed);
    let mut a = app();
    press(&mut a, "7");
    let mut sampler = Sampler::new(dir.path(), &[]);
    sampler.view = a.view;
    let frame = sampler.sample(Frame::default(), None);
    let s = screen(&mut a, &frame, 80, 24);
    assert_eq!(s[3], "TIME UTC            PID       QP PEER            STATUS          BYTES   OUT", "{}", s[3]);
    assert_eq!(s[4], "01:02:07.000000    4000     1001 10.0.0.2        ENDED 3.00 us 1.05 MB     7");
    assert_eq!(s[5], "01:02:06.000000    4000     1000 10.0.0.1        STALL 3.00 us  524 kB     7");
    assert_eq!(s[6], "01:02:05.000000    4000     1002 10.0.0.3        RETRY_EXC_ERR  262 kB     7");
    assert_eq!(s[8], "01:02:03.000000    4000     1000 10.0.0.1        SUCCESS       65.5 kB     7");
    line(&s, "the newest 5 of 5 events");
    let s = screen(&mut a, &frame, 200, 60);
    assert!(s[8].ends_with(" 3.00 us") && s[8].contains("mlx5_0:1"), "{}", s[8]);
    press(&mut a, "/1001\n");
    let s = screen(&mut a, &frame, 80, 24);
    assert!(s[5].contains(" 1001 ") && !s[6].contains("4000"), "{}", s.join("\n"));
}

#[test]
fn doctor_says_what_the_command_says() {
    let dir = tempfile::tempdir().unwrap();
    let (mut sampler, frame) = busy(dir.path());
    let mut a = app();
    press(&mut a, "8");
    sampler.view = a.view;
    let frame = sampler.sample(frame, None);
    for (w, h) in [(80, 24), (200, 60)] {
        let s = screen(&mut a, &frame, w, h);
        line(&s, "4000 ib_write_bw -d mlx5_0 node8  rank 3");
        line(&s, "everything on them is counted");
    }
}

#[test]
fn peers_are_a_matrix_with_a_line_per_port_and_a_column_per_peer() {
    let dir = tempfile::tempdir().unwrap();
    let (_s, frame) = busy(dir.path());
    let mut a = app();
    press(&mut a, "3m");
    for (w, h) in [(80, 24), (200, 60)] {
        let s = screen(&mut a, &frame, w, h);
        assert!(s[3].contains("10.0.0.1") && s[3].contains("10.0.0.2"), "{}", s[3]);
        assert!(s[4].starts_with("   3   4000 mlx5_0:1") && s[4].contains("5.23 Gb/s"), "{}", s[4]);
        assert!(s[5].contains("mlx5_0:2") && s[5].contains("·"), "{}", s[5]);
    }
    press(&mut a, "m");
    assert!(screen(&mut a, &frame, 80, 24)[3].contains("PEER"));
}

#[test]
fn charts_come_with_the_second_enter() {
    let dir = tempfile::tempdir().unwrap();
    let (mut sampler, mut frame) = busy(dir.path());
    let mut a = app();
    press(&mut a, "2\n\n");
    draw(&mut a, &frame, 80, 24);
    for _ in 0..3 {
        frame = sampler.sample(frame, a.wanted());
    }
    for (w, h) in [(80, 24), (200, 60)] {
        let s = screen(&mut a, &frame, w, h);
        line(&s, "QP 1000 on mlx5_0:1");
        line(&s, " in the highest");
        line(&s, "outstanding WR 8, most 8");
        line(&s, "bandwidth ");
    }
}

#[test]
fn by_rank_the_rows_of_a_rank_stand_together_and_say_it_once() {
    let dir = tempfile::tempdir().unwrap();
    let made: Vec<_> = [(4000, 2), (4001, 0), (4002, 1)]
        .iter()
        .map(|(pid, rank)| segment(dir.path(), &who(*pid, "job", Some(*rank)), 4))
        .collect();
    made[0].traffic(1, 10, 1000, 5, 1);
    let frame = Sampler::new(dir.path(), &[]).sample(Frame::default(), None);
    let mut a = app();
    press(&mut a, "2g");
    let s = screen(&mut a, &frame, 80, 24);
    let pids: Vec<&str> = (4..16).map(|y| s[y][..8].trim()).collect();
    assert_eq!(pids, ["4001", "", "", "", "4002", "", "", "", "4000", "", "", ""], "{}", s.join("\n"));
}

#[test]
fn the_far_end_has_its_rank_and_nccl_says_whom_a_qp_works_for() {
    let dir = tempfile::tempdir().unwrap();
    let _made = connected(dir.path());
    let mut sampler = Sampler::new(dir.path(), &[]);
    let frame = sampler.sample(Frame::default(), None);
    let mut a = app();
    press(&mut a, "2/4000\n");
    let s = screen(&mut a, &frame, 200, 60);
    assert!(s[3].contains("TO-RK NCCL     CH FUNCTION"), "{}", s[3]);
    assert!(line(&s, " 1000 ").contains(" 5 0>1       7 AllReduce"), "{}", s.join("\n"));
    press(&mut a, "\n");
    draw(&mut a, &frame, 80, 24);
    let frame = sampler.sample(frame, a.wanted());
    let s = screen(&mut a, &frame, 120, 24);
    line(&s, "rank 5 at the far end, NCCL communicator 0xabcd, own rank 0, peer's rank 1, channel 7 send, AllReduce");
    let mut a = app();
    press(&mut a, "3");
    let s = screen(&mut a, &frame, 200, 60);
    assert!(s[3].contains("TO-RK"), "{}", s[3]);
    assert!(line(&s, "10.0.0.2 ").contains(" 5 mlx5_0"), "{}", s.join("\n"));
    // Where nobody has a rank, and NCCL says nothing, nothing is said of it.
    let dir = tempfile::tempdir().unwrap();
    segment(dir.path(), &who(4000, "x", None), 2);
    let frame = Sampler::new(dir.path(), &[]).sample(Frame::default(), None);
    let mut a = app();
    press(&mut a, "2");
    let s = screen(&mut a, &frame, 200, 60);
    assert!(!s[3].contains("TO-RK") && !s[3].contains("NCCL"), "{}", s[3]);
}

#[test]
fn hosts_are_told_apart_where_there_are_several() {
    let dir = tempfile::tempdir().unwrap();
    let (_s, mut frame) = busy(dir.path());
    assert!(!screen(&mut app(), &frame, 200, 60)[3].contains("HOST"));
    frame.processes[1].host = "node8".into();
    for view in ["1", "2", "3", "5"] {
        let mut a = app();
        press(&mut a, view);
        let s = screen(&mut a, &frame, 200, 60);
        assert!(s[3].contains("HOST"), "{view}: {}", s[3]);
        assert!(s.iter().any(|l| l.contains("node7")) && s.iter().any(|l| l.contains("node8 ")), "{view}");
    }
}

#[test]
fn a_hidden_column_is_gone_until_all_are_shown() {
    let dir = tempfile::tempdir().unwrap();
    let (_s, frame) = busy(dir.path());
    let mut a = app();
    press(&mut a, "x");
    assert!(!screen(&mut a, &frame, 80, 24)[3].contains("PID"));
    press(&mut a, "X");
    assert!(screen(&mut a, &frame, 80, 24)[3].contains("PID"));
}

#[test]
fn the_mouse_takes_tabs_headings_rows_and_the_wheel() {
    use ratatui::crossterm::event::{MouseButton, MouseEvent, MouseEventKind};
    let dir = tempfile::tempdir().unwrap();
    segment(dir.path(), &who(4000, "x", None), 40);
    let frame = Sampler::new(dir.path(), &[]).sample(Frame::default(), None);
    let mut a = app();
    let mouse = |a: &mut App, kind, (column, row): (u16, u16)| {
        a.click(MouseEvent { kind, column, row, modifiers: KeyModifiers::NONE });
        screen(a, &frame, 80, 24)
    };
    let left = MouseEventKind::Down(MouseButton::Left);
    screen(&mut a, &frame, 80, 24);
    let s = mouse(&mut a, left, (12, 1));
    assert_eq!(a.view, View::Qps);
    let x = s[3].find(" OUT ").unwrap() as u16 + 2;
    mouse(&mut a, left, (x, 3));
    assert_eq!((a.list().sort.by.title(), a.list().sort.descending), ("OUT", true));
    mouse(&mut a, left, (x, 3));
    assert!(!a.list().sort.descending);
    mouse(&mut a, left, (5, 8));
    assert_eq!(a.list().position, 4);
    let s = mouse(&mut a, left, (5, 8));
    assert!(a.detail);
    line(&s, "QP 1004 on mlx5_0:1");
    mouse(&mut a, MouseEventKind::ScrollDown, (5, 8));
    assert_eq!(a.list().position, 7);
    // A click on nothing does nothing.
    mouse(&mut a, left, (79, 23));
    assert_eq!((a.view, a.list().position), (View::Qps, 7));
    // Two clicks before the next screen are two clicks.
    press(&mut a, "\u{1b}");
    screen(&mut a, &frame, 80, 24);
    let click = MouseEvent { kind: left, column: 5, row: 6, modifiers: KeyModifiers::NONE };
    a.click(click);
    a.click(click);
    assert!(a.detail);
}
