//! `trtop replay`: the screens of the live view, from a recording.

use crate::app::App;
use crate::cli::{At, ReplayArgs};
use crate::error::Outcome;
use crate::feed::{Ask, Source, Want};
use crate::frame::{Frame, RowId};
use crate::keys::Seek;
use crate::live;
use crate::recording::player::Player;
use crate::sampler::Sampler;
use crate::ui::theme::Theme;
use std::path::PathBuf;
use std::time::{Duration, Instant};

const NS: f64 = 1e9;
const DAY_S: f64 = 86400.0;
/// Slowest and fastest.
const SPEEDS: (f64, f64) = (1.0 / 64.0, 1024.0);
/// Refreshes before the moment that one goes to, which rates and sparklines are of.
const BEFORE: u32 = 40;

/// Replays.
///
/// # Errors
/// The recording cannot be read, or there is no terminal.
pub fn run(o: &ReplayArgs) -> Outcome {
    let player = Player::open(&o.file)?;
    live::needs_terminal("a replay", "trtop export")?;
    let mut app = App::new(Duration::from_secs(1), Theme::from_environment());
    app.paused = o.pause;
    let mut replay = Replay::new(player, &o.file, &o.pid, o.speed);
    if let Some(at) = o.at {
        replay.time_ns = replay.moment(at);
    }
    app.replay = Some(replay.position());
    live::show(replay, app, o.every)
}

/// Where a replay is.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Position {
    /// The recording's file name.
    pub file: String,
    /// Since its first frame, s.
    pub at_s: f64,
    /// From its first frame to its last, s.
    pub length_s: f64,
    /// So many times as fast as it was.
    pub speed: f64,
}

impl Position {
    /// For a header of this width.
    pub fn text(&self, width: u16) -> String {
        let file = if width >= 100 { format!(" {}", self.file) } else { String::new() };
        let end = if self.at_s >= self.length_s { " END" } else { "" };
        let speed = if self.speed == 1.0 { String::new() } else { format!(" x{}", self.speed) };
        format!("REPLAY{file} {} of {}{speed}{end}", clock(self.at_s), clock(self.length_s))
    }
}

/// Minutes, seconds and tenths.
fn clock(s: f64) -> String {
    let tenths = (s * 10.0).max(0.0) as u64;
    format!("{}:{:02}.{}", tenths / 600, tenths / 10 % 60, tenths % 10)
}

/// A recording as it is shown.
pub struct Replay {
    player: Player,
    path: PathBuf,
    pids: Vec<u32>,
    sampler: Sampler,
    /// The moment shown, CLOCK_REALTIME of the recording.
    time_ns: u64,
    /// The frame shown.
    shown: Option<usize>,
    /// When time went on last.
    moved: Instant,
    speed: f64,
}

impl Replay {
    /// From the start.
    pub fn new(player: Player, path: &std::path::Path, pids: &[u32], speed: f64) -> Replay {
        let sampler = Sampler::of_recording(player.stage().dir(), pids, &player.index().about.host);
        let time_ns = player.frames()[0].time_ns;
        Replay {
            player,
            path: path.into(),
            pids: pids.into(),
            sampler,
            time_ns,
            shown: None,
            moved: Instant::now(),
            speed,
        }
    }

    fn ends(&self) -> (u64, u64) {
        let frames = self.player.frames();
        (frames[0].time_ns, frames[frames.len() - 1].time_ns)
    }

    fn position(&self) -> Position {
        let (first, end) = self.ends();
        Position {
            file: self.path.file_name().unwrap_or_default().to_string_lossy().into_owned(),
            at_s: self.time_ns.saturating_sub(first) as f64 / NS,
            length_s: end.saturating_sub(first) as f64 / NS,
            speed: self.speed,
        }
    }

    /// A moment of the recording; one before or after it is its first or last.
    fn moment(&self, at: At) -> u64 {
        let (first, last) = self.ends();
        let time = match at {
            At::Seconds(s) if s.is_sign_negative() => moved(last, s),
            At::Seconds(s) => moved(first, s),
            At::OfDay(s) => moved(first, (s - first as f64 / NS % DAY_S).rem_euclid(DAY_S)),
        };
        time.clamp(first, last.max(first))
    }

    /// Goes where it is told to. Whether it is to go there at once, not as time passes.
    fn obey(&mut self, seeks: Vec<Seek>) -> bool {
        let (first, last) = self.ends();
        let mut sought = false;
        for s in seeks {
            sought |= !matches!(s, Seek::Slower | Seek::Faster);
            match s {
                Seek::Seconds(n) => self.time_ns = moved(self.time_ns, n as f64).clamp(first, last.max(first)),
                Seek::Frames(n) => {
                    let at = self.player.frame_at(self.time_ns) as i64;
                    let to = (at + n).clamp(0, self.player.frames().len() as i64 - 1);
                    self.time_ns = self.player.frames()[to as usize].time_ns;
                }
                Seek::Start => self.time_ns = first,
                Seek::End => self.time_ns = last,
                Seek::Slower => self.speed = (self.speed / 2.0).max(SPEEDS.0),
                Seek::Faster => self.speed = (self.speed * 2.0).min(SPEEDS.1),
            }
        }
        sought
    }

    /// Shows `frame`, one on from what was shown.
    fn step(&mut self, last: Frame, to: usize, want: Option<RowId>) -> Frame {
        if let Err(e) = self.player.go(to) {
            return Frame { problem: Some(e.message), ..last };
        }
        self.shown = Some(to);
        self.sampler.at(self.player.frames()[to].time_ns);
        let mut frame = self.sampler.sample(last, want);
        frame.denied = self.player.denied() as usize;
        frame.dir = self.path.clone();
        frame
    }

    /// Shows `frame` and, for rates and sparklines, what was before it.
    fn jump(&mut self, to: usize, want: Want) -> Frame {
        self.sampler = Sampler::of_recording(self.player.stage().dir(), &self.pids, &self.player.index().about.host);
        let time = self.player.frames()[to].time_ns;
        let mut frame = Frame::default();
        let mut last = None;
        for n in (1..=BEFORE).rev() {
            let before = self.player.frame_at(moved(time, -(want.every * n).as_secs_f64()));
            if before < to && last != Some(before) {
                last = Some(before);
                frame = self.step(frame, before, want.row);
            }
        }
        self.sampler.view = want.view;
        self.step(frame, to, want.row)
    }
}

fn moved(time_ns: u64, by_s: f64) -> u64 {
    let by = (by_s.abs() * NS) as u64;
    if by_s < 0.0 { time_ns.saturating_sub(by) } else { time_ns.saturating_add(by) }
}

impl Source for Replay {
    fn frame(&mut self, ask: Ask, last: Frame) -> Frame {
        let want = ask.want();
        self.sampler.view = want.view;
        let sought = match ask {
            Ask::Look(_) => return self.sampler.detail(last, want.row),
            Ask::Seek(_, seeks) => self.obey(seeks),
            Ask::Sample(_) => {
                // Not what passed during a pause.
                let passed = self.moved.elapsed().min(want.every.mul_f64(1.5));
                if self.shown.is_some() {
                    let (first, end) = self.ends();
                    self.time_ns = moved(self.time_ns, passed.as_secs_f64() * self.speed).min(end.max(first));
                }
                self.moved = Instant::now();
                false
            }
        };
        if sought {
            self.moved = Instant::now();
        }
        let to = self.player.frame_at(self.time_ns);
        let frame = match self.shown {
            Some(shown) if shown == to => self.sampler.detail(last, want.row),
            Some(shown) if shown < to && !sought => self.step(last, to, want.row),
            _ => self.jump(to, want),
        };
        Frame { replay: Some(self.position()), ..frame }
    }
}
