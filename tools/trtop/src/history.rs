//! The last refreshes of a port, for its sparklines.

use std::collections::VecDeque;

/// Refreshes kept: more than any screen is wide.
pub const KEPT: usize = 256;

/// One port's past, oldest first.
#[derive(Clone, Debug, Default)]
pub struct History {
    /// Send WRs outstanding at each refresh.
    pub outstanding: VecDeque<f64>,
    /// Bytes per second completed, both directions.
    pub bytes_per_s: VecDeque<f64>,
}

impl History {
    /// Adds a refresh.
    pub fn push(&mut self, outstanding: u64, bytes_per_s: Option<f64>) {
        add(&mut self.outstanding, outstanding as f64);
        if let Some(b) = bytes_per_s {
            add(&mut self.bytes_per_s, b);
        }
    }
}

fn add(to: &mut VecDeque<f64>, v: f64) {
    if to.len() == KEPT {
        to.pop_front();
    }
    to.push_back(v);
}

/// The last `width` values as bars of eight heights, the largest of them filling the cell; zero is the lowest bar, and
/// where there was no refresh yet is blank.
pub fn sparkline(values: &VecDeque<f64>, width: usize) -> String {
    const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let shown = values.iter().skip(values.len().saturating_sub(width));
    let most = shown.clone().copied().fold(0.0, f64::max);
    let blank = width.saturating_sub(values.len());
    std::iter::repeat_n(' ', blank)
        .chain(shown.map(|&v| if most > 0.0 { BARS[((v / most * 7.0).round() as usize).min(7)] } else { BARS[0] }))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_scale_to_the_largest_value_shown() {
        let v: VecDeque<f64> = [1000.0, 0.0, 1.0, 7.0].into();
        assert_eq!(sparkline(&v, 3), "▁▂█");
        assert_eq!(sparkline(&v, 6), "  █▁▁▁");
        assert_eq!(sparkline(&[0.0, 0.0].into(), 2), "▁▁");
        assert_eq!(sparkline(&v, 0), "");
    }

    #[test]
    fn only_the_last_refreshes_are_kept() {
        let mut h = History::default();
        for i in 0..KEPT as u64 + 10 {
            h.push(i, (i > 0).then_some(1.0));
        }
        assert_eq!((h.outstanding.len(), h.outstanding[0]), (KEPT, 10.0));
        assert_eq!(h.bytes_per_s.len(), KEPT);
    }
}
