//! Charts: a latency histogram, and the past of a number.

use super::theme::Theme;
use super::{put, take_bottom, take_top};
use crate::units::latency;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::widgets::{Sparkline, Widget};
use std::collections::VecDeque;
use telereduce::shm::snapshot::LatencyJson;
use telereduce::telemetry::histogram::{bucket, lower_bound};

/// Bars of samples per bucket, from the smallest latency to the largest, with the bounds of both below.
pub fn histogram(area: Rect, buf: &mut Buffer, l: &LatencyJson, t: Theme) {
    let mut rest = area;
    let title = take_top(&mut rest, 1);
    let axis = take_bottom(&mut rest, 1);
    let (Some((first, _)), Some((last, _))) = (l.buckets.first(), l.buckets.last()) else {
        put(buf, title, title.x, " latency: nothing was timed yet", t.label());
        return;
    };
    let (low, high) = (bucket(*first), bucket(*last).max(bucket(*first)));
    let mut samples = vec![0u64; high - low + 1];
    for (bound, n) in &l.buckets {
        if let Some(s) = bucket(*bound).checked_sub(low).and_then(|i| samples.get_mut(i)) {
            *s = s.saturating_add(*n);
        }
    }
    let most = samples.iter().copied().max().unwrap_or(0);
    put(buf, title, title.x, &format!(" latency, {} in the highest", crate::units::count(most)), t.label());
    let wide = (usize::from(area.width.saturating_sub(2)) / samples.len()).clamp(1, 8);
    let bars: Vec<u64> =
        samples.iter().flat_map(|n| std::iter::repeat_n(visible(*n, most, rest.height), wide)).collect();
    let inside = Rect { x: rest.x + 1, width: rest.width.saturating_sub(1), ..rest };
    let drawn = inside.width.min(bars.len() as u16);
    Sparkline::default().data(&bars).max(SCALE).style(t.spark_rate()).render(Rect { width: drawn, ..inside }, buf);
    put(buf, axis, axis.x + 1, &latency(lower_bound(low)), t.label());
    let end = latency(l.max_ns.unwrap_or(0));
    let right = inside.x.saturating_add(drawn).max(axis.x + 12).saturating_sub(end.len() as u16);
    put(buf, axis, right.max(axis.x + 10), &end, t.label());
}

/// The height that stands for the largest value.
const SCALE: u64 = 1 << 20;

/// `n` of `most` on [`SCALE`]; what is not nothing is at least the lowest bar of a chart of so many lines.
fn visible(n: u64, most: u64, lines: u16) -> u64 {
    if n == 0 || most == 0 {
        return 0;
    }
    let lowest = SCALE / (u64::from(lines.max(1)) * 8) + 1;
    ((u128::from(n) * u128::from(SCALE) / u128::from(most)) as u64).clamp(lowest, SCALE)
}

/// The last values as bars under a heading that says the largest and the last of those shown.
pub fn history(
    area: Rect,
    buf: &mut Buffer,
    what: &str,
    values: &VecDeque<f64>,
    unit: impl Fn(f64) -> String,
    t: Theme,
    style: Style,
) {
    let mut rest = area;
    let title = take_top(&mut rest, 1);
    let shown: Vec<f64> = values.iter().skip(values.len().saturating_sub(usize::from(rest.width))).copied().collect();
    let most = shown.iter().copied().fold(0.0, f64::max);
    let last = shown.last().map_or("-".into(), |v| unit(*v));
    put(buf, title, title.x, &format!("{what} {last}, most {}", unit(most)), t.label());
    let bars: Vec<u64> =
        shown.iter().map(|v| visible((v / most.max(1.0) * 1e6) as u64, 1_000_000, rest.height)).collect();
    Sparkline::default().data(&bars).max(SCALE).style(style).render(rest, buf);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(buf: &Buffer) -> Vec<String> {
        let line = |y| (0..buf.area.width).map(|x| buf[(x, y)].symbol()).collect::<String>().trim_end().to_string();
        (0..buf.area.height).map(line).collect()
    }

    #[test]
    fn few_samples_are_seen_beside_many() {
        let l = LatencyJson {
            samples: 1001,
            max_ns: Some(4096),
            buckets: vec![(1024, 1000), (4096, 1)],
            ..LatencyJson::default()
        };
        let area = Rect::new(0, 0, 30, 6);
        let mut buf = Buffer::empty(area);
        histogram(area, &mut buf, &l, Theme::new(false));
        let s = lines(&buf);
        assert!(s[0].contains("1000 in the highest"), "{s:?}");
        // 1024, 1536, 2048, 3072, 4096: five buckets of five cells.
        assert_eq!(s[1], " █████");
        assert_eq!(s[4], " █████               ▁▁▁▁▁");
        assert_eq!(s[5], " 1.02 us           4.10 us");
    }

    #[test]
    fn the_past_ends_with_the_last_value() {
        let area = Rect::new(0, 0, 4, 2);
        let mut buf = Buffer::empty(area);
        let values: VecDeque<f64> = [9.0, 1.0, 0.0, 4.0, 8.0].into();
        history(area, &mut buf, "x", &values, |v| v.to_string(), Theme::new(false), Style::new());
        assert_eq!(lines(&buf)[1], "▁ ▄█");
    }

    #[test]
    fn odd_numbers_are_drawn() {
        let odd = LatencyJson { buckets: vec![(u64::MAX, u64::MAX), (0, 1)], ..LatencyJson::default() };
        for (w, h) in [(0, 0), (1, 1), (2, 9), (9, 2), (300, 3)] {
            let area = Rect::new(0, 0, w, h);
            let mut buf = Buffer::empty(area);
            histogram(area, &mut buf, &odd, Theme::new(false));
            let values = [f64::NAN, f64::INFINITY, -1.0].into();
            history(area, &mut buf, "x", &values, |v| v.to_string(), Theme::new(false), Style::new());
        }
    }
}
