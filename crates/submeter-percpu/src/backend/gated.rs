//! Words for each CPU that take adds while their gate is open.

use std::io;

use submeter_sys::{Gated, Rseq, STRIDE};

use super::rseq::ATTEMPTS;
use crate::storage::{Area, Words};
use crate::sync::atomic::{AtomicI64, AtomicU32, Ordering};

/// A word of every CPU row that takes adds by sequence while its gate is open.
///
/// Word, gate and owner are one object, so that no add can meet another word's gate, or outlive the
/// rows. Laid out as written, like everything that holds it as its first field: the gate's address
/// is then the count's own, and a get needs no instruction for it.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct GatedWord {
    /// The gate that sequences test in the section that commits.
    ///
    /// Law: 0 while closed, the number of rows while open; without a word, 0. Writer: the holder of
    /// the count's lock.
    gate: AtomicU32,
    /// Inert in an area without sequences.
    rseq: Gated,
    /// The address in row 0. Dangling where `rseq` is inert.
    address: *mut i64,
    /// Keeps the rows, and takes the word back. `None` where there is no word. Not the word's
    /// [`Words`], which is three times as large: every group has one of these, and `address` has
    /// the rest.
    area: Option<Area>,
}

// SAFETY: 1. `address` is dereferenced only by sequences and by atomic loads, both made for
// concurrent use; `area` keeps it valid. 2. The other fields are `Send` by themselves.
unsafe impl Send for GatedWord {}
// SAFETY: 1 and 2 as for `Send`; what changes is atomic.
unsafe impl Sync for GatedWord {}

/// The parts of a [`GatedWord`] needed for an add, copied out of it.
///
/// Adds take this, not the word: the add that puts the last reference may be followed at once by
/// the end of the object that holds the word, and then a reference to a whole object must not be an
/// argument of a function. A reference to an atomic may be.
#[derive(Clone, Copy)]
pub(crate) struct Adder<'a> {
    gate: &'a AtomicU32,
    rseq: Gated,
    address: *mut i64,
}

impl GatedWord {
    /// Takes a word of an area with sequences. It is closed at first.
    ///
    /// # Errors
    /// The same as for [`Area::word`].
    ///
    /// # Panics
    /// When the area has no sequences.
    pub(crate) fn new(area: &Area) -> io::Result<GatedWord> {
        let block = area.word()?;
        let word = block.cpu_word(0).expect("only for areas with sequences");
        let (rseq, address) = (word.rseq().gated(), word.address());
        let area = Some(block.into_area());
        Ok(GatedWord { gate: AtomicU32::new(0), rseq, address, area })
    }

    /// Creates one without a word, which stays closed.
    pub(crate) fn inert() -> GatedWord {
        let address = std::ptr::NonNull::dangling().as_ptr();
        GatedWord { gate: AtomicU32::new(0), rseq: Rseq::inert().gated(), address, area: None }
    }

    #[inline(always)]
    pub(crate) fn adder(&self) -> Adder<'_> {
        let GatedWord { gate, rseq, address, .. } = self;
        Adder { gate, rseq: *rseq, address: *address }
    }

    /// Returns the same as [`adder`](Self::adder), for a word that may end with the add.
    ///
    /// # Safety
    /// 1. `this` points to a word that lives until the add with the result commits. 2. The result
    ///    is not used after that.
    #[inline(always)]
    pub(crate) unsafe fn adder_at<'a>(this: *const GatedWord) -> Adder<'a> {
        // SAFETY: 1. The word lives: the caller's first promise. 2. No reference to the whole is
        // made: each field is taken by itself.
        unsafe { Adder { gate: &(*this).gate, rseq: (*this).rseq, address: (*this).address } }
    }

    pub(crate) fn is_open(&self) -> bool {
        self.adder().is_open()
    }

    /// Lets sequences commit that start from now on.
    pub(crate) fn open(&self) {
        // Release: pairs with the Acquire fence after a sequence that found it open, in
        // `count_since_opening` and `after_openings`: code after that fence sees all writes that
        // came before this store. The sequence itself is not ordered: its load of the gate is
        // plain.
        self.gate.store(self.len() as u32, Ordering::Release);
    }

    /// Lets no sequence commit that starts after the barrier that the caller issues next.
    pub(crate) fn close(&self) {
        // Relaxed: the barrier orders it.
        self.gate.store(0, Ordering::Relaxed);
    }

    /// Returns the number of rows: 0 without sequences.
    pub(crate) fn len(&self) -> usize {
        let rseq = self.area.as_ref().and_then(Area::rseq);
        rseq.map_or(0, |rseq| rseq.cpus() as usize)
    }

    /// Sums the rows. The sum is 0 without sequences, where there are no rows.
    pub(crate) fn sum(&self) -> i64 {
        let load = |row: usize| {
            let word = self.address.wrapping_byte_add(row * STRIDE);
            // SAFETY: 1. Valid: `row` is below the number of rows (the range below), and `area`
            // keeps them. 2. Aligned: `CpuWord` vouches for row 0, and strides are multiples of 8.
            // 3. Concurrent writes are atomic: sequences store an aligned word by one instruction.
            let word = unsafe { AtomicI64::from_ptr(word) };
            // Acquire: the load comes after the barrier that the caller issued, and before the
            // caller uses the sum.
            word.load(Ordering::Acquire)
        };
        (0..self.len()).map(load).fold(0, i64::wrapping_add)
    }
}

impl Drop for GatedWord {
    fn drop(&mut self) {
        if let Some(area) = self.area.take() {
            // SAFETY: 1. The word has belonged to this object since `new`, which turned its block
            // into the area.
            // 2. It is given back once: `area` was taken.
            drop(unsafe { Words::regain(area, self.address) });
        }
    }
}

impl Adder<'_> {
    #[inline(always)]
    fn is_open(self) -> bool {
        // Relaxed: a hint to all threads except the lock's holder, which the lock orders.
        self.gate.load(Ordering::Relaxed) != 0
    }

    /// Adds the constant `N`, 1 or -1, if the gate is open. Returns whether it did.
    #[inline(always)]
    pub(crate) fn add_one<const N: i32>(self) -> bool {
        // SAFETY: 1. The word is valid in as many rows as the value of an open gate: `GatedWord`
        // has both, and is alive (the lifetime, or the promise to `adder_at`). A closed gate, like
        // that of an inert word, lets nothing commit. 2. Only sequences write the word: it belongs
        // to `GatedWord`, which zeroes it on drop, when no sequence is left. 3. The gate is a live
        // atomic.
        unsafe { self.rseq.add_while::<N>(self.address, self.gate.as_ptr()) }
    }

    /// Does the same as [`add_one`](Self::add_one), with a value.
    #[inline(always)]
    pub(crate) fn add(self, n: i64) -> bool {
        // SAFETY: 1 to 3 as in `add_one`.
        unsafe { self.rseq.add_value_while(self.address, self.gate.as_ptr(), n) }
    }

    /// Does the same as [`add`](Self::add), unless the word would then be below 0 or above `cap`.
    #[inline(always)]
    pub(crate) fn add_capped(self, n: i64, cap: u64) -> bool {
        // SAFETY: 1 to 3 as in `add_one`.
        unsafe { self.rseq.add_capped(self.address, self.gate.as_ptr(), n, cap) }
    }

    /// Returns whether a sequence that did not commit may do so at another attempt, if neither its
    /// gate nor its word was the reason.
    pub(crate) fn may_retry(self) -> bool {
        self.is_open() && Rseq::get().is_some_and(|rseq| rseq.adopt_thread())
    }

    /// Retries where that may help. Returns whether the add was done.
    #[cold]
    pub(crate) fn add_again(self, n: i64) -> bool {
        for _ in 0..ATTEMPTS {
            if !self.may_retry() {
                return false;
            }
            if self.add(n) {
                return true;
            }
        }
        false
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// A dropped word is given back, and is zero for its next user.
    #[test]
    fn what_is_dropped_is_zero_for_the_next() {
        let area = Area::new(|_| 0).expect("address space");
        let Some(rseq) = area.rseq() else {
            eprintln!("skipped: there are no sequences here, and nothing has such a word");
            return;
        };
        assert!(rseq.adopt_thread(), "this thread can run sequences");
        let _other = GatedWord::new(&area).expect("room");
        let word = GatedWord::new(&area).expect("room");
        word.open();
        while !word.adder().add_one::<1>() {}
        assert_eq!(word.sum(), 1);
        let address = word.address;
        drop(word);
        let next = GatedWord::new(&area).expect("room");
        assert_eq!((next.address, next.sum()), (address, 0));
        assert!(!next.is_open());
    }
}
