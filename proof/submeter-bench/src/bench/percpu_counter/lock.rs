//! The locks that the design before the patch is measured with.

use std::hint;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use parking_lot::Mutex;

/// Number of checks by a spinning thread before it yields its CPU, which the holder may need.
const LOOKS: u32 = 1000;

/// Mutual exclusion.
pub(super) trait Lock: Default + Send + Sync + 'static {
    /// Runs `work` while no other thread is inside `hold`.
    fn hold<R>(&self, work: impl FnOnce() -> R) -> R;
}

/// Taken by one exchange and released by a plain store: no lock costs less when uncontended. It is
/// not fair.
#[derive(Default)]
pub(super) struct Spin(AtomicBool);

impl Lock for Spin {
    #[inline]
    fn hold<R>(&self, work: impl FnOnce() -> R) -> R {
        // Acquire: pairs with the Release below, so that one holder sees what the previous one did.
        while self.0.swap(true, Ordering::Acquire) {
            self.wait();
        }
        let result = work();
        // Release: pairs with the Acquire above.
        self.0.store(false, Ordering::Release);
        result
    }
}

impl Spin {
    /// Waits until it may be worth trying again.
    #[cold]
    fn wait(&self) {
        let mut looks = 0_u32;
        // Relaxed: only looks; the exchange that follows orders.
        while self.0.load(Ordering::Relaxed) {
            looks += 1;
            if looks.is_multiple_of(LOOKS) {
                thread::yield_now();
            } else {
                hint::spin_loop();
            }
        }
    }
}

/// The lock that a Rust program would use: it parks long waiters, and pays for that on release.
impl Lock for Mutex<()> {
    #[inline]
    fn hold<R>(&self, work: impl FnOnce() -> R) -> R {
        let _held = self.lock();
        work()
    }
}
