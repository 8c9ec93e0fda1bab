//! The fence around the user's code: where it may come from, and what its panics may reach.

use std::any::Any;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// What of aggregators the thread is in the middle of.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Nesting {
    Nothing,
    /// A read: holds a total, so that it must not flush.
    Read,
    /// A flush, with its callbacks: holds a flusher and at times a total, so that it must not wait
    /// for another.
    Callback,
}

thread_local! {
    static DEPTH: Cell<Nesting> = const { Cell::new(Nesting::Nothing) };
}

/// Notes, as long as it lives, that the thread holds a lock of some aggregator. So a thread that
/// waits for an aggregator's lock holds none that the owner could be waiting for: no order of locks
/// is needed.
pub(super) struct Within {
    outer: Nesting,
}

impl Within {
    /// Before a flush; `None` inside of a read or another flush.
    pub(super) fn callback() -> Option<Within> {
        Within::enter(Nesting::Callback, Nesting::Nothing)
    }

    /// Before a read; `None` inside of a flush.
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

/// Runs the user's code. A panic ends here, and is returned as its message.
///
/// What the code was changing is as it left it: the caller declares it broken.
pub(super) fn catch(code: impl FnOnce()) -> Result<(), Box<str>> {
    catch_unwind(AssertUnwindSafe(code)).map_err(message)
}

/// Drops something of the user's. A panic ends here: no caller is left whom it could concern.
pub(super) fn drop_quietly<T>(value: T) {
    let _ = catch(|| drop(value));
}

fn message(payload: Box<dyn Any + Send>) -> Box<str> {
    match payload.downcast::<&'static str>() {
        Ok(text) => (*text).into(),
        Err(payload) => match payload.downcast::<String>() {
            Ok(text) => text.as_str().into(),
            Err(payload) => {
                // Forgotten, not dropped: it may be anything, and panic once more.
                std::mem::forget(payload);
                "no message".into()
            }
        },
    }
}
