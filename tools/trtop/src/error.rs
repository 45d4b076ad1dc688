//! How a command ends when it cannot do what was asked.

use std::io;

/// What was wrong, where and what to do, and the exit code that goes with it.
#[derive(Debug)]
pub struct Failure {
    /// Exit code, as `trtop --help` lists them.
    pub code: u8,
    /// One line for stderr; empty = say nothing.
    pub message: String,
}

impl Failure {
    /// Exit code 1.
    pub fn new(message: impl Into<String>) -> Failure {
        Failure { code: 1, message: message.into() }
    }

    /// A write to standard output failed. A reader that went away (`trtop ls | head`) is not a failure worth a word.
    pub fn output(e: &io::Error) -> Failure {
        if e.kind() == io::ErrorKind::BrokenPipe {
            Failure { code: 0, message: String::new() }
        } else {
            Failure::new(format!("cannot write to standard output: {e}"))
        }
    }
}

/// What a command returns.
pub type Outcome = Result<(), Failure>;

/// Writes all of `text` to standard output.
///
/// # Errors
/// See [`Failure::output`].
pub fn print(text: &str) -> Outcome {
    use io::Write;
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(|e| Failure::output(&e))
}
