//! Calls of a user's code whose panics must not leave this library.

use std::panic::{AssertUnwindSafe, catch_unwind};

/// Calls what is the user's, and returns `None` where it panics: the panic hook has reported it.
#[inline(always)]
pub(crate) fn contain<T>(call: impl FnOnce() -> T) -> Option<T> {
    match catch_unwind(AssertUnwindSafe(call)) {
        Ok(value) => Some(value),
        Err(payload) => {
            // Leaked: dropping it may panic again, out of here.
            std::mem::forget(payload);
            None
        }
    }
}
