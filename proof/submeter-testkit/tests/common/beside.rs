//! Threads that run in parallel with a test.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

/// Ends the threads, even if the test panics: otherwise they would continue.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        // Relaxed: it only ends loops.
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Calls each of these repeatedly, on a thread of its own, until `test` returns.
pub(crate) fn beside(calls: &[&(dyn Fn() + Sync)], test: impl FnOnce()) {
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        for call in calls {
            scope.spawn(|| {
                // Relaxed: as above.
                while !over.load(Ordering::Relaxed) {
                    call();
                }
            });
        }
        let _over = Over(&over);
        test();
    });
}
