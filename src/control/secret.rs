//! The shared secret that processes of one job may have, and what proves it.
//!
//! Each side proves that it knows the secret by an HMAC over everything that makes this connection and this side of it:
//! protocol, side, both IP addresses, both `Hello`s with their process ids and nonces. What one side has sent is no proof
//! when sent back (the side differs), on another connection (the nonces), or handed on by a third host (the addresses).
//! It authenticates peers when they connect; messages are neither encrypted nor signed, as RDMA's own packets are not.

use super::Reason;
use super::gid::{Gid, from_ip};
use super::wire::{Hello, Message, Proof};
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::net::IpAddr;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

/// Fewest bytes of a secret.
pub const MIN_BYTES: usize = 16;

/// Most bytes of its file.
pub const MAX_BYTES: usize = 4096;

/// Which end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Side {
    /// Made the connection.
    Dialler,
    /// Was connected to.
    Listener,
}

impl Side {
    /// The other end.
    pub fn other(self) -> Side {
        match self {
            Side::Dialler => Side::Listener,
            Side::Listener => Side::Dialler,
        }
    }
}

/// What both ends of a connection know of it, and prove together with the secret.
#[derive(Clone, Copy, Debug)]
pub struct Transcript {
    /// Address of the dialler's end.
    pub dialler_ip: IpAddr,
    /// Address of the listener's end.
    pub listener_ip: IpAddr,
    /// The dialler's greeting.
    pub dialler: Hello,
    /// The listener's greeting.
    pub listener: Hello,
}

/// A secret.
#[derive(Clone)]
pub struct Secret(Vec<u8>);

impl core::fmt::Debug for Secret {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Secret")
    }
}

impl Secret {
    /// A secret of the given bytes, without white space at its ends.
    ///
    /// # Errors
    /// It is shorter than [`MIN_BYTES`] or longer than [`MAX_BYTES`].
    pub fn new(bytes: &[u8]) -> io::Result<Secret> {
        let bytes = bytes.trim_ascii();
        match bytes.len() {
            MIN_BYTES..=MAX_BYTES => Ok(Secret(bytes.to_vec())),
            n => invalid(format!(
                "has {n} bytes, a secret has {MIN_BYTES} to {MAX_BYTES}: `openssl rand -hex 32` makes one"
            )),
        }
    }

    /// Reads the secret from a regular file that only its owner can read or write, and that belongs to this user or root.
    ///
    /// # Errors
    /// As open and read say, or `InvalidData` with what is wrong with the file; both name it.
    pub fn read(path: &Path) -> io::Result<Secret> {
        let named = |e: io::Error| io::Error::new(e.kind(), format!("secret file {}: {e}", path.display()));
        // A FIFO must not block.
        let flags = libc::O_CLOEXEC | libc::O_NONBLOCK;
        let file = OpenOptions::new().read(true).custom_flags(flags).open(path).map_err(named)?;
        Secret::from_file(file).map_err(named)
    }

    fn from_file(file: File) -> io::Result<Secret> {
        let meta = file.metadata()?;
        // SAFETY: geteuid has no preconditions.
        let me = unsafe { libc::geteuid() };
        if !meta.is_file() {
            return invalid("not a regular file".into());
        }
        if meta.mode() & 0o077 != 0 {
            return invalid(format!("mode {:04o} lets others in: chmod 600", meta.mode() & 0o7777));
        }
        if meta.uid() != me && meta.uid() != 0 {
            return invalid(format!("belongs to user {}, who is neither this user ({me}) nor root", meta.uid()));
        }
        let mut bytes = Vec::new();
        file.take(MAX_BYTES as u64 + 1).read_to_end(&mut bytes)?;
        Secret::new(&bytes)
    }

    /// What `side` sends to prove that it has the secret.
    pub fn proof(&self, side: Side, t: &Transcript) -> Proof {
        Proof { mac: self.mac(side, t).finalize().into_bytes().into() }
    }

    /// Whether `proof` is what `side` sends; takes as long whatever it is.
    ///
    /// # Errors
    /// [`Reason::Secret`]: it is not.
    pub fn check(&self, side: Side, t: &Transcript, proof: &Proof) -> Result<(), Reason> {
        self.mac(side, t).verify_slice(&proof.mac).map_err(|_| Reason::Secret)
    }

    fn mac(&self, side: Side, t: &Transcript) -> Hmac<Sha256> {
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.0).expect("HMAC takes keys of any length");
        let side = match side {
            Side::Dialler => b'D',
            Side::Listener => b'L',
        };
        // Every part has a fixed length, so no two transcripts have the same bytes.
        let addresses: [Gid; 2] = [from_ip(t.dialler_ip), from_ip(t.listener_ip)];
        let mut hellos = Vec::with_capacity(256);
        Message::Hello(t.dialler).encode(&mut hellos);
        Message::Hello(t.listener).encode(&mut hellos);
        mac.update(b"telereduce side channel");
        mac.update(&[side]);
        mac.update(addresses.as_flattened());
        mac.update(&hellos);
        mac
    }
}

fn invalid<T>(why: String) -> io::Result<T> {
    Err(io::Error::new(io::ErrorKind::InvalidData, why))
}

/// Random bytes from the kernel.
///
/// # Errors
/// As getrandom says; never "interrupted".
pub fn random<const N: usize>() -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    // Up to 256 bytes come whole or not at all.
    const { assert!(N <= 256) };
    loop {
        // SAFETY: writes at most the N bytes of the array.
        let got = unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), N, 0) };
        if got == N as isize {
            return Ok(bytes);
        }
        let e = io::Error::last_os_error();
        if got < 0 && e.kind() != io::ErrorKind::Interrupted {
            return Err(e);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::wire::HelloHead;
    use std::os::unix::fs::PermissionsExt;

    fn hello(n: u8) -> Hello {
        Hello { head: HelloHead, process: [n; 16], nonce: [n; 32], secret: true, own_port: 7 }
    }

    fn transcript() -> Transcript {
        Transcript {
            dialler_ip: [10, 0, 0, 1].into(),
            listener_ip: [10, 0, 0, 2].into(),
            dialler: hello(1),
            listener: hello(2),
        }
    }

    fn secret(s: &str) -> Secret {
        Secret::new(s.as_bytes()).unwrap()
    }

    #[test]
    fn a_proof_holds_for_its_secret_side_and_connection_alone() {
        let (s, t) = (secret("correct horse battery"), transcript());
        let proof = s.proof(Side::Dialler, &t);
        assert_eq!(s.check(Side::Dialler, &t, &proof), Ok(()));
        assert_eq!(s.check(Side::Listener, &t, &proof), Err(Reason::Secret), "sent back");
        assert_eq!(secret("incorrect horse battery").check(Side::Dialler, &t, &proof), Err(Reason::Secret));
        let mut changed = [t; 6];
        changed[0].dialler.nonce[31] ^= 1;
        changed[1].listener.nonce[0] ^= 1;
        changed[2].dialler.process[0] ^= 1;
        changed[3].listener.process[15] ^= 1;
        changed[4].dialler_ip = [10, 0, 0, 3].into();
        changed[5].listener_ip = [10, 0, 0, 3].into();
        for (i, t) in changed.iter().enumerate() {
            assert_eq!(s.check(Side::Dialler, t, &proof), Err(Reason::Secret), "{i}");
        }
        let swapped = Transcript { dialler: t.listener, listener: t.dialler, ..t };
        assert_eq!(s.check(Side::Dialler, &swapped, &proof), Err(Reason::Secret));
    }

    #[test]
    fn the_code_is_that_of_rfc_4231() {
        // Test case 2: key "Jefe", which is too short for a secret.
        let mut mac = Hmac::<Sha256>::new_from_slice(b"Jefe").unwrap();
        mac.update(b"what do ya want for nothing?");
        let code = mac.finalize().into_bytes();
        assert_eq!(code[..8], [0x5b, 0xdc, 0xc1, 0x46, 0xbf, 0x60, 0x75, 0x4e]);
    }

    #[test]
    fn a_file_that_others_can_read_is_refused_and_named() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("secret");
        std::fs::write(&path, "0123456789abcdef0123456789abcdef\n").unwrap();
        let mode = |m| std::fs::set_permissions(&path, std::fs::Permissions::from_mode(m)).unwrap();
        for m in [0o644, 0o640, 0o604, 0o620] {
            mode(m);
            let e = Secret::read(&path).unwrap_err().to_string();
            assert!(e.contains("secret: mode 0") && e.contains("chmod 600"), "{e}");
        }
        mode(0o600);
        assert_eq!(Secret::read(&path).unwrap().0, b"0123456789abcdef0123456789abcdef");
        assert_eq!(format!("{:?}", Secret::read(&path).unwrap()), "Secret");
    }

    #[test]
    fn a_file_that_is_no_secret_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let file = |name: &str, bytes: &[u8]| {
            let path = dir.path().join(name);
            std::fs::write(&path, bytes).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
            Secret::read(&path).map(|_| ()).map_err(|e| e.to_string())
        };
        assert!(file("short", b"   hello   \n\n\n\n\n\n\n\n").unwrap_err().contains("has 5 bytes"));
        assert!(file("long", &[b'x'; 5000]).unwrap_err().contains("4096"));
        assert!(file("good", &[b'x'; 16]).is_ok());
        assert!(Secret::read(dir.path()).unwrap_err().to_string().contains("not a regular file"));
        assert_eq!(Secret::read(&dir.path().join("none")).unwrap_err().kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn random_bytes_differ() {
        assert_ne!(random::<32>().unwrap(), random::<32>().unwrap());
    }
}
