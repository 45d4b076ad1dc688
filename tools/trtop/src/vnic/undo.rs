//! What was done to a network device, so that it can be undone: noted before it is done, in a file that a restart of the host
//! removes as it removes the aliases.

use super::netdev;
use crate::error::Failure;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

/// One thing that was done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// A sysctl of the network device was changed.
    Sysctl {
        /// Its name.
        name: String,
        /// Its value before.
        before: u32,
        /// Its value since.
        since: u32,
    },
    /// An address was added.
    Address(String),
}

impl Step {
    fn line(&self) -> String {
        match self {
            Step::Sysctl { name, before, since } => format!("sysctl {name} {before} {since}\n"),
            Step::Address(a) => format!("address {a}\n"),
        }
    }

    fn parse(line: &str) -> Option<Step> {
        match *line.split_whitespace().collect::<Vec<_>>() {
            ["sysctl", name, before, since] if !name.contains('/') => {
                Some(Step::Sysctl { name: name.into(), before: before.parse().ok()?, since: since.parse().ok()? })
            }
            ["address", a] => Some(Step::Address(a.into())),
            _ => None,
        }
    }
}

/// The notes of one network device.
pub struct Notes {
    netdev: String,
    file: PathBuf,
}

impl Notes {
    /// Those in `/run/telereduce`.
    pub fn of(netdev: &str) -> Notes {
        Notes { netdev: netdev.into(), file: Path::new("/run/telereduce").join(format!("vnic-{netdev}")) }
    }

    /// What was done, oldest first; nothing, if there are no notes.
    pub fn steps(&self) -> Vec<Step> {
        fs::read_to_string(&self.file).unwrap_or_default().lines().filter_map(Step::parse).collect()
    }

    /// Addresses that were added.
    pub fn addresses(&self) -> Vec<String> {
        let address = |s| if let Step::Address(a) = s { Some(a) } else { None };
        self.steps().into_iter().filter_map(address).collect()
    }

    /// Notes a step and does it; if it fails, it is not noted any more.
    ///
    /// # Errors
    /// It cannot be noted or done.
    pub fn take(&self, step: &Step) -> Result<(), Failure> {
        let before = self.steps();
        self.write(&[&before[..], core::slice::from_ref(step)].concat())?;
        self.done(step).inspect_err(|_| drop(self.write(&before)))
    }

    fn done(&self, step: &Step) -> Result<(), Failure> {
        match step {
            Step::Sysctl { name, since, .. } => self.set(name, *since),
            Step::Address(a) => netdev::ip(&["address", "add", a, "dev", &self.netdev]).map(drop),
        }
    }

    /// Undoes the newest step. `None`: there is none. What somebody else has changed since stays as it is.
    ///
    /// # Errors
    /// It cannot be undone.
    pub fn take_back(&self) -> Result<Option<Step>, Failure> {
        let mut steps = self.steps();
        let Some(step) = steps.pop() else { return Ok(None) };
        match &step {
            Step::Sysctl { name, before, since } => {
                if netdev::value(&netdev::sysctl(&self.netdev, name)).is_ok_and(|now| now == *since) {
                    self.set(name, *before)?;
                }
            }
            Step::Address(a) => {
                if netdev::addresses()?.iter().any(|(n, c)| *n == self.netdev && c.to_string() == *a) {
                    netdev::ip(&["address", "del", a, "dev", &self.netdev])?;
                }
            }
        }
        self.write(&steps)?;
        Ok(Some(step))
    }

    fn set(&self, name: &str, value: u32) -> Result<(), Failure> {
        let file = netdev::sysctl(&self.netdev, name);
        fs::write(&file, format!("{value}\n"))
            .map_err(|e| Failure::new(format!("cannot write {}: {e}", file.display())))
    }

    fn write(&self, steps: &[Step]) -> Result<(), Failure> {
        let failed = |e: std::io::Error| Failure::new(format!("cannot write {}: {e}", self.file.display()));
        if steps.is_empty() {
            return match fs::remove_file(&self.file) {
                Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(failed(e)),
                _ => Ok(()),
            };
        }
        let folder = self.file.parent().expect("a file in a folder");
        fs::create_dir_all(folder).map_err(failed)?;
        let next = self.file.with_extension("next");
        let text: String = steps.iter().map(Step::line).collect();
        let written =
            fs::File::create(&next).and_then(|mut f| f.write_all(text.as_bytes()).and_then(|()| f.sync_all()));
        written.and_then(|()| fs::rename(&next, &self.file)).map_err(failed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_is_read_as_it_was_written() {
        let steps =
            [Step::Sysctl { name: "arp_ignore".into(), before: 0, since: 1 }, Step::Address("10.9.0.16/16".into())];
        for s in steps {
            assert_eq!(Step::parse(s.line().trim()), Some(s));
        }
        for bad in ["", "sysctl arp_ignore 0", "sysctl ../../x 0 1", "sysctl x y 1", "address", "route 1 2"] {
            assert_eq!(Step::parse(bad), None, "{bad}");
        }
    }
}
