//! Isolation of the user's code: where it may be called from.

use std::cell::Cell;

/// The aggregator operation that the thread is in.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Nesting {
    Nothing,
    /// A read: it holds a total's lock, so it must not flush.
    Read,
    /// A flush with its callbacks: it holds the flush lock and sometimes a total's lock, so it must
    /// not wait for another one.
    Callback,
}

thread_local! {
    static DEPTH: Cell<Nesting> = const { Cell::new(Nesting::Nothing) };
}

/// A guard that records that the thread holds a lock of some aggregator. A thread that waits for an
/// aggregator's lock therefore holds none that the owner could be waiting for, and no lock order is
/// needed.
pub(super) struct Within {
    outer: Nesting,
}

impl Within {
    /// Enters a flush; `None` inside a read or another flush.
    pub(super) fn callback() -> Option<Within> {
        Within::enter(Nesting::Callback, Nesting::Nothing)
    }

    /// Enters a read; `None` inside a flush.
    pub(super) fn read() -> Option<Within> {
        Within::enter(Nesting::Read, Nesting::Read)
    }

    fn enter(depth: Nesting, outer_max: Nesting) -> Option<Within> {
        let outer = DEPTH.get();
        (outer <= outer_max).then(|| {
            DEPTH.set(depth);
            Within { outer }
        })
    }
}

impl Drop for Within {
    fn drop(&mut self) {
        DEPTH.set(self.outer);
    }
}
