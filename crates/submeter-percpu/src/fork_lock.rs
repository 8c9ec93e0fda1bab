//! A lock for changes of mode, which a fork cannot leave locked.
//!
//! Held for some tens of instructions, never across a barrier or a callback: waiting is spinning,
//! then sleeping. A thread that held it in the parent does not exist in a forked child; its
//! generation tells, and the lock is taken from it. A change to the guarded state must therefore be
//! written so that the next holder can continue it wherever it stopped.

use crate::sync::atomic::{AtomicU32, Ordering};

#[expect(unsafe_code, reason = "a value under the lock")]
mod raw;

pub(crate) use raw::ForkMutex;

#[derive(Debug)]
pub(crate) struct ForkLock {
    /// The holder's fork generation, 0 when free.
    holder: AtomicU32,
}

/// Shows that the lock is held; lets go when dropped.
pub(crate) struct Held<'a> {
    lock: &'a ForkLock,
}

impl ForkLock {
    pub(crate) fn new() -> ForkLock {
        watch();
        ForkLock { holder: AtomicU32::new(0) }
    }

    /// Makes it look as a fork leaves it whose parent holds it.
    #[cfg(all(test, not(loom)))]
    pub(crate) fn abandon(&self) {
        // Relaxed: one thread.
        self.holder.store(generation() + 7, Ordering::Relaxed);
    }

    pub(crate) fn lock(&self) -> Held<'_> {
        let mut rounds = 0;
        loop {
            match self.try_lock() {
                Some(held) => return held,
                None => wait(&mut rounds),
            }
        }
    }

    /// Lets go of what the calling thread holds.
    pub(crate) fn unlock(&self) {
        // Release: pairs with the Acquire in `try_lock`.
        self.holder.store(0, Ordering::Release);
    }

    /// Returns `None` where another thread of this process holds it, or was faster.
    pub(crate) fn try_lock(&self) -> Option<Held<'_>> {
        let here = generation();
        // Acquire: pairs with the Release in `unlock`. Relaxed on failure: the caller reads nothing
        // then.
        match self.holder.compare_exchange(0, here, Ordering::Acquire, Ordering::Relaxed) {
            Ok(_) => Some(Held { lock: self }),
            Err(holder) if holder == here => None,
            Err(holder) => {
                // Acquire: as above; all that the fork copied is visible anyway. Relaxed on
                // failure: another thread of this process was faster.
                let (order, failed) = (Ordering::Acquire, Ordering::Relaxed);
                let stolen = self.holder.compare_exchange(holder, here, order, failed);
                stolen.ok().map(|_| Held { lock: self })
            }
        }
    }
}

impl Held<'_> {
    /// Leaves it locked, for [`ForkLock::unlock`]: a holder of many locks has no place for so many
    /// guards.
    #[cfg(not(loom))]
    pub(crate) fn leave_locked(self) {
        std::mem::forget(self);
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.lock.unlock();
    }
}

#[cfg(not(loom))]
fn wait(rounds: &mut u32) {
    *rounds += 1;
    match rounds {
        // Not a futex: the holder is at most descheduled, and nothing hot waits here.
        0..100 => std::hint::spin_loop(),
        100..200 => std::thread::yield_now(),
        _ => std::thread::sleep(std::time::Duration::from_micros(50)),
    }
}

#[cfg(loom)]
fn wait(_: &mut u32) {
    loom::thread::yield_now();
}

#[cfg(not(loom))]
use submeter_sys::fork::{generation, watch};

#[cfg(loom)]
fn generation() -> u32 {
    1
}

#[cfg(loom)]
fn watch() {}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn it_excludes() {
        let (lock, inside) = (ForkLock::new(), AtomicU32::new(0));
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..if cfg!(miri) { 20 } else { 5_000 } {
                        let held = lock.lock();
                        // Relaxed: the lock is what is tested.
                        let before = inside.load(Ordering::Relaxed);
                        inside.store(before + 1, Ordering::Relaxed);
                        drop(held);
                    }
                });
            }
        });
        assert_eq!(inside.into_inner(), 4 * if cfg!(miri) { 20 } else { 5_000 });
    }

    #[test]
    fn a_holder_of_another_generation_is_dispossessed() {
        let lock = ForkLock::new();
        lock.abandon();
        drop(lock.lock());
        assert_eq!(lock.holder.into_inner(), 0);
    }
}
