//! Locks that detect that their holder was left behind by a fork.
//!
//! A forked child inherits the locks that other threads of its parent held, and no thread of the
//! child releases them. The guarded state may be half-changed, so these locks cannot be taken over,
//! as `percpu_ref` takes over states that were designed for it. A caller gets an error within
//! seconds instead of hanging.
//!
//! Locks that were free at the fork work in the child as usual. This is why they are built on
//! std's, whose state is one word: parking_lot has a process-wide table with locks of its own.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{
    Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard, TryLockError,
    TryLockResult,
};
use std::time::{Duration, Instant};

use submeter_sys::fork::{generation, is, watch};

/// Time for which a lock is tried whose holder may have been left behind. The holder may also be a
/// thread of this process that lost the CPU before it stored its generation.
const PATIENCE: Duration = Duration::from_millis(250);

/// The message for a caller that cannot continue.
const ABANDONED: &str = "the process was forked while another thread was changing the tree, and \
     that thread does not exist in this child: here the tree can only count and read what it has; \
     exec first, or fork while no thread flushes, creates or kills groups";

/// A mutual-exclusion lock.
#[derive(Debug)]
pub struct ProcessMutex<T> {
    /// The generation of the process that took the lock last, or made it: there no holder can be
    /// missing. It is never reset, since it matters only to threads that find the lock held.
    taken_in: AtomicU32,
    /// The generation of the process that has given up on it.
    abandoned_in: AtomicU32,
    value: Mutex<T>,
}

impl<T: Default> Default for ProcessMutex<T> {
    fn default() -> ProcessMutex<T> {
        ProcessMutex::new(T::default())
    }
}

impl<T> ProcessMutex<T> {
    /// Makes a free lock.
    pub fn new(value: T) -> ProcessMutex<T> {
        watch();
        let (taken_in, abandoned_in) = (AtomicU32::new(generation()), AtomicU32::new(0));
        ProcessMutex { taken_in, abandoned_in, value: Mutex::new(value) }
    }

    /// Waits for the lock.
    ///
    /// # Panics
    /// When a fork left its holder behind.
    pub fn lock(&self) -> MutexGuard<'_, T> {
        self.lock_unless_abandoned().expect(ABANDONED)
    }

    /// Takes the lock if it is free.
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        let guard = unpoisoned(self.value.try_lock())?;
        // Relaxed: a thread that finds the lock held reads this number, and reads it again if it
        // came too early.
        self.taken_in.store(generation(), Ordering::Relaxed);
        Some(guard)
    }

    /// Waits for the lock; `None` when a fork left its holder behind. For use in a `drop`, which
    /// must not panic, and may leave memory in use.
    pub fn lock_unless_abandoned(&self) -> Option<MutexGuard<'_, T>> {
        self.try_lock().or_else(|| self.wait())
    }

    #[cold]
    #[inline(never)]
    fn wait(&self) -> Option<MutexGuard<'_, T>> {
        let (start, here) = (Instant::now(), generation());
        // Relaxed, here and below: they are only numbers, from this process or from before the
        // fork. They are compared with a number that is never 0: `is` treats a child that has no
        // number yet as 0.
        while self.taken_in.load(Ordering::Relaxed) != here {
            if let Some(guard) = self.try_lock() {
                return Some(guard);
            }
            // Relaxed: as above.
            let abandoned = self.abandoned_in.load(Ordering::Relaxed) == here;
            if abandoned || start.elapsed() > PATIENCE {
                // Relaxed: as above. The next caller need not be patient.
                self.abandoned_in.store(here, Ordering::Relaxed);
                return None;
            }
            std::thread::sleep(Duration::from_micros(50));
        }
        // A thread of this process has taken it since the fork, and will release it.
        Some(self.value.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// State under a lock, of which a forked child keeps only what holds there too: before its first
/// use, it begins anew.
#[derive(Debug)]
pub struct PerProcess<T>(ProcessMutex<Since<T>>);

#[derive(Debug)]
struct Since<T> {
    /// The generation of the process that used it last.
    generation: u32,
    state: T,
}

impl<T> PerProcess<T> {
    /// Makes the state of this process.
    pub fn new(state: T) -> PerProcess<T> {
        // Forks are noticed before the number is read.
        watch();
        PerProcess(ProcessMutex::new(Since { generation: generation(), state }))
    }

    /// Calls `act` with the state; before that, once in each forked child, `begin_anew`. `None`
    /// when a fork left a thread behind that holds the lock: then the state is unusable here.
    pub fn with<R>(
        &self,
        begin_anew: impl FnOnce(&mut T),
        act: impl FnOnce(&mut T) -> R,
    ) -> Option<R> {
        let mut since = self.0.lock_unless_abandoned()?;
        if !is(since.generation) {
            begin_anew(&mut since.state);
            since.generation = generation();
        }
        Some(act(&mut since.state))
    }
}

/// A lock for many readers or one writer.
#[derive(Debug)]
pub struct ProcessRwLock<T> {
    /// The generation of the process that made the lock, in which no holder can be missing.
    made_in: u32,
    value: RwLock<T>,
}

impl<T: Default> Default for ProcessRwLock<T> {
    fn default() -> ProcessRwLock<T> {
        watch();
        ProcessRwLock { made_in: generation(), value: RwLock::default() }
    }
}

impl<T> ProcessRwLock<T> {
    /// Waits until there is no writer.
    ///
    /// # Panics
    /// When a fork left a writer behind.
    #[inline]
    pub fn read(&self) -> RwLockReadGuard<'_, T> {
        if is(self.made_in) {
            return self.value.read().unwrap_or_else(PoisonError::into_inner);
        }
        patiently(|| unpoisoned(self.value.try_read()))
    }

    /// Waits until the lock is free.
    ///
    /// # Panics
    /// When a fork left a holder behind.
    #[inline]
    pub fn write(&self) -> RwLockWriteGuard<'_, T> {
        if is(self.made_in) {
            return self.value.write().unwrap_or_else(PoisonError::into_inner);
        }
        patiently(|| unpoisoned(self.value.try_write()))
    }
}

/// Polls for a limited time, for a child, where the holder may never release the lock.
#[cold]
#[inline(never)]
fn patiently<G>(mut take: impl FnMut() -> Option<G>) -> G {
    let start = Instant::now();
    loop {
        if let Some(guard) = take() {
            return guard;
        }
        assert!(start.elapsed() < 20 * PATIENCE, "{ABANDONED}");
        std::thread::sleep(Duration::from_micros(50));
    }
}

/// Ignores poisoning: a holder that panicked leaves the guarded state as a return would, since
/// callbacks are contained.
fn unpoisoned<G>(result: TryLockResult<G>) -> Option<G> {
    match result {
        Ok(guard) => Some(guard),
        Err(TryLockError::Poisoned(guard)) => Some(guard.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_excludes_and_a_panic_lets_go() {
        let lock = ProcessMutex::new(0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..if cfg!(miri) { 20 } else { 2_000 } {
                        *lock.lock() += 1;
                    }
                });
            }
            let panics = || {
                let _held = lock.lock();
                panic!("as the test wants");
            };
            assert!(scope.spawn(panics).join().is_err());
        });
        assert_eq!(*lock.lock(), 4 * if cfg!(miri) { 20 } else { 2_000 });
        let held = lock.lock();
        assert!(lock.try_lock().is_none());
        drop(held);
        assert!(lock.try_lock().is_some());
    }

    /// A lock whose holder a fork left behind is given up; one that is released is taken.
    #[test]
    fn a_lock_left_behind_by_a_fork_is_given_up() {
        let lock = ProcessMutex::new(7);
        let held = lock.lock();
        // This is the state after a fork. Relaxed: one thread.
        lock.taken_in.store(generation() + 7, Ordering::Relaxed);
        assert!(lock.lock_unless_abandoned().is_none());
        // From now on no caller is patient. Several attempts, since this thread may lose the CPU in
        // one.
        let is_quick = || {
            let again = Instant::now();
            assert!(lock.lock_unless_abandoned().is_none());
            again.elapsed() < PATIENCE
        };
        assert!((0..20).any(|_| is_quick()));
        drop(held);
        assert_eq!(lock.lock_unless_abandoned().as_deref(), Some(&7));
    }
}
