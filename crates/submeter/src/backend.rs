//! The backend of this process's updates.

use std::fmt;

use submeter_sys::{Probe, probe};

/// The backend of this process's updates, and the reason why it is not a faster one. It is chosen
/// once, at first use, and never changes.
///
/// Every backend gives the same results, but updates cost differently. Show the backend where
/// operators look, so that they need not guess why one machine is slower than another.
#[derive(Clone, Copy)]
pub struct Backend {
    probe: &'static Probe,
}

/// Returns the backend of this process.
///
/// The first call chooses the backend, unless a tree already exists. That takes about a
/// millisecond, or tens of milliseconds on a busy machine, because the kernel is tested first.
/// Later calls cost a load. The first call must not be in a signal handler.
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
    /// Returns the name for display.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.probe.backend.name()
    }

    /// Returns the name for labels and programs. Best first: `libc_rseq`, `own_rseq`,
    /// `locked_by_cpu`, `locked_by_thread`.
    #[must_use]
    pub fn id(self) -> &'static str {
        self.probe.backend.id()
    }

    /// Returns why it is not a better one, naming the obstacle; for the best one, what confirmed
    /// it.
    #[must_use]
    pub fn reason(self) -> &'static str {
        &self.probe.reason
    }
}

/// Writes one line with the name and the reason.
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
