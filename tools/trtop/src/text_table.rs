//! Plain tables for pipes and terminals: columns as wide as their widest cell, two blanks apart.

/// A table of text.
pub struct TextTable {
    titles: Vec<&'static str>,
    right: Vec<bool>,
    rows: Vec<Vec<String>>,
}

impl TextTable {
    /// With these columns; a title that starts with `>` stands to the right, as its cells do.
    pub fn new(titles: &[&'static str]) -> TextTable {
        TextTable {
            titles: titles.iter().map(|t| t.trim_start_matches('>')).collect(),
            right: titles.iter().map(|t| t.starts_with('>')).collect(),
            rows: Vec::new(),
        }
    }

    /// Adds a row.
    pub fn row(&mut self, cells: Vec<String>) {
        debug_assert_eq!(cells.len(), self.titles.len());
        self.rows.push(cells);
    }

    /// Whether it has no rows.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Lines, each indented by `indent`, without blanks at their ends.
    pub fn text(&self, indent: &str) -> String {
        let length = |s: &str| s.chars().count();
        let widths: Vec<usize> = (0..self.titles.len())
            .map(|i| self.rows.iter().map(|r| length(&r[i])).chain([length(self.titles[i])]).max().unwrap_or(0))
            .collect();
        let titles: Vec<String> = self.titles.iter().map(|t| (*t).to_string()).collect();
        let mut out = String::new();
        for row in std::iter::once(&titles).chain(&self.rows) {
            let mut line = String::from(indent);
            for (i, c) in row.iter().enumerate() {
                let pad = " ".repeat(widths[i] - length(c));
                let gap = if i == 0 { "" } else { "  " };
                line += gap;
                line += &if self.right[i] { pad + c } else { c.clone() + &pad };
            }
            out += line.trim_end();
            out.push('\n');
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up() {
        let mut t = TextTable::new(&[">PID", "COMMAND", ">N"]);
        t.row(vec!["1".into(), "a".into(), "10".into()]);
        t.row(vec!["1234".into(), "abcdefgh".into(), "9".into()]);
        assert_eq!(t.text(" "), "  PID  COMMAND    N\n    1  a         10\n 1234  abcdefgh   9\n");
    }
}
