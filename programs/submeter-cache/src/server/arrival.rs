//! When a connection's bytes could be read; this shows the wait behind other connections.
//!
//! The clock is read when the worker learns of the bytes, once for each time that a connection is
//! woken, not when the connection's turn has come: between the two the worker serves the
//! connections in front of it. A busy worker learns of the bytes after 61 turns of others at the
//! latest, a limit of tokio's; the kernel does not say how long they have been there. Checking more
//! often would cost the others a system call.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Wake, Waker};

use crate::cache::Cache;

/// A waker of a connection's task that records the time.
struct Alarm {
    cache: Cache,
    /// A reading of the clock, or 0.
    rang: AtomicU64,
    task: Waker,
}

impl Wake for Alarm {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        // Relaxed: the task is woken after the store, which makes the store visible to it. The
        // first wake-up counts.
        if self.rang.load(Ordering::Relaxed) == 0 {
            self.rang.store(self.cache.store().clock.raw().max(1), Ordering::Relaxed);
        }
        self.task.wake_by_ref();
    }
}

/// When something arrived on a connection.
pub(super) struct Arrival {
    cache: Cache,
    alarm: Option<(Arc<Alarm>, Waker)>,
}

impl Arrival {
    pub(super) fn new(cache: Cache) -> Arrival {
        Arrival { cache, alarm: None }
    }

    /// Returns when the task was woken since the last call, if it was, and the waker for the next
    /// wait.
    pub(super) fn next(&mut self, task: &Waker) -> (Option<u64>, &Waker) {
        let is_known = self.alarm.as_ref().is_some_and(|(alarm, _)| alarm.task.will_wake(task));
        if !is_known {
            let (cache, task) = (self.cache.clone(), task.clone());
            let alarm = Arc::new(Alarm { cache, rang: AtomicU64::new(0), task });
            self.alarm = Some((Arc::clone(&alarm), alarm.into()));
        }
        let (alarm, waker) = self.alarm.as_ref().expect("it was just made");
        // Relaxed: as at the store.
        let rang = alarm.rang.swap(0, Ordering::Relaxed);
        (Some(rang).filter(|&rang| rang > 0), waker)
    }
}
