//! The page: text and charts, and nothing from elsewhere.

use std::fmt::Write;

/// Text as HTML shows it.
pub fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out += "&amp;",
            '<' => out += "&lt;",
            '>' => out += "&gt;",
            '"' => out += "&quot;",
            c => out.push(c),
        }
    }
    out
}

/// A page that is written.
pub struct Page(String);

impl Page {
    /// With its title.
    pub fn new(title: &str) -> Page {
        let title = escaped(title);
        Page(format!(
            "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>{title}</title>\n<style>\n\
             body {{ font: 15px/1.45 sans-serif; max-width: 1000px; margin: 2em auto; padding: 0 1em; color: #222 }}\n\
             table {{ border-collapse: collapse }} th, td {{ text-align: left; padding: 2px 14px 2px 0 }}\n\
             th {{ border-bottom: 1px solid #999 }} td.n {{ text-align: right; font-variant-numeric: tabular-nums }}\n\
             svg {{ max-width: 100%; height: auto }} figure {{ margin: 0 }} figcaption {{ font-size: 12px }}\n\
             figcaption span {{ display: inline-block; margin-right: 1.2em }} h2 {{ margin-top: 2em }} .note {{ color: #666 }}\n\
             </style></head><body>\n<h1>{title}</h1>\n"
        ))
    }

    /// A part's heading.
    pub fn heading(&mut self, text: &str) {
        let _ = writeln!(self.0, "<h2>{}</h2>", escaped(text));
    }

    /// A paragraph.
    pub fn text(&mut self, text: &str) {
        let _ = writeln!(self.0, "<p>{}</p>", escaped(text));
    }

    /// A remark.
    pub fn note(&mut self, text: &str) {
        let _ = writeln!(self.0, "<p class=\"note\">{}</p>", escaped(text));
    }

    /// A table; columns whose title starts with `>` are numbers.
    pub fn table(&mut self, titles: &[&str], rows: &[Vec<String>]) {
        self.0 += "<table><tr>";
        for t in titles {
            let _ = write!(self.0, "<th>{}</th>", escaped(t.trim_start_matches('>')));
        }
        self.0 += "</tr>\n";
        for r in rows {
            self.0 += "<tr>";
            for (t, cell) in titles.iter().zip(r) {
                let class = if t.starts_with('>') { " class=\"n\"" } else { "" };
                let _ = write!(self.0, "<td{class}>{}</td>", escaped(cell));
            }
            self.0 += "</tr>\n";
        }
        self.0 += "</table>\n";
    }

    /// A chart, what it shows, and which line is which: its name and colour. Beside the chart, so that no line is hidden.
    pub fn chart<'a>(&mut self, name: &str, svg: &str, lines: impl Iterator<Item = (&'a str, String)>) {
        let _ = write!(self.0, "<h3>{}</h3>\n<figure>{svg}<figcaption>", escaped(name));
        for (name, color) in lines {
            let _ = write!(self.0, "<span><b style=\"color:{color}\">&#9473;</b> {}</span> ", escaped(name));
        }
        self.0 += "</figcaption></figure>\n";
    }

    /// All of it.
    pub fn finish(self) -> String {
        self.0 + "</body></html>\n"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_stays_text() {
        let mut p = Page::new("a <script>");
        p.table(&["x", ">n"], &[vec!["\"<b>&".into(), "1".into()]]);
        let html = p.finish();
        assert!(!html.contains("<script") && html.contains("&quot;&lt;b&gt;&amp;"), "{html}");
    }
}
