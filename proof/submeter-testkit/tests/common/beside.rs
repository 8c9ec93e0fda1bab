//! Threads that run in parallel with a test.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;

/// Ends the threads, even if the test panics: otherwise they would continue.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        // Relaxed: it only ends loops.
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Calls each of these repeatedly, on a thread of its own, until `test` returns. `test` may ask
/// whether one of the calls is under way: in a forked child, whether one was at the fork.
pub(crate) fn beside(calls: &[&(dyn Fn() + Sync)], test: impl FnOnce(&dyn Fn() -> bool)) {
    let (over, under_way) = (AtomicBool::new(false), AtomicU32::new(0));
    thread::scope(|scope| {
        for call in calls {
            scope.spawn(|| {
                // Relaxed: as above.
                while !over.load(Ordering::Relaxed) {
                    // SeqCst, here and below: a call is not under way before or after it.
                    under_way.fetch_add(1, Ordering::SeqCst);
                    call();
                    under_way.fetch_sub(1, Ordering::SeqCst);
                }
            });
        }
        let _over = Over(&over);
        test(&|| under_way.load(Ordering::SeqCst) > 0);
    });
}
