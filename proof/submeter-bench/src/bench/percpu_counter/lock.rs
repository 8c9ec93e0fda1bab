//! The locks that the design before the patch is tried with.

use std::hint;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use parking_lot::Mutex;

/// How often a spinning thread looks before it lets others have the CPU: the holder may want it.
const LOOKS: u32 = 1000;

/// Runs things one after the other.
pub(super) trait Lock: Default + Send + Sync + 'static {
    /// Runs `work` while nobody else runs any.
    fn hold<R>(&self, work: impl FnOnce() -> R) -> R;
}

/// Taken by one exchange and let go by a plain store: no lock costs less where nobody else wants
/// it. The first to come gets it.
#[derive(Default)]
pub(super) struct Spin(AtomicBool);

impl Lock for Spin {
    #[inline]
    fn hold<R>(&self, work: impl FnOnce() -> R) -> R {
        // Acquire: pairs with the Release below, so that one holder sees what the last one did.
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

/// What a Rust program would use: it parks who waits for long, and pays for that when it lets go.
impl Lock for Mutex<()> {
    #[inline]
    fn hold<R>(&self, work: impl FnOnce() -> R) -> R {
        let _held = self.lock();
        work()
    }
}
