//! A file of ours in a process whose program may close our descriptor, and open a file of its own under the number, at any
//! time: each call looks first.

use crate::shm::segment::{above_standard, identity};
use core::mem::ManuallyDrop;
use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Bytes of one write.
const AT_ONCE: usize = 64 << 10;

/// A new file that is written from its beginning to its end.
pub struct OwnFile {
    file: ManuallyDrop<File>,
    inode: (u64, u64),
}

impl OwnFile {
    /// A new file. One that exists is not touched.
    ///
    /// # Errors
    /// As open says.
    pub fn create(path: &Path) -> io::Result<OwnFile> {
        let file = OpenOptions::new().append(true).create_new(true).mode(0o644).open(path)?;
        let file = above_standard(file)?;
        let inode = identity(file.as_raw_fd()).unwrap_or_default();
        Ok(OwnFile { file: ManuallyDrop::new(file), inode })
    }

    /// Appends all of `bytes`.
    ///
    /// # Errors
    /// As write says, or that the program has closed the file. Some of it may be written.
    pub fn write(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            if !self.is_ours() {
                return Err(io::Error::other("the program closed its descriptor"));
            }
            match self.file.write(&bytes[..bytes.len().min(AT_ONCE)]) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(n) => bytes = &bytes[n..],
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }

    /// Cuts it to so many bytes, if that can be done.
    pub fn cut(&mut self, bytes: u64) {
        if self.is_ours() {
            let _ = self.file.set_len(bytes);
        }
    }

    /// Whether the descriptor still is this file's.
    pub fn is_ours(&self) -> bool {
        identity(self.file.as_raw_fd()) == Some(self.inode)
    }

    /// The descriptor.
    pub fn descriptor(&self) -> RawFd {
        self.file.as_raw_fd()
    }
}

impl Drop for OwnFile {
    /// Closes it, unless its number is another file's by now.
    fn drop(&mut self) {
        if self.is_ours() {
            // SAFETY: dropped once, here.
            unsafe { ManuallyDrop::drop(&mut self.file) };
        }
    }
}

/// What is in a directory, for tests.
#[cfg(test)]
pub(crate) fn names(dir: &Path) -> Vec<String> {
    let mut all: Vec<_> =
        std::fs::read_dir(dir).unwrap().map(|f| f.unwrap().file_name().into_string().unwrap()).collect();
    all.sort();
    all
}
