//! What trtop remembers from one time to the next: `trtop.toml` in the XDG folder of settings. Never in the program's way.

use crate::app::App;
use crate::columns::Col;
use crate::rows::{Sort, View};
use crate::ui;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The file. What is left out is as trtop starts without it; names that it does not know are ignored.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Settings {
    /// Name of the view.
    pub view: Option<String>,
    /// Seconds between refreshes.
    pub every: Option<f64>,
    /// The mouse is obeyed.
    pub mouse: Option<bool>,
    /// Rows stand by rank.
    pub by_rank: Option<bool>,
    /// Peers are shown as a matrix.
    pub matrix: Option<bool>,
    /// Of each list, by the name of its view.
    pub lists: BTreeMap<String, ListSettings>,
}

/// Of one list.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ListSettings {
    /// Title of the column that it is sorted by.
    pub sort: Option<String>,
    /// Largest first.
    pub descending: bool,
    /// Titles of hidden columns.
    pub hidden: Vec<String>,
}

/// Where the file is: `$XDG_CONFIG_HOME/telereduce/trtop.toml`, else `~/.config/telereduce/trtop.toml`.
pub fn path(variable: impl Fn(&str) -> Option<std::ffi::OsString>) -> Option<PathBuf> {
    let folder = |name: &str| variable(name).map(PathBuf::from).filter(|p| p.is_absolute());
    let base = folder("XDG_CONFIG_HOME").or_else(|| Some(folder("HOME")?.join(".config")))?;
    Some(base.join("telereduce/trtop.toml"))
}

/// Reads the file. None there = nothing remembered.
///
/// # Errors
/// It cannot be read, or is no such file: what is wrong, in one line.
pub fn load(path: &Path) -> Result<Settings, String> {
    let said = |why: &dyn std::fmt::Display| format!("settings ignored: {}: {why}", path.display());
    match std::fs::read_to_string(path) {
        Ok(text) => toml::from_str(&text).map_err(|e: toml::de::Error| {
            let line = e.span().map_or(1, |s| 1 + text[..s.start.min(text.len())].matches('\n').count());
            said(&format!("line {line}: {}", e.message()))
        }),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(Settings::default()),
        Err(e) => Err(said(&e)),
    }
}

/// Writes the file, whole or not at all.
///
/// # Errors
/// As the system says.
pub fn save(path: &Path, s: &Settings) -> io::Result<()> {
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder)?;
    }
    crate::export::write_whole(path, &toml::to_string(s).map_err(io::Error::other)?)
}

/// The column of a view with this title.
fn column(view: View, title: &str) -> Option<Col> {
    ui::columns(view).iter().map(|c| c.col).find(|c| c.title() == title)
}

impl Settings {
    /// What is to be remembered of `app`.
    pub fn of(app: &App) -> Settings {
        let fresh = App::new(app.every, app.theme);
        let mut lists = BTreeMap::new();
        for view in View::ALL.into_iter().filter(|v| !ui::columns(*v).is_empty()) {
            let i = view as usize;
            let (sort, hidden) = (app.lists[i].sort, &app.hidden[i]);
            if sort != fresh.lists[i].sort || !hidden.is_empty() {
                let list = ListSettings {
                    sort: Some(sort.by.title().into()),
                    descending: sort.descending,
                    hidden: hidden.iter().map(|c| c.title().into()).collect(),
                };
                lists.insert(view.name().into(), list);
            }
        }
        Settings {
            view: Some(app.view.name().into()),
            every: Some(app.every.as_secs_f64()),
            mouse: Some(app.mouse),
            by_rank: Some(app.by_rank),
            matrix: Some(app.matrix),
            lists,
        }
    }

    /// Sets `app` so.
    pub fn apply(&self, app: &mut App) {
        if let Some(view) = self.view.as_deref().and_then(View::named) {
            app.view = view;
        }
        if let Some(s) = self.every.filter(|s| (0.1..=10.0).contains(s)) {
            app.every = Duration::from_secs_f64(s);
        }
        app.mouse = self.mouse.unwrap_or(app.mouse);
        app.by_rank = self.by_rank.unwrap_or(app.by_rank);
        app.matrix = self.matrix.unwrap_or(app.matrix);
        for (name, l) in &self.lists {
            let Some(view) = View::named(name) else { continue };
            if let Some(by) = l.sort.as_deref().and_then(|t| column(view, t)).filter(|c| c.sortable()) {
                app.lists[view as usize].sort = Sort { by, descending: l.descending };
            }
            for col in l.hidden.iter().filter_map(|t| column(view, t)) {
                app.hide(view, col);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ui::theme::Theme;
    use proptest::prelude::*;

    fn app() -> App {
        App::new(Duration::from_secs(1), Theme::new(false))
    }

    #[test]
    fn what_was_set_is_set_again() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("new/folder/trtop.toml");
        let mut a = app();
        a.view = View::Latency;
        a.every = Duration::from_millis(200);
        (a.mouse, a.by_rank, a.matrix) = (false, true, true);
        a.lists[View::Qps as usize].sort = Sort { by: Col::OutBytes, descending: false };
        a.hide(View::Qps, Col::High);
        save(&file, &Settings::of(&a)).unwrap();
        let mut b = app();
        load(&file).unwrap().apply(&mut b);
        assert_eq!(Settings::of(&a), Settings::of(&b));
        assert_eq!((b.view, b.every, b.mouse), (View::Latency, Duration::from_millis(200), false));
        assert_eq!(b.hidden[View::Qps as usize], [Col::High]);
        assert_ne!(Settings::of(&a), Settings::of(&app()));
    }

    #[test]
    fn a_bad_file_is_named_with_the_line_and_no_file_is_none() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("trtop.toml");
        assert_eq!(load(&file), Ok(Settings::default()));
        std::fs::write(&file, "view = 'qps'\nevery = 'fast'\n").unwrap();
        let why = load(&file).unwrap_err();
        assert!(why.contains("trtop.toml: line 2: ") && !why.contains('\n'), "{why}");
        std::fs::write(&file, [0xff, 0xfe]).unwrap();
        assert!(load(&file).unwrap_err().starts_with("settings ignored: "));
        assert!(load(dir.path()).is_err());
    }

    #[test]
    fn names_and_numbers_of_another_version_are_ignored() {
        let text =
            "view = 'dreams'\nevery = 1e9\nmood = 1\n[lists.qps]\nsort = 'LUCK'\nhidden = ['QP', 'LUCK']\n[lists.x]\n";
        let mut a = app();
        toml::from_str::<Settings>(text).unwrap().apply(&mut a);
        assert_eq!((a.view, a.every), (View::Ports, Duration::from_secs(1)));
        assert_eq!(a.hidden[View::Qps as usize], [Col::Qp]);
    }

    #[test]
    fn the_folder_is_the_users() {
        let with = |set: &'static [(&str, &str)]| {
            path(move |n| set.iter().find(|s| s.0 == n).map(|s| s.1.into())).map(|p| p.display().to_string())
        };
        assert_eq!(with(&[("XDG_CONFIG_HOME", "/x"), ("HOME", "/h")]).unwrap(), "/x/telereduce/trtop.toml");
        assert_eq!(with(&[("XDG_CONFIG_HOME", "x"), ("HOME", "/h")]).unwrap(), "/h/.config/telereduce/trtop.toml");
        assert_eq!(with(&[("HOME", "")]), None);
    }

    proptest! {
        #[test]
        fn no_text_of_a_file_does_harm(text in "[a-z\\[\\]=.'\" \n0-9]{0,80}") {
            if let Ok(s) = toml::from_str::<Settings>(&text) {
                s.apply(&mut app());
            }
        }
    }
}
