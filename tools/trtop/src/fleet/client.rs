//! Prometheus's HTTP API, as far as it is needed: queries, alerts, names of rules.

use crate::error::Failure;
use base64::Engine;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};
use ureq::http::Uri;
use ureq::tls::{Certificate, PemItem, RootCerts, TlsConfig, parse_pem};

/// All questions of one refresh together are answered within this time.
pub const PATIENCE: Duration = Duration::from_secs(10);
/// Largest answer: some million series.
const MOST_BYTES: u64 = 1 << 30;

/// A Prometheus.
pub struct Client {
    agent: ureq::Agent,
    /// URL without user, password and final slash.
    base: String,
    authorization: Option<String>,
}

/// A sample: labels without the name, and the value.
pub struct Sample {
    labels: BTreeMap<String, String>,
    /// Value.
    pub value: f64,
    /// When it was evaluated, seconds since the epoch.
    pub time_s: f64,
}

impl Sample {
    /// A label; one that is missing is an empty one, as in PromQL.
    pub fn label(&self, name: &str) -> &str {
        self.labels.get(name).map_or("", String::as_str)
    }
}

/// An alert, pending or firing.
#[derive(Clone, Debug, Deserialize)]
pub struct RawAlert {
    /// Labels, the alert's name as `alertname` among them.
    pub labels: BTreeMap<String, String>,
    /// Annotations.
    #[serde(default)]
    pub annotations: BTreeMap<String, String>,
    /// pending or firing.
    pub state: String,
    /// Since when.
    #[serde(default, rename = "activeAt")]
    pub active_at: String,
}

#[derive(Deserialize)]
struct Envelope<T> {
    status: String,
    data: Option<T>,
    error: Option<String>,
}

#[derive(Deserialize)]
struct Vector {
    #[serde(default)]
    result: Vec<RawSample>,
}

#[derive(Deserialize)]
struct RawSample {
    metric: BTreeMap<String, String>,
    value: (f64, String),
}

#[derive(Deserialize)]
struct Alerts {
    alerts: Vec<RawAlert>,
}

#[derive(Deserialize)]
struct Groups {
    groups: Vec<Group>,
}

#[derive(Deserialize)]
struct Group {
    rules: Vec<Rule>,
}

#[derive(Deserialize)]
struct Rule {
    name: String,
}

impl Client {
    /// For `url`, which may hold a user and a password; `ca` certifies it, or else the authorities of the web do.
    ///
    /// # Errors
    /// `url` is none of a Prometheus, or the certificates cannot be read.
    pub fn new(url: &str, ca: Option<&Path>) -> Result<Client, Failure> {
        // The URL may hold a password, so that it is not repeated.
        let wrong = |why: &str| {
            Failure::new(format!("--prometheus: {why}; a URL such as http://prometheus.example:9090 is needed"))
        };
        let uri: Uri = url.parse().map_err(|_| wrong("this is no URL"))?;
        if !matches!(uri.scheme_str(), Some("http" | "https")) {
            return Err(wrong("the URL begins with neither http:// nor https://"));
        }
        if uri.query().is_some() {
            return Err(wrong("the URL has a query"));
        }
        let authority = uri.authority().map_or("", |a| a.as_str());
        let (user, host) = authority.rsplit_once('@').map_or((None, authority), |(u, h)| (Some(u), h));
        if host.is_empty() || host.starts_with(':') {
            return Err(wrong("the URL names no host"));
        }
        let authorization =
            user.map(|u| format!("Basic {}", base64::prelude::BASE64_STANDARD.encode(percent_decoded(u))));
        let base = format!("{}://{host}{}", uri.scheme_str().unwrap_or("http"), uri.path().trim_end_matches('/'));
        let mut tls = TlsConfig::builder();
        if let Some(path) = ca {
            tls = tls.root_certs(RootCerts::from(certificates(path)?));
        }
        let config = ureq::Agent::config_builder()
            .http_status_as_error(false)
            .redirect_auth_headers(ureq::config::RedirectAuthHeaders::SameHost)
            .user_agent(concat!("trtop/", env!("CARGO_PKG_VERSION")))
            .tls_config(tls.build());
        Ok(Client { agent: config.build().new_agent(), base, authorization })
    }

    /// Its URL, without user and password.
    pub fn url(&self) -> &str {
        &self.base
    }

    /// What an instant query gives.
    ///
    /// # Errors
    /// What is wrong, and where.
    pub fn query(&self, promql: &str, until: Instant) -> Result<Vec<Sample>, String> {
        let v: Vector = self.get("/api/v1/query", &[("query", promql)], until)?;
        let sample =
            |s: RawSample| Some(Sample { labels: s.metric, value: s.value.1.parse().ok()?, time_s: s.value.0 });
        Ok(v.result.into_iter().filter_map(sample).collect())
    }

    /// Alerts, pending and firing.
    ///
    /// # Errors
    /// As [`Client::query`].
    pub fn alerts(&self, until: Instant) -> Result<Vec<RawAlert>, String> {
        Ok(self.get::<Alerts>("/api/v1/alerts", &[], until)?.alerts)
    }

    /// Whether a recording rule of this name is loaded.
    ///
    /// # Errors
    /// As [`Client::query`].
    pub fn records(&self, name: &str, until: Instant) -> Result<bool, String> {
        let all: Groups = self.get("/api/v1/rules", &[("type", "record")], until)?;
        Ok(all.groups.iter().flat_map(|g| &g.rules).any(|r| r.name == name))
    }

    fn get<T: DeserializeOwned>(&self, path: &str, query: &[(&str, &str)], until: Instant) -> Result<T, String> {
        let at = format!("{}{path}", self.base);
        let left = until.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
        let mut request = self.agent.get(&at).query_pairs(query.iter().copied());
        if let Some(a) = &self.authorization {
            request = request.header("Authorization", a);
        }
        let answer = request.config().timeout_global(Some(left)).build().call();
        let mut answer = answer.map_err(|e| self.unreachable(e))?;
        let status = answer.status().as_u16();
        if matches!(status, 401 | 403) {
            return Err(format!(
                "{at} wants another user or password (HTTP {status}): give http://USER:PASSWORD@HOST by PROMETHEUS_URL"
            ));
        }
        let body = answer.body_mut().with_config().limit(MOST_BYTES).read_to_vec().map_err(|e| self.unreachable(e))?;
        match serde_json::from_slice::<Envelope<T>>(&body) {
            Ok(Envelope { data: Some(data), status, .. }) if status == "success" => Ok(data),
            Ok(Envelope { error: Some(why), .. }) => Err(format!("Prometheus at {} says: {why}", self.base)),
            _ => Err(format!("{at} does not answer as a Prometheus does (HTTP {status}): is it the URL of one?")),
        }
    }

    fn unreachable(&self, e: ureq::Error) -> String {
        let why = match e {
            ureq::Error::Timeout(_) => format!("no answer within {} s", PATIENCE.as_secs()),
            ureq::Error::Io(e) if e.kind() == std::io::ErrorKind::TimedOut => {
                format!("no answer within {} s", PATIENCE.as_secs())
            }
            ureq::Error::HostNotFound => "there is no such host".into(),
            // io: and such, before what the system says.
            e => e.to_string().trim_start_matches("io: ").to_string(),
        };
        format!("cannot ask Prometheus at {}: {why}", self.base)
    }
}

fn certificates(path: &Path) -> Result<Vec<Certificate<'static>>, Failure> {
    let wrong = |why: String| Failure::new(format!("--ca {}: {why}", path.display()));
    let pem = std::fs::read(path).map_err(|e| wrong(e.to_string()))?;
    let certificate = |item: Result<PemItem<'_>, ureq::Error>| match item {
        Ok(PemItem::Certificate(c)) => Some(Ok(Certificate::from_der(c.der()).to_owned())),
        Ok(_) => None,
        Err(e) => Some(Err(wrong(e.to_string()))),
    };
    let all: Vec<_> = parse_pem(&pem).filter_map(certificate).collect::<Result<_, _>>()?;
    if all.is_empty() { Err(wrong("there is no certificate in it".into())) } else { Ok(all) }
}

/// `%40` and such in a URL's user and password.
fn percent_decoded(text: &str) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        let byte = tail.get(..2).and_then(|hex| u8::from_str_radix(std::str::from_utf8(hex).ok()?, 16).ok());
        match (first, byte) {
            (b'%', Some(b)) => (out.push(b), rest = &tail[2..]),
            _ => (out.push(*first), rest = tail),
        };
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_and_passwords_are_taken_from_the_url_and_not_shown() {
        let c = Client::new("http://me:p%40ss%zz@10.1.0.1:9090/prefix/", None).unwrap();
        assert_eq!(c.url(), "http://10.1.0.1:9090/prefix");
        // me:p@ss%zz
        assert_eq!(c.authorization.as_deref(), Some("Basic bWU6cEBzcyV6eg=="));
        assert!(Client::new("http://10.1.0.1:9090", None).unwrap().authorization.is_none());
    }

    #[test]
    fn what_is_no_url_is_refused_without_repeating_it() {
        for url in ["", "x", "localhost:9090", "ftp://secret@a", "http://", "http://:9090", "http://secret@a/?q=1"] {
            let said = Client::new(url, None).err().unwrap_or_else(|| panic!("{url}")).message;
            assert!(said.starts_with("--prometheus: ") && !said.contains("secret"), "{said}");
        }
    }
}
