//! Guards that delay the freeing of memory that a put or a lookup may still access.
//!
//! crossbeam-epoch does the work, and none of its types is exposed. The alternative was seize;
//! `proof/submeter-bench/record/2026-11-21-rcuref.md` compares them. Neither bounds the garbage
//! that accumulates behind a stalled reader. The cost of entering decided, since every lookup pays
//! it, while only the last drop retires: entering crossbeam costs less than entering seize, unless
//! seize calls membarrier for every batch it retires. In that case they tie, at the price of an
//! interrupt to all other CPUs on a path that must make no system call.

use std::fmt;

#[cfg(not(any(loom, all(miri, not(submeter_real_epoch)))))]
use crossbeam_epoch as epoch;

#[cfg(any(loom, all(miri, not(submeter_real_epoch))))]
use super::guard_model as epoch;

/// A guard that keeps every object reachable now in memory until the guard is dropped.
///
/// Costs one locked instruction and a thread-local lookup, or the lookup alone while the thread
/// holds another guard; it neither blocks nor makes a system call, but see [`pin`]. Do not hold one
/// while waiting: nothing that the process releases is freed until the guard is dropped. A guard
/// stays on its thread, which the compiler enforces:
///
/// ```compile_fail,E0277
/// let guard = submeter_percpu::rcuref::pin();
/// std::thread::spawn(move || drop(guard));
/// ```
#[must_use = "an object is safe from being freed only while the guard is held"]
// For `raw::unguarded`.
#[repr(transparent)]
pub struct Guard(pub(super) epoch::Guard);

/// Enters a section in which no object reachable now is freed.
///
/// Occasionally, if the thread holds no other guard, it first frees values that any thread removed,
/// running their drops. Do not call it with a lock held that such a drop may take.
///
/// # Examples
/// ```
/// use submeter_percpu::rcuref::{RcuArc, RcuSlot, pin};
///
/// let slot = RcuSlot::new(RcuArc::new(7));
/// let guard = pin();
/// assert_eq!(slot.peek(&guard).as_deref(), Some(&7));
/// ```
///
/// # Panics
/// When the thread holds 2^64 guards.
pub fn pin() -> Guard {
    Guard(epoch::pin())
}

impl Guard {
    /// Runs `f` after a grace period: once every guard that exists now has been dropped.
    ///
    /// It runs on whichever thread collects, after some further operations that enter a guard;
    /// [`flush`](Self::flush) brings that forward. A panic in `f` surfaces there.
    ///
    /// # Examples
    /// ```
    /// use submeter_percpu::rcuref::{RcuRef, pin};
    ///
    /// let count = RcuRef::new();
    /// let guard = pin();
    /// if count.put(&guard) {
    ///     guard.defer(move || drop(count));
    /// }
    /// ```
    pub fn defer<F: FnOnce() + Send + 'static>(&self, f: F) {
        self.0.defer(f);
    }

    /// Hands this thread's deferred work to the collector, and runs what is due.
    ///
    /// Visits every thread's epoch. Use it for teardown and tests, not on hot paths.
    pub fn flush(&self) {
        self.0.flush();
    }
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guard").finish_non_exhaustive()
    }
}
