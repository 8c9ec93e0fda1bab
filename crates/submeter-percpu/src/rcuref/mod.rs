//! Reference counts for what is looked up: unconditional to take, and to drop under a guard.
//!
//! [`RcuRef`] is the bare count, [`RcuArc`] the pointer that carries one, [`RcuSlot`] a cell for
//! such pointers, [`Guard`] what keeps objects in memory between finding and counting them.

mod arc;
mod count;
mod guard;
#[cfg(any(loom, all(miri, not(submeter_real_epoch))))]
mod guard_model;
#[expect(unsafe_code, reason = "owns the objects' memory, behind a safe face")]
mod raw;
mod slot;

#[cfg(all(test, loom))]
mod loom_models;
#[cfg(all(test, not(loom)))]
mod tests;

use std::fmt;
use std::ptr;

pub use arc::{RcuArc, RcuBorrow};
use count::{Count, Notice};
pub use guard::{Guard, pin};
#[cfg(not(loom))]
pub(crate) use raw::unguarded;
pub use slot::RcuSlot;

use crate::sync::model_const_fn;

/// A reference count that never asks first: `get` and `put` are one locked instruction each.
///
/// A compare-and-swap loop, which "take a reference unless there is none" usually is, fails and
/// retries when others are counting; an unconditional add does not. The price is paid at the end:
/// the last `put` needs a second instruction to mark the count dead, and touches the count after
/// its reference is gone, so that memory must stay until a grace period has passed. Hence the
/// [`Guard`] it takes. For a count that is only ever cloned and dropped use [`std::sync::Arc`],
/// for one that many CPUs hammer a per-CPU count: this one is a single shared line.
///
/// It is 4 bytes. Most users want [`RcuArc`], which frees the object too.
///
/// | word | zone | `get` | `put` |
/// |---|---|---|---|
/// | `0x00000000..=0x7FFFFFFF` | valid: references − 1 | true | false |
/// | `0x80000000..=0xBFFFFFFF` | saturated: pinned at `0xA0000000` | true | false |
/// | `0xC0000000..=0xFFFFFFFE` | dead: rests at `0xE0000000` | false | false, reported |
/// | `0xFFFFFFFF` | no reference: to be marked dead, or revived by a `get` | true | true, once |
///
/// # Examples
/// ```
/// use submeter_percpu::rcuref::{RcuRef, pin};
///
/// let count = RcuRef::new();
/// assert!(count.get());
///
/// let guard = pin();
/// assert!(!count.put(&guard));
/// assert!(count.put(&guard), "the last one: free after a grace period");
/// assert!(count.is_dead() && !count.get());
/// ```
/// Without a guard there is no put:
/// ```compile_fail,E0061
/// submeter_percpu::rcuref::RcuRef::new().put();
/// ```
///
/// # Ordering
/// `get` is Relaxed, [`get_ordered`](Self::get_ordered) SeqCst. `put` is Release, and the one that
/// returns true is Acquire too: it sees all that was done before any other put.
///
/// # Differences from Linux
/// A failed `get` takes its increment back instead of storing the middle of the zone; with that a
/// dead word is an exact ledger, and a `put` too many is reported exactly once, at the latest by
/// the last operation in flight. There is no way to start a dead count again: memory that is
/// recycled under a delayed mark of death is a bug the kernel had to fix.
#[repr(transparent)]
pub struct RcuRef(Count);

impl RcuRef {
    model_const_fn! {
        /// Starts with one reference.
        #[must_use]
        pub fn new() -> RcuRef {
            RcuRef(Count::new(1))
        }
    }

    model_const_fn! {
        /// Starts with `refs` references.
        ///
        /// # Panics
        /// Unless `refs` is 1 to 2^31, what the valid zone holds.
        #[must_use]
        pub fn with_refs(refs: u32) -> RcuRef {
            assert!(refs >= 1 && refs - 1 <= count::MAXREF, "a count starts with 1 to 2^31 references");
            RcuRef(Count::new(refs))
        }
    }

    /// Takes a reference; false when the object was released, for good.
    ///
    /// A count that runs over its zone saturates: that is reported (see [`misuse`](crate::misuse)),
    /// and the object is leaked.
    #[inline]
    #[must_use = "without a reference the object must not be used beyond the guard"]
    pub fn get(&self) -> bool {
        self.0.get(self.notify())
    }

    /// Takes a reference, before every SeqCst load that follows in program order.
    ///
    /// For a caller that looks again, after the get, whether the pointer is still where it was
    /// found, while a remover unlinks it and then [reads](Self::read) the count: one of the two
    /// sees the other if all four operations are SeqCst. With [`get`](Self::get) both can miss,
    /// on weakly ordered machines only.
    #[inline]
    #[must_use = "without a reference the object must not be used beyond the guard"]
    pub fn get_ordered(&self) -> bool {
        self.0.get_ordered(self.notify())
    }

    /// Drops a reference; true for exactly one caller, who frees the object after a grace period.
    ///
    /// The guard must have been entered before the reference is given up, which holding one shows.
    /// A put too many returns false, is reported (see [`misuse`](crate::misuse)) and changes
    /// nothing once the count is dead; before that it takes another holder's reference, which no
    /// count can know.
    #[inline]
    #[must_use = "true obliges the caller to free the object after a grace period"]
    pub fn put(&self, _guard: &Guard) -> bool {
        self.0.put(self.notify())
    }

    /// Returns how many references there are: 0 for none left or released, above 2^31 for pinned.
    ///
    /// Out of date when it is returned. 0 is not death, a `get` may still revive the count: ask
    /// [`is_dead`](Self::is_dead).
    #[must_use]
    pub fn read(&self) -> u32 {
        self.0.read()
    }

    /// Returns whether the object was released. Never true first and false later, unless a put too
    /// many met the last one.
    #[must_use]
    pub fn is_dead(&self) -> bool {
        self.0.is_dead()
    }

    #[inline]
    fn notify(&self) -> impl Fn(Notice) + '_ {
        |notice| notice.report("RcuRef", ptr::from_ref(self).addr())
    }
}

impl Default for RcuRef {
    fn default() -> RcuRef {
        RcuRef::new()
    }
}

impl fmt::Debug for RcuRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.is_dead(), self.read()) {
            (true, _) => f.write_str("RcuRef(dead)"),
            (false, refs) => write!(f, "RcuRef({refs})"),
        }
    }
}
