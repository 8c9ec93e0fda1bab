//! The callbacks of a group that can free some of a quota, and the outcome of their calls.

use std::any::Any;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use submeter_percpu::process_lock::ProcessMutex;

/// A callback without its type, because the type names the group: so a group need not know what
/// calls it.
pub(crate) type Callback = Arc<dyn Any + Send + Sync>;

/// The callbacks of one group and of those below it, for one quota, and the outcome of the group's
/// own.
///
/// A callback is in the registry of every group above its own as well, so a limit finds those below
/// it without a look at groups that have none.
#[derive(Default)]
pub(crate) struct Registry {
    /// By number. Not locked while a callback runs.
    entries: ProcessMutex<BTreeMap<u64, Callback>>,
    /// How much less the group used after a callback was called.
    reclaimed: AtomicU64,
    /// How often a callback was asked to free what `low` protects.
    reclaimed_low: AtomicU64,
    panics: AtomicU64,
}

/// The outcome of a group's own callbacks.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    pub(crate) reclaimed: u64,
    pub(crate) reclaimed_low: u64,
    pub(crate) panics: u64,
}

impl Registry {
    /// # Panics
    /// In a forked child in which a thread stayed behind with the lock.
    pub(crate) fn insert(&self, number: u64, callback: Callback) {
        self.entries.lock().insert(number, callback);
    }

    pub(crate) fn remove(&self, number: u64) {
        let entries = self.entries.lock_unless_abandoned();
        // In two steps, so that the callback is dropped after the lock is released: this may be its
        // last reference.
        let removed = entries.map(|mut entries| entries.remove(&number));
        drop(removed);
    }

    pub(crate) fn entries(&self) -> Vec<Callback> {
        let entries = self.entries.lock_unless_abandoned();
        entries.map(|entries| entries.values().cloned().collect()).unwrap_or_default()
    }

    pub(crate) fn count(&self, freed: u64, below_low: bool, panicked: bool) {
        // Relaxed, all three: statistics.
        self.reclaimed.fetch_add(freed, Ordering::Relaxed);
        self.reclaimed_low.fetch_add(u64::from(below_low), Ordering::Relaxed);
        self.panics.fetch_add(u64::from(panicked), Ordering::Relaxed);
    }

    pub(crate) fn counts(&self) -> Counts {
        // Relaxed: statistics that need not agree with each other.
        let load = |word: &AtomicU64| word.load(Ordering::Relaxed);
        let [reclaimed, reclaimed_low, panics] =
            [&self.reclaimed, &self.reclaimed_low, &self.panics].map(load);
        Counts { reclaimed, reclaimed_low, panics }
    }
}
