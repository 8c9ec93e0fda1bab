//! Those that wait for the kill of a group.

use std::collections::BTreeMap;
use std::task::Waker;

use submeter_percpu::process_lock::ProcessMutex;
use submeter_sys::fork;

/// Those that wait for the kill of one group.
pub(crate) struct KillWaits {
    waits: ProcessMutex<Waits>,
}

struct Waits {
    next: u64,
    /// By their tickets: one that gives up leaves without a look at the others.
    wakers: BTreeMap<u64, Waker>,
    /// The fork generation in which they began to wait.
    since: u32,
}

impl Waits {
    /// Forgets those that waited when a fork copied this process: their wakers may be of a runtime
    /// that does not exist here, which to wake or to drop could hang.
    fn of_this_process(&mut self) -> &mut Waits {
        if !fork::is(self.since) {
            std::mem::forget(std::mem::take(&mut self.wakers));
            self.since = fork::generation();
        }
        self
    }
}

impl Default for KillWaits {
    fn default() -> KillWaits {
        let waits = Waits { next: 0, wakers: BTreeMap::new(), since: fork::generation() };
        KillWaits { waits: ProcessMutex::new(waits) }
    }
}

impl KillWaits {
    /// Returns its ticket, which is a new one if it has none, and the waker that it had.
    pub(crate) fn insert(&self, ticket: Option<u64>, waker: Waker) -> (u64, Option<Waker>) {
        let mut waits = self.waits.lock();
        let waits = waits.of_this_process();
        let ticket = ticket.unwrap_or(waits.next);
        waits.next = waits.next.max(ticket + 1);
        (ticket, waits.wakers.insert(ticket, waker))
    }

    pub(crate) fn remove(&self, ticket: u64) -> Option<Waker> {
        self.waits.lock_unless_abandoned()?.of_this_process().wakers.remove(&ticket)
    }

    /// Takes all. Where a thread stayed behind at a fork, those that wait are not of this process.
    pub(crate) fn take(&self) -> BTreeMap<u64, Waker> {
        let waits = self.waits.lock_unless_abandoned();
        let take = |waits: &mut Waits| std::mem::take(&mut waits.of_this_process().wakers);
        waits.map(|mut waits| take(&mut waits)).unwrap_or_default()
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.waits.lock().wakers.len()
    }
}
