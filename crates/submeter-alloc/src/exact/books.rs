//! What is counted when a block is allocated, freed or resized.
//!
//! A thread that works for a group accumulates what the group's blocks gain and lose on it in two
//! words of its own, and posts the sum when it leaves the group. Blocks of other groups that it
//! frees are taken off those groups' words at once: that is little of what such a block costs, most
//! of which is the transfer of its lines between CPUs.

use std::cell::Cell;
use std::hint::black_box;
use std::sync::atomic::{AtomicI64, Ordering, compiler_fence};

use submeter_sys::take_from_own;

use super::owners::{self, KEPT_MAX};

struct Here {
    /// The owner of what this thread allocates; 0 outside all groups.
    owner: Cell<u32>,
    /// The owner whose bytes are kept: the same, or [`SWITCHES`] while the two are being changed. A
    /// signal handler that runs then finds that nothing can be kept, and leaves the words alone.
    keeps: Cell<u32>,
    /// How many bytes its blocks may still gain, and lose, on this thread before both are posted:
    /// two words, so that the subtraction itself tells when that is. Each is one step that no
    /// handler can split: a handler that switches between two steps leaves the same owner behind,
    /// and nothing kept.
    gains_left: AtomicI64,
    losses_left: AtomicI64,
}

impl Here {
    /// Returns what its blocks gained on balance.
    fn kept(&self) -> i64 {
        // Relaxed, here and below: only this thread uses it, and no handler while it switches.
        self.losses_left.load(Ordering::Relaxed) - self.gains_left.load(Ordering::Relaxed)
    }

    fn take_kept(&self) -> i64 {
        let kept = self.kept();
        // Relaxed: as above.
        self.gains_left.store(KEPT_MAX, Ordering::Relaxed);
        self.losses_left.store(KEPT_MAX, Ordering::Relaxed);
        kept
    }
}

/// Not the owner of any block: larger than all of them.
pub(super) const SWITCHES: u32 = u32::MAX;

thread_local! {
    /// Constant and without a destructor, like the words of [`Metered`](crate::Metered).
    static HERE: Here = const {
        Here {
            owner: Cell::new(0),
            keeps: Cell::new(0),
            gains_left: AtomicI64::new(KEPT_MAX),
            losses_left: AtomicI64::new(KEPT_MAX),
        }
    };
}

const _: () = assert!(!std::mem::needs_drop::<Here>());

/// Returns the owner of what the calling thread allocates now.
#[inline(always)]
pub(crate) fn current() -> u32 {
    // It never fails because there is no destructor; `with` would contain code for a panic.
    HERE.try_with(|here| here.owner.get()).unwrap_or(0)
}

/// Returns the owner whose bytes the calling thread keeps, 0 outside all groups, and [`SWITCHES`]
/// in a handler that interrupts a switch.
#[inline(always)]
pub(super) fn keeps() -> u32 {
    HERE.try_with(|here| here.keeps.get()).unwrap_or(0)
}

/// Returns whether the calling thread keeps bytes of this owner, which is not 0.
#[inline(always)]
pub(super) fn keeps_of(owner: u32) -> bool {
    HERE.try_with(|here| here.keeps.get() == owner).unwrap_or(false)
}

/// Keeps a block's bytes for the owner that [`keeps`] named, and returns whether enough has
/// accumulated to be [`posted`]. Posting is left to the caller, because cold code lengthens the
/// allocation path.
#[inline(always)]
pub(super) fn gain(size: usize) -> bool {
    HERE.try_with(|here| take_from_own(&here.gains_left, size as i64)).unwrap_or(false)
}

/// The same as [`gain`], for a block that is freed.
#[inline(always)]
pub(super) fn lose(size: usize) -> bool {
    HERE.try_with(|here| take_from_own(&here.losses_left, size as i64)).unwrap_or(false)
}

/// Counts bytes for any owner.
pub(crate) fn count(owner: u32, bytes: i64) {
    if !keeps_of(owner) {
        return owners::add(owner, bytes);
    }
    let size = bytes.unsigned_abs() as usize;
    if if bytes < 0 { lose(size) } else { gain(size) } {
        posted();
    }
}

/// Posts what the calling thread keeps, and makes it work for `owner`.
#[inline]
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
        let kept = here.take_kept();
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
    let kept = HERE.try_with(Here::kept).unwrap_or(0);
    drop(block);
    works_for(owner);
    kept == 64
}
