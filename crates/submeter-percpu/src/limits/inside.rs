//! Tracks which threads hold a lock of limits, so that a signal handler does not wait for its own
//! thread.

/// Proof that the calling thread did not already hold a lock of this kind: a signal handler that
/// interrupted the holder must not wait for it.
pub(super) struct Inside;

#[cfg(not(loom))]
mod thread {
    use std::cell::Cell;

    use super::Inside;

    thread_local! {
        static INSIDE: Cell<bool> = const { Cell::new(false) };
    }

    impl Inside {
        pub(in crate::limits) fn new() -> Option<Inside> {
            // Not `then_some`: the value that it drops would reset the flag.
            (!INSIDE.replace(true)).then(|| Inside)
        }
    }

    impl Drop for Inside {
        fn drop(&mut self) {
            INSIDE.set(false);
        }
    }
}

#[cfg(loom)]
impl Inside {
    /// Models have no handlers; a thread on the same CPU stands for one.
    pub(super) fn new() -> Option<Inside> {
        Some(Inside)
    }
}
