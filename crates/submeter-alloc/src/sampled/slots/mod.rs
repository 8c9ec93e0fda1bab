//! The memory of sampled blocks: slots of powers of two, in an address range of their own.
//!
//! A block's address tells that it is sampled, and gives its class, its number and thereby its
//! record. Class k has slots of 16·2^k bytes. All classes have the same number of slots and follow
//! one another; all records come after them. Pages are made accessible when they are first needed.

mod raw;

use std::sync::atomic::{AtomicU32, Ordering};

use submeter_percpu::free_list::FreeList;

use super::odds::{self, EXACT};

pub(super) use raw::{has, start};

/// Slots of a class: enough for a heap of 64 GiB whose blocks are all of one class. If more are
/// needed, larger slots are taken.
const SLOTS: usize = match () {
    () if cfg!(miri) => 1 << 9,
    () if cfg!(all(target_os = "linux", target_pointer_width = "64")) => 1 << 20,
    () => 1 << 12,
};

/// Bytes of the smallest slots, to which every block is aligned.
const LEAST: usize = 16;

const CLASSES: usize = (EXACT / LEAST).ilog2() as usize + 1;

/// Bytes of all slots of the first class.
const UNIT: usize = SLOTS * LEAST;

const _: () = assert!(UNIT.is_multiple_of(EXACT), "a class begins as aligned as its slots are");

const _: () = assert!(odds::weight(EXACT) <= u32::MAX as u64, "a record has room for a weight");

/// Bytes of all slots.
const LEN: usize = UNIT * ((1 << CLASSES) - 1);

/// Bytes of a class that are made accessible at once.
const STEP: usize = if cfg!(miri) { EXACT } else { 256 << 10 };

/// What is known of a slot.
struct Record {
    /// The owner of the sample, 0 if the block here is not one; or the link between free slots.
    owner: AtomicU32,
    weight: AtomicU32,
}

impl Record {
    const fn new() -> Record {
        Record { owner: AtomicU32::new(0), weight: AtomicU32::new(0) }
    }
}

struct Class {
    free: FreeList,
    /// The first number that was never taken.
    fresh: AtomicU32,
    /// The first number whose memory is not accessible yet.
    open: AtomicU32,
}

static CLASS: [Class; CLASSES] =
    [const { Class { free: FreeList::new(), fresh: AtomicU32::new(0), open: AtomicU32::new(0) } };
        CLASSES];

/// A slot that is in use, or that the caller has taken.
#[derive(Clone, Copy)]
pub(super) struct Slot {
    class: usize,
    number: u32,
}

const fn size_of_slot(class: usize) -> usize {
    LEAST << class
}

/// Returns where a class begins.
const fn begin(class: usize) -> usize {
    UNIT * ((1 << class) - 1)
}

/// Returns the slot at an offset.
const fn slot_at(offset: usize) -> Slot {
    let class = (offset / UNIT + 1).ilog2() as usize;
    Slot { class, number: ((offset - begin(class)) / size_of_slot(class)) as u32 }
}

/// Returns the smallest class whose slots fit a block.
fn class_of(size: usize, align: usize) -> usize {
    let least = size.max(align).max(LEAST).next_power_of_two();
    (least / LEAST).ilog2() as usize
}

impl Class {
    fn take(&self, class: usize) -> Option<Slot> {
        let link = |number| &Slot { class, number }.record().owner;
        let number = self.free.take(link).or_else(|| self.take_fresh(class))?;
        Some(Slot { class, number })
    }

    fn take_fresh(&self, class: usize) -> Option<u32> {
        // Relaxed, here and below: a number that no other thread gets. Its memory is accessible
        // already, or is made so here.
        let mut fresh = self.fresh.load(Ordering::Relaxed);
        loop {
            if fresh as usize == SLOTS || !self.is_open(class, fresh) {
                return None;
            }
            // Relaxed: as above.
            let relaxed = Ordering::Relaxed;
            match self.fresh.compare_exchange_weak(fresh, fresh + 1, relaxed, relaxed) {
                Ok(_) => return Some(fresh),
                Err(now) => fresh = now,
            }
        }
    }

    /// Makes the memory of a slot and of those after it accessible, unless it is.
    fn is_open(&self, class: usize, number: u32) -> bool {
        // Acquire: pairs with the Release below.
        if number < self.open.load(Ordering::Acquire) {
            return true;
        }
        let more = (STEP / size_of_slot(class)).max(1).min(SLOTS - number as usize);
        let is_open = raw::open(Slot { class, number }, more);
        if is_open {
            // Release: pairs with the Acquire above and in `record`.
            self.open.fetch_max(number + more as u32, Ordering::Release);
        }
        is_open
    }
}

impl Slot {
    /// Takes a slot for a block. Returns `None` if all are in use, or memory is short.
    pub(super) fn take(size: usize, align: usize) -> Option<Slot> {
        (class_of(size, align)..CLASSES).find_map(|class| CLASS[class].take(class))
    }

    /// Returns the slot in which a block lies.
    pub(super) fn of(block: *mut u8) -> Option<Slot> {
        has(block).then(|| slot_at(raw::offset(block)))
    }

    pub(super) fn block(self) -> *mut u8 {
        raw::address(begin(self.class) + self.number as usize * size_of_slot(self.class))
    }

    /// Returns whether a block fits in the slot.
    pub(super) fn fits(self, size: usize) -> bool {
        size <= size_of_slot(self.class)
    }

    /// Gives the slot back.
    pub(super) fn put(self) {
        CLASS[self.class].free.put(self.number, &self.record().owner);
    }

    /// Returns the owner of the sample in the slot, 0 for none, and the bytes it stands for.
    pub(super) fn sample(self) -> (u32, u64) {
        let record = self.record();
        // Relaxed, here and below: only the thread that has the block uses its record.
        let weight = record.weight.load(Ordering::Relaxed);
        (record.owner.load(Ordering::Relaxed), weight.into())
    }

    /// Records the sample in the slot.
    pub(super) fn note(self, owner: u32, weight: u64) {
        let record = self.record();
        // Relaxed, here and below: as in `sample`.
        record.owner.store(owner, Ordering::Relaxed);
        record.weight.store(weight as u32, Ordering::Relaxed);
    }

    fn record(self) -> &'static Record {
        raw::record(self)
    }

    /// Returns the index of its record among all.
    fn index(self) -> usize {
        self.class * SLOTS + self.number as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Slots do not overlap, are aligned to their size, and are found from a block's address.
    #[test]
    fn slots_lie_apart_aligned_and_are_found_again() {
        assert_eq!((size_of_slot(0), size_of_slot(CLASSES - 1)), (LEAST, EXACT));
        let mut end = 0;
        for class in 0..CLASSES {
            assert_eq!(begin(class), end, "where the last one ended");
            let size = size_of_slot(class);
            for number in [0, 1, SLOTS - 1] {
                let first = begin(class) + number * size;
                assert!(first.is_multiple_of(size));
                for offset in [first, first + 1, first + size - 1] {
                    let slot = slot_at(offset);
                    assert_eq!((slot.class, slot.number as usize), (class, number));
                }
                end = first + size;
            }
        }
        assert_eq!(end, LEN);
    }

    /// A slot belongs to the smallest class that is large and aligned enough.
    #[test]
    fn the_smallest_class_that_fits_is_taken() {
        let of = |size, align| size_of_slot(class_of(size, align));
        assert_eq!([of(1, 1), of(16, 8), of(17, 8), of(64, 64)], [16, 16, 32, 64]);
        assert_eq!([of(24, 4096), of(EXACT - 1, 1)], [4096, EXACT]);
        assert!(class_of(1, 2 * EXACT) >= CLASSES, "none is");
    }

    #[test]
    fn slots_are_given_out_once_until_put_back() {
        start().expect("address space");
        let [a, b] = [40, 64].map(|size| Slot::take(size, 8).expect("room"));
        assert_ne!(a.block(), b.block());
        for slot in [a, b] {
            assert!(has(slot.block()) && slot.fits(64) && !slot.fits(65));
            assert_eq!(Slot::of(slot.block()).expect("there").index(), slot.index());
        }
        a.note(7, 100);
        b.note(8, odds::weight(EXACT));
        assert_eq!([a.sample(), b.sample()], [(7, 100), (8, odds::weight(EXACT))]);
        let place = a.block();
        a.put();
        b.put();
        let again = [64, 64].map(|size| Slot::take(size, 64).expect("room"));
        assert!(again.iter().any(|slot| slot.block() == place));
        again.into_iter().for_each(Slot::put);
        let outside = Box::new(0);
        assert!(!has((&raw const *outside).cast_mut()));
    }

    #[test]
    fn a_class_that_is_full_borrows_of_the_next() {
        start().expect("address space");
        let class = CLASSES - 2;
        // All slots are taken, so none may be opened here.
        CLASS[class].fresh.store(SLOTS as u32, Ordering::Relaxed);
        while CLASS[class].free.take(|number| &Slot { class, number }.record().owner).is_some() {}
        let slot = Slot::take(size_of_slot(class), 8).expect("room");
        assert_eq!(slot.class, class + 1);
        slot.put();
    }
}
