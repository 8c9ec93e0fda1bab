//! Calls into code of others whose panics must not leave the caller: wakers, callbacks, observers,
//! destructors.
//!
//! The panic hook has reported such a panic, and what called is not responsible for it.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Calls code of others, and keeps its panic in.
///
/// Data that the code was changing may be inconsistent: the caller says what that means.
///
/// # Errors
/// When the code panics.
#[inline(always)]
pub fn contain<T>(call: impl FnOnce() -> T) -> Result<T, Contained> {
    catch_unwind(AssertUnwindSafe(call)).map_err(|payload| Contained(Some(payload)))
}

/// What a panic threw.
#[derive(Debug)]
pub struct Contained(Option<Box<dyn Any + Send>>);

impl Contained {
    /// Returns the message of the panic; `None` where it has no text.
    #[must_use]
    pub fn message(&self) -> Option<&str> {
        let payload = self.0.as_deref()?;
        let text = payload.downcast_ref::<&'static str>().copied();
        text.or_else(|| payload.downcast_ref::<String>().map(String::as_str))
    }
}

impl Drop for Contained {
    fn drop(&mut self) {
        let payload = self.0.take();
        // This is the user's code as well. The payload of a second panic is leaked, because its
        // drop could panic again, without end.
        if let Err(second) = catch_unwind(AssertUnwindSafe(|| drop(payload))) {
            std::mem::forget(second);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::panic::{panic_any, resume_unwind};
    use std::sync::Arc;

    use super::*;

    #[test]
    fn a_panic_is_told_of_and_its_payload_is_dropped() {
        assert_eq!(contain(|| 7).ok(), Some(7));
        let message = |panic: Contained| panic.message().map(str::to_owned);
        let thrown = contain(|| panic!("on purpose")).expect_err("it panics");
        assert_eq!(message(thrown).as_deref(), Some("on purpose"));
        let thrown = contain(|| panic!("on {}", "purpose")).expect_err("it panics");
        assert_eq!(message(thrown).as_deref(), Some("on purpose"));
        let held = Arc::new(());
        let payload = Box::new(Arc::clone(&held));
        let thrown = contain(|| resume_unwind(payload)).expect_err("it panics");
        assert_eq!(message(thrown), None);
        assert_eq!(Arc::strong_count(&held), 1, "it is not leaked");
    }

    #[test]
    fn a_payload_whose_drop_panics_is_contained_too() {
        /// Neither has a size: a leak of them is none.
        struct Bad;
        impl Drop for Bad {
            fn drop(&mut self) {
                panic_any(Worse);
            }
        }
        struct Worse;
        impl Drop for Worse {
            fn drop(&mut self) {
                unreachable!("it is leaked");
            }
        }
        drop(contain(|| panic_any(Bad)).expect_err("it panics"));
    }
}
