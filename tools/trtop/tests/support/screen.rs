//! Keys pressed and screens drawn, with no terminal.

#![allow(dead_code)] // Each test uses a part of it.

use crate::support::{segment, who};
use ratatui::buffer::Buffer;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::layout::Rect;
use std::path::Path;
use std::time::Duration;
use trtop::app::App;
use trtop::frame::Frame;
use trtop::sampler::Sampler;
use trtop::ui::{self, theme::Theme};

pub fn app() -> App {
    App::new(Duration::from_secs(1), Theme::new(false))
}

pub fn press(a: &mut App, keys: &str) {
    for c in keys.chars() {
        let code = match c {
            '\n' => KeyCode::Enter,
            '\u{1b}' => KeyCode::Esc,
            '\t' => KeyCode::Tab,
            c => KeyCode::Char(c),
        };
        a.key(KeyEvent::new(code, KeyModifiers::NONE));
    }
}

pub fn draw(a: &mut App, frame: &Frame, width: u16, height: u16) -> Buffer {
    let area = Rect::new(0, 0, width, height);
    let mut buf = Buffer::empty(area);
    ui::draw(area, &mut buf, a, frame);
    buf
}

pub fn lines(buf: &Buffer) -> Vec<String> {
    (0..buf.area.height)
        .map(|y| (0..buf.area.width).map(|x| buf[(x, y)].symbol()).collect::<String>().trim_end().to_string())
        .collect()
}

pub fn screen(a: &mut App, frame: &Frame, width: u16, height: u16) -> Vec<String> {
    lines(&draw(a, frame, width, height))
}

/// The line that holds `text`, which must be there.
pub fn line<'a>(screen: &'a [String], text: &str) -> &'a str {
    screen.iter().find(|l| l.contains(text)).unwrap_or_else(|| panic!("no {text:?} in\n{}", screen.join("\n")))
}

/// Two processes; the first has traffic between the two refreshes that are taken `ms` apart by the frame's own clock.
pub fn busy(dir: &Path) -> (Sampler, Frame) {
    let a = segment(dir, &who(4000, "ib_write_bw -d mlx5_0 node8", Some(3)), 4);
    let b = segment(dir, &who(4001, "python train.py", None), 2);
    a.traffic(0, 10, 65536, 4, 3000);
    let mut sampler = Sampler::new(dir, &[]);
    let frame = sampler.sample(Frame::default(), None);
    a.traffic(0, 1000, 65536, 998, 3000);
    a.failure(2, 12, 1 << 20);
    let mut frame = sampler.sample(frame, None);
    // As if exactly a tenth of a second had passed.
    for p in &mut frame.processes {
        p.interval_s = 0.1;
    }
    // Both live on until the test's process ends.
    std::mem::forget((a, b));
    (sampler, frame)
}
