//! Reference counts for objects found by lookup: unconditional to take, and dropped under a guard.
//!
//! [`RcuRef`] is the bare count, [`RcuArc`] the pointer that carries one, [`RcuSlot`] a cell for
//! such pointers. A [`Guard`] keeps objects in memory between finding and counting them.

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

/// A reference count without compare-and-swap loops: `get` and `put` are one locked instruction
/// each.
///
/// "Take a reference unless there is none" is usually a compare-and-swap loop, which fails and
/// retries when others are counting; an unconditional add does not. The price is paid at the end:
/// the last `put` needs a second instruction to mark the count dead, and accesses the count after
/// its reference is gone, so the memory must stay until a grace period has passed. This is why
/// `put` takes a [`Guard`]. For a count that is only ever cloned and dropped use
/// [`std::sync::Arc`]. For one that many CPUs hammer use a per-CPU count: this one is a single
/// shared line.
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
/// returns true is Acquire too: it sees everything that was done before any other put.
///
/// # Differences from Linux
/// A failed `get` undoes its increment instead of storing the middle of the zone. This makes a dead
/// word an exact ledger, and a surplus `put` is reported exactly once, at the latest by the last
/// operation in flight. A dead count cannot be restarted: memory recycled under a delayed mark of
/// death is a bug that the kernel had to fix.
#[repr(transparent)]
pub struct RcuRef(Count);

impl RcuRef {
    model_const_fn! {
        /// Creates a count with one reference.
        #[must_use]
        pub fn new() -> RcuRef {
            RcuRef(Count::new(1))
        }
    }

    model_const_fn! {
        /// Creates a count with `refs` references.
        ///
        /// # Panics
        /// Unless `refs` is 1 to 2^31, the range of the valid zone.
        #[must_use]
        pub fn with_refs(refs: u32) -> RcuRef {
            assert!(refs >= 1 && refs - 1 <= count::MAXREF, "a count starts with 1 to 2^31 references");
            RcuRef(Count::new(refs))
        }
    }

    /// Takes a reference; false when the object was released, which is final.
    ///
    /// A count that overflows its zone saturates: this is reported (see [`misuse`](crate::misuse)),
    /// and the object is leaked.
    #[inline]
    #[must_use = "without a reference the object must not be used beyond the guard"]
    pub fn get(&self) -> bool {
        self.0.get(self.notify())
    }

    /// Takes a reference, before every SeqCst load that follows in program order.
    ///
    /// For a caller that checks after the get whether the pointer is still where it was found,
    /// while a remover unlinks it and then [reads](Self::read) the count: one of the two sees the
    /// other if all four operations are SeqCst. With [`get`](Self::get) both can miss, though only
    /// on weakly ordered machines.
    #[inline]
    #[must_use = "without a reference the object must not be used beyond the guard"]
    pub fn get_ordered(&self) -> bool {
        self.0.get_ordered(self.notify())
    }

    /// Drops a reference; true for exactly one caller, which frees the object after a grace period.
    ///
    /// The guard must have been entered before the reference is given up; the argument proves that.
    /// A surplus put returns false, is reported (see [`misuse`](crate::misuse)) and changes nothing
    /// once the count is dead; before that it takes another holder's reference, which no count can
    /// detect.
    #[inline]
    #[must_use = "true obliges the caller to free the object after a grace period"]
    pub fn put(&self, _guard: &Guard) -> bool {
        self.0.put(self.notify())
    }

    /// Returns the number of references: 0 if none is left or the object was released, above 2^31
    /// if pinned.
    ///
    /// The number may be stale when it is returned. 0 does not mean dead, since a `get` may still
    /// revive the count: ask [`is_dead`](Self::is_dead).
    #[must_use]
    pub fn read(&self) -> u32 {
        self.0.read()
    }

    /// Returns whether the object was released. Once true it stays true, unless a surplus put met
    /// the last one.
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
