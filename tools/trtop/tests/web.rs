//! `trtop serve --web-config`: TLS and passwords.

#[path = "support/server.rs"]
mod server;
mod support;

use base64::Engine;
use server::{Served, certificate, web_config};
use std::path::Path;
use std::process::Command;
use std::time::Duration;
use support::{segment, who};
use ureq::tls::{Certificate, RootCerts, TlsConfig};

/// The status of a scrape, or why there was none, for one who trusts the certificate in `dir`.
fn scrape(dir: &Path, at: &str, authorization: &str) -> Result<(u16, String), ureq::Error> {
    let pem = std::fs::read(dir.join("web.crt")).unwrap();
    let ca = RootCerts::from([Certificate::from_pem(&pem).unwrap()].to_vec());
    let config = ureq::Agent::config_builder()
        .tls_config(TlsConfig::builder().root_certs(ca).build())
        .http_status_as_error(false)
        .timeout_global(Some(Duration::from_secs(60)));
    let agent = config.build().new_agent();
    let mut answer = agent.get(at).header("Authorization", authorization).call()?;
    Ok((answer.status().as_u16(), answer.body_mut().read_to_string()?))
}

fn basic(user_and_password: &str) -> String {
    format!("Basic {}", base64::prelude::BASE64_STANDARD.encode(user_and_password))
}

#[test]
fn only_who_has_the_password_gets_metrics_and_over_tls_only() {
    let (segments, web) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let _made = segment(segments.path(), &who(4000, "job", None), 1);
    let config = web_config(web.path());
    let server = Served::new(segments.path(), &["--web-config", config.to_str().unwrap()]);
    let at = format!("https://{}/metrics", server.address);
    // The second time the answer is known already.
    for _ in 0..2 {
        let (status, body) = scrape(web.path(), &at, &basic("scraper:right")).unwrap();
        assert!(status == 200 && body.contains("telereduce_process_up{"), "{status} {body}");
        for wrong in ["scraper:wrong", "scraper:", "nobody:right", ":", "scraper"] {
            let (status, body) = scrape(web.path(), &at, &basic(wrong)).unwrap();
            assert!(status == 401 && !body.contains("telereduce_"), "{wrong}: {status} {body}");
        }
    }
    assert_eq!(scrape(web.path(), &at, "Bearer x").unwrap().0, 401);
    assert_eq!(scrape(web.path(), &at.replace("metrics", ""), "").unwrap().0, 401);
    // Who does not trust it gets nothing, nor does who does not encrypt.
    let other = tempfile::tempdir().unwrap();
    certificate(other.path());
    assert!(scrape(other.path(), &at, &basic("scraper:right")).is_err());
    let plain = scrape(web.path(), &at.replace("https", "http"), &basic("scraper:right"));
    assert!(plain.as_ref().map_or(true, |p| !p.1.contains("telereduce_")), "{plain:?}");
}

#[test]
fn what_changes_holds_at_once_and_what_breaks_changes_nothing() {
    let (segments, web) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let config = web_config(web.path());
    let server = Served::new(segments.path(), &["--web-config", config.to_str().unwrap()]);
    let at = format!("https://{}/metrics", server.address);
    let status = |password: &str| scrape(web.path(), &at, &basic(&format!("scraper:{password}"))).unwrap().0;
    assert_eq!(status("right"), 200);
    certificate(web.path());
    assert_eq!(status("right"), 200, "a renewed certificate");
    let text = std::fs::read_to_string(&config).unwrap();
    let with = |hash: &str| format!("{}  scraper: {hash}\n", text.split_once("  scraper").unwrap().0);
    std::fs::write(&config, with(&bcrypt::hash("newer", 4).unwrap())).unwrap();
    assert_eq!((status("right"), status("newer")), (401, 200));
    std::fs::write(&config, "tls_server_config: [").unwrap();
    assert_eq!((status("right"), status("newer")), (401, 200));
}

#[test]
fn passwords_without_tls_are_allowed_and_asked_for() {
    let (segments, web) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let config = web.path().join("web.yml");
    std::fs::write(&config, format!("basic_auth_users: {{ scraper: {} }}", bcrypt::hash("right", 4).unwrap())).unwrap();
    let server = Served::new(segments.path(), &["--web-config", config.to_str().unwrap()]);
    let refused = server.ask("GET /metrics").to_lowercase();
    assert!(refused.starts_with("http/1.1 401") && refused.contains("www-authenticate: basic realm="), "{refused}");
    let header = format!("Authorization: {}\r\n", basic("scraper:right"));
    assert!(server.ask_as("GET /metrics", &header).starts_with("HTTP/1.1 200"));
}

#[test]
fn a_wrong_file_is_said_before_anything_is_served() {
    let web = tempfile::tempdir().unwrap();
    let good = std::fs::read_to_string(web_config(web.path())).unwrap();
    let path = web.path().join("web.yml");
    for (text, said) in [
        ("basic_auth_users: { me: plain }", "password of me is not hashed by bcrypt"),
        ("tls_server_config: { cert_file: web.crt }", "missing field `key_file`"),
        (
            "tls_server_config: { cert_file: a, key_file: b, client_auth_type: NoClientCert }",
            "unknown field `client_auth_type`",
        ),
        ("http_server_config: { http2: true }", "unknown field `http_server_config`"),
        (&good.replace("web.crt", "none.crt"), "none.crt: "),
        (&good.replace("key_file: web.key", "key_file: web.crt"), "web.crt: "),
    ] {
        std::fs::write(&path, text).unwrap();
        let o = Command::new(env!("CARGO_BIN_EXE_trtop"))
            .args(["serve", "--listen", "127.0.0.1:0", "--web-config", path.to_str().unwrap()])
            .output()
            .unwrap();
        let err = String::from_utf8(o.stderr).unwrap();
        assert_eq!(o.status.code(), Some(1), "{text}: {err}");
        assert!(err.starts_with("trtop: --web-config: ") && err.contains(said), "{text}: {err}");
    }
}
