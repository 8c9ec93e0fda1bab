//! Calls into user code whose panics must not leave this library.

use std::panic::{AssertUnwindSafe, catch_unwind};

/// Calls user code, and returns `None` if it panics: the panic hook has reported that.
#[inline(always)]
pub(crate) fn contain<T>(call: impl FnOnce() -> T) -> Option<T> {
    match catch_unwind(AssertUnwindSafe(call)) {
        Ok(value) => Some(value),
        Err(payload) => {
            // Leaked: its destructor may panic again, outside of this call.
            std::mem::forget(payload);
            None
        }
    }
}
