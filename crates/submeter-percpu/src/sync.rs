//! Picks the atomics and the lock: std's and parking_lot's, or loom's under `--cfg loom`; under
//! Miri both are std's.
//!
//! Everything that loom is to explore takes its atomics from here; a file that names
//! `std::sync::atomic` itself is invisible to the models.

#[cfg(loom)]
#[path = "models/atomic.rs"]
pub(crate) mod atomic;
#[cfg(not(loom))]
pub(crate) use std::sync::atomic;

#[cfg(not(any(loom, miri)))]
pub(crate) use parking_lot::Mutex;

#[cfg(loom)]
use loom::sync::{Mutex as Checked, MutexGuard};
#[cfg(all(miri, not(loom)))]
use std::sync::{Mutex as Checked, MutexGuard};

/// Loom's or std's, with the face of parking_lot's, whose system call has an argument of a type
/// that Miri refuses.
#[cfg(any(loom, miri))]
#[derive(Debug)]
pub(crate) struct Mutex<T>(Checked<T>);

#[cfg(any(loom, miri))]
impl<T> Mutex<T> {
    pub(crate) fn new(value: T) -> Mutex<T> {
        Mutex(Checked::new(value))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().expect("a test that panics ends")
    }
}

/// Defines a constructor that is `const` except under loom, whose atomics register at run time.
macro_rules! model_const_fn {
    ($(#[$meta:meta])* $vis:vis fn $name:ident($($arg:ident: $type:ty),*) -> $ret:ty $body:block) => {
        #[cfg(not(loom))]
        $(#[$meta])*
        $vis const fn $name($($arg: $type),*) -> $ret $body

        #[cfg(loom)]
        $(#[$meta])*
        $vis fn $name($($arg: $type),*) -> $ret $body
    };
}
pub(crate) use model_const_fn;

/// Completes the SeqCst accesses around it to a full barrier where the checker needs telling.
///
/// A SeqCst read-modify-write and a later SeqCst load are already in the single total order, on
/// every machine. Loom weakens SeqCst accesses to AcqRel and honours only SeqCst fences, so for
/// loom, and for it alone, the fence is spelled out.
#[inline(always)]
pub(crate) fn seq_cst_order() {
    // SeqCst: stands in for the SeqCst of the accesses around the call, which loom drops.
    #[cfg(loom)]
    loom::sync::atomic::fence(loom::sync::atomic::Ordering::SeqCst);
}
