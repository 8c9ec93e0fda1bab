//! Lines whose marks a flush leaves in place.
//!
//! A flush that takes a mark must issue a barrier before it reads the line: this is the only way to
//! know that no sequence that saw the mark has yet to commit. That interrupts every CPU, and the
//! next update of the line has to mark it again. So marks stay, and each flush reads their lines,
//! without a barrier:
//!
//! - *Earlier updates are found.* An update commits only while its mark is set, and that mark is
//!   still set when the flush looks, because no other thread clears it. The add happened before the
//!   load of its word, which therefore has it. That is everything the barrier provided to a flush
//!   after the update; otherwise it matters only to sequences that race.
//! - *To remove a mark*, the flush clears it, issues a barrier, and reads the line once more. One
//!   barrier serves any number of marks, so the flusher may wait until there are many to remove.
//!
//! # What readers learn
//! A mark that stays does not show whether the line has changed since the last flush, and a reader
//! that counts marks would find a quiet tree inexact. So the flusher lists the lines that it keeps,
//! where readers can compare them with their last known contents ([`KeptView::unread`]): lines that
//! have not changed do not count, and where no others are marked, totals are exact.
//!
//! This holds for totals that were loaded before the next flush began ([`KeptView::holds`]). The
//! flush may have read a line at a moment that is over by the time a reader compares: a gauge that
//! went up and down again has the value that was read last, while the total about to be stored is
//! of the moment in between.
//!
//! A flush that changes none of this is invisible to readers: the version stays as it is. If every
//! flush made it odd, two readers of a quiet tree that want exact totals would each find the
//! other's flush under way, and flush again endlessly.

use crate::sync::atomic::{AtomicU64, Ordering, fence};

/// The list of kept lines: one flusher writes, any number of readers compare.
///
/// Not a [`SeqLatch`](crate::SeqLatch): every flush would fill its two copies, for readers that are
/// rare. One copy and its version are enough, since a reader that comes during a flush has an
/// answer without it: "unknown".
///
/// # Examples
/// ```
/// use submeter_percpu::dirty::KeptView;
///
/// let kept = KeptView::new(4);
/// // Line 7 of row 1.
/// kept.put(0, 1, 0, 1 << 7);
/// kept.end(1);
/// let unread = |now: i64, last: i64| kept.unread(|| 2, |row, line| {
///     assert_eq!((row, line), (1, 7));
///     now == last
/// });
/// // There are two marks.
/// assert_eq!((unread(3, 3).lines, unread(4, 3).lines), (1, 2));
///
/// let found = unread(4, 4);
/// kept.begin();
/// assert!(!kept.holds(&found), "a total that is loaded now may be of another moment");
/// assert_eq!(unread(4, 4).lines, 2, "not in any total yet");
/// kept.end(1);
/// assert_eq!(unread(4, 4).lines, 1);
/// ```
#[derive(Debug)]
pub struct KeptView {
    /// Odd from the first change that a flush makes until its end.
    version: AtomicU64,
    /// Number of slots in use.
    slots_used: AtomicU64,
    slots: Box<[Slot]>,
}

/// Up to 64 lines of a row.
#[derive(Debug)]
struct Slot {
    /// Bits: the row in the upper half, the word of 64 lines in the lower half.
    place: AtomicU64,
    bits: AtomicU64,
}

/// The lines that readers do not find in totals: see [`KeptView::unread`].
#[derive(Clone, Copy, Debug, Default)]
#[must_use]
pub struct Unread {
    /// Maximum number of such lines, provided that [`KeptView::holds`] returns true once totals are
    /// loaded.
    pub lines: u64,
    /// The version at which unchanged lines were left out; `None` if none were.
    compared_at: Option<u64>,
}

/// Number of changed lines after which a reader stops.
const CHANGED_MAX: u64 = 8;

impl KeptView {
    /// Makes room for `slots` times up to 64 lines.
    #[must_use]
    pub fn new(slots: usize) -> KeptView {
        let slot = |_| Slot { place: AtomicU64::new(0), bits: AtomicU64::new(0) };
        KeptView {
            version: AtomicU64::new(0),
            slots_used: AtomicU64::new(0),
            slots: (0..slots).map(slot).collect(),
        }
    }

    /// Tells readers that something is about to change: until [`end`](KeptView::end) they learn
    /// nothing here. Must be called before a flush stores totals, or the contents of a kept line,
    /// and so before it releases marks. Costs a store.
    pub fn begin(&self) {
        // Relaxed: written by the flusher only.
        let version = self.version.load(Ordering::Relaxed);
        // Relaxed: the fence orders it. The version may already be odd: a flusher may have vanished
        // half-way.
        self.version.store(version | 1, Ordering::Relaxed);
        // Release: pairs with the Acquire fence in `holds`: a reader that has loaded something
        // stored below sees the odd version, or a later one, when it checks again.
        fence(Ordering::Release);
    }

    /// Ends a flush that left lines in the first `slots` slots. Must be called after its reads are
    /// in the totals. A flush that never called [`begin`](KeptView::begin) is invisible to readers.
    pub fn end(&self, slots: usize) {
        // Relaxed: written by the flusher only.
        let version = self.version.load(Ordering::Relaxed);
        if version.is_multiple_of(2) {
            return;
        }
        // Relaxed: the version below publishes it.
        self.slots_used.store(slots as u64, Ordering::Relaxed);
        // Release: after the totals and the slots; pairs with the Acquire in `unread`.
        self.version.store(version + 1, Ordering::Release);
    }

    /// Puts lines in a slot: bit `b` of `bits` for line `64 * word + b`.
    ///
    /// # Panics
    /// When there is no such slot.
    pub fn put(&self, slot: usize, row: u32, word: u32, bits: u64) {
        self.begin();
        let slot = &self.slots[slot];
        // Relaxed, both: between `begin` and `end`, which publish them.
        slot.place.store(u64::from(row) << 32 | u64::from(word), Ordering::Relaxed);
        slot.bits.store(bits, Ordering::Relaxed);
    }

    /// Returns the maximum number of lines that hold something that readers do not find yet,
    /// provided that [`holds`](KeptView::holds) returns true once totals are loaded. It is the
    /// number of marks that were not released, as counted by `count`, without those of kept lines
    /// that have not changed. It is all of them if a flush is changing totals.
    ///
    /// The next update of a line that this loads waits for the line to come back from the reader's
    /// cache. So it stops after eight lines that have changed.
    ///
    /// `is_same` loads a line of a row, and then the contents that were last read of it, and
    /// compares them.
    ///
    /// # Ordering
    /// Totals that are loaded later include everything that happened before, except the contents of
    /// the lines counted here, on the same condition.
    pub fn unread(
        &self,
        count: impl FnOnce() -> u64,
        is_same: impl Fn(usize, usize) -> bool,
    ) -> Unread {
        // Acquire: pairs with the Release in `end`, for the slots and the totals.
        let version = self.version.load(Ordering::Acquire);
        // Between the two loads of the version: a flush that takes one mark while another is set
        // would leave the count unchanged.
        let counted = count();
        if !version.is_multiple_of(2) {
            return Unread { lines: counted, compared_at: None };
        }
        // Relaxed: published by the version.
        let used = self.slots_used.load(Ordering::Relaxed) as usize;
        let (mut same, mut changed) = (0, 0);
        for slot in self.slots.iter().take(used) {
            // Acquire, both: pairs with the Release fence in `begin`, before which the lines were
            // opened: they can be loaded even if this slot is newer than the version. A torn slot
            // may name a line that does not exist.
            let place = slot.place.load(Ordering::Acquire);
            let mut bits = slot.bits.load(Ordering::Acquire);
            let (row, first) = ((place >> 32) as usize, place as u32 as usize * 64);
            while bits != 0 && changed < CHANGED_MAX {
                let is_same = is_same(row, first + bits.trailing_zeros() as usize);
                (same, changed) = (same + u64::from(is_same), changed + u64::from(!is_same));
                bits &= bits - 1;
            }
        }
        // Saturating: if a flush has begun, `holds` detects it, and the comparison does not count.
        Unread { lines: counted.saturating_sub(same), compared_at: (same > 0).then_some(version) }
    }

    /// Returns whether the comparison holds for the totals loaded since, because no flush has begun
    /// to change them. If one has, all marked lines count.
    #[must_use]
    #[inline]
    pub fn holds(&self, found: &Unread) -> bool {
        let Some(version) = found.compared_at else { return true };
        // Acquire: pairs with the Release fence in `begin`.
        fence(Ordering::Acquire);
        // Relaxed: ordered by the fence.
        self.version.load(Ordering::Relaxed) == version
    }
}

/// Called before a thread counts marks, so that the marks found by its own updates are counted.
#[inline]
pub(crate) fn after_own_updates() {
    // Acquire: pairs with `DirtyBits::mark`, which counts a mark, then sets it. A sequence of this
    // thread that found another thread's mark has read it with a plain load: without this fence, on
    // machines that reorder loads, its count could be missed, and the thread's own update with it.
    // If a thread's sequence finds such a mark and the thread then hands something over, the
    // machine orders the two, as for `count_since_opening` in `percpu_ref::switch`.
    fence(Ordering::Acquire);
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::cell::RefCell;

    use super::*;

    #[test]
    fn a_reader_looks_at_each_kept_line_once() {
        let kept = KeptView::new(2);
        kept.put(0, 1, 0, 0b101);
        kept.put(1, 2, 3, 1 << 63);
        kept.end(2);
        let looked = RefCell::new(Vec::new());
        let unread = kept.unread(
            || 4,
            |row, line| {
                looked.borrow_mut().push((row, line));
                assert!(looked.borrow().len() <= 3, "{looked:?}");
                line != 2
            },
        );
        assert_eq!(looked.take(), [(1, 0), (1, 2), (2, 255)]);
        assert_eq!(unread.lines, 2, "of four, without two that are the same");
        assert!(kept.holds(&unread));
        kept.begin();
        assert!(!kept.holds(&unread));
        assert_eq!(kept.unread(|| 4, |_, _| true).lines, 4, "a flush is under way");
    }

    #[test]
    fn a_reader_stops_at_eight_changed_lines() {
        let kept = KeptView::new(1);
        kept.put(0, 0, 0, u64::MAX);
        kept.end(1);
        let looked = RefCell::new(0);
        let unread = kept.unread(
            || 64,
            |_, _| {
                *looked.borrow_mut() += 1;
                false
            },
        );
        assert_eq!((unread.lines, looked.take()), (64, 8));
    }

    #[test]
    fn a_whole_flush_ends_what_was_compared_before() {
        let kept = KeptView::new(1);
        kept.put(0, 0, 0, 1);
        kept.end(1);
        let [compared, counted] = [true, false].map(|is_same| kept.unread(|| 1, |_, _| is_same));
        kept.begin();
        kept.end(1);
        assert!(!kept.holds(&compared), "the line was compared with an older total");
        assert!(kept.holds(&counted), "no comparison has lowered it");
    }
}
