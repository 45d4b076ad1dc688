//! State of the live view: which list, how it is sorted and filtered, which row is selected. Changes by keys and mouse only.

use crate::columns::Col;
use crate::frame::RowId;
use crate::keys::{Action, Move, Seek, action, is_interrupt};
use crate::replay;
use crate::rows::{Sort, View};
use crate::ui;
use crate::ui::theme::Theme;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers, MouseButton, MouseEvent, MouseEventKind};
use ratatui::layout::{Position, Rect};
use std::time::Duration;

/// Intervals that + and - step through, ms.
const STEPS_MS: [u64; 7] = [100, 200, 500, 1000, 2000, 5000, 10000];

/// State of one list.
#[derive(Clone, Debug)]
pub struct List {
    /// Its order.
    pub sort: Sort,
    /// The selected row; `None` = whatever is first.
    pub selected: Option<RowId>,
    /// Where it stood when the list was drawn last.
    pub position: usize,
    /// First row on the screen.
    pub offset: usize,
}

/// State of the live view.
#[derive(Clone, Debug)]
pub struct App {
    /// The list shown.
    pub view: View,
    /// State of each, by [`View`].
    pub lists: [List; 8],
    /// Multi-path is on somewhere, so there is a list of paths.
    pub paths: bool,
    /// What rows must contain.
    pub filter: String,
    /// Keys go into the filter.
    pub editing: bool,
    /// No refreshes.
    pub paused: bool,
    /// Between refreshes.
    pub every: Duration,
    /// First line of the help shown, if help is.
    pub help: Option<usize>,
    /// The detail pane is open.
    pub detail: bool,
    /// Leave.
    pub quit: bool,
    /// Moves of the selection that wait for the next draw, which knows the order of rows.
    pub moves: Vec<Move>,
    /// Where a replay is; `None` = this is live.
    pub replay: Option<replay::Position>,
    /// Where a replay is to go, with its next refresh.
    pub seeks: Vec<Seek>,
    /// Colours.
    pub theme: Theme,
    /// The detail pane has charts, and most of the screen.
    pub whole: bool,
    /// Rows stand by rank.
    pub by_rank: bool,
    /// Peers are a matrix.
    pub matrix: bool,
    /// First column of the matrix.
    pub across: usize,
    /// Processes are of several hosts.
    pub hosts: bool,
    /// NCCL says whom QPs work for.
    pub labels: bool,
    /// Some process has a rank, so peers may.
    pub ranks: bool,
    /// Hidden columns, by [`View`].
    pub hidden: [Vec<Col>; 8],
    /// The mouse is obeyed.
    pub mouse: bool,
    /// What is where on the screen that was drawn last.
    pub hits: Vec<(Rect, Hit)>,
    /// The selected row of the list that was drawn last, be it the first.
    pub first: Option<RowId>,
    /// Something to say below the list.
    pub message: Option<String>,
}

/// What a click is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hit {
    /// A view's tab.
    Tab(View),
    /// The heading of a column.
    Heading(Col),
    /// A row.
    Row(RowId),
}

impl App {
    /// As it starts.
    pub fn new(every: Duration, theme: Theme) -> App {
        let list = |by, descending| List { sort: Sort { by, descending }, selected: None, position: 0, offset: 0 };
        App {
            view: View::Ports,
            lists: [
                list(Col::Pid, false),
                list(Col::Send, true),
                list(Col::Send, true),
                list(Col::Path, false),
                list(Col::P99, true),
                list(Col::Stuck, true),
                list(Col::Pid, false),
                list(Col::Pid, false),
            ],
            paths: false,
            filter: String::new(),
            editing: false,
            paused: false,
            every,
            help: None,
            detail: false,
            quit: false,
            moves: Vec::new(),
            replay: None,
            seeks: Vec::new(),
            theme,
            whole: false,
            by_rank: false,
            matrix: false,
            across: 0,
            hosts: false,
            labels: false,
            ranks: false,
            hidden: Default::default(),
            mouse: true,
            hits: Vec::new(),
            first: None,
            message: None,
        }
    }

    /// The lists that there are.
    pub fn views(&self) -> impl Iterator<Item = View> + use<> {
        let paths = self.paths;
        View::ALL.into_iter().filter(move |v| paths || *v != View::Paths)
    }

    /// Goes on by so many lists.
    fn turn(&mut self, by: usize) {
        let views: Vec<View> = self.views().collect();
        let at = views.iter().position(|v| *v == self.view).unwrap_or(0);
        self.view = views[(at + by) % views.len()];
    }

    /// The list shown.
    pub fn list(&mut self) -> &mut List {
        &mut self.lists[self.view as usize]
    }

    /// The row whose details are to be shown.
    pub fn wanted(&self) -> Option<RowId> {
        self.lists[self.view as usize].selected.filter(|_| self.detail)
    }

    /// Obeys a key.
    pub fn key(&mut self, key: KeyEvent) {
        if is_interrupt(key) {
            self.quit = true;
        } else if self.editing {
            self.edit(key);
        } else if self.help.is_some() {
            self.read_help(action(key));
        } else if let Some(a) = action(key) {
            self.act(a);
        }
    }

    fn edit(&mut self, key: KeyEvent) {
        match key.code {
            KeyCode::Esc => {
                self.filter.clear();
                self.editing = false;
            }
            KeyCode::Enter => self.editing = false,
            KeyCode::Backspace => {
                self.filter.pop();
            }
            KeyCode::Char('u') if key.modifiers.contains(KeyModifiers::CONTROL) => self.filter.clear(),
            KeyCode::Char(c) if !key.modifiers.intersects(KeyModifiers::CONTROL | KeyModifiers::ALT) => {
                self.filter.push(c);
            }
            // Moving on through the list ends the typing, as in htop.
            KeyCode::Up | KeyCode::Down | KeyCode::PageUp | KeyCode::PageDown | KeyCode::Tab => {
                self.editing = false;
                self.key(key);
            }
            _ => {}
        }
    }

    /// In help, keys that move scroll; any other closes it.
    fn read_help(&mut self, a: Option<Action>) {
        let line = self.help.unwrap_or(0);
        self.help = match a {
            Some(Action::Move(Move::Rows(n))) => Some(line.saturating_add_signed(n)),
            Some(Action::Move(Move::Pages(n))) => Some(line.saturating_add_signed(n * 10)),
            Some(Action::Move(Move::Home)) => Some(0),
            Some(Action::Move(Move::End)) => Some(usize::MAX),
            _ => None,
        };
    }

    fn act(&mut self, a: Action) {
        match a {
            Action::Quit => self.quit = true,
            Action::Help => self.help = Some(0),
            Action::NextView => self.turn(1),
            Action::LastView => self.turn(self.views().count() - 1),
            Action::View(i) => self.view = self.views().find(|v| *v as usize == i).unwrap_or(self.view),
            Action::Sort => self.sort(1),
            Action::SortBack => self.sort(-1),
            Action::Invert => self.list().sort.descending ^= true,
            Action::Filter => self.editing = true,
            Action::Back if self.detail => (self.detail, self.whole) = (false, false),
            Action::Back => self.filter.clear(),
            Action::Pause => self.paused ^= true,
            Action::Faster => self.every = step(self.every, -1),
            Action::Slower => self.every = step(self.every, 1),
            Action::Detail => {
                (self.detail, self.whole) = match (self.detail, self.whole) {
                    (false, _) => (true, false),
                    (true, false) => (true, true),
                    (true, true) => (false, false),
                }
            }
            Action::ByRank => self.by_rank ^= true,
            Action::Matrix => self.matrix ^= true,
            Action::Across(n) => self.across = self.across.saturating_add_signed(n),
            Action::Hide => {
                let col = self.list().sort.by;
                self.sort(1);
                if self.list().sort.by != col {
                    self.hide(self.view, col);
                }
            }
            Action::ShowAll => self.hidden[self.view as usize].clear(),
            Action::Mouse => self.mouse ^= true,
            Action::Seek(s) => self.seek(s),
            // Nobody looks for the last of a thousand rows while time passes: these move through it.
            Action::Move(Move::Pages(n)) if self.replay.is_some() => self.seek(Seek::Seconds(60 * n as i64)),
            Action::Move(Move::Home) if self.replay.is_some() => self.seek(Seek::Start),
            Action::Move(Move::End) if self.replay.is_some() => self.seek(Seek::End),
            Action::Move(m) => self.moves.push(m),
        }
    }

    /// Has a replay go elsewhere. Who looks at single frames wants them to stay.
    fn seek(&mut self, to: Seek) {
        match to {
            // Live, there is only space to go left and right in.
            Seek::Seconds(n) if self.replay.is_none() => self.act(Action::Across(n as isize)),
            _ if self.replay.is_none() => {}
            _ => {
                self.paused |= matches!(to, Seek::Frames(_));
                self.seeks.push(to);
            }
        }
    }

    /// Obeys waiting moves in a view without rows to select: its first line of `all` on a screen of `shown`.
    pub fn scroll(&mut self, all: usize, shown: usize) -> usize {
        let last = all.saturating_sub(shown);
        let moves = std::mem::take(&mut self.moves);
        let list = self.list();
        for m in moves {
            list.offset = match m {
                Move::Rows(n) => list.offset.saturating_add_signed(n),
                Move::Pages(n) => list.offset.saturating_add_signed(n * shown as isize),
                Move::Home => 0,
                Move::End => last,
            };
        }
        list.offset = list.offset.min(last);
        list.offset
    }

    /// Hides a column; the last one stays.
    pub fn hide(&mut self, view: View, col: Col) {
        let hidden = &mut self.hidden[view as usize];
        if !hidden.contains(&col) && hidden.len() + 1 < ui::columns(view).len() {
            hidden.push(col);
        }
    }

    /// Obeys the mouse.
    pub fn click(&mut self, m: MouseEvent) {
        let at = Position::new(m.column, m.row);
        let a = match m.kind {
            MouseEventKind::ScrollDown => Action::Move(Move::Rows(3)),
            MouseEventKind::ScrollUp => Action::Move(Move::Rows(-3)),
            MouseEventKind::Down(MouseButton::Left) if self.help.is_some() => return self.help = None,
            MouseEventKind::Down(MouseButton::Left) => {
                let hit = self.hits.iter().find(|(area, _)| area.contains(at)).map(|(_, hit)| *hit);
                match hit {
                    Some(Hit::Tab(v)) => self.view = v,
                    Some(Hit::Heading(col)) if self.list().sort.by == col => self.list().sort.descending ^= true,
                    Some(Hit::Heading(col)) => self.list().sort = Sort { by: col, descending: descends(col) },
                    // Whether it is selected now, be that drawn or not: clicks may come faster than the screen.
                    Some(Hit::Row(id)) if self.list().selected.or(self.first) == Some(id) => self.act(Action::Detail),
                    Some(Hit::Row(id)) => self.list().selected = Some(id),
                    None => {}
                }
                return;
            }
            _ => return,
        };
        if self.help.is_some() { self.read_help(Some(a)) } else { self.act(a) }
    }

    /// Goes to the next sortable column of the list. Text starts at A, numbers with the largest.
    fn sort(&mut self, by: isize) {
        let hidden = &self.hidden[self.view as usize];
        let all = ui::columns(self.view).iter().map(|c| c.col);
        let columns: Vec<Col> = all.filter(|c| c.sortable() && !hidden.contains(c)).collect();
        if columns.is_empty() {
            return;
        }
        let sort = &mut self.list().sort;
        let at = columns.iter().position(|c| *c == sort.by).unwrap_or(0) as isize;
        let next = columns[(at + by).rem_euclid(columns.len() as isize) as usize];
        *sort = Sort { by: next, descending: descends(next) };
    }
}

/// Whether a list starts with the largest of this column.
fn descends(col: Col) -> bool {
    !(col.is_text() || matches!(col, Col::Pid | Col::Rank | Col::Qp | Col::Path))
}

/// The next interval in this direction.
fn step(every: Duration, by: isize) -> Duration {
    let ms = every.as_millis() as u64;
    let next = if by > 0 {
        STEPS_MS.iter().find(|s| **s > ms).or(STEPS_MS.last())
    } else {
        STEPS_MS.iter().rev().find(|s| **s < ms).or(STEPS_MS.first())
    };
    Duration::from_millis(next.copied().unwrap_or(1000))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn app() -> App {
        App::new(Duration::from_secs(1), Theme::new(false))
    }

    fn press(a: &mut App, keys: &str) {
        for c in keys.chars() {
            let code = match c {
                '\n' => KeyCode::Enter,
                '\u{1b}' => KeyCode::Esc,
                '\t' => KeyCode::Tab,
                '\u{8}' => KeyCode::Backspace,
                c => KeyCode::Char(c),
            };
            a.key(KeyEvent::new(code, KeyModifiers::NONE));
        }
    }

    #[test]
    fn tab_goes_round_the_lists() {
        let mut a = app();
        let mut seen = vec![a.view];
        for _ in 0..7 {
            press(&mut a, "\t");
            seen.push(a.view);
        }
        let mut round: Vec<View> = View::ALL.into_iter().filter(|v| *v != View::Paths).collect();
        round.push(View::Ports);
        assert_eq!(seen, round);
        a.key(KeyEvent::new(KeyCode::BackTab, KeyModifiers::SHIFT));
        assert_eq!(a.view, View::Doctor);
        press(&mut a, "2");
        assert_eq!(a.view, View::Qps);
        press(&mut a, "4");
        assert_eq!(a.view, View::Qps, "there are no paths");
        a.paths = true;
        press(&mut a, "\t\t");
        assert_eq!(a.view, View::Paths);
        press(&mut a, "14");
        assert_eq!(a.view, View::Paths);
    }

    #[test]
    fn typing_a_filter_obeys_no_other_key() {
        let mut a = app();
        press(&mut a, "/q s\u{8}x");
        assert_eq!((a.filter.as_str(), a.editing, a.quit), ("q x", true, false));
        press(&mut a, "\nq");
        assert_eq!((a.filter.as_str(), a.editing, a.quit), ("q x", false, true));
        press(&mut a, "\u{1b}");
        assert_eq!(a.filter, "");
        press(&mut a, "/abc\u{1b}");
        assert_eq!((a.filter.as_str(), a.editing), ("", false));
    }

    #[test]
    fn only_a_replay_seeks() {
        let mut a = app();
        press(&mut a, ".>");
        a.key(KeyEvent::new(KeyCode::Right, KeyModifiers::NONE));
        assert!(a.seeks.is_empty() && !a.paused);
        assert_eq!(a.across, 1, "live, Right goes through the matrix");
        a.replay = Some(replay::Position::default());
        press(&mut a, "]>.");
        assert_eq!(a.across, 2, "these do so anywhere");
        a.key(KeyEvent::new(KeyCode::PageUp, KeyModifiers::NONE));
        a.key(KeyEvent::new(KeyCode::End, KeyModifiers::NONE));
        assert_eq!(a.seeks, [Seek::Faster, Seek::Frames(1), Seek::Seconds(-60), Seek::End]);
        assert!(a.paused && a.moves.is_empty());
    }

    #[test]
    fn ctrl_c_quits_wherever_one_is() {
        for before in ["", "/", "h"] {
            let mut a = app();
            press(&mut a, before);
            a.key(KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL));
            assert!(a.quit, "{before}");
        }
    }

    #[test]
    fn help_scrolls_and_any_other_key_closes_it() {
        let mut a = app();
        press(&mut a, "hjj");
        assert_eq!(a.help, Some(2));
        press(&mut a, "q");
        assert_eq!((a.help, a.quit), (None, false));
    }

    #[test]
    fn sorting_visits_every_column_once() {
        for view in View::ALL.into_iter().filter(|v| !ui::columns(*v).is_empty()) {
            let mut a = app();
            a.view = view;
            let first = a.list().sort.by;
            let mut n = 0;
            loop {
                press(&mut a, "s");
                n += 1;
                if a.list().sort.by == first {
                    break;
                }
            }
            assert_eq!(n, ui::columns(view).iter().filter(|c| c.col.sortable()).count());
        }
        let mut a = app();
        let before = a.list().sort.descending;
        press(&mut a, "I");
        assert_ne!(a.list().sort.descending, before);
    }

    #[test]
    fn a_hidden_column_is_no_order_and_the_last_one_stays() {
        let mut a = app();
        let all = ui::columns(View::Ports).len();
        press(&mut a, "x");
        assert_eq!(a.hidden[0], [Col::Pid]);
        assert_ne!(a.list().sort.by, Col::Pid);
        press(&mut a, &"x".repeat(50));
        let by = a.list().sort.by;
        assert!(a.hidden[0].len() < all && !a.hidden[0].contains(&by));
        press(&mut a, "X");
        assert!(a.hidden[0].is_empty());
    }

    #[test]
    fn enter_goes_from_the_list_to_more_to_charts_and_back() {
        let mut a = app();
        let mut states = Vec::new();
        for _ in 0..3 {
            press(&mut a, "\n");
            states.push((a.detail, a.whole));
        }
        assert_eq!(states, [(true, false), (true, true), (false, false)]);
        press(&mut a, "\n\n\u{1b}");
        assert_eq!((a.detail, a.whole), (false, false));
    }

    #[test]
    fn the_rate_stays_between_a_tenth_and_ten_seconds() {
        let mut a = app();
        press(&mut a, "++++++");
        assert_eq!(a.every, Duration::from_millis(100));
        press(&mut a, "----------");
        assert_eq!(a.every, Duration::from_secs(10));
        assert_eq!(step(Duration::from_millis(700), 1), Duration::from_secs(1));
        assert_eq!(step(Duration::from_millis(700), -1), Duration::from_millis(500));
    }
}
