//! The shared part of a counter: the batches that were crossed, and the adds that have crossed one
//! but not posted it yet.
//!
//! An add that crosses a boundary is *in flight* from before it commits in its word until its
//! overflow is posted: [`crate::overflow`] explains why a reader has to know how many are.
//! Announcing an add costs two more sequences, not two locked instructions: each CPU has a word for
//! adds that began on it and one for adds that ended on it, since an add may begin on one CPU and
//! end on another. A reader loads the ends first, then the beginnings, then the posts. An add whose
//! end it sees has therefore also begun and posted in its view, so a reader may count too many adds
//! in flight, but never too few.

use super::Approximate;
use super::cpu_words::{CpuWord, CpuWords};
use crate::sync::atomic::{AtomicI64, AtomicU64, Ordering, fence};

/// Maximum number of CPUs with packed words. With more, a read would visit more than 24 lines, and
/// a single word that takes locked adds is the better choice.
#[cfg(not(loom))]
pub(super) const PACKED_CPUS_MAX: u32 = 64;

/// Maximum amount by which a bound is widened for adds in flight. It keeps the width of a read
/// within an `i64`.
const IN_FLIGHT_MAX: u64 = 1 << 61;

/// The overflows of a counter. An add that crosses no boundary neither reads nor writes them.
#[derive(Debug)]
pub(super) struct Overflows<W> {
    /// The words to which overflows are posted without a locked instruction. `None` without
    /// sequences, or with too many CPUs.
    packed: Option<W>,
    /// Bits: a sum of multiples of the batch. Writers: overflows that no sequence posted, by locked
    /// add only.
    posted: AtomicI64,
    /// The number of adds in flight that no sequence began, less those that no sequence ended.
    in_flight: AtomicU64,
}

/// An add in flight, until this is dropped.
#[must_use = "it ends when this is dropped"]
pub(super) struct InFlight<'a, W: CpuWords>(&'a Overflows<W>);

/// The result of [`Overflows::compare`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Compared {
    /// The result, which is the same for every amount that words may keep.
    Known(std::cmp::Ordering),
    /// Too close to tell from the posts.
    Near,
    /// Adds are in flight: [`read`](Overflows::read) may still decide.
    Busy,
}

impl<W: CpuWords> Overflows<W> {
    pub(super) fn new(packed: Option<W>) -> Overflows<W> {
        Overflows { packed, posted: AtomicI64::new(0), in_flight: AtomicU64::new(0) }
    }

    /// Announces an add that may cross a boundary, before it commits.
    #[inline]
    pub(super) fn begin(&self) -> InFlight<'_, W> {
        if !self.by_sequence(CpuWord::Begun, 1) {
            // SeqCst: as in `crate::overflow::InFlight`. All of this replicates its pairing with
            // plain stores: whatever comes after the add in its word comes after this.
            self.in_flight.fetch_add(1, Ordering::SeqCst);
        }
        InFlight(self)
    }

    #[inline]
    pub(super) fn post(&self, overflow: i64) {
        // Release: pairs with the Acquire in `read`: a reader that finds the overflow also finds
        // the add's row in use. A fence, because a sequence's plain store follows.
        fence(Ordering::Release);
        if !self.by_sequence(CpuWord::Posted, overflow) {
            // Relaxed: ordered by the fence above and by the one that ends the add.
            self.posted.fetch_add(overflow, Ordering::Relaxed);
        }
    }

    #[inline]
    fn by_sequence(&self, kept: CpuWord, n: i64) -> bool {
        // One attempt: a sequence is disturbed so rarely that asking why would cost more.
        self.packed.as_ref().is_some_and(|packed| packed.add(kept, n))
    }

    /// Returns the posted sum, and how far below and above it the truth may be: `missing` for the
    /// amounts that words keep below their boundary, and less than `batch` for the amount that each
    /// add in flight hides.
    ///
    /// `missing` is called last: an add may be the first in its row, and the amount it posted is
    /// offset by what that row keeps.
    #[inline]
    pub(super) fn read(&self, missing: impl FnOnce() -> u64, batch: u64) -> Approximate {
        let in_flight = self.in_flight();
        let hidden = in_flight.saturating_mul(batch - 1).min(IN_FLIGHT_MAX);
        // After `in_flight`, whose loads are Acquire.
        let posted = self.posted();
        // Acquire: pairs with the Release in `post`.
        fence(Ordering::Acquire);
        // The part of a word beyond a boundary is always missing, never in excess; the part that
        // adds in flight hide may be either.
        Approximate::new(posted.wrapping_sub_unsigned(hidden), missing() + 2 * hidden)
    }

    /// Compares the value with `rhs` where nothing is in flight. `missing` is the amount that words
    /// may keep, whether in use or not.
    #[inline]
    pub(super) fn compare(&self, missing: u64, rhs: i64) -> Compared {
        if self.in_flight() != 0 {
            return Compared::Busy;
        }
        // No fence is needed after it: `missing` is already known.
        let found = Approximate::new(self.posted(), missing).compare(rhs);
        found.map_or(Compared::Near, Compared::Known)
    }

    /// Returns the posted sum.
    #[inline]
    pub(super) fn posted(&self) -> i64 {
        // Relaxed: the callers order it. A racing add may or may not be included.
        let posted = self.posted.load(Ordering::Relaxed);
        match &self.packed {
            None => posted,
            Some(packed) => posted.wrapping_add(packed.sum(CpuWord::Posted)),
        }
    }

    /// Returns the number of adds in flight, or more. Must be called before the posted sum is
    /// loaded.
    #[inline]
    fn in_flight(&self) -> u64 {
        let Some(packed) = &self.packed else {
            // SeqCst: pairs with those in `begin` and in the drop.
            return self.in_flight.load(Ordering::SeqCst);
        };
        // In the reverse order of an add's own steps: see the top of this file.
        let ended = packed.sum(CpuWord::Ended);
        // SeqCst: pairs with those in `begin` and in the drop; ends before begins here too.
        let elsewhere = self.in_flight.load(Ordering::SeqCst);
        let begun = packed.sum(CpuWord::Begun);
        elsewhere.wrapping_add_signed(begun.wrapping_sub(ended))
    }

    /// Returns how many adds were ever announced by sequence.
    #[cfg(all(test, not(loom)))]
    pub(super) fn announced(&self) -> i64 {
        self.packed.as_ref().map_or(0, |packed| packed.sum(CpuWord::Begun))
    }
}

impl<W: CpuWords> Drop for InFlight<'_, W> {
    #[inline]
    fn drop(&mut self) {
        // Release: pairs with the Acquire of the loads in `in_flight`: a reader that finds the add
        // ended finds its overflow. A fence, because a sequence's plain store follows.
        fence(Ordering::Release);
        if !self.0.by_sequence(CpuWord::Ended, 1) {
            // SeqCst: as in `begin`.
            self.0.in_flight.fetch_sub(1, Ordering::SeqCst);
        }
    }
}

#[cfg(not(loom))]
impl Overflows<crate::backend::packed::PackedWords> {
    /// Makes the overflows of `count` counters, with one allocation for all of them.
    pub(super) fn many(
        rseq: Option<submeter_sys::Rseq>,
        count: usize,
    ) -> impl Iterator<Item = Self> {
        use crate::backend::packed::PackedWords;
        let rseq = rseq.filter(|rseq| rseq.cpus() <= PACKED_CPUS_MAX);
        let mut packed = rseq.map(|rseq| PackedWords::many(rseq, count));
        let packed = move || packed.as_mut().and_then(Iterator::next);
        std::iter::repeat_with(packed).take(count).map(Overflows::new)
    }

    /// Returns how many words a sum visits.
    #[cfg(test)]
    pub(super) fn visited(&self) -> usize {
        self.packed.as_ref().map_or(1, crate::backend::packed::PackedWords::cpus)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// Sequences that never commit.
    struct Never;

    impl CpuWords for Never {
        fn add(&self, _: CpuWord, _: i64) -> bool {
            false
        }

        fn sum(&self, _: CpuWord) -> i64 {
            0
        }
    }

    #[test]
    fn a_read_is_as_wide_as_what_adds_in_flight_hide() {
        let overflows = Overflows::<Never>::new(None);
        let read = || {
            let read = overflows.read(|| 3, 8);
            (read.low(), read.high())
        };
        assert_eq!(read(), (0, 3));
        let in_flight = overflows.begin();
        assert_eq!(read(), (-7, 10));
        drop(in_flight);
        assert_eq!(read(), (0, 3));
    }
}
