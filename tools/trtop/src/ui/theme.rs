//! Styles. Everything can be told apart without colours: by words, bold, dim and reverse.

use ratatui::style::{Color, Modifier, Style};

/// Styles, with or without colours.
#[derive(Clone, Copy, Debug)]
pub struct Theme {
    color: bool,
}

impl Theme {
    /// With colours or not.
    pub fn new(color: bool) -> Theme {
        Theme { color }
    }

    /// Colours unless `NO_COLOR` is set to anything but the empty string.
    pub fn from_environment() -> Theme {
        Theme::new(std::env::var_os("NO_COLOR").is_none_or(|v| v.is_empty()))
    }

    fn fg(self, c: Color) -> Style {
        if self.color { Style::new().fg(c) } else { Style::new() }
    }

    /// Plain text.
    pub fn plain(self) -> Style {
        Style::new()
    }

    /// The program's name, names of columns.
    pub fn title(self) -> Style {
        self.fg(Color::Cyan).add_modifier(Modifier::BOLD)
    }

    /// The column that the list is sorted by, the list that is shown.
    pub fn active(self) -> Style {
        self.title().add_modifier(Modifier::REVERSED)
    }

    /// Words beside numbers.
    pub fn label(self) -> Style {
        self.fg(Color::DarkGray)
    }

    /// Dead processes, destroyed QPs.
    pub fn dead(self) -> Style {
        Style::new().add_modifier(Modifier::DIM)
    }

    /// The selected row.
    pub fn selected(self) -> Style {
        Style::new().add_modifier(Modifier::REVERSED)
    }

    /// Something to know.
    pub fn warn(self) -> Style {
        self.fg(Color::Yellow).add_modifier(Modifier::BOLD)
    }

    /// Something wrong.
    pub fn bad(self) -> Style {
        self.fg(Color::Red).add_modifier(Modifier::BOLD)
    }

    /// A key in the footer.
    pub fn key(self) -> Style {
        self.fg(Color::Cyan).add_modifier(Modifier::BOLD)
    }

    /// Sparkline of outstanding WRs.
    pub fn spark_out(self) -> Style {
        self.fg(Color::Yellow)
    }

    /// Sparkline of bandwidth.
    pub fn spark_rate(self) -> Style {
        self.fg(Color::Green)
    }
}
