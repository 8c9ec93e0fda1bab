//! What an event group has counted, where other threads can read it.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// The closed intervals of one event group on one thread. Only that thread writes; anybody may read.
///
/// The time that it could have counted is written before the time that it did, and that before the values: whoever reads
/// in the other order sees no value without its time. What a reader can miss is the rest of the interval that is
/// being closed.
#[derive(Debug)]
pub(crate) struct Published {
    enabled_ns: AtomicU64,
    running_ns: AtomicU64,
    failed: AtomicBool,
    values: Box<[AtomicU64]>,
}

impl Published {
    pub(super) fn new(values: usize) -> Published {
        Published {
            enabled_ns: AtomicU64::new(0),
            running_ns: AtomicU64::new(0),
            failed: AtomicBool::new(false),
            values: (0..values).map(|_| AtomicU64::new(0)).collect(),
        }
    }

    /// Adds to a number that only this thread writes: no locked instruction is needed.
    #[inline]
    fn add(to: &AtomicU64, n: u64) {
        // Relaxed: this thread's own last store.
        let before = to.load(Ordering::Relaxed);
        // Release: pairs with the Acquire loads of a reader in the other order, so that who sees this number sees those
        // that were written before it.
        to.store(before.wrapping_add(n), Ordering::Release);
    }

    #[inline]
    pub(super) fn add_enabled(&self, ns: u64) {
        Self::add(&self.enabled_ns, ns);
    }

    #[inline]
    pub(super) fn add_running(&self, ns: u64) {
        Self::add(&self.running_ns, ns);
    }

    #[inline]
    pub(super) fn add_value(&self, index: usize, n: u64) {
        Self::add(&self.values[index], n);
    }

    pub(super) fn fail(&self) {
        // Release: as in `add`.
        self.failed.store(true, Ordering::Release);
    }

    /// Returns how many events there are.
    pub(crate) fn events(&self) -> usize {
        self.values.len()
    }

    /// Returns what event `index` has counted. To be read before [`running_ns`](Published::running_ns).
    pub(crate) fn value(&self, index: usize) -> u64 {
        // Acquire: pairs with the Release in `add`, so that the times that are loaded next are no older.
        self.values[index].load(Ordering::Acquire)
    }

    /// Returns how long it counted. To be read before [`enabled_ns`](Published::enabled_ns).
    pub(crate) fn running_ns(&self) -> u64 {
        // Acquire: as in `value`.
        self.running_ns.load(Ordering::Acquire)
    }

    /// Returns how long it could have counted.
    pub(crate) fn enabled_ns(&self) -> u64 {
        // Acquire: as in `value`.
        self.enabled_ns.load(Ordering::Acquire)
    }

    /// Returns whether it was in error at any time: then nobody knows what is missing.
    pub(crate) fn failed(&self) -> bool {
        // Acquire: pairs with the Release in `fail`.
        self.failed.load(Ordering::Acquire)
    }
}
