//! The end of threads that run until they are told to stop.

use std::sync::atomic::{AtomicBool, Ordering};

/// Sets a flag when it is dropped, also by an assertion that fails: a scope waits for its threads,
/// and the test would hang instead of failing.
pub(crate) struct StopOnDrop<'a>(pub(crate) &'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}
