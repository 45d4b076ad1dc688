//! TLS and passwords of `trtop serve`, by the web configuration file that Prometheus and its exporters share.
//!
//! The file and what it names are read anew for each client, so that renewed certificates and changed passwords hold at once;
//! where they cannot be read any more, what was read before holds.

use base64::Engine;
use hyper::header::HeaderValue;
use serde::Deserialize;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use tokio::sync::Semaphore;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::{ServerConfig, crypto::ring};

/// Somebody's password whom nobody knows is compared with this, so that it takes as long as that of a user.
const NOBODY: &str = "$2b$10$Ds5Vz1XfTUKLDLPnpFgZ0ey3o2sNSpRQCLqrZdzhJaD5lBMKCqrm2";

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    tls_server_config: Option<Tls>,
    #[serde(default)]
    basic_auth_users: BTreeMap<String, String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Tls {
    cert_file: PathBuf,
    key_file: PathBuf,
}

/// What the file says.
#[derive(Default)]
pub struct Loaded {
    /// Where there is TLS.
    pub tls: Option<TlsAcceptor>,
    users: BTreeMap<String, String>,
}

impl Loaded {
    /// Whether users and passwords are asked for.
    pub fn asks(&self) -> bool {
        !self.users.is_empty()
    }

    fn of(path: &Path) -> Result<Loaded, String> {
        let wrong = |at: &Path, why: &dyn std::fmt::Display| format!("{}: {why}", at.display());
        let text = std::fs::read_to_string(path).map_err(|e| wrong(path, &e))?;
        // An empty file is no TLS and no passwords.
        let file: Option<File> = serde_norway::from_str(&text).map_err(|e| wrong(path, &e))?;
        let File { tls_server_config, basic_auth_users: users } = file.unwrap_or_default();
        for (user, hash) in &users {
            hash.parse::<bcrypt::HashParts>().map_err(|_| {
                wrong(
                    path,
                    &format!("basic_auth_users: the password of {user} is not hashed by bcrypt (htpasswd -nB {user})"),
                )
            })?;
        }
        let beside = |name: &Path| path.parent().unwrap_or(Path::new("")).join(name);
        let tls = tls_server_config.map(|t| acceptor(&beside(&t.cert_file), &beside(&t.key_file))).transpose()?;
        Ok(Loaded { tls, users })
    }
}

fn acceptor(cert: &Path, key: &Path) -> Result<TlsAcceptor, String> {
    let wrong = |at: &Path, why: &dyn std::fmt::Display| format!("{}: {why}", at.display());
    let chain = CertificateDer::pem_file_iter(cert).map_err(|e| wrong(cert, &e))?;
    let chain = chain.collect::<Result<Vec<_>, _>>().map_err(|e| wrong(cert, &e))?;
    let secret = PrivateKeyDer::from_pem_file(key).map_err(|e| wrong(key, &e))?;
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .and_then(|b| b.with_no_client_auth().with_single_cert(chain, secret))
        .map_err(|e| wrong(cert, &format!("with {}: {e}", key.display())))?;
    Ok(TlsAcceptor::from(Arc::new(config)))
}

/// Who may have what.
pub struct Web {
    path: Option<PathBuf>,
    last: RefCell<Rc<Loaded>>,
    said: RefCell<String>,
    /// What was accepted, with the hash that it was compared with: bcrypt is slow on purpose, and Prometheus asks every few
    /// seconds.
    accepted: RefCell<BTreeMap<Vec<u8>, String>>,
    /// Passwords are compared one at a time: whoever guesses keeps one thread busy, not the host.
    one: Semaphore,
}

impl Web {
    /// As the file says; without one, neither TLS nor passwords.
    ///
    /// # Errors
    /// What is wrong with it, and where.
    pub fn new(path: Option<&Path>) -> Result<Web, String> {
        let last = path.map(Loaded::of).transpose()?.unwrap_or_default();
        Ok(Web {
            path: path.map(Into::into),
            last: RefCell::new(Rc::new(last)),
            said: RefCell::default(),
            accepted: RefCell::default(),
            one: Semaphore::new(1),
        })
    }

    /// As it is now. What cannot be read is said on stderr, once.
    pub fn now(&self) -> Rc<Loaded> {
        if let Some(path) = &self.path {
            match Loaded::of(path) {
                Ok(l) => {
                    self.last.replace(Rc::new(l));
                    self.said.borrow_mut().clear();
                }
                Err(e) if *self.said.borrow() == e => {}
                Err(e) => {
                    eprintln!("trtop: {e}; what it said before holds");
                    self.said.replace(e);
                }
            }
        }
        self.last.borrow().clone()
    }

    /// Whether a client with this `Authorization` may have anything.
    pub async fn admits(&self, now: &Loaded, authorization: Option<&HeaderValue>) -> bool {
        if !now.asks() {
            return true;
        }
        let Some(header) = authorization.map(|h| h.as_bytes().to_vec()) else { return false };
        let Some((user, password)) = credentials(&header) else { return false };
        let hash = now.users.get(&user).cloned();
        if hash.is_some() && self.accepted.borrow().get(&header) == hash.as_ref() {
            return true;
        }
        let Ok(_turn) = self.one.acquire().await else { return false };
        let (known, against) = (hash.is_some(), hash.unwrap_or_else(|| NOBODY.into()));
        let compared = against.clone();
        let right = tokio::task::spawn_blocking(move || bcrypt::verify(password, &compared).unwrap_or(false));
        let admitted = right.await.unwrap_or(false) && known;
        if admitted {
            let mut accepted = self.accepted.borrow_mut();
            accepted.retain(|_, hash| now.users.values().any(|h| h == hash));
            accepted.insert(header, against);
        }
        admitted
    }
}

/// User and password of `Basic BASE64`.
fn credentials(header: &[u8]) -> Option<(String, Vec<u8>)> {
    let (scheme, encoded) = header.split_at_checked(6)?;
    if !scheme.eq_ignore_ascii_case(b"Basic ") {
        return None;
    }
    let decoded = base64::prelude::BASE64_STANDARD.decode(encoded.trim_ascii()).ok()?;
    let colon = decoded.iter().position(|b| *b == b':')?;
    let user = String::from_utf8(decoded[..colon].into()).ok()?;
    Some((user, decoded[colon + 1..].into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_user_ends_at_the_first_colon() {
        let header = format!("basic {}", base64::prelude::BASE64_STANDARD.encode("me:a:b"));
        assert_eq!(credentials(header.as_bytes()), Some(("me".into(), b"a:b".to_vec())));
        for none in ["", "Basic", "Basic !", "Bearer bWU6eA==", "Basic bWU="] {
            assert_eq!(credentials(none.as_bytes()), None, "{none}");
        }
    }

    /// Otherwise the time tells who is a user.
    #[test]
    fn nobody_has_a_hash_that_takes_its_time() {
        assert_eq!(NOBODY.parse::<bcrypt::HashParts>().unwrap().get_cost(), 10);
        assert!(!bcrypt::verify("", NOBODY).unwrap());
    }
}
