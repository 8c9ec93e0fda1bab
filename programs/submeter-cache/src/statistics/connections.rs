//! How many connections there are and were.

use std::sync::atomic::{AtomicU64, Ordering};

/// The numbers of a cache's connections.
#[derive(Debug, Default)]
pub(crate) struct Connections {
    current: AtomicU64,
    total: AtomicU64,
}

/// Counts one connection while it is open, however its task ends.
pub(crate) struct OpenConnection<'a>(&'a Connections);

impl Connections {
    pub(crate) fn open(&self) -> OpenConnection<'_> {
        // Relaxed: statistics, all of them here.
        self.current.fetch_add(1, Ordering::Relaxed);
        self.total.fetch_add(1, Ordering::Relaxed);
        OpenConnection(self)
    }

    pub(crate) fn current(&self) -> u64 {
        // Relaxed: a statistic.
        self.current.load(Ordering::Relaxed)
    }

    pub(crate) fn total(&self) -> u64 {
        // Relaxed: a statistic.
        self.total.load(Ordering::Relaxed)
    }
}

impl Drop for OpenConnection<'_> {
    fn drop(&mut self) {
        // Relaxed: a statistic.
        self.0.current.fetch_sub(1, Ordering::Relaxed);
    }
}
