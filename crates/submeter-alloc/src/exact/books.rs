//! What is counted when a block is allocated, freed or resized.
//!
//! A thread that works for a group accumulates what it adds to the group's blocks in a word of its
//! own, and posts the sum when it leaves the group. Blocks of other groups that it frees are taken
//! off those groups' words at once.

use std::cell::Cell;
use std::hint::black_box;
use std::sync::atomic::{AtomicI64, Ordering, compiler_fence};

use submeter_sys::add_to_own;

use super::owners::{self, KEPT_MAX};

struct Here {
    /// The owner of what this thread allocates; 0 outside all groups.
    owner: Cell<u32>,
    /// The owner that `kept` belongs to: the same, or [`SWITCHES`] while the two are being changed.
    /// A signal handler that runs then finds that nothing can be kept, and leaves `kept` alone.
    keeps: Cell<u32>,
    /// The bytes that its blocks gained on this thread. Each addition is one step that no handler
    /// can split: a handler that switches between two steps leaves the same owner behind, and
    /// nothing kept.
    kept: AtomicI64,
}

/// Not the owner of any block: larger than all of them.
const SWITCHES: u32 = u32::MAX;

thread_local! {
    /// Constant and without a destructor, like the words of [`Metered`](crate::Metered).
    static HERE: Here =
        const { Here { owner: Cell::new(0), keeps: Cell::new(0), kept: AtomicI64::new(0) } };
}

const _: () = assert!(!std::mem::needs_drop::<Here>());

/// Returns the owner of what the calling thread allocates now.
#[inline(always)]
pub(crate) fn current() -> u32 {
    // It never fails because there is no destructor; `with` would contain code for a panic.
    HERE.try_with(|here| here.owner.get()).unwrap_or(0)
}

/// Returns the owner whose bytes the calling thread keeps, 0 outside all groups. Returns `None` in
/// a handler that interrupts a switch.
#[inline(always)]
pub(crate) fn keeps() -> Option<u32> {
    HERE.try_with(|here| here.keeps.get()).ok().filter(|&owner| owner != SWITCHES)
}

/// Returns whether the calling thread keeps bytes of this owner, which is not 0.
#[inline(always)]
pub(crate) fn keeps_of(owner: u32) -> bool {
    HERE.try_with(|here| here.keeps.get() == owner).unwrap_or(false)
}

/// Keeps a block's bytes for the owner that [`keeps`] named, and returns whether enough has
/// accumulated to be [`posted`]. Posting is left to the caller, because cold code lengthens the
/// allocation path.
#[inline(always)]
pub(crate) fn gain(size: usize) -> bool {
    keep(size as i64) > KEPT_MAX
}

/// The same as [`gain`], for a block that is freed.
#[inline(always)]
pub(crate) fn lose(size: usize) -> bool {
    keep(-(size as i64)) < -KEPT_MAX
}

#[inline(always)]
fn keep(bytes: i64) -> i64 {
    HERE.try_with(|here| add_to_own(&here.kept, bytes)).unwrap_or(0)
}

/// Counts bytes for any owner.
pub(crate) fn count(owner: u32, bytes: i64) {
    if !keeps_of(owner) {
        owners::add(owner, bytes);
    } else if keep(bytes).unsigned_abs() > KEPT_MAX.unsigned_abs() {
        posted();
    }
}

/// Posts what the calling thread keeps, and makes it work for `owner`.
pub(crate) fn works_for(owner: u32) {
    let _ = HERE.try_with(|here| {
        let was = here.keeps.replace(SWITCHES);
        if was == SWITCHES {
            // This is a handler, and the code it interrupted sets `keeps`. Until then everything is
            // added at once.
            here.owner.set(owner);
            return;
        }
        // SeqCst, here and below: for handlers on this thread, which see the words in this order.
        // It emits no instruction.
        compiler_fence(Ordering::SeqCst);
        // Relaxed, here and below: only this thread uses it, and no handler while it switches.
        let kept = here.kept.load(Ordering::Relaxed);
        here.kept.store(0, Ordering::Relaxed);
        if kept != 0 {
            owners::add(was, kept);
        }
        here.owner.set(owner);
        // SeqCst: as above.
        compiler_fence(Ordering::SeqCst);
        here.keeps.set(owner);
    });
}

/// Makes the calling thread work for nobody until it is dropped.
#[must_use]
pub(super) struct Nobody(u32);

/// What the books allocate for themselves belongs to no tenant, not even to the one that the thread
/// would otherwise keep charging.
pub(super) fn nobody() -> Nobody {
    let was = current();
    works_for(0);
    Nobody(was)
}

impl Drop for Nobody {
    fn drop(&mut self) {
        works_for(self.0);
    }
}

/// Posts what the calling thread keeps.
pub(crate) fn posted() {
    works_for(current());
}

/// Returns whether a block allocated here is recorded in the books.
pub(crate) fn is_linked() -> bool {
    let owner = current();
    works_for(owners::PROBE);
    let block = black_box(Box::new(black_box([0_u8; 64])));
    // Relaxed: as above.
    let kept = HERE.try_with(|here| here.kept.load(Ordering::Relaxed)).unwrap_or(0);
    drop(block);
    works_for(owner);
    kept == 64
}
