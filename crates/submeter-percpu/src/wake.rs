//! Wakers run a user's code.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::Waker;

/// Wakes all of them.
///
/// Panics are contained: the panic hook has reported it, the other wakers must run too, and who
/// gave them what they waited for has nothing to do with any of them.
pub(crate) fn wake_all(wakers: impl IntoIterator<Item = Waker>) {
    for waker in wakers {
        if let Err(payload) = catch_unwind(AssertUnwindSafe(|| waker.wake())) {
            // Leaked, as its drop may panic as well.
            std::mem::forget(payload);
        }
    }
}
