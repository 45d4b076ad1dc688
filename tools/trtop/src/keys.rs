//! Keys: the one table that the live view obeys, and that its help and footer are made from.

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

/// What a key does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Leave.
    Quit,
    /// Show or hide help.
    Help,
    /// Next list.
    NextView,
    /// List before.
    LastView,
    /// The list of this number, from 0.
    View(usize),
    /// Sort by the next column.
    Sort,
    /// Sort by the column before.
    SortBack,
    /// Turn the order round.
    Invert,
    /// Type a filter.
    Filter,
    /// Close what is open, else clear the filter.
    Back,
    /// Stop or go on refreshing.
    Pause,
    /// Refresh more often.
    Faster,
    /// Refresh less often.
    Slower,
    /// Show more about the selected row, all of it with charts, or nothing.
    Detail,
    /// Rows by rank, or not.
    ByRank,
    /// Peers as a matrix or a list.
    Matrix,
    /// Other columns of the matrix.
    Across(isize),
    /// Hide the column that the list is sorted by.
    Hide,
    /// Show every column.
    ShowAll,
    /// Obey the mouse, or leave it to the terminal.
    Mouse,
    /// Select another row.
    Move(Move),
    /// Of a replay: go elsewhere.
    Seek(Seek),
}

/// Where a replay goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seek {
    /// So many seconds on.
    Seconds(i64),
    /// So many frames on.
    Frames(i64),
    /// The first frame.
    Start,
    /// The last frame.
    End,
    /// Half as fast.
    Slower,
    /// Twice as fast.
    Faster,
}

/// Which row to select.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Move {
    /// This many rows down.
    Rows(isize),
    /// This many screens down.
    Pages(isize),
    /// The first row.
    Home,
    /// The last row.
    End,
}

/// One line of the help screen.
pub struct Binding {
    /// Keys, as people write them.
    pub keys: &'static str,
    /// What they do.
    pub help: &'static str,
    /// Key and word for the footer.
    pub footer: Option<(&'static str, &'static str)>,
    /// The keys and what each does.
    pub actions: &'static [(KeyCode, Action)],
}

use Action as A;
use KeyCode as K;

/// Every key.
pub const KEYS: &[Binding] = &[
    Binding {
        keys: "F1 ? h",
        help: "this help",
        footer: Some(("F1", "help")),
        actions: &[(K::F(1), A::Help), (K::Char('?'), A::Help), (K::Char('h'), A::Help)],
    },
    Binding {
        keys: "Tab Shift-Tab 1 to 8",
        help: "next view, the one before, that one (4: with multi-path)",
        footer: Some(("Tab", "view")),
        actions: &[
            (K::Tab, A::NextView),
            (K::BackTab, A::LastView),
            (K::Char('1'), A::View(0)),
            (K::Char('2'), A::View(1)),
            (K::Char('3'), A::View(2)),
            (K::Char('4'), A::View(3)),
            (K::Char('5'), A::View(4)),
            (K::Char('6'), A::View(5)),
            (K::Char('7'), A::View(6)),
            (K::Char('8'), A::View(7)),
        ],
    },
    Binding {
        keys: "/",
        help: "filter by device, peer, QP, command, host, pid, rank",
        footer: Some(("/", "filter")),
        actions: &[(K::Char('/'), A::Filter)],
    },
    Binding {
        keys: "s F6, Shift-F6",
        help: "sort by the next column, by the one before",
        footer: Some(("s", "sort")),
        actions: &[(K::Char('s'), A::Sort), (K::F(6), A::Sort), (K::F(18), A::SortBack)],
    },
    Binding {
        keys: "S I",
        help: "turn the order round",
        footer: None,
        actions: &[(K::Char('S'), A::Invert), (K::Char('I'), A::Invert)],
    },
    Binding {
        keys: "Space",
        help: "pause, go on",
        footer: Some(("Space", "pause")),
        actions: &[(K::Char(' '), A::Pause)],
    },
    Binding {
        keys: "+ -",
        help: "refresh faster, slower: every 0.1 s to 10 s",
        footer: Some(("+-", "rate")),
        actions: &[(K::Char('+'), A::Faster), (K::Char('='), A::Faster), (K::Char('-'), A::Slower)],
    },
    Binding {
        keys: "Enter",
        help: "more about the row; again: charts; again: the list alone",
        footer: Some(("Enter", "more")),
        actions: &[(K::Enter, A::Detail)],
    },
    Binding {
        keys: "g",
        help: "rows by host and rank, or all together",
        footer: None,
        actions: &[(K::Char('g'), A::ByRank)],
    },
    Binding {
        keys: "m, [ ]",
        help: "peers as a matrix or a list; its columns (live Left Right)",
        footer: None,
        actions: &[(K::Char('m'), A::Matrix), (K::Char('['), A::Across(-1)), (K::Char(']'), A::Across(1))],
    },
    Binding {
        keys: "x X",
        help: "hide the column that is sorted by; show every column",
        footer: None,
        actions: &[(K::Char('x'), A::Hide), (K::Char('X'), A::ShowAll)],
    },
    Binding {
        keys: "M",
        help: "the mouse is for trtop, or for the terminal to select",
        footer: None,
        actions: &[(K::Char('M'), A::Mouse)],
    },
    Binding {
        keys: "Up Down k j",
        help: "select a row",
        footer: None,
        actions: &[
            (K::Up, A::Move(Move::Rows(-1))),
            (K::Char('k'), A::Move(Move::Rows(-1))),
            (K::Down, A::Move(Move::Rows(1))),
            (K::Char('j'), A::Move(Move::Rows(1))),
        ],
    },
    Binding {
        keys: "PgUp PgDn Home End",
        help: "a screen up, down; first, last row",
        footer: None,
        actions: &[
            (K::PageUp, A::Move(Move::Pages(-1))),
            (K::PageDown, A::Move(Move::Pages(1))),
            (K::Home, A::Move(Move::Home)),
            (K::End, A::Move(Move::End)),
        ],
    },
    Binding {
        keys: "Left Right , .",
        help: "replay: a second, a frame (PgUp PgDn: a minute; Home End)",
        footer: None,
        actions: &[
            (K::Left, A::Seek(Seek::Seconds(-1))),
            (K::Right, A::Seek(Seek::Seconds(1))),
            (K::Char(','), A::Seek(Seek::Frames(-1))),
            (K::Char('.'), A::Seek(Seek::Frames(1))),
        ],
    },
    Binding {
        keys: "< >",
        help: "replay: half, twice as fast",
        footer: None,
        actions: &[(K::Char('<'), A::Seek(Seek::Slower)), (K::Char('>'), A::Seek(Seek::Faster))],
    },
    Binding {
        keys: "Esc",
        help: "close help or details, else clear the filter",
        footer: None,
        actions: &[(K::Esc, A::Back)],
    },
    Binding {
        keys: "q F10 Ctrl-C",
        help: "quit",
        footer: Some(("q", "quit")),
        actions: &[(K::Char('q'), A::Quit), (K::F(10), A::Quit)],
    },
];

/// What `key` does.
pub fn action(key: KeyEvent) -> Option<Action> {
    if is_interrupt(key) {
        return Some(Action::Quit);
    }
    if key.modifiers.intersects(KeyModifiers::CONTROL | KeyModifiers::ALT) {
        return None;
    }
    if key.code == K::F(6) && key.modifiers.contains(KeyModifiers::SHIFT) {
        return Some(Action::SortBack);
    }
    KEYS.iter().flat_map(|b| b.actions).find(|(k, _)| *k == key.code).map(|(_, a)| *a)
}

/// Ctrl-C, which quits wherever one is.
pub fn is_interrupt(key: KeyEvent) -> bool {
    key.code == K::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_key_does_two_things() {
        let all: Vec<KeyCode> = KEYS.iter().flat_map(|b| b.actions).map(|(k, _)| *k).collect();
        for (i, k) in all.iter().enumerate() {
            assert!(!all[..i].contains(k), "{k:?}");
        }
    }

    #[test]
    fn the_help_fits_80_columns() {
        let keys = KEYS.iter().map(|b| b.keys.len()).max().unwrap();
        for b in KEYS {
            assert!(keys + b.help.len() + 2 <= 80, "{}", b.help);
        }
    }

    #[test]
    fn the_footer_fits_80_columns() {
        let width: usize = KEYS.iter().filter_map(|b| b.footer).map(|(k, w)| k.len() + w.len() + 3).sum();
        assert!(width <= 80, "{width}");
    }

    #[test]
    fn keys_are_found() {
        let key = |c, m| action(KeyEvent::new(c, m));
        assert_eq!(key(K::Char('c'), KeyModifiers::CONTROL), Some(Action::Quit));
        assert_eq!(key(K::Char('c'), KeyModifiers::NONE), None);
        assert_eq!(key(K::Char('S'), KeyModifiers::SHIFT), Some(Action::Invert));
        assert_eq!(key(K::F(6), KeyModifiers::SHIFT), Some(Action::SortBack));
        assert_eq!(key(K::BackTab, KeyModifiers::SHIFT), Some(Action::LastView));
    }
}
