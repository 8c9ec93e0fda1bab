//! The rows of words that sequences add to, as a group keeps them.

use std::mem::offset_of;
use std::ptr::NonNull;

use crate::rseq::has_no_area;
use crate::{Rseq, arch};

/// Rows of words, one for each CPU, and the sequences that add to them. A block of words keeps one
/// to find the running CPU's words.
///
/// A sequence that is given one loads what it needs itself. For a word that is used repeatedly, an
/// address that was computed once is cheaper: see [`Rseq`].
#[derive(Clone, Copy, Debug)]
pub struct CpuRows {
    /// The start of row 0.
    base: NonNull<u8>,
    rseq: Rseq,
}

// SAFETY: 1. The address is dereferenced only in unsafe functions, whose callers are responsible
// for it.
unsafe impl Send for CpuRows {}
// SAFETY: 1. As for `Send`; there is no interior mutability.
unsafe impl Sync for CpuRows {}

#[allow(dead_code, reason = "each instruction set has its own way to the fields, or none")]
impl CpuRows {
    /// Number of words that share a mark: those of one 64-byte cache line.
    pub const LINE_WORDS: usize = 8;

    // Offsets from which a sequence loads the fields.
    pub(crate) const BASE_AT: usize = offset_of!(CpuRows, base);
    pub(crate) const OFFSET_AT: usize = offset_of!(CpuRows, rseq) + Rseq::OFFSET_AT;
    pub(crate) const CPUS_AT: usize = offset_of!(CpuRows, rseq) + Rseq::CPUS_AT;

    /// Describes rows: as many as `rseq` requires, from `base` on, [`STRIDE`](crate::STRIDE) bytes
    /// apart. The memory need not exist until a word is added to.
    #[must_use]
    pub const fn new(base: NonNull<u8>, rseq: Rseq) -> CpuRows {
        CpuRows { base, rseq }
    }

    /// Returns zero rows, so that no sequence adds to them.
    #[must_use]
    pub fn inert() -> CpuRows {
        CpuRows::new(NonNull::dangling(), Rseq::inert())
    }

    /// Returns the start of row 0.
    #[inline(always)]
    #[must_use]
    pub fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// Returns the sequences, field by field: see [`Rseq::split`].
    #[inline(always)]
    #[must_use]
    pub fn rseq(&self) -> Rseq {
        self.rseq.split()
    }

    /// Adds `n` to word number `index` of the running CPU's row unless that changes bits above
    /// `mask`, and only while the word's line is marked: bit `line % 64` of word `line / 64` of the
    /// marks, which begin `MARKS_AT` bytes into each row; a line is `index / LINE_WORDS`. Returns
    /// whether it was done.
    ///
    /// Costs some instructions more than if the addresses were computed beforehand, but four
    /// registers less, which is worth more when it is inlined into a caller with values of its own.
    ///
    /// # Safety
    /// The same as [`Rseq::add_marked`], for that word and the word of marks that it names
    /// in each row.
    ///
    /// # Ordering
    /// None, like [`Rseq::add`].
    #[inline(always)]
    #[must_use]
    pub unsafe fn add_marked_within<const MARKS_AT: usize>(
        &self,
        index: u32,
        n: i64,
        mask: u64,
    ) -> bool {
        if has_no_area(self.rseq.offset()) {
            return false;
        }
        // SAFETY: 1. The caller's promise.
        unsafe { arch::add_indexed_within::<MARKS_AT>(self, index, n, mask) }
    }

    /// Returns the addresses, in row 0, of a word and of the word of marks that contains its line's
    /// mark, and the line.
    #[inline(always)]
    pub(crate) fn find<const MARKS_AT: usize>(&self, index: u32) -> (*mut i64, *const u64, u32) {
        let (base, line) = (self.base.as_ptr(), index / Self::LINE_WORDS as u32);
        let word = base.wrapping_add(index as usize * size_of::<i64>());
        let marks = base.wrapping_add(MARKS_AT + line as usize / 64 * size_of::<u64>());
        (word.cast(), marks.cast_const().cast(), line)
    }
}
