//! The waiters for one event, each with a waker.

use std::collections::BTreeMap;
use std::task::Waker;

use crate::fork_lock::ForkMutex;
use crate::sync::atomic::{AtomicU64, Ordering};

/// The waiters for one event, by ticket: a waiter that gives up leaves without a search through the
/// others.
///
/// A forked child starts without waiters: the tasks of its parent may belong to a runtime that the
/// child does not have, and waking or dropping their wakers could hang. A task that is polled in
/// the child, with its existing ticket, waits there from then on.
///
/// Wakers run user code. A caller that takes one out wakes or drops it after the lock is released.
///
/// # Examples
/// ```
/// use std::task::Waker;
///
/// use submeter_percpu::wakers::Wakers;
///
/// let waiting = Wakers::default();
/// let (ticket, _) = waiting.insert(None, Waker::noop().clone());
/// let (same, old) = waiting.insert(Some(ticket), Waker::noop().clone());
/// assert!(same == ticket && old.is_some());
/// assert!(waiting.remove(ticket).is_some() && waiting.take().is_empty());
/// ```
#[derive(Debug, Default)]
pub struct Wakers {
    /// The next ticket. Not under the lock: a child continues from its parent's ticket, so that no
    /// two tasks have the same one.
    next: AtomicU64,
    waiting: ForkMutex<BTreeMap<u64, Waker>>,
}

impl Wakers {
    /// Makes `waker` wait. Returns its ticket, a new one if `ticket` is `None`, and the ticket's
    /// previous waker.
    pub fn insert(&self, ticket: Option<u64>, waker: Waker) -> (u64, Option<Waker>) {
        // Relaxed: only uniqueness matters.
        let ticket = ticket.unwrap_or_else(|| self.next.fetch_add(1, Ordering::Relaxed));
        (ticket, self.waiting.with(|waiting| waiting.insert(ticket, waker)))
    }

    /// Removes the waker of a ticket, which no longer waits.
    pub fn remove(&self, ticket: u64) -> Option<Waker> {
        self.waiting.with(|waiting| waiting.remove(&ticket))
    }

    /// Takes all wakers, in order of arrival.
    pub fn take(&self) -> BTreeMap<u64, Waker> {
        self.waiting.with(std::mem::take)
    }

    /// Returns the number of waiters.
    #[must_use]
    pub fn count(&self) -> usize {
        self.waiting.with(|waiting| waiting.len())
    }
}

// Not under Miri: a child leaks its parent's values.
#[cfg(all(test, not(any(loom, miri))))]
mod tests {
    use std::sync::Arc;
    use std::task::Wake;

    use super::*;

    struct OfTheParent;

    impl Wake for OfTheParent {
        fn wake(self: Arc<OfTheParent>) {}
    }

    #[test]
    fn a_child_drops_no_waker_of_its_parent() {
        let (waiting, task) = (Wakers::default(), Arc::new(OfTheParent));
        waiting.insert(None, Waker::from(Arc::clone(&task)));
        waiting.waiting.abandon();
        drop(waiting);
        assert_eq!(Arc::strong_count(&task), 2);
    }

    /// A child has no waiters, and hands out no ticket of its parent's.
    #[test]
    fn a_child_has_none_of_its_parents_waits() {
        let waiting = Wakers::default();
        let insert = |ticket| waiting.insert(ticket, Waker::noop().clone());
        let ([first, second], _) = ([0; 2].map(|_| insert(None).0), waiting.count());
        waiting.waiting.abandon();
        // A lock left behind by a thread has no holder here.
        let third = insert(None).0;
        assert!(third > second && waiting.count() == 1);
        assert!(waiting.remove(first).is_none(), "it does not wait here");
        // The task is polled here, and waits.
        assert!(insert(Some(second)).1.is_none());
        assert_eq!(waiting.take().into_keys().collect::<Vec<_>>(), [second, third]);
    }
}
