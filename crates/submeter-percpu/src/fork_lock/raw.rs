//! A value under the lock.

use std::cell::UnsafeCell;
use std::mem::ManuallyDrop;

use super::{ForkLock, generation};
use crate::sync::atomic::{AtomicU32, Ordering};

/// A value that one thread of one process can use at a time: a forked child has a new value. That
/// of its parent may be half-changed by a thread that does not exist in the child.
pub(crate) struct ForkMutex<T> {
    lock: ForkLock,
    /// The fork generation to which the value belongs. Writer: the lock's holder.
    since: AtomicU32,
    value: UnsafeCell<ManuallyDrop<T>>,
}

// SAFETY: 1. The lock gives the value to one thread at a time. 2. It may be sent (`T: Send`).
unsafe impl<T: Send> Sync for ForkMutex<T> {}

impl<T: Default> Default for ForkMutex<T> {
    fn default() -> ForkMutex<T> {
        // The lock first: from then on forks are noticed.
        let lock = ForkLock::new();
        let since = AtomicU32::new(generation());
        ForkMutex { lock, since, value: UnsafeCell::default() }
    }
}

impl<T: Default> ForkMutex<T> {
    /// Calls `with`, which may neither call back here (it would wait for itself) nor run user code.
    pub(crate) fn with<R>(&self, with: impl FnOnce(&mut T) -> R) -> R {
        let _held = self.lock.lock();
        let here = generation();
        // Relaxed, here and below: read and written under the lock. A lock that was taken over
        // guards a value of another generation: its holder had stored its generation before it
        // changed the value.
        if self.since.load(Ordering::Relaxed) != here {
            // SAFETY: 1. `_held` excludes every other thread until the end of this function. 2. The
            // old value, perhaps half-changed, is not dropped.
            unsafe { self.value.get().write(ManuallyDrop::new(T::default())) };
            // Relaxed: as above. Stored after the value, in case the process is forked between the
            // two.
            self.since.store(here, Ordering::Relaxed);
        }
        // SAFETY: 1. As above. 2. This thread has no other reference: a `with` inside `with` would
        // not get the lock.
        with(unsafe { &mut *self.value.get() })
    }

    /// Makes the value look as it does in a forked child whose parent is using it.
    #[cfg(all(test, not(any(loom, miri))))]
    pub(crate) fn abandon(&self) {
        self.lock.abandon();
        // Relaxed: one thread.
        self.since.store(generation() + 7, Ordering::Relaxed);
    }
}

impl<T> Drop for ForkMutex<T> {
    fn drop(&mut self) {
        // Relaxed: no other thread has it.
        if self.since.load(Ordering::Relaxed) == generation() {
            // SAFETY: 1. It is dropped only here, and belongs to this process. A value of the
            // parent stays as it is, perhaps half-changed.
            unsafe { ManuallyDrop::drop(self.value.get_mut()) };
        }
    }
}

impl<T> std::fmt::Debug for ForkMutex<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ForkMutex")
    }
}
