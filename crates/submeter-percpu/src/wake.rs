//! Wakers run a user's code.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::task::{Wake, Waker};
use std::thread::{self, Thread};

/// Returns a waker of the calling thread, which [parks](thread::park) while it waits. Allocates.
#[must_use]
pub fn this_thread() -> Waker {
    Waker::from(Arc::new(Unpark(thread::current())))
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Wakes all of them.
///
/// Panics are contained: the panic hook has reported it, the other wakers must run too, and who
/// gave them what they waited for has nothing to do with any of them.
pub(crate) fn wake_all(wakers: impl IntoIterator<Item = Waker>) {
    wakers.into_iter().for_each(|waker| contain(|| waker.wake()));
}

/// Drops wakers that nothing wakes any more. A panic is contained here as well: it would take with
/// it what its caller was granted.
#[cfg(not(loom))]
pub(crate) fn let_go(waker: Waker) {
    contain(|| drop(waker));
}

fn contain(call: impl FnOnce()) {
    if let Err(payload) = catch_unwind(AssertUnwindSafe(call)) {
        // Its drop may panic as well, and what that leaves is leaked.
        let dropped = catch_unwind(AssertUnwindSafe(|| drop(payload)));
        dropped.unwrap_or_else(std::mem::forget);
    }
}

// Not under Miri, which finds what is leaked.
#[cfg(all(test, not(any(loom, miri))))]
mod tests {
    use std::panic::panic_any;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::task::Wake;

    use super::*;

    struct Bad;

    impl Drop for Bad {
        fn drop(&mut self) {
            panic!("on purpose");
        }
    }

    struct PanicsWithBad;

    impl Wake for PanicsWithBad {
        fn wake(self: Arc<Self>) {
            panic_any(Bad);
        }
    }

    #[derive(Default)]
    struct Flag(AtomicBool);

    impl Wake for Flag {
        fn wake(self: Arc<Self>) {
            // Relaxed: one thread.
            self.0.store(true, Ordering::Relaxed);
        }
    }

    #[test]
    fn a_panic_whose_payload_panics_keeps_nobody_asleep() {
        let flag = Arc::new(Flag::default());
        wake_all([Waker::from(Arc::new(PanicsWithBad)), Waker::from(Arc::clone(&flag))]);
        // Relaxed: one thread.
        assert!(flag.0.load(Ordering::Relaxed));
    }
}
