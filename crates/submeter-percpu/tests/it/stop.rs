//! Stops background threads at the end of a test, even when it panics.

use std::sync::atomic::{AtomicBool, Ordering};

/// A guard that sets a flag when dropped, by a failed assertion too: a scope joins its threads, so
/// that the test would hang instead of failing.
pub(crate) struct StopOnDrop<'a>(pub(crate) &'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}
