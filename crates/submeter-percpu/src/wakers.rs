//! Those that wait for one event, each with a waker.

use std::collections::BTreeMap;
use std::task::Waker;

use crate::fork_lock::ForkMutex;
use crate::sync::atomic::{AtomicU64, Ordering};

/// Those that wait for one event, by tickets: one that gives up leaves without a look at the
/// others.
///
/// In a forked child nobody waits: the tasks of its parent may belong to a runtime that the child
/// does not have, and to wake or to drop their wakers could hang. A task that is polled in the
/// child, with the ticket that it has, waits there from then on.
///
/// Wakers run a user's code. A caller that takes one out wakes or drops it afterwards, without the
/// lock.
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
    /// The next ticket. Not under the lock: a child goes on where its parent was, so that no two
    /// tasks have one ticket.
    next: AtomicU64,
    waiting: ForkMutex<BTreeMap<u64, Waker>>,
}

impl Wakers {
    /// Has `waker` wait. Returns its ticket, which is a new one if it has none, and the waker that
    /// it had.
    pub fn insert(&self, ticket: Option<u64>, waker: Waker) -> (u64, Option<Waker>) {
        // Relaxed: only uniqueness matters.
        let ticket = ticket.unwrap_or_else(|| self.next.fetch_add(1, Ordering::Relaxed));
        (ticket, self.waiting.with(|waiting| waiting.insert(ticket, waker)))
    }

    /// Has the waker of a ticket not wait any more.
    pub fn remove(&self, ticket: u64) -> Option<Waker> {
        self.waiting.with(|waiting| waiting.remove(&ticket))
    }

    /// Takes all, in the order in which they came.
    pub fn take(&self) -> BTreeMap<u64, Waker> {
        self.waiting.with(std::mem::take)
    }

    /// Returns how many wait.
    #[must_use]
    pub fn count(&self) -> usize {
        self.waiting.with(|waiting| waiting.len())
    }
}

// Not for Miri: a child leaves what its parent had where it is.
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

    /// A child has nobody waiting, and gives nobody a ticket of its parent.
    #[test]
    fn a_child_has_none_of_its_parents_waits() {
        let waiting = Wakers::default();
        let insert = |ticket| waiting.insert(ticket, Waker::noop().clone());
        let ([first, second], _) = ([0; 2].map(|_| insert(None).0), waiting.count());
        waiting.waiting.abandon();
        // A lock that a thread left behind is nobody's here.
        let third = insert(None).0;
        assert!(third > second && waiting.count() == 1);
        assert!(waiting.remove(first).is_none(), "it does not wait here");
        // It is asked here, and waits.
        assert!(insert(Some(second)).1.is_none());
        assert_eq!(waiting.take().into_keys().collect::<Vec<_>>(), [second, third]);
    }
}
