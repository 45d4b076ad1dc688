//! What the live view shows: each list at 80x24 and 200x60, every kind of trouble, and every size of terminal.

#[path = "support/screen.rs"]
mod screen;
mod support;

use ratatui::buffer::Buffer;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::style::{Color, Modifier};
use screen::{app, busy, draw, line, lines, press, screen};
use std::path::Path;
use std::time::Duration;
use support::{segment, who};
use trtop::app::App;
use trtop::frame::Frame;
use trtop::rows::View;
use trtop::sampler::Sampler;
use trtop::ui;
use trtop::ui::theme::Theme;

#[test]
fn ports_at_80x24() {
    let dir = tempfile::tempdir().unwrap();
    let (_s, frame) = busy(dir.path());
    let s = screen(&mut app(), &frame, 80, 24);
    assert_eq!(s.len(), 24);
    assert!(s[0].contains("trtop") && s[0].contains("2 live") && s[0].contains("every 1 s"), "{}", s[0]);
    assert!(s[1].contains("1 Ports") && s[1].contains("sort PID▲"), "{}", s[1]);
    // 998 WRs of 64 KiB in 0.1 s.
    assert_eq!(s[2], " all  send 5.23 Gb/s  recv 0 b/s  9.98k WR/s  outstanding 8 WR 524 kB");
    assert_eq!(s[3], "    PID RANK PORT         QPS      SEND      RECV  WR/s   OUT   OUT-B  HIGH  ERR");
    assert_eq!(s[4], "   4000    3 mlx5_0:1       2 5.23 Gb/s     0 b/s 9.98k     8  524 kB  1000    1");
    assert!(s[5].starts_with("  ib_write_bw -d mlx5_0 node8") && s[5].contains("sent 65.7 MB"), "{}", s[5]);
    assert!(s[5].contains("out") && s[5].contains("bw") && s[5].contains('█'), "{}", s[5]);
    assert_eq!(s[6], "   4000    3 mlx5_0:2       2     0 b/s     0 b/s     0     0     0 B     0    0");
    assert_eq!(s[8], "   4001    - mlx5_0:1       1     0 b/s     0 b/s     0     0     0 B     0    0");
    assert_eq!(s[23], "F1 help  Tab view  / filter  s sort  Space pause  +- rate  Enter more  q quit");
}

#[test]
fn ports_at_200x60_have_one_line_each_with_command_totals_and_sparklines() {
    let dir = tempfile::tempdir().unwrap();
    let (_s, frame) = busy(dir.path());
    let s = screen(&mut app(), &frame, 200, 60);
    for title in
        ["PID", "RANK", "PORT", "QPS", "SEND", "10 s", "OUT-B", "HIGH-B", "SENT", "RCVD", "OUT over time", "COMMAND"]
    {
        assert!(s[3].contains(title), "{title} in {}", s[3]);
    }
    let first = line(&s, "mlx5_0:1");
    assert!(
        first.contains("ib_write_bw -d mlx5_0 node8") && first.contains("65.7 MB") && first.contains('█'),
        "{first}"
    );
    assert_eq!(s.iter().filter(|l| l.contains(" mlx5_0:")).count(), 4);
}

#[test]
fn qps_and_peers_at_both_sizes() {
    let dir = tempfile::tempdir().unwrap();
    let (_s, frame) = busy(dir.path());
    let mut a = app();
    press(&mut a, "\t");
    let s = screen(&mut a, &frame, 80, 24);
    assert_eq!(s[3], "    PID RANK       QP ST   PORT     PEER                 SEND   OUT   OUT-B  ERR");
    assert_eq!(s[4], "   4000    3     1000 RTS  mlx5_0:1 10.0.0.1        5.23 Gb/s     8  524 kB    0");
    assert_eq!(s.iter().filter(|l| l.contains(" RTS ")).count(), 6);
    let s = screen(&mut a, &frame, 200, 60);
    let first = line(&s, " 1000 ");
    assert!(first.contains("RC") && first.contains(" 2000 ") && first.contains("ib_write_bw"), "{first}");

    press(&mut a, "\t");
    let s = screen(&mut a, &frame, 80, 24);
    assert_eq!(s[3], "    PID RANK ST   PEER                PORT          SEND      RECV   OUT   OUT-B");
    assert!(line(&s, "10.0.0.1").contains("5.23 Gb/s"));
    assert!(line(&screen(&mut a, &frame, 200, 60), "10.0.0.1").contains("ib_write_bw"));
}

#[test]
fn paths_come_with_the_first_lane_and_show_each_ones_share() {
    use telereduce::telemetry::lane::LaneIdentity;
    let dir = tempfile::tempdir().unwrap();
    let config = telereduce::config::Config { dir: dir.path().into(), ..Default::default() };
    let clock = Box::leak(Box::new(telereduce::clock::Clock::new()));
    let objects = Box::leak(Box::new(telereduce::telemetry::registry::Objects::new()));
    let who = who(4000, "ib_write_bw", None);
    let t = telereduce::telemetry::registry::Telemetry::new(&config, &who, clock, objects).unwrap();
    let device = t.open_device("mlx5_0", telereduce::shm::layout::Hooked::Linked);
    let mut sampler = Sampler::new(dir.path(), &[]);
    let frame = sampler.sample(Frame::default(), None);
    let mut a = app();
    assert!(!screen(&mut a, &frame, 80, 24)[1].contains("Paths"));

    let gid = |a: u8, b: u8| [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, a, 0, b];
    let lanes: Vec<_> = (0..2)
        .map(|i| LaneIdentity {
            path: i,
            port_num: 1,
            qp_num: 500 + i,
            dest_qp_num: 600 + i,
            local_gid: gid(1, i as u8 + 1),
            remote_gid: gid(2, i as u8 + 1),
        })
        .map(|who| t.create_lane(device, &who).unwrap())
        .collect();
    let frame = sampler.sample(frame, None);
    for (lane, chunks) in lanes.iter().zip([30, 10]) {
        (0..chunks).for_each(|_| lane.posted(100_000));
        (0..chunks).for_each(|_| lane.completed(100_000, 5000, 1));
    }
    lanes[1].posted(100_000);
    let mut frame = sampler.sample(frame, None);
    frame.processes[0].interval_s = 0.1;
    press(&mut a, "1");
    assert!(screen(&mut a, &frame, 80, 24)[1].contains(" 4 Paths "));
    press(&mut a, "4");
    let s = screen(&mut a, &frame, 80, 24);
    assert_eq!(s[3], "    PID PORT     PATH LOCAL             PEER               SEND SHARE   OUT  ERR");
    assert_eq!(s[4], "   4000 mlx5_0:1    0 10.1.0.1          10.2.0.1       240 Mb/s  75 %     0    0");
    assert_eq!(s[5], "   4000 mlx5_0:1    1 10.1.0.2          10.2.0.2      80.0 Mb/s  25 %     1    0");
    press(&mut a, "\n");
    draw(&mut a, &frame, 80, 24);
    let frame = sampler.detail(frame, a.wanted());
    let s = screen(&mut a, &frame, 80, 24);
    line(&s, "lane 0 on mlx5_0:1: 10.1.0.1 -> 10.2.0.1  pid 4000");
    assert!(line(&s, "post-to-poll").contains("30 samples: mean 5.00 us"), "{}", s.join("\n"));
}

/// Four QPs under multi-path: one of three paths, the others of one for different reasons, of which the last is gone.
fn paths(dir: &Path) -> Frame {
    use std::sync::atomic::Ordering::Relaxed;
    use telereduce::multipath::single::Single;
    let made = segment(dir, &who(4000, "ib_write_bw", None), 4);
    let records = made.multipath();
    let reasons = [None, Some(Single::NoShimAtPeer), Some(Single::QpType), Some(Single::TooFewAddresses)];
    for (r, why) in records.iter().zip(reasons) {
        r.single.store(why.map_or(0, Single::code), Relaxed);
    }
    made.traffic(0, 40, 1 << 20, 40, 3000);
    records[0].lanes.store(3, Relaxed);
    let c = &records[0].counters;
    for (counter, n) in [(&c.wr_split, 38), (&c.chunks, 380), (&c.chunks_replayed, 2), (&c.moved.bytes_split, 38 << 20)]
    {
        counter.store(n, Relaxed);
    }
    c.large_passed[telereduce::multipath::plan::Pass::Inline as usize].store(2, Relaxed);
    records[1].lanes_failed_there.store(4, Relaxed);
    made.qps[3].life.store(telereduce::shm::layout::Life::Retired as u32, Relaxed);
    let frame = Sampler::new(dir, &[]).sample(Frame::default(), None);
    std::mem::forget(made);
    frame
}

#[test]
fn qps_of_one_path_are_listed_with_the_paths_and_say_why() {
    let dir = tempfile::tempdir().unwrap();
    let frame = paths(dir.path());
    let mut a = app();
    assert!(screen(&mut a, &frame, 80, 24)[1].contains(" 4 Paths "), "though there are no lanes");
    press(&mut a, "4");
    let s = screen(&mut a, &frame, 80, 24);
    assert!(s[4].contains("no_shim_at_peer") && s[4].contains("10.0.0.2"), "{}", s[4]);
    assert!(s[5].contains("qp_type") && s[5].contains("10.0.0.3"), "{}", s[5]);
    assert!(!s[6].contains("4000"), "neither those of several paths nor those that are gone: {}", s[6]);
    // The second one is selected, found again, and told about.
    press(&mut a, "j\n");
    let s = screen(&mut a, &frame, 200, 60);
    line(&s, "QP 1002 on mlx5_0:1 -> 10.0.0.3 QP 2002");
    line(&s, "one path, qp_type: only RC QPs have several paths");
    press(&mut a, "k");
    let s = screen(&mut a, &frame, 200, 60);
    assert!(line(&s, "one path, no_shim_at_peer: ").contains("start the peer with the library"), "{}", s.join("\n"));
    line(&s, "4 lanes could not be made");
    // The filter knows the reasons.
    press(&mut a, "/qp_ty\n");
    let s = screen(&mut a, &frame, 80, 24);
    assert!(s[4].contains("qp_type") && !s[5].contains("4000"), "{}", s.join("\n"));
}

#[test]
fn the_list_of_qps_says_how_many_lanes_each_has_or_why_it_has_none() {
    let dir = tempfile::tempdir().unwrap();
    let frame = paths(dir.path());
    let mut a = app();
    press(&mut a, "2");
    let s = screen(&mut a, &frame, 220, 60);
    assert!(s[3].contains("LANES ONE PATH"), "{}", s[3]);
    let at = s[3].find("LANES").unwrap();
    let lanes_and_why = |qp: &str| {
        let cells: String = line(&s, qp).chars().skip(at).collect();
        let mut words = cells.split_whitespace().map(String::from);
        (words.next().unwrap(), words.next().unwrap())
    };
    assert_eq!(lanes_and_why(" 1000 "), ("3".into(), "-".into()));
    assert_eq!(lanes_and_why(" 1001 "), ("0".into(), "no_shim_at_peer".into()));
    press(&mut a, "\n");
    draw(&mut a, &frame, 200, 60);
    press(&mut a, "\u{1b}");
    press(&mut a, "\n");
    let s = screen(&mut a, &frame, 200, 60);
    line(&s, "3 lanes; split 38 WR 39.8 MB into 380 chunks (2 sent anew); 2 large WR whole");

    // Where multi-path is off, there are neither the columns nor the view.
    let other = tempfile::tempdir().unwrap();
    let (_s, frame) = busy(other.path());
    let s = screen(&mut a, &frame, 220, 60);
    assert!(!s[3].contains("LANES") && !s[3].contains("ONE PATH") && !s[1].contains("Paths"), "{}", s[3]);
}

#[test]
fn before_the_second_refresh_rates_are_unknown_not_zero() {
    let dir = tempfile::tempdir().unwrap();
    segment(dir.path(), &who(4000, "x", None), 1);
    let frame = Sampler::new(dir.path(), &[]).sample(Frame::default(), None);
    let s = screen(&mut app(), &frame, 80, 24);
    assert_eq!(s[4], "   4000    - mlx5_0:1       1         -         -     -     0     0 B     0    0");
}

#[test]
fn filter_finds_device_peer_qp_command_pid_and_rank() {
    let dir = tempfile::tempdir().unwrap();
    let (_s, frame) = busy(dir.path());
    for (view, text, rows) in [
        ("1", "MLX5", 4),
        ("1", "train", 2),
        ("1", "4000", 2),
        ("1", "rank 3", 2),
        ("1", "nothing like it", 0),
        ("2", "1003", 1),
        ("2", "10.0.0.2", 2),
        ("3", "10.0.0.2", 2),
    ] {
        let mut a = app();
        press(&mut a, view);
        press(&mut a, "/");
        press(&mut a, text);
        press(&mut a, "\n");
        let s = screen(&mut a, &frame, 200, 60);
        let n = s[4..].iter().filter(|l| l.contains(" mlx5_0:")).count();
        assert_eq!(n, rows, "{view} {text}\n{}", s.join("\n"));
        assert!(s[1].contains(&format!("filter {text}")));
        press(&mut a, "\u{1b}");
        assert!(!screen(&mut a, &frame, 200, 60)[1].contains("filter"));
    }
}

#[test]
fn sorting_orders_rows_and_inverts() {
    let dir = tempfile::tempdir().unwrap();
    let (_s, frame) = busy(dir.path());
    let mut a = app();
    let pids = |s: &[String]| -> Vec<String> {
        s[4..].iter().filter(|l| l.contains(" mlx5_0:")).map(|l| l.trim()[..4].to_string()).collect()
    };
    assert_eq!(pids(&screen(&mut a, &frame, 200, 60)), ["4000", "4000", "4001", "4001"]);
    press(&mut a, "I");
    assert_eq!(pids(&screen(&mut a, &frame, 200, 60)), ["4001", "4001", "4000", "4000"]);
}

#[test]
fn the_selection_stays_with_its_row_and_on_the_screen() {
    let dir = tempfile::tempdir().unwrap();
    let made = segment(dir.path(), &who(4000, "x", None), 100);
    let mut sampler = Sampler::new(dir.path(), &[]);
    let frame = sampler.sample(Frame::default(), None);
    let mut a = app();
    let selected = |b: &Buffer| -> String {
        let y =
            (4..b.area.height - 1).find(|y| b[(0, *y)].modifier.contains(Modifier::REVERSED)).expect("a selected row");
        lines(b)[usize::from(y)].split_whitespace().nth(2).unwrap().to_string()
    };
    press(&mut a, "2");
    assert_eq!(selected(&draw(&mut a, &frame, 80, 24)), "1000");
    press(&mut a, "jjjk");
    assert_eq!(selected(&draw(&mut a, &frame, 80, 24)), "1002");
    // Its traffic takes it to the top of the list, the selection goes with it.
    made.traffic(2, 100, 1000, 100, 100);
    made.traffic(50, 100, 9000, 100, 100);
    let frame = sampler.sample(frame, None);
    let b = draw(&mut a, &frame, 80, 24);
    assert_eq!(selected(&b), "1002");
    assert!(lines(&b)[5].contains(" 1002 ") && lines(&b)[4].contains(" 1050 "));
    a.key(KeyEvent::new(KeyCode::End, KeyModifiers::NONE));
    assert_eq!(selected(&draw(&mut a, &frame, 80, 24)), "1099");
    a.key(KeyEvent::new(KeyCode::PageUp, KeyModifiers::NONE));
    assert_eq!(selected(&draw(&mut a, &frame, 80, 24)), "1080");
    a.key(KeyEvent::new(KeyCode::Home, KeyModifiers::NONE));
    assert_eq!(selected(&draw(&mut a, &frame, 80, 24)), "1050");
}

#[test]
fn details_name_opcodes_errors_and_what_the_latency_is() {
    let dir = tempfile::tempdir().unwrap();
    let (mut sampler, frame) = busy(dir.path());
    let mut a = app();
    press(&mut a, "2/1002\n\n");
    draw(&mut a, &frame, 80, 24);
    let frame = sampler.sample(frame, a.wanted());
    let s = screen(&mut a, &frame, 80, 24);
    line(&s, "QP 1002 on mlx5_0:1 -> 10.0.0.3 QP 2002  pid 4000 rank 3 on node7");
    line(&s, "RETRY_EXC_ERR 1");
    line(&s, "RETRY_EXC_ERR vendor 0x81 wr_id 0xabc at ");
    press(&mut a, "\u{1b}\u{1b}1\n");
    draw(&mut a, &frame, 80, 24);
    let frame = sampler.detail(frame, a.wanted());
    let s = screen(&mut a, &frame, 80, 24);
    line(&s, "RDMA_WRITE 1,010 WR 66.2 MB");
    line(&s, "post-to-poll, 1 in 64, 2 samples: mean 3.00 us, p50 ");
}

#[test]
fn processes_come_die_and_go_while_it_runs() {
    let dir = tempfile::tempdir().unwrap();
    let mut sampler = Sampler::new(dir.path(), &[]);
    let mut a = app();
    let frame = sampler.sample(Frame::default(), None);
    line(&screen(&mut a, &frame, 80, 24), "No program under telereduce in ");
    let mut made = segment(dir.path(), &who(4000, "job", None), 1);
    made.traffic(0, 7, 1000, 5, 100);
    let frame = sampler.sample(frame, None);
    assert!(line(&screen(&mut a, &frame, 80, 24), "trtop").contains("1 live"));
    made.die();
    let frame = sampler.sample(frame, None);
    let b = draw(&mut a, &frame, 80, 24);
    let s = lines(&b);
    assert!(s[0].contains("0 live  1 dead"), "{}", s[0]);
    assert!(s[2].contains("outstanding 0 WR 0 B") && s[4].contains(" 2 2.00 kB"), "{}\n{}", s[2], s[4]);
    assert!(s[5].contains("[dead] job") && s[5].contains("sent 5.00 kB"), "{}", s[5]);
    assert!(b[(4, 6)].modifier.contains(Modifier::DIM));
    made.unlink();
    let frame = sampler.sample(frame, None);
    assert!(screen(&mut a, &frame, 80, 24)[0].contains("0 live"));
    // The same number, another process: nothing of the old one remains.
    segment(dir.path(), &who(4000, "next", None), 1);
    let frame = sampler.sample(frame, None);
    assert_eq!(frame.processes[0].interval_s, 0.0);
    line(&screen(&mut a, &frame, 80, 24), "next");
}

#[test]
fn pid_restricts() {
    let dir = tempfile::tempdir().unwrap();
    busy(dir.path());
    let frame = Sampler::new(dir.path(), &[4001]).sample(Frame::default(), None);
    assert_eq!(frame.processes.iter().map(|p| p.pid).collect::<Vec<_>>(), [4001]);
}

#[test]
fn files_that_are_no_segments_are_named_with_what_is_wrong() {
    let dir = tempfile::tempdir().unwrap();
    let (_s, _f) = busy(dir.path());
    let uid = rustix::process::geteuid().as_raw();
    let path = |pid: u32| dir.path().join(format!("telereduce.{uid}.{pid}"));
    let good = std::fs::read(path(4000)).unwrap();
    std::fs::write(path(4100), &good[..20000]).unwrap();
    let mut other = good.clone();
    other[8] = 99;
    std::fs::write(path(4101), &other).unwrap();
    let frame = Sampler::new(dir.path(), &[]).sample(Frame::default(), None);
    let s = screen(&mut app(), &frame, 80, 24);
    assert!(s[0].contains("2 unreadable"), "{}", s[0]);
    assert!(line(&s, &format!("telereduce.{uid}.4100: damaged: ")).contains("region"));
    line(&s, &format!("telereduce.{uid}.4101: segment layout version 99"));
    assert_eq!(frame.processes.len(), 2);
}

#[test]
fn segments_of_other_users_are_counted() {
    let frame = Frame { denied: 2, ..Frame::default() };
    assert!(screen(&mut app(), &frame, 80, 24)[0].contains("2 of other users"));
}

#[test]
fn what_is_not_counted_is_said() {
    let dir = tempfile::tempdir().unwrap();
    let made = segment(dir.path(), &who(4000, "x", None), 1);
    made.header.objects_untracked.store(5, std::sync::atomic::Ordering::Relaxed);
    let frame = Sampler::new(dir.path(), &[]).sample(Frame::default(), None);
    line(&screen(&mut app(), &frame, 80, 24), "pid 4000: 5 objects are not counted");
    made.header.wrs_unseen.store(7, std::sync::atomic::Ordering::Relaxed);
    let frame = Sampler::new(dir.path(), &[]).sample(Frame::default(), None);
    line(&screen(&mut app(), &frame, 80, 24), "pid 4000: 7 WRs were posted to QPs and SRQs that are not counted");
}

#[test]
fn without_colour_no_cell_has_one() {
    let dir = tempfile::tempdir().unwrap();
    let (_s, frame) = busy(dir.path());
    let count = |color: bool| {
        let mut a = App::new(Duration::from_secs(1), Theme::new(color));
        let b = draw(&mut a, &frame, 200, 60);
        b.content.iter().filter(|c| c.fg != Color::Reset || c.bg != Color::Reset).count()
    };
    assert_eq!(count(false), 0);
    assert!(count(true) > 0);
}

#[test]
fn help_lists_every_key_and_column() {
    let mut a = app();
    press(&mut a, "?");
    let s = screen(&mut a, &Frame::default(), 120, 60);
    for k in trtop::keys::KEYS {
        assert!(line(&s, k.help).contains(k.keys));
    }
    for c in ui::columns(View::Ports) {
        line(&s, c.col.meaning());
    }
}

#[test]
fn any_size_of_terminal_is_drawn() {
    let dir = tempfile::tempdir().unwrap();
    let (mut sampler, mut frame) = busy(dir.path());
    let uid = rustix::process::geteuid().as_raw();
    std::fs::write(dir.path().join(format!("telereduce.{uid}.9")), [1; 9000]).unwrap();
    // Open details, help, a filter that is typed: every part of the screen.
    for keys in [
        "1",
        "2",
        "3",
        "1\n",
        "2\n",
        "3\n",
        "?",
        "1/m",
        "2/no such row",
        "3m",
        "5",
        "5\n",
        "6",
        "6\n\n",
        "7",
        "8",
        "2\n\ng",
    ] {
        let mut a = app();
        press(&mut a, keys);
        draw(&mut a, &frame, 80, 24);
        sampler.view = a.view;
        frame = sampler.sample(frame, a.wanted());
        let sizes = (1..=30).flat_map(|w| (1..=30).map(move |h| (w, h)));
        let more = (31..=250).step_by(7).flat_map(|w| [1, 2, 5, 24, 60].map(|h| (w, h)));
        for (w, h) in sizes.chain(more) {
            press(&mut a, "j");
            draw(&mut a, &frame, w, h);
        }
    }
}

#[test]
fn names_of_other_programs_cannot_break_the_screen() {
    let dir = tempfile::tempdir().unwrap();
    let hostile = "\u{1b}[31m\u{7}a\r\n\u{202e}b\u{200b}\u{301}宽字宽字宽字宽字宽字宽字宽字宽字宽字宽字宽字宽字宽字宽字宽字宽字\u{1f468}\u{200d}\u{1f469}";
    segment(dir.path(), &who(4000, hostile, None), 2);
    let mut sampler = Sampler::new(dir.path(), &[]);
    let mut frame = sampler.sample(Frame::default(), None);
    for keys in ["1", "2\n", "3m", "5", "7", "8", "1\n\n"] {
        let mut a = app();
        press(&mut a, keys);
        sampler.view = a.view;
        frame = sampler.detail(frame, a.wanted());
        for w in 20..200 {
            let b = draw(&mut a, &frame, w, 24);
            let bad = |c: char| c.is_control() || matches!(c, '\u{200b}' | '\u{202e}');
            for y in 0..24 {
                let mut x = 0;
                while x < w {
                    let symbol = b[(x, y)].symbol();
                    assert!(!symbol.contains(bad), "{symbol:?} at {x},{y} of {w}");
                    x += (ratatui::text::Span::raw(symbol).width() as u16).max(1);
                }
                assert_eq!(x, w, "line {y} of {keys} is wider than the screen");
            }
        }
    }
}
