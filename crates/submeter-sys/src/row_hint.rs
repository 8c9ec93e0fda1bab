//! Finds by one load the row to which the calling thread adds where there are no sequences.

use std::cell::Cell;
use std::sync::atomic::{AtomicI32, AtomicU32, AtomicUsize, Ordering};

use crate::arch;
use crate::rseq::{FIELD_CPU_ID, HAS_OWN_AREA};

/// Tells which of the calling thread's numbers is its row, found by one load. One byte in size,
/// because each block of words has one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowHint(Number);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum Number {
    /// The number of the CPU on which it runs, in libc's rseq area.
    Cpu,
    /// Its own number: in our area, or in a thread-local if threads have no such area.
    Thread,
}

/// The distance from the thread pointer to each [`Number`], set once a [`RowHint`] needs it. Not in
/// the hint, where it would take four bytes of each group.
///
/// Invariant: once a hint exists, its offset leads to an aligned word in an area that every thread
/// has, and does not change.
static AT: [AtomicI32; 2] = [const { AtomicI32::new(0) }; 2];

impl RowHint {
    /// Returns the hint for the CPU's number; `None` for an area that is not near the thread
    /// pointer.
    ///
    /// # Safety
    /// 1. Every thread has libc's rseq area `area` bytes from its thread pointer.
    pub(crate) unsafe fn of_cpu(area: isize) -> Option<RowHint> {
        RowHint::at(Number::Cpu, area + FIELD_CPU_ID.cast_signed())
    }

    /// Returns the hint for the number that [`thread_number`] assigns.
    ///
    /// # Panics
    /// Never: thread-local memory that a program starts with is near the thread pointer.
    #[must_use]
    pub fn of_thread() -> RowHint {
        if !HAS_OWN_AREA {
            return RowHint(Number::Thread);
        }
        let at = arch::own_area_offset() + NUMBER_AT.cast_signed();
        RowHint::at(Number::Thread, at).expect("the area is in the program's initial TLS")
    }

    fn at(number: Number, at: isize) -> Option<RowHint> {
        // Relaxed: always the same value, and whatever passes the hint to another thread orders
        // this before that thread's loads.
        AT[number as usize].store(i32::try_from(at).ok()?, Ordering::Relaxed);
        Some(RowHint(number))
    }

    /// Returns it with the address, for users with room for four more bytes: saves a load at each
    /// use.
    #[inline(always)]
    #[must_use]
    pub fn resolved(self) -> ResolvedHint {
        // Relaxed: see `at`.
        ResolvedHint { at: AT[self.0 as usize].load(Ordering::Relaxed), hint: self }
    }

    /// Returns the number. A CPU's number is stale as soon as it is read. `None` for a thread that
    /// libc did not register, or that has no number yet.
    #[inline(always)]
    #[must_use]
    pub fn number(self) -> Option<u32> {
        self.resolved().number()
    }
}

/// A [`RowHint`] that knows where the number lies.
#[derive(Clone, Copy, Debug)]
pub struct ResolvedHint {
    /// The distance, as in `AT`.
    at: i32,
    hint: RowHint,
}

impl ResolvedHint {
    /// Returns the hint alone.
    #[must_use]
    pub fn hint(self) -> RowHint {
        self.hint
    }

    /// The same as [`RowHint::number`].
    #[inline(always)]
    #[must_use]
    pub fn number(self) -> Option<u32> {
        let number = if !HAS_OWN_AREA && self.hint.0 == Number::Thread {
            NUMBER.try_with(Cell::get).unwrap_or(NONE)
        } else {
            // SAFETY: 1. The word exists: the invariant of `AT`, from which `at` was read.
            unsafe { arch::read_u32(self.at as isize, 0) }
        };
        (number.cast_signed() >= 0).then_some(number)
    }
}

/// Offset of a thread's number in our area: after the state of its registration.
const NUMBER_AT: usize = 36;

/// Means that a thread has no number.
const NONE: u32 = u32::MAX;

thread_local! {
    /// The number, if threads have no area of ours.
    static NUMBER: Cell<u32> = const { Cell::new(NONE) };
}

/// Maximum number of rows for locked adds: with more CPUs, two share one. DataDog's accumulator
/// stops at the same number.
const ROWS_MAX: usize = 64;

/// Returns the number of rows for locked adds: one for each CPU, 64 at most.
#[must_use]
pub fn locked_rows() -> usize {
    /// 0: not determined yet. Determining it may read files, which allocates, so an area is made
    /// before its first add.
    static ROWS: AtomicUsize = AtomicUsize::new(0);
    // Relaxed: only the number itself matters.
    match ROWS.load(Ordering::Relaxed) {
        0 => {}
        rows => return rows,
    }
    let parallel = || std::thread::available_parallelism().map_or(1, usize::from);
    let rows = crate::probe().cpus.unwrap_or_else(parallel).clamp(1, ROWS_MAX);
    // Relaxed: as above.
    ROWS.store(rows, Ordering::Relaxed);
    rows
}

/// Returns a number for the calling thread, below [`locked_rows`], so that an add can use it as a
/// row without a division. Numbers are assigned in turn, in the order of first use. Does not
/// allocate.
#[cold]
#[inline(never)]
#[must_use]
pub fn thread_number() -> u32 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    // The thread is ending: any row is correct, only not the fastest.
    let own = own_number().map_or_else(
        || NUMBER.try_with(Cell::get).unwrap_or(0),
        |own| {
            // Relaxed: only this thread uses the word; atomic because a handler on it may come
            // between.
            own.load(Ordering::Relaxed)
        },
    );
    if own != NONE {
        return own;
    }
    // Relaxed: any spread will do.
    let next = NEXT.fetch_add(1, Ordering::Relaxed) % locked_rows() as u32;
    set_thread_number(next);
    next
}

/// Changes the calling thread's number, to simulate CPUs.
pub fn set_thread_number(number: u32) {
    let number = number & (u32::MAX >> 1);
    match own_number() {
        // Relaxed: only this thread uses the word.
        Some(own) => own.store(number, Ordering::Relaxed),
        // An ending thread keeps the row that it falls back to.
        None => drop(NUMBER.try_with(|own| own.set(number))),
    }
}

/// Returns the word in the calling thread's own area.
fn own_number() -> Option<&'static AtomicU32> {
    if !HAS_OWN_AREA {
        return None;
    }
    let area = arch::thread_pointer().wrapping_add_signed(arch::own_area_offset());
    // SAFETY: 1. The word is part of the 64 bytes that the ISA file reserves for each thread,
    // aligned to 4. 2. Only this module accesses it, on its own thread: here, and by the loads of
    // `RowHint`. 3. The reference is used before the function that asked for it returns: 'static
    // stands for "while the thread runs".
    Some(unsafe { AtomicU32::from_ptr((area + NUMBER_AT) as *mut u32) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_threads_row_is_found_by_the_hint() {
        let look = || {
            let hint = RowHint::of_thread();
            assert_eq!(hint.number(), None, "before it is asked for");
            let number = thread_number();
            assert!((number as usize) < locked_rows());
            assert_eq!((thread_number(), hint.number()), (number, Some(number)));
            set_thread_number(7);
            assert_eq!((thread_number(), hint.number()), (7, Some(7)));
            number
        };
        let numbers = (0..2 * locked_rows() + 1)
            .map(|_| std::thread::spawn(look).join().expect("no panic"))
            .collect::<std::collections::BTreeSet<u32>>();
        assert!(numbers.len() > locked_rows() / 2, "spread: {numbers:?}");
    }
}
