//! A `trtop serve` of a test's own, and certificates for it.

#![allow(dead_code)] // Each test uses a part of it.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// A server on a port that the kernel chose.
pub struct Served {
    child: Child,
    pub address: String,
}

impl Served {
    pub fn new(dir: &Path, args: &[&str]) -> Served {
        let mut child = Command::new(env!("CARGO_BIN_EXE_trtop"))
            .args(["serve", "--listen", "127.0.0.1:0"])
            .args(args)
            .env("TELEREDUCE_DIR", dir)
            .stdout(Stdio::piped())
            .spawn()
            .expect("trtop starts");
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        let address = line.trim().strip_prefix("trtop: serving http").and_then(|l| l.strip_suffix("/metrics"));
        let address =
            address.expect("where it listens").trim_start_matches("s://").trim_start_matches("://").to_string();
        Served { child, address }
    }

    /// Without TLS.
    pub fn ask(&self, request: &str) -> String {
        self.ask_as(request, "")
    }

    /// With more headers, each ended.
    pub fn ask_as(&self, request: &str, headers: &str) -> String {
        let mut socket = TcpStream::connect(&self.address).unwrap();
        write!(socket, "{request} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{headers}").unwrap();
        write!(socket, "Accept: application/openmetrics-text;version=1.0.0;q=0.75,text/plain;q=0.5\r\n\r\n").unwrap();
        let mut answer = String::new();
        socket.read_to_string(&mut answer).unwrap();
        answer
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A web configuration in `dir`: user `scraper`, password `right`, and a certificate `web.crt` that certifies itself.
pub fn web_config(dir: &Path) -> PathBuf {
    certificate(dir);
    let hash = bcrypt::hash("right", 4).unwrap();
    let path = dir.join("web.yml");
    let text = format!(
        "tls_server_config:\n  cert_file: web.crt\n  key_file: web.key\nbasic_auth_users:\n  scraper: {hash}\n"
    );
    std::fs::write(&path, text).unwrap();
    path
}

/// A new certificate for 127.0.0.1, and its key.
pub fn certificate(dir: &Path) {
    let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_string()]).unwrap();
    std::fs::write(dir.join("web.crt"), made.cert.pem()).unwrap();
    std::fs::write(dir.join("web.key"), made.signing_key.serialize_pem()).unwrap();
}
