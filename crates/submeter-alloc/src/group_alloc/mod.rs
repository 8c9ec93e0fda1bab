//! An allocator for single containers, which is refused at a limit.

mod raw;

use std::alloc::Layout;
use std::mem;
use std::ptr::NonNull;

use allocator_api2::alloc::{AllocError, Global};
use submeter::{Bytes, Group, Quota};

/// An allocator for containers that charges a group's quota the bytes of each block. Where a limit
/// refuses the charge no block is allocated, and the container's `try_reserve` returns an error.
///
/// It implements the `Allocator` trait of `allocator-api2`, which stands for std's until that is
/// stable. That crate's `Vec` and `Box` accept it, and the tables of `hashbrown`.
///
/// - **Exact**: a block is charged the size that was requested before it is allocated, and is
///   released when it is freed, on any thread. No limit is exceeded. While a container moves, its
///   old block and its new one exist together. A `Vec` is then charged for the larger one alone,
///   because the inner allocator may resize it in place; a hash table is charged for both.
/// - **Whose**: blocks belong to the group of the allocator, whichever group a thread works for.
///   Clones share it, and containers may also borrow the allocator. A killed group gets no further
///   memory. What its containers hold stays charged to the groups above until it is freed, as is
///   true of every [`Charge`](submeter::Charge).
/// - **Beside the global allocator**: [`Volume`](crate::Volume) and [`Live`](crate::Live) count the
///   same blocks if the inner allocator gets them from there, in metrics of their own and for the
///   group that the thread works for. No byte is charged to a quota twice, but do not add this
///   quota to those metrics.
///
/// A block costs a charge and its release, without a handle to the group: about two adds far from
/// all limits. A refusal allocates an error that it drops, from the global allocator.
///
/// # When not to use it
/// With code that cannot handle a refusal: `push`, `clone`, `shrink_to_fit` of a hash table and all
/// else that returns no error *end the program* when they are refused memory. Reserve first.
///
/// # Examples
/// ```
/// use allocator_api2::vec::Vec;
/// use submeter::{Bytes, Schema, Tree};
/// use submeter_alloc::GroupAlloc;
///
/// let mut schema = Schema::builder();
/// let memory = schema.quota::<Bytes>("memory", "Memory of tables and rows");
/// let tree = Tree::new(schema.build()?)?;
/// let acme = tree.create("/acme")?;
/// acme.set_limit(memory, Some(10_000));
///
/// let mut rows: Vec<u64, _> = Vec::new_in(GroupAlloc::new(&acme, memory));
/// rows.try_reserve_exact(1_000)?;
/// assert_eq!(acme.usage(memory).current, 8_000);
/// assert!(rows.try_reserve_exact(2_000).is_err(), "16,000 bytes");
/// assert_eq!((rows.capacity(), acme.usage(memory).refused), (1_000, 1));
/// drop(rows);
/// assert_eq!(acme.usage(memory).current, 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct GroupAlloc<A = Global> {
    group: Group,
    quota: Quota<Bytes>,
    inner: A,
}

impl GroupAlloc {
    /// Allocates for `group` from the global allocator, and charges its `quota`.
    ///
    /// # Panics
    /// When the quota is of another tree's schema.
    #[must_use]
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn new(group: &Group, quota: Quota<Bytes>) -> GroupAlloc {
        GroupAlloc::new_in(group, quota, Global)
    }
}

impl<A> GroupAlloc<A> {
    /// Allocates for `group` from `inner`, and charges its `quota`.
    ///
    /// # Panics
    /// When the quota is of another tree's schema.
    #[must_use]
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn new_in(group: &Group, quota: Quota<Bytes>, inner: A) -> GroupAlloc<A> {
        // Panics here, if at all: charges check it, too, and an allocator must not unwind.
        let _usage = group.usage_at_most(quota);
        GroupAlloc { group: group.clone(), quota, inner }
    }

    /// Charges the bytes that a block gains, then makes it. They are released if that fails.
    #[inline]
    fn charged(
        &self,
        bytes: usize,
        layout: Layout,
        make: impl FnOnce() -> Result<NonNull<[u8]>, AllocError>,
    ) -> Result<NonNull<[u8]>, AllocError> {
        // A charge of nothing would be refused where a limit is exceeded.
        let refused = bytes > 0
            && (self.group.is_killed()
                || self.group.try_charge_unguarded(self.quota, bytes as u64).is_err());
        if refused {
            return Err(AllocError);
        }
        let pending = Pending { alloc: self, bytes };
        let block = make()?;
        // The block has them.
        mem::forget(pending);
        Ok(exactly(block, layout.size()))
    }

    /// Releases the bytes of a block that it no longer has.
    #[inline]
    fn release(&self, bytes: usize) {
        if bytes > 0 {
            self.group.release_unguarded(self.quota, bytes as u64);
        }
    }
}

/// Bytes that are charged for a block that does not have them yet. A drop releases them.
struct Pending<'a, A> {
    alloc: &'a GroupAlloc<A>,
    bytes: usize,
}

impl<A> Drop for Pending<'_, A> {
    #[inline]
    fn drop(&mut self) {
        self.alloc.release(self.bytes);
    }
}

/// Returns a block without what the inner allocator gave beyond the requested size. A container may
/// free a block with any size up to the one that it was given; only this one was charged.
#[inline]
fn exactly(block: NonNull<[u8]>, size: usize) -> NonNull<[u8]> {
    NonNull::slice_from_raw_parts(block.cast(), size)
}
