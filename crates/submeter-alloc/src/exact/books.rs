//! What is added when a block comes, goes or changes its size.
//!
//! A thread that works for a group keeps what the group's blocks gain there in a word of its own,
//! and posts it when it leaves the group. What it frees of others is taken off their words at once.

use std::cell::Cell;
use std::hint::black_box;
use std::sync::atomic::{AtomicI64, Ordering, compiler_fence};

use submeter_sys::add_to_own;

use super::owners::{self, KEPT_MAX};

struct Here {
    /// The owner of what is allocated here; 0 outside of all groups.
    owner: Cell<u32>,
    /// The owner that `kept` is of: the same, or [`SWITCHES`] while the two are being changed. A
    /// signal handler that comes then finds that nothing can be kept, and leaves `kept` alone.
    keeps: Cell<u32>,
    /// The bytes that its blocks gained here. Added to in one step, which no handler can halve: one
    /// that switches in between two of them leaves the same owner behind, and nothing kept.
    kept: AtomicI64,
}

/// No block's owner: above all of them.
const SWITCHES: u32 = u32::MAX;

thread_local! {
    /// Constant and without a destructor: as the words of [`Metered`](crate::Metered).
    static HERE: Here =
        const { Here { owner: Cell::new(0), keeps: Cell::new(0), kept: AtomicI64::new(0) } };
}

const _: () = assert!(!std::mem::needs_drop::<Here>());

/// Returns the owner of what the calling thread allocates now.
#[inline(always)]
pub(crate) fn current() -> u32 {
    // It never fails, as there is no destructor; `with` would have code for a panic.
    HERE.try_with(|here| here.owner.get()).unwrap_or(0)
}

/// Returns the owner that the calling thread keeps bytes of, 0 outside of all groups; none in a
/// handler that interrupts a switch.
#[inline(always)]
pub(crate) fn keeps() -> Option<u32> {
    HERE.try_with(|here| here.keeps.get()).ok().filter(|&owner| owner != SWITCHES)
}

/// Returns whether the calling thread keeps bytes of this owner, who is somebody.
#[inline(always)]
pub(crate) fn keeps_of(owner: u32) -> bool {
    HERE.try_with(|here| here.keeps.get() == owner).unwrap_or(false)
}

/// Keeps a block's bytes of the owner that [`keeps`] has named, and returns whether it is much: it
/// is to be [`posted`]. That is left to the caller: cold code in an allocation makes it longer.
#[inline(always)]
pub(crate) fn gain(size: usize) -> bool {
    keep(size as i64) > KEPT_MAX
}

/// As [`gain`], of a block that is freed.
#[inline(always)]
pub(crate) fn lose(size: usize) -> bool {
    keep(-(size as i64)) < -KEPT_MAX
}

#[inline(always)]
fn keep(bytes: i64) -> i64 {
    HERE.try_with(|here| add_to_own(&here.kept, bytes)).unwrap_or(0)
}

/// Counts for an owner, whichever it is.
pub(crate) fn count(owner: u32, bytes: i64) {
    if !keeps_of(owner) {
        owners::add(owner, bytes);
    } else if keep(bytes).unsigned_abs() > KEPT_MAX.unsigned_abs() {
        posted();
    }
}

/// Posts what the calling thread keeps, and lets it work for `owner`.
pub(crate) fn works_for(owner: u32) {
    let _ = HERE.try_with(|here| {
        let was = here.keeps.replace(SWITCHES);
        if was == SWITCHES {
            // A handler: what it interrupted sets `keeps`. Meanwhile all is added at once.
            here.owner.set(owner);
            return;
        }
        // SeqCst, here and below: for handlers on this thread, which find the words in this order.
        // It emits no instruction.
        compiler_fence(Ordering::SeqCst);
        // Relaxed, here and below: this thread's, and while it switches no handler's.
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

/// Posts what the calling thread keeps.
pub(crate) fn posted() {
    works_for(current());
}

/// Returns whether a block that is allocated here comes to the books.
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
