//! A replay: the screens of then, wherever one goes.

#[path = "support/recorded.rs"]
mod recorded;
mod support;

use ratatui::buffer::Buffer;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::layout::Rect;
use recorded::{good, written};
use std::time::Duration;
use trtop::app::App;
use trtop::feed::{Ask, Source, Want};
use trtop::frame::Frame;
use trtop::keys::Seek;
use trtop::recording::player::Player;
use trtop::replay::Replay;
use trtop::rows::View;
use trtop::ui::{self, theme::Theme};

/// The screen of a replay.
fn screen(a: &mut App, frame: &Frame) -> Vec<String> {
    let area = Rect::new(0, 0, 80, 24);
    let mut buf = Buffer::empty(area);
    ui::draw(area, &mut buf, a, frame);
    (0..24).map(|y| (0..80).map(|x| buf[(x, y)].symbol()).collect::<String>().trim_end().to_string()).collect()
}

/// What the screen asks of a replay that stands still: to go elsewhere, else what is shown with what is wanted.
fn ask(a: &mut App) -> Ask {
    let want = Want { row: a.wanted(), view: a.view, every: a.every };
    if a.seeks.is_empty() { Ask::Look(want) } else { Ask::Seek(want, std::mem::take(&mut a.seeks)) }
}

#[test]
fn a_replay_draws_the_screens_of_then_wherever_one_goes() {
    let dir = tempfile::tempdir().unwrap();
    let path = written(&dir, &good().0);
    let mut replay = Replay::new(Player::open(&path).unwrap(), &path, &[], 1.0);
    let mut a = App::new(Duration::from_millis(100), Theme::new(false));
    a.paused = true;
    let want = Want { row: None, view: a.view, every: a.every };
    let mut frame = replay.frame(Ask::Sample(want), Frame::default());
    a.replay = frame.replay.clone();
    let s = screen(&mut a, &frame);
    assert!(s[0].contains("1 live") && s[0].contains("REPLAY 0:00.0 of 0:00.7") && s[0].contains("PAUSED"), "{}", s[0]);
    // A frame on: 9 WRs of 64 KiB in 0.1 s, by the recording's clock.
    let mut press = |a: &mut App, code: KeyCode| {
        a.key(KeyEvent::new(code, KeyModifiers::NONE));
        frame = replay.frame(ask(a), std::mem::take(&mut frame));
        a.replay = frame.replay.clone();
        // Which row is selected, only drawing tells.
        screen(a, &frame);
        frame = replay.frame(ask(a), std::mem::take(&mut frame));
        screen(a, &frame)
    };
    let s = press(&mut a, KeyCode::Char('.'));
    assert!(s[0].contains("REPLAY 0:00.1 of 0:00.7"), "{}", s[0]);
    assert!(s[4].contains("mlx5_0:1") && s[4].contains("47.2 Mb/s"), "{}", s[4]);
    let s = press(&mut a, KeyCode::End);
    assert!(s[0].contains("0:00.7 of 0:00.7 END") && s[0].contains("1 live"), "{}", s[0]);
    assert!(s[4].contains("4001"), "{}", s[4]);
    let s = press(&mut a, KeyCode::Char(','));
    assert!(s[0].contains("1 live  1 dead"), "{}", s[0]);
    let s = press(&mut a, KeyCode::Home);
    assert!(s[0].contains("0:00.0 of") && s[0].contains("1 live") && s[4].contains("4000"), "{}", s[0]);
    let s = press(&mut a, KeyCode::Char('>'));
    assert!(s[0].contains("x2"), "{}", s[0]);
    // Details are those of then, too.
    a.view = View::Qps;
    press(&mut a, KeyCode::Char('/'));
    a.filter = "1002".into();
    press(&mut a, KeyCode::Enter);
    press(&mut a, KeyCode::Enter);
    let s = press(&mut a, KeyCode::Char('.'));
    assert!(s.iter().any(|l| l.contains("RETRY_EXC_ERR 2")), "{}", s.join("\n"));
    // So is what other views show; what they cannot know they say.
    a.filter.clear();
    press(&mut a, KeyCode::Esc);
    let s = press(&mut a, KeyCode::Char('6'));
    assert!(s.iter().any(|l| l.contains("1002") && l.contains("RETRY_EXC_ERR")), "{}", s.join("\n"));
    let s = press(&mut a, KeyCode::Char('8'));
    assert!(s.iter().any(|l| l.contains("a recording holds counters")), "{}", s.join("\n"));
    // Left and right are a second of time, which live they have none of.
    let s = press(&mut a, KeyCode::Left);
    assert!(s[0].contains("0:00.0 of"), "{}", s[0]);
}

#[test]
fn a_replay_stands_in_for_a_pause_and_goes_on_after_it() {
    let dir = tempfile::tempdir().unwrap();
    let path = written(&dir, &good().0);
    // So fast that any time at all is its whole length.
    let mut replay = Replay::new(Player::open(&path).unwrap(), &path, &[], 1e9);
    let want = Want { row: None, view: View::Ports, every: Duration::from_millis(100) };
    let first = replay.frame(Ask::Sample(want), Frame::default());
    assert_eq!(first.replay.as_ref().unwrap().at_s, 0.0);
    let looked = replay.frame(Ask::Look(want), first);
    assert_eq!(looked.replay.as_ref().unwrap().at_s, 0.0);
    let slower = replay.frame(Ask::Seek(want, vec![Seek::Slower]), looked);
    let at = slower.replay.as_ref().unwrap();
    assert_eq!((at.at_s, at.speed), (0.0, 5e8));
    let on = replay.frame(Ask::Sample(want), slower).replay.unwrap();
    assert_eq!(on.at_s, on.length_s);
}
