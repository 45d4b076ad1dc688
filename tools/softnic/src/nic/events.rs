//! Queues of events that any process of the network can append to, and whose owner waits at a file descriptor: FIFOs.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// An event: what happened, and to what, as its owner calls it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// `IBV_EVENT_*`, or [`COMPLETION`].
    pub kind: u32,
    /// The object.
    pub name: u64,
}

/// A CQ has a completion.
pub const COMPLETION: u32 = 1000;
/// The owner shall look after its QPs.
pub const ATTENTION: u32 = 1001;

const BYTES: usize = 16;

/// A queue, for its owner.
pub struct Queue {
    /// Number in its process.
    pub id: u32,
    path: PathBuf,
    /// Readable while there is an event.
    pub file: File,
}

fn open(path: &Path, flags: i32) -> io::Result<File> {
    // For reading too, so that a writer is never without a reader: no SIGPIPE, no end of file.
    OpenOptions::new().read(true).write(true).custom_flags(flags | libc::O_CLOEXEC).open(path)
}

impl Queue {
    /// Makes a queue.
    pub fn new(id: u32, path: PathBuf) -> io::Result<Queue> {
        let name = std::ffi::CString::new(path.as_os_str().as_bytes())?;
        // SAFETY: a valid path.
        if unsafe { libc::mkfifo(name.as_ptr(), 0o600) } != 0 {
            return Err(io::Error::last_os_error());
        }
        let file = open(&path, 0)?;
        Ok(Queue { id, path, file })
    }

    /// Waits for the next event, unless the program has made the descriptor non-blocking.
    pub fn next(&self) -> io::Result<Event> {
        let mut bytes = [0; BYTES];
        (&self.file).read_exact(&mut bytes)?;
        let (kind, name) = (u64::from_le_bytes(half(&bytes, 0)), u64::from_le_bytes(half(&bytes, 8)));
        Ok(Event { kind: kind as u32, name })
    }
}

fn half(bytes: &[u8; BYTES], at: usize) -> [u8; 8] {
    bytes[at..at + 8].try_into().expect("8 bytes")
}

impl Drop for Queue {
    fn drop(&mut self) {
        // It may have been swept away.
        drop(std::fs::remove_file(&self.path));
    }
}

/// A queue of whomever, for appending.
pub struct Appender(File);

impl Appender {
    /// Opens a queue.
    pub fn open(path: &Path) -> io::Result<Appender> {
        open(path, libc::O_NONBLOCK).map(Appender)
    }

    /// Appends. A queue that is full (4,096 events) loses it, as a NIC's event queue overflows.
    pub fn append(&self, event: Event) -> bool {
        let mut bytes = [0; BYTES];
        bytes[..8].copy_from_slice(&u64::from(event.kind).to_le_bytes());
        bytes[8..].copy_from_slice(&event.name.to_le_bytes());
        // Less than PIPE_BUF: all or nothing.
        (&self.0).write(&bytes).is_ok_and(|n| n == BYTES)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_arrive_in_order_until_the_queue_is_full() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("q");
        let queue = Queue::new(1, path.clone()).expect("a queue");
        let a = Appender::open(&path).expect("the queue");
        let n = (0..10_000).take_while(|n| a.append(Event { kind: 3, name: *n })).count() as u64;
        assert_eq!(n, 4096);
        for name in 0..n {
            assert_eq!(queue.next().expect("an event"), Event { kind: 3, name });
        }
        drop(queue);
        assert!(!path.exists());
    }
}
