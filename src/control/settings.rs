//! Settings of the side channel, from the environment.

use super::api::Limits;
use super::pursuit::BASE_PORTS;
use super::secret::Secret;
use std::path::Path;

/// First of the well-known ports, unless [`PORT`] says otherwise.
pub const DEFAULT_PORT: u16 = 18516;

/// Variable: first of the well-known ports.
pub const PORT: &str = "TELEREDUCE_PORT";

/// Variable: file with the job's secret.
pub const SECRET_FILE: &str = "TELEREDUCE_SECRET_FILE";

/// What the side channel is started with.
#[derive(Clone, Debug)]
pub struct Settings {
    /// First of the well-known ports.
    pub base_port: u16,
    /// The job's secret.
    pub secret: Option<Secret>,
    /// Bounds.
    pub limits: Limits,
}

impl Settings {
    /// Reads the settings through `get` (as `std::env::var_os`, lossily as text). `descriptors`: how many the process may
    /// have open.
    ///
    /// # Errors
    /// Why there must be no side channel. A bad port is no reason to guess another one that no peer knows; and a secret
    /// that cannot be read is none to do without.
    pub fn read(get: impl Fn(&str) -> Option<String>, descriptors: u64) -> Result<Settings, String> {
        let set = |name: &str| get(name).filter(|v| !v.is_empty());
        let last = u16::MAX - (BASE_PORTS - 1);
        let base_port = match set(PORT) {
            None => DEFAULT_PORT,
            Some(text) => match text.parse() {
                Ok(port) if (1024..=last).contains(&port) => port,
                _ => return Err(format!("{PORT}={text} is not valid (allowed: 1024 to {last})")),
            },
        };
        let secret = match set(SECRET_FILE) {
            None => None,
            Some(path) => Some(Secret::read(Path::new(&path)).map_err(|e| format!("{SECRET_FILE}: {e}"))?),
        };
        Ok(Settings { base_port, secret, limits: Limits::for_descriptors(descriptors) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(name: &str, value: &str) -> Result<Settings, String> {
        Settings::read(|n| (n == name).then(|| value.to_string()), 1024)
    }

    #[test]
    fn unset_means_default() {
        for value in ["", "18516"] {
            let s = read(PORT, value).unwrap();
            assert_eq!((s.base_port, s.secret.is_none()), (DEFAULT_PORT, true));
            assert_eq!((s.limits.links, s.limits.unproven), (256, 128), "of 1024 descriptors");
        }
    }

    #[test]
    fn a_bad_value_is_an_error_that_names_it() {
        for port in ["0", "80", "65530", "x", "-1"] {
            assert!(read(PORT, port).unwrap_err().contains(&format!("{PORT}={port} is not valid")));
        }
        let why = read(SECRET_FILE, "/nonexistent/secret").unwrap_err();
        assert!(why.starts_with("TELEREDUCE_SECRET_FILE: secret file /nonexistent/secret: "), "{why}");
    }
}
