//! Stops threads that run until a flag is set.

use std::sync::atomic::{AtomicBool, Ordering};

/// A guard that sets a flag when it is dropped, even by a failed assertion: a scope waits for its
/// threads, so that the test would otherwise hang instead of failing.
pub(crate) struct StopOnDrop<'a>(pub(crate) &'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}
