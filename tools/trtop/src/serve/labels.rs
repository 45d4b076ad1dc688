//! Labels of a port, peer or QP, written once for the dozen series that have them.

use prometheus_client::encoding::{EncodeLabelSet, LabelSetEncoder};
use std::fmt::{self, Display, Write};

/// `name="value",…`, the last one a number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Labels {
    text: String,
    /// Where the name of the last one ends.
    cut: usize,
}

impl Labels {
    /// What is `None` is left out, as Prometheus takes an empty value. `last`: a number always stands at the end.
    pub fn new<'a>(labels: impl IntoIterator<Item = (&'a str, Option<&'a dyn Display>)>, last: (&str, u32)) -> Labels {
        let mut text = String::with_capacity(160);
        let mut write = |name: &str, value: &dyn Display| {
            text.push_str(name);
            text.push_str("=\"");
            let begin = text.len();
            let _ = write!(text, "{value}");
            escape(&mut text, begin);
            text.push_str("\",");
        };
        for (name, value) in labels {
            if let Some(value) = value {
                write(name, value);
            }
        }
        text.push_str(last.0);
        let cut = text.len();
        let _ = write!(text, "=\"{}\"", last.1);
        Labels { text, cut }
    }

    /// These, and one more.
    pub fn with<'a>(&'a self, name: &'static str, value: &'a str) -> With<'a, Self> {
        With { labels: self, name, value }
    }
}

/// Escapes what `text` has from `begin` on.
fn escape(text: &mut String, begin: usize) {
    if text[begin..].contains(['\\', '"', '\n']) {
        let escaped = text[begin..].replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
        text.replace_range(begin.., &escaped);
    }
}

// An encoder takes the name of a label as it is: all labels but the last value are that name.
impl EncodeLabelSet for Labels {
    fn encode(&self, e: &mut LabelSetEncoder) -> fmt::Result {
        let mut label = e.encode_label();
        let mut name = label.encode_label_key()?;
        name.write_str(&self.text[..self.cut])?;
        let mut value = name.encode_label_value()?;
        value.write_str(&self.text[self.cut + 2..self.text.len() - 1])?;
        value.finish()
    }
}

/// A set of labels and one more.
#[derive(Debug)]
pub struct With<'a, S> {
    labels: &'a S,
    name: &'static str,
    value: &'a str,
}

impl<S> With<'_, S> {
    /// These, and one more.
    pub fn with<'a>(&'a self, name: &'static str, value: &'a str) -> With<'a, Self> {
        With { labels: self, name, value }
    }
}

impl<S: EncodeLabelSet> EncodeLabelSet for With<'_, S> {
    fn encode(&self, e: &mut LabelSetEncoder) -> fmt::Result {
        self.labels.encode(e)?;
        let mut label = e.encode_label();
        let mut name = label.encode_label_key()?;
        name.write_str(self.name)?;
        let mut value = name.encode_label_value()?;
        value.write_str(self.value)?;
        value.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use prometheus_client::collector::Collector;
    use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, text};
    use prometheus_client::metrics::MetricType;
    use prometheus_client::metrics::gauge::ConstGauge;
    use prometheus_client::registry::Registry;

    #[derive(Debug)]
    struct One(Labels);

    impl Collector for One {
        fn encode(&self, mut e: DescriptorEncoder) -> fmt::Result {
            let mut family = e.encode_descriptor("x", "Help", None, MetricType::Gauge)?;
            ConstGauge::new(1u64).encode(family.encode_family(&self.0)?)?;
            ConstGauge::new(2u64).encode(family.encode_family(&self.0.with("status", "a\"b"))?)
        }
    }

    #[test]
    fn what_prometheus_would_misread_is_escaped() {
        let labels = Labels::new([("host", Some(&"a\"\\\n" as &dyn Display)), ("rank", None)], ("port", 7));
        let mut registry = Registry::default();
        registry.register_collector(Box::new(One(labels)));
        let mut out = String::new();
        text::encode(&mut out, &registry).unwrap();
        assert!(out.contains(r#"x{host="a\"\\\n",port="7"} 1"#), "{out}");
        assert!(out.contains(r#"x{host="a\"\\\n",port="7",status="a\"b"} 2"#), "{out}");
    }
}
