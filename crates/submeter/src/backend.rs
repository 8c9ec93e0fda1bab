//! What this process makes its updates of.

use std::fmt;

use submeter_sys::{Probe, probe};

/// What the updates of this process are made of, and why not of something better: decided once, at
/// the first use, for as long as the process lives.
///
/// Results are the same on every backend; what an update costs is not. Show it where operators
/// look, so that they need not guess why one machine is slower than another.
#[derive(Clone, Copy)]
pub struct Backend {
    probe: &'static Probe,
}

/// Returns the backend of this process.
///
/// The first call decides, unless a tree exists already: that takes about a millisecond, and some
/// tens on a busy machine, because kernels are tested before they are relied on. Later calls cost a
/// load. Not to be called first in a signal handler.
///
/// # Examples
/// ```
/// let backend = submeter::backend();
/// println!("{backend}");
/// assert!(!backend.reason().is_empty());
/// ```
#[must_use]
pub fn backend() -> Backend {
    Backend { probe: probe() }
}

impl Backend {
    /// Returns the name, for people.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.probe.backend.name()
    }

    /// Returns the name, for labels and programs: `libc_rseq`, `own_rseq`, `locked_by_cpu` or
    /// `locked_by_thread`, best first.
    #[must_use]
    pub fn id(self) -> &'static str {
        self.probe.backend.id()
    }

    /// Returns why it is not a better one, with the names of what is in the way; on the best, what
    /// confirmed it.
    #[must_use]
    pub fn reason(self) -> &'static str {
        &self.probe.reason
    }

    /// Returns whether updates are restartable sequences: about a plain add each, where the
    /// fallback costs a locked instruction.
    #[must_use]
    pub fn is_restartable(self) -> bool {
        self.probe.rseq().is_some()
    }
}

/// One line: the name, and the reason.
impl fmt::Display for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, because {}", self.name(), self.reason())
    }
}

impl fmt::Debug for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Backend").field("id", &self.id()).field("reason", &self.reason()).finish()
    }
}
