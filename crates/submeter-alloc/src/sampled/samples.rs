//! The life of a sample or a known block: how it begins, changes and ends.

use std::alloc::Layout;
use std::sync::atomic::{AtomicU64, Ordering};

use super::odds::{self, EXACT};
use super::slots::Slot;
use super::{large, places, probes};
use crate::exact::{books, owners};

/// The bytes that the estimates lack: what samples without a slot stood for, and known blocks for
/// whose entry there was no memory. Nothing tells when they are freed. No later sample takes them
/// over: its block would be freed at another time, and might belong to another group that has the
/// number by then.
static LACKING: AtomicU64 = AtomicU64::new(0);

pub(super) fn lacking() -> u64 {
    // Relaxed, here and below: one number, not ordered with others.
    LACKING.load(Ordering::Relaxed)
}

#[cold]
fn lack(bytes: u64) {
    LACKING.fetch_add(bytes, Ordering::Relaxed);
}

/// Checks whether there is a place among the `more` bytes of a block that did not pass, and if so
/// takes a slot for it. Returns `None` outside all groups.
pub(super) fn begin(layout: Layout, more: usize) -> Option<Slot> {
    if !places::is_due(more) {
        return None;
    }
    match books::current() {
        0 => None,
        owner => take(owner, layout, 0),
    }
}

/// Takes a slot for a sample, which replaces `known` bytes of its owner.
fn take(owner: u32, layout: Layout, known: usize) -> Option<Slot> {
    let weight = odds::weight(layout.size());
    let Some(slot) = slot(layout) else {
        lack(weight);
        return None;
    };
    slot.note(owner, weight);
    owners::count_sample(owner, true);
    books::count(owner, weight as i64 - known as i64);
    probes::begins(slot.block(), layout.size(), weight);
    Some(slot)
}

/// Takes a slot for a block. Returns `None` in a handler that interrupts this on its own thread.
pub(super) fn slot(layout: Layout) -> Option<Slot> {
    // A system error allocates, which must not re-enter this function.
    places::unsampled(|| Slot::take(layout.size(), layout.align())).flatten()
}

/// Makes a block known.
pub(super) fn know(block: *mut u8, owner: u32, size: usize) {
    if owner == 0 {
        return;
    }
    if large::note(block, owner) {
        books::count(owner, size as i64);
        probes::begins(block, size, size as u64);
    } else {
        lack(size as u64);
    }
}

/// Ends a known block.
pub(super) fn forget(block: *mut u8, size: usize) {
    match take_out(block) {
        0 => {}
        owner => books::count(owner, -(size as i64)),
    }
}

/// Takes the entry of a known block out, before it is freed or moves: another block may be placed
/// there at once. Returns its owner, or 0.
pub(super) fn take_out(block: *mut u8) -> u32 {
    let owner = large::forget(block);
    if owner != 0 {
        probes::ends(block);
    }
    owner
}

/// Puts back the entry of a known block that has not moved.
pub(super) fn put_back(block: *mut u8, owner: u32, size: usize) {
    if owner != 0 && large::note(block, owner) {
        probes::begins(block, size, size as u64);
    }
}

/// Decides whether a known block, whose entry was taken out, becomes a sample when it shrinks, and
/// if so takes a slot for it.
pub(super) fn shrink_known(owner: u32, old: usize, new: Layout) -> Option<Slot> {
    if owner == 0 || !places::draw(|random| odds::is_sampled(random, new.size())) {
        return None;
    }
    take(owner, new, old)
}

/// Records the new place and size of a known block whose entry was taken out.
pub(super) fn resized_known(moved: *mut u8, owner: u32, old: usize, new: Layout) {
    if owner == 0 {
        return;
    }
    let size = new.size();
    let is_known = large::is_known(new) && large::note(moved, owner);
    if large::is_known(new) && !is_known {
        lack(size as u64);
    }
    if is_known {
        probes::begins(moved, size, size as u64);
    }
    // In one step, so that an owner with one block is never without bytes.
    books::count(owner, if is_known { size as i64 } else { 0 } - old as i64);
}

/// Updates a slot whose block has a new size. The block is a sample, or was one until it shrank.
/// One that shrinks stays a sample with the chance of its new size; one that grows is more likely
/// to be one.
pub(super) fn resized(slot: Slot, to: Slot, old: usize, new: usize) {
    let (owner, weight) = slot.sample();
    if owner == 0 {
        let more = new.saturating_sub(old);
        let is_due = !places::pass(more) && places::is_due(more);
        let owner = if is_due { books::current() } else { 0 };
        let weight = if owner == 0 { 0 } else { odds::weight(new) };
        to.note(owner, weight);
        if owner != 0 {
            owners::count_sample(owner, true);
            books::count(owner, weight as i64);
            probes::begins(to.block(), new, weight);
        }
    } else if new >= old || places::draw(|random| odds::remains(random, old, new)) {
        let changed = odds::weight(new);
        to.note(owner, changed);
        books::count(owner, changed as i64 - weight as i64);
        probes::ends(slot.block());
        probes::begins(to.block(), new, changed);
    } else {
        end(slot);
        to.note(0, 0);
    }
}

/// Ends the sample in a slot, and records the same block in its new place and size.
pub(super) fn left(slot: Slot, block: *mut u8, new: usize) {
    let (owner, _) = slot.sample();
    if new >= EXACT {
        know(block, if owner == 0 { books::current() } else { owner }, new);
    } else if owner != 0 {
        lack(odds::weight(new));
    }
    // After the gain, so that an owner with one block is never without bytes.
    end(slot);
}

/// Ends the sample in a slot, if there is one.
pub(super) fn end(slot: Slot) {
    let (owner, weight) = slot.sample();
    if owner != 0 {
        owners::count_sample(owner, false);
        books::count(owner, -(weight as i64));
        probes::ends(slot.block());
    }
}
