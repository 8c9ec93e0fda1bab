//! The choice of atomics: std's, or loom's under `--cfg loom`.
//!
//! Everything that loom must explore takes its atomics from here; a file that uses
//! `std::sync::atomic` directly is invisible to the models.

#[cfg(loom)]
#[path = "models/atomic.rs"]
pub(crate) mod atomic;
#[cfg(not(loom))]
pub(crate) use std::sync::atomic;

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

/// Completes the SeqCst accesses around it to a full barrier, for a checker that needs one.
///
/// A SeqCst read-modify-write and a later SeqCst load are already in the single total order, on
/// every machine. Loom weakens SeqCst accesses to AcqRel and honours only SeqCst fences, so the
/// fence is spelled out, for loom only.
#[inline(always)]
pub(crate) fn seq_cst_order() {
    // SeqCst: stands in for the SeqCst of the accesses around the call, which loom drops.
    #[cfg(loom)]
    loom::sync::atomic::fence(loom::sync::atomic::Ordering::SeqCst);
}
