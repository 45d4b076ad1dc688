//! What a program knows about its own work: the lines that `tests/programs/truth.c` prints.

use crate::compare::Counts;

/// One QP, from its creation to its end.
#[derive(Clone, Debug)]
pub struct QpTruth {
    /// Device name.
    pub device: String,
    /// Port.
    pub port: u32,
    /// Number; others may have had it before and after.
    pub qpn: u32,
    /// `rc`, `uc`, `ud`.
    pub kind: String,
    /// Number of the last peer, or 0.
    pub peer_qpn: u32,
    /// Counts.
    pub counts: Counts,
}

/// All of a program's truth.
#[derive(Clone, Debug, Default)]
pub struct Truth {
    /// By QP.
    pub qps: Vec<QpTruth>,
    /// By device and port.
    pub ports: Vec<(String, u32, Counts)>,
    /// All together.
    pub total: Counts,
}

impl Truth {
    /// Reads the lines; others are skipped.
    ///
    /// # Panics
    /// A line is not as truth.c prints it, or there is no total.
    pub fn parse<'a>(lines: impl IntoIterator<Item = &'a str>) -> Truth {
        let mut t = Truth::default();
        for line in lines {
            let words: Vec<&str> = line.split_whitespace().collect();
            let number = |i: usize| -> u32 { words[i].parse().unwrap_or_else(|_| panic!("{line}")) };
            match words.first() {
                Some(&"qp") => t.qps.push(QpTruth {
                    device: words[3].into(),
                    port: number(5),
                    qpn: number(7),
                    kind: words[9].into(),
                    peer_qpn: number(11),
                    counts: Counts::of_words(&words[12..]),
                }),
                Some(&"device") => t.ports.push((words[1].into(), number(3), Counts::of_words(&words[4..]))),
                Some(&"total") => {
                    assert!(t.total.is_empty(), "two totals");
                    t.total = Counts::of_words(&words[1..]);
                }
                _ => {}
            }
        }
        assert!(!t.total.is_empty(), "no total");
        t
    }

    /// Splits what a parent and its last child said: the child's lines stand between `child PID begin` and `... end`.
    pub fn parent_and_child(stdout: &str) -> (Vec<&str>, Vec<&str>, Option<u32>) {
        let (mut parent, mut child, mut pid, mut inside) = (vec![], vec![], None, false);
        for line in stdout.lines() {
            let words: Vec<&str> = line.split_whitespace().collect();
            match words[..] {
                ["child", p, "begin"] => (pid, inside) = (p.parse().ok(), true),
                ["child", _, "end"] => inside = false,
                _ if inside => child.push(line),
                _ => parent.push(line),
            }
        }
        (parent, child, pid)
    }
}
