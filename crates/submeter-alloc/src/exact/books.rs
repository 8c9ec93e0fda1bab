//! What is added when a block comes, goes or changes its size.
//!
//! A thread that works for a group keeps what the group's blocks gain there in a word of its own,
//! and posts it when it leaves the group. What it frees of others is taken off their words at once.

use std::cell::Cell;
use std::hint::black_box;
use std::sync::atomic::{Ordering, compiler_fence};

use super::owners;

/// What a thread may keep to itself: as much as a batch of bytes.
pub(super) const KEPT_MAX: i64 = 64 << 10;

struct Here {
    /// The owner of what is allocated here; 0 outside of all groups.
    owner: Cell<u32>,
    /// The owner that `kept` is of: the same, or [`NOBODY`] while `kept` is being changed. A signal
    /// handler that comes then finds that nothing can be kept, and leaves `kept` alone.
    keeps: Cell<u32>,
    /// The bytes that its blocks gained here.
    kept: Cell<i64>,
}

/// No block's owner.
const NOBODY: u32 = u32::MAX;

thread_local! {
    /// Constant and without a destructor: as the words of [`Metered`](crate::Metered).
    static HERE: Here =
        const { Here { owner: Cell::new(0), keeps: Cell::new(0), kept: Cell::new(0) } };
}

const _: () = assert!(!std::mem::needs_drop::<Here>());

/// Returns the owner of what the calling thread allocates now.
#[inline(always)]
pub(crate) fn current() -> u32 {
    // It never fails, as there is no destructor; `with` would have code for a panic.
    HERE.try_with(|here| here.owner.get()).unwrap_or(0)
}

/// What [`keep`] has left to do.
#[derive(Clone, Copy)]
pub(crate) enum Left {
    /// The owner is not the group that the thread works for: its word is due.
    Add,
    /// It was kept, and is much: it is to be posted.
    Post,
}

/// Counts for the group that the calling thread works for, if that is `owner`. What is rarely to be
/// done besides is left to the caller, for [`settle`]: each piece of cold code in an allocation
/// makes it longer.
#[inline(always)]
pub(crate) fn keep(owner: u32, bytes: i64) -> Result<(), Left> {
    HERE.try_with(|here| {
        if owner != here.keeps.get() {
            return Err(Left::Add);
        }
        let kept = alone(here, || {
            here.kept.set(here.kept.get().wrapping_add(bytes));
            here.kept.get()
        });
        // One comparison for both signs.
        let is_much = kept.wrapping_add(KEPT_MAX) as u64 > 2 * KEPT_MAX as u64;
        if is_much { Err(Left::Post) } else { Ok(()) }
    })
    .unwrap_or(Err(Left::Add))
}

/// Changes `kept` while no handler does.
#[inline(always)]
fn alone<T>(here: &Here, change: impl FnOnce() -> T) -> T {
    let owner = here.keeps.replace(NOBODY);
    // SeqCst, here and below: for handlers on this thread, which find the words in this order; it
    // emits no instruction.
    compiler_fence(Ordering::SeqCst);
    let changed = change();
    compiler_fence(Ordering::SeqCst);
    here.keeps.set(owner);
    changed
}

/// Does what [`keep`] has left to do.
pub(crate) fn settle(owner: u32, bytes: i64, left: Left) {
    match left {
        Left::Add => owners::add(owner, bytes),
        Left::Post => posted(),
    }
}

/// Counts for an owner, whichever it is.
pub(crate) fn count(owner: u32, bytes: i64) {
    if let Err(left) = keep(owner, bytes) {
        settle(owner, bytes, left);
    }
}

/// Posts what the calling thread keeps, and lets it work for `owner`.
pub(crate) fn works_for(owner: u32) {
    let _ = HERE.try_with(|here| {
        let was = here.keeps.replace(NOBODY);
        if was == NOBODY {
            // A handler: what it interrupted restores `keeps`. Meanwhile all is added at once.
            here.owner.set(owner);
            return;
        }
        // SeqCst, here and below: as in `alone`.
        compiler_fence(Ordering::SeqCst);
        let kept = here.kept.take();
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
    let kept = HERE.try_with(|here| here.kept.get()).unwrap_or(0);
    drop(block);
    works_for(owner);
    kept == 64
}
