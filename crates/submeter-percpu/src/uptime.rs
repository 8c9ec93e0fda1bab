//! The time since the process first created a value that reads it.

use std::time::{Duration, Instant};

use once_cell::race::OnceBox;

/// Not behind a lock, which a fork could leave locked in the child.
static START: OnceBox<Instant> = OnceBox::new();

/// Starts the clock. Constructors of values that read the time call it, because a signal handler
/// runs no constructor: a handler that interrupted a lazy first read would deadlock with its own
/// thread.
pub(crate) fn begin() {
    START.get_or_init(|| Box::new(Instant::now()));
    #[cfg(test)]
    tests::BEGUN.set(true);
}

/// Returns the time since the start, which a fork does not change. Takes no lock.
pub(crate) fn get() -> Duration {
    START.get().map_or(Duration::ZERO, Instant::elapsed)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use submeter_sys::Backend;

    use crate::{Area, LimitNode, LimitedCounter, TokenBucket};

    thread_local! {
        /// Whether the calling thread has started the clock.
        pub(super) static BEGUN: Cell<bool> = const { Cell::new(false) };
    }

    /// Each value that needs the time starts the clock when it is created.
    #[test]
    fn what_needs_the_time_begins_to_count_it() {
        fn made<T>(make: impl FnOnce() -> T) {
            BEGUN.set(false);
            drop(make());
            assert!(BEGUN.get());
        }
        made(TokenBucket::new);
        for backend in [submeter_sys::probe().backend, Backend::LockedByCpu] {
            let area = Area::with_backend(backend, |_| 0).expect("address space");
            made(|| LimitedCounter::with_batch(&area, 64, 1000).expect("room"));
            made(|| LimitNode::root(&area));
        }
    }
}
