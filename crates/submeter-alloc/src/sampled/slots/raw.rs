//! The addresses of slots, and their records.
#![allow(unsafe_code, reason = "records in reserved memory")]

use std::io;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

use once_cell::race::OnceBox;
use submeter_sys::memory::Reservation;

use super::{CLASS, CLASSES, LEN, Record, SLOTS, Slot, begin, size_of_slot};
use crate::sampled::odds::EXACT;

/// Where the range seems to begin before it exists: so high that no block lies above.
const NOWHERE: usize = usize::MAX - LEN + 1;

/// Where the slots begin, aligned to the largest one; their records come after them.
static BASE: AtomicPtr<u8> = AtomicPtr::new(ptr::without_provenance_mut(NOWHERE));

/// No `OnceLock`: if a thread sets one during a fork, the child waits for it forever.
static RANGE: OnceBox<Reservation> = OnceBox::new();

/// Reserves the range, once. Before that, no block is in it.
pub(in crate::sampled) fn start() -> io::Result<()> {
    if RANGE.get().is_none() {
        let len = LEN + CLASSES * SLOTS * size_of::<Record>();
        let made = Reservation::closed(len + EXACT)?;
        let kept = RANGE.get_or_init(|| Box::new(made));
        let base = kept.base().as_ptr();
        // Relaxed: only an address. Its pages are made accessible later, and that is published.
        BASE.store(base.wrapping_add(base.align_offset(EXACT)), Ordering::Relaxed);
    }
    Ok(())
}

/// Returns a block's offset from the start of the range.
#[inline(always)]
pub(super) fn offset(block: *mut u8) -> usize {
    // Relaxed: a thread that has a block in the range got it from a thread that had seen this.
    block.addr().wrapping_sub(BASE.load(Ordering::Relaxed).addr())
}

/// Returns whether a block lies in a slot.
#[inline(always)]
pub(in crate::sampled) fn has(block: *mut u8) -> bool {
    offset(block) < LEN
}

pub(super) fn address(offset: usize) -> *mut u8 {
    // Relaxed: as above.
    BASE.load(Ordering::Relaxed).wrapping_add(offset)
}

/// Makes `more` slots from `from` on accessible, and their records. If it fails, the slots must not
/// be used.
pub(super) fn open(from: Slot, more: usize) -> bool {
    let Some(range) = RANGE.get() else { return false };
    // Relaxed: another thread that is starting may not have set it yet; the range then refuses this
    // call.
    let skipped = BASE.load(Ordering::Relaxed).addr().wrapping_sub(range.base().addr().get());
    let size = size_of_slot(from.class);
    let slots = skipped + begin(from.class) + from.number as usize * size;
    let records = skipped + LEN + from.index() * size_of::<Record>();
    range.open(slots, more * size).is_ok()
        && range.open(records, more * size_of::<Record>()).is_ok()
}

/// Returns the record of an accessible slot; for any other, an unused one.
pub(super) fn record(slot: Slot) -> &'static Record {
    static NONE: Record = Record::new();
    // Acquire: pairs with the Release in `Class::is_open`.
    if slot.number >= CLASS[slot.class].open.load(Ordering::Acquire) {
        return &NONE;
    }
    let at = address(LEN + slot.index() * size_of::<Record>());
    // SAFETY: 1. Inside the reservation, which is never given back: the slot is one of its class.
    // 2. Accessible: its number is below the first that is not, and the records were made
    // accessible before that was raised. 3. Initialised: reserved memory is zero, which is a valid
    // record. 4. Aligned, because the range and the sum of all slots are. 5. Only accessed as this
    // type, whose fields are atomic.
    unsafe { &*at.cast::<Record>() }
}
