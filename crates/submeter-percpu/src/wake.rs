//! Waking threads and tasks. Wakers run user code.

use std::cell::Cell;
use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use crate::contain::contain;

/// Successive waits of the calling thread, by [parking](thread::park). Allocates.
///
/// A thread has one token for everything that parks it, and foreign code runs within a wait:
/// wakers, callbacks, drops. So this type has a separate flag as well. A wakeup whose token other
/// code took by parking in between is not missed. Since a wait may in turn have taken a token that
/// was for other code, it leaves one if it parked at all: that code's next park may return at once,
/// as any park may, but never sleeps through an earlier wakeup. Rejected: a lock and a condition
/// variable, which need no token: a wakeup in a signal handler on top of the lock's holder would
/// hang.
///
/// # Examples
/// ```
/// use submeter_percpu::wake::ThisThread;
///
/// let this_thread = ThisThread::new();
/// this_thread.waker().wake_by_ref();
/// this_thread.wait(None); // returns at once
/// ```
#[derive(Debug)]
pub struct ThisThread {
    unpark: Arc<Unpark>,
    waker: Waker,
    has_parked: Cell<bool>,
    /// It must be dropped on its thread.
    _not_send: PhantomData<*const ()>,
}

#[derive(Debug)]
struct Unpark {
    thread: Thread,
    is_woken: AtomicBool,
}

impl ThisThread {
    /// Makes a waker for the calling thread, and keeps a clone of it.
    #[must_use]
    pub fn new() -> ThisThread {
        let is_woken = AtomicBool::new(false);
        let unpark = Arc::new(Unpark { thread: thread::current(), is_woken });
        let waker = Waker::from(Arc::clone(&unpark));
        ThisThread { unpark, waker, has_parked: Cell::new(false), _not_send: PhantomData }
    }

    /// Returns the waker that ends a wait: the current one, or the next.
    #[must_use]
    pub fn waker(&self) -> &Waker {
        &self.waker
    }

    /// Blocks until the waker has been woken since the last wait, or `timeout` has passed.
    pub fn wait(&self, timeout: Option<Duration>) {
        let begun = timeout.map(|timeout| (Instant::now(), timeout));
        // Acquire: pairs with the Release in `wake`, so that everything before the wakeup is seen.
        while !self.unpark.is_woken.swap(false, Ordering::Acquire) {
            let Some((begun, timeout)) = begun else {
                self.has_parked.set(true);
                thread::park();
                continue;
            };
            let left = timeout.saturating_sub(begun.elapsed());
            if left.is_zero() {
                return;
            }
            self.has_parked.set(true);
            thread::park_timeout(left);
        }
    }
}

impl Default for ThisThread {
    fn default() -> ThisThread {
        ThisThread::new()
    }
}

impl Drop for ThisThread {
    fn drop(&mut self) {
        if self.has_parked.get() {
            self.unpark.thread.unpark();
        }
    }
}

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        // Release: pairs with the Acquire in `wait`. Before the token, so that the thread that
        // takes the token finds it set.
        self.is_woken.store(true, Ordering::Release);
        self.thread.unpark();
    }
}

/// Wakes all of the wakers.
///
/// Panics are contained: the panic hook has reported them, the other wakers must run too, and the
/// thread that granted what they waited for is not responsible for any of them.
pub(crate) fn wake_all(wakers: impl IntoIterator<Item = Waker>) {
    for waker in wakers {
        let _ = contain(|| waker.wake());
    }
}

/// Drops a waker that nothing will wake. A panic is contained here as well: it would take with it
/// whatever the caller was granted.
#[cfg(not(loom))]
pub(crate) fn let_go(waker: Waker) {
    let _ = contain(|| drop(waker));
}

// Not under Miri, which reports the leak.
#[cfg(all(test, not(any(loom, miri))))]
mod tests {
    use std::panic::panic_any;

    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    /// A wakeup whose token another wait took is not missed, nor is the other wait's.
    #[test]
    fn a_wakeup_with_a_taken_token_is_not_missed() {
        let this_thread = ThisThread::new();
        let begun = Instant::now();
        this_thread.waker().wake_by_ref();
        // Like a waker or a callback that waits for something of its own.
        thread::park();
        this_thread.wait(Some(LONG));
        // A token of other code ends no wait, and is still there when the wait is over.
        thread::current().unpark();
        this_thread.wait(Some(Duration::from_millis(1)));
        drop(this_thread);
        thread::park_timeout(LONG);
        assert!(begun.elapsed() < LONG, "it slept through");
    }

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
    fn a_panicking_payload_keeps_nobody_asleep() {
        let flag = Arc::new(Flag::default());
        wake_all([Waker::from(Arc::new(PanicsWithBad)), Waker::from(Arc::clone(&flag))]);
        // Relaxed: one thread.
        assert!(flag.0.load(Ordering::Relaxed));
    }
}
