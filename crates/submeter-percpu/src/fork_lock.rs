//! A lock for changes of mode and the like that a fork cannot leave locked.
//!
//! It is held for some tens of instructions, or for a sum over all CPUs, never across a barrier or
//! a callback, so waiters spin and then sleep. A thread that held it in the parent does not exist
//! in a forked child; its generation shows that, and the lock is taken over. A change to the
//! guarded state must therefore be written so that the next holder can continue it wherever it
//! stopped.

use crate::sync::atomic::{AtomicU16, Ordering};

#[expect(unsafe_code, reason = "a value under the lock")]
mod raw;

pub(crate) use raw::ForkMutex;

/// See the [module](self). Two bytes: every group has one.
#[derive(Debug)]
pub(crate) struct ForkLock {
    /// The holder's [`name`], 0 when free.
    holder: AtomicU16,
}

/// Proof that the lock is held; releases it when dropped.
#[must_use = "the lock is released at once otherwise"]
#[derive(Debug)]
pub(crate) struct Held<'a> {
    lock: &'a ForkLock,
}

impl ForkLock {
    /// Makes a free lock.
    pub(crate) fn new() -> ForkLock {
        watch();
        ForkLock { holder: AtomicU16::new(0) }
    }

    /// Makes the lock look as it does in a forked child whose parent holds it.
    #[cfg(all(test, not(loom)))]
    pub(crate) fn abandon(&self) {
        // Relaxed: one thread.
        self.holder.store(name() + 7, Ordering::Relaxed);
    }

    /// Waits for the lock, or takes it over from a holder that a fork left behind.
    pub(crate) fn lock(&self) -> Held<'_> {
        let mut rounds = 0;
        loop {
            match self.try_lock() {
                Some(held) => return held,
                None => wait(&mut rounds),
            }
        }
    }

    /// Releases the lock, which the calling thread holds.
    pub(crate) fn unlock(&self) {
        // Release: pairs with the Acquire in `try_lock`.
        self.holder.store(0, Ordering::Release);
    }

    /// Takes the lock; `None` where another thread of this process holds it, or was faster.
    pub(crate) fn try_lock(&self) -> Option<Held<'_>> {
        let here = name();
        // Acquire: pairs with the Release in `unlock`. Relaxed on failure: the caller then reads
        // nothing.
        match self.holder.compare_exchange(0, here, Ordering::Acquire, Ordering::Relaxed) {
            Ok(_) => Some(Held { lock: self }),
            Err(holder) if holder == here => None,
            Err(holder) => {
                // Acquire: as above; everything that the fork copied is visible anyway. Relaxed on
                // failure: another thread of this process was faster.
                let (order, failed) = (Ordering::Acquire, Ordering::Relaxed);
                let stolen = self.holder.compare_exchange(holder, here, order, failed);
                stolen.ok().map(|_| Held { lock: self })
            }
        }
    }
}

impl Held<'_> {
    /// Leaves the lock taken, for [`ForkLock::unlock`]: a holder of many locks has no place for as
    /// many guards.
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

/// Returns the name of this process as a holder. An ancestor has the same name if there are 65,535
/// forks in between. This matters only if each is a child of the one before, and the first held
/// that lock.
fn name() -> u16 {
    // Truncates the remainder, which fits.
    (generation() % u32::from(u16::MAX)) as u16 + 1
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
    use std::sync::atomic::AtomicU32;

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
    fn another_generations_holder_is_dispossessed() {
        let lock = ForkLock::new();
        lock.abandon();
        drop(lock.lock());
        assert_eq!(lock.holder.into_inner(), 0);
    }
}
