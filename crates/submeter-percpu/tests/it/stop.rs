//! Stops background threads at the end of a test, even when it panics.

use std::sync::atomic::{AtomicBool, Ordering};

/// A guard that sets a flag when dropped, even by a failed assertion: a scope joins its threads, so
/// the test would otherwise hang instead of failing.
pub(crate) struct StopOnDrop<'a>(pub(crate) &'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}
