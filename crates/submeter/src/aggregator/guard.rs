//! Isolation of the user's code: where it may be called from, and what its panics may affect.

use std::any::Any;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};

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

/// Runs the user's code. A panic is caught, and its message returned.
///
/// Data that the code was changing may be inconsistent: the caller marks it as broken.
pub(super) fn catch(code: impl FnOnce()) -> Result<(), Box<str>> {
    catch_unwind(AssertUnwindSafe(code)).map_err(message)
}

/// Drops a value of the user's. A panic is caught and ignored, because there is no caller to report
/// it to.
pub(super) fn drop_quietly<T>(value: T) {
    let _ = catch(|| drop(value));
}

fn message(payload: Box<dyn Any + Send>) -> Box<str> {
    match payload.downcast::<&'static str>() {
        Ok(text) => (*text).into(),
        Err(payload) => match payload.downcast::<String>() {
            Ok(text) => text.as_str().into(),
            Err(payload) => {
                // Forgotten and not dropped: the payload may be anything, and its drop might panic
                // too.
                std::mem::forget(payload);
                "no message".into()
            }
        },
    }
}
