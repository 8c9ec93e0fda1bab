//! Lines whose marks a flush leaves where they are.
//!
//! A flush that takes a mark must issue a barrier before it reads the line: the only way to know
//! that no sequence which saw the mark is still to commit. That interrupts every CPU, and the next
//! update of the line has to mark it again. For a line that changes between any two flushes both
//! are wasted. So its mark stays, and each flush reads the line, without a barrier:
//!
//! - *What happened before is found.* An update commits only while its mark is set, and that mark
//!   is still set when the flush looks, because nobody else clears it. The add happened before the
//!   load of its word, which therefore has it. This is all that the barrier gave to a flush that
//!   follows the update; what the barrier adds is for the sequences that race.
//! - *A mark that is to go* is cleared first, then comes a barrier, then the line is read once
//!   more: what a flush does to every line that it does not keep.
//!
//! # What readers are told
//! A mark that stays says nothing about whether the line has changed since the last flush, and a
//! reader that counts marks would find a quiet tree inexact. So what a flush read last of each kept
//! line is where readers can compare it ([`Kept::is_unchanged`]): where no other line is marked and
//! none of these has changed, totals are exact.
//!
//! A flush that changes nothing of this shows readers nothing either: the version stays as it is.
//! If every flush made it odd, two readers of a quiet tree that want exact totals would each find
//! the other's flush under way, and flush again without end.

use crate::sync::atomic::{AtomicI64, AtomicU64, Ordering, fence};

/// The kept lines, of `WORDS` words each: one flusher writes, any number of readers compare.
///
/// Not a [`SeqLatch`](crate::SeqLatch): its two copies would be filled by every flush, for readers
/// that are rarely there. One copy and its version are enough, as a reader that comes while a flush
/// runs has an answer without it: it does not know.
///
/// A flush costs a comparison for each line, a reader the same where it finds no change. Lines that
/// change now and then are better taken: each costs every flush.
///
/// # Examples
/// ```
/// use submeter_percpu::dirty::Kept;
///
/// let kept = Kept::<2>::new(4);
/// kept.put(0, 1, 7, &[3, 30]);
/// kept.end(1, 1);
/// let reads = |now: [i64; 2]| kept.is_unchanged(|| 1, |row, line| {
///     assert_eq!((row, line), (1, 7));
///     now
/// });
/// assert!(reads([3, 30]) && !reads([3, 31]));
///
/// assert_eq!(kept.advance(0, &[3, 31]), Some([0, 1]));
/// assert!(!reads([3, 31]), "not in any total yet");
/// kept.end(1, 1);
/// assert!(reads([3, 31]));
/// ```
#[derive(Debug)]
pub struct Kept<const WORDS: usize> {
    /// Odd from the first change that a flush makes until its end.
    version: AtomicU64,
    /// How many slots are in use.
    lines: AtomicU64,
    /// How many of their lines have a mark, which is counted with all others.
    marked: AtomicU64,
    slots: Box<[Slot<WORDS>]>,
}

/// A line and what was read of it, side by side: what a flush looks at is in one place.
#[derive(Debug)]
struct Slot<const WORDS: usize> {
    /// The row in the upper half, the line in the lower one.
    place: AtomicU64,
    last: [AtomicI64; WORDS],
}

impl<const WORDS: usize> Kept<WORDS> {
    /// Makes room for `lines` lines.
    #[must_use]
    pub fn new(lines: usize) -> Kept<WORDS> {
        let slot =
            |_| Slot { place: AtomicU64::new(0), last: std::array::from_fn(|_| AtomicI64::new(0)) };
        Kept {
            version: AtomicU64::new(0),
            lines: AtomicU64::new(0),
            marked: AtomicU64::new(0),
            slots: (0..lines).map(slot).collect(),
        }
    }

    /// Returns how many lines there is room for.
    #[must_use]
    pub fn room(&self) -> usize {
        self.slots.len()
    }

    /// Tells readers that totals are about to change: until [`end`](Kept::end) they learn nothing
    /// here. To be called before a flush stores totals of lines that it took, and so before it
    /// releases their marks; [`put`](Kept::put) and [`advance`](Kept::advance) do so by themselves.
    /// Costs a store.
    pub fn begin(&self) {
        // Relaxed: written by the flusher only.
        let version = self.version.load(Ordering::Relaxed);
        // Relaxed: the fence orders it. May be odd already, also after a flusher that vanished
        // half-way.
        self.version.store(version | 1, Ordering::Relaxed);
        // Release: pairs with the Acquire fence in `is_unchanged`: a reader that loads what is
        // stored below sees the odd version, or a later one, when it looks again.
        fence(Ordering::Release);
    }

    /// Ends a flush that left `lines` lines in the first slots, of which `marked` have a mark.
    /// After the totals have what it read. Of a flush that changed nothing, also not these two,
    /// readers learn nothing.
    pub fn end(&self, lines: usize, marked: u64) {
        let now = (lines as u64, marked);
        // Relaxed, all three: written by the flusher only.
        let version = self.version.load(Ordering::Relaxed);
        let before = (self.lines.load(Ordering::Relaxed), self.marked.load(Ordering::Relaxed));
        if version.is_multiple_of(2) {
            if before == now {
                return;
            }
            self.begin();
        }
        // Relaxed, both: the version below publishes them.
        self.lines.store(now.0, Ordering::Relaxed);
        self.marked.store(now.1, Ordering::Relaxed);
        // Release: after the totals and the slots; pairs with the Acquire in `is_unchanged`.
        self.version.store((version | 1) + 1, Ordering::Release);
    }

    /// Puts a line in a slot, with what was read of it last.
    ///
    /// # Panics
    /// When there is no such slot; so do the two below.
    pub fn put(&self, slot: usize, row: u32, line: u32, last: &[i64; WORDS]) {
        self.begin();
        let slot = &self.slots[slot];
        // Relaxed, here and below: between `begin` and `end`, which publish it.
        slot.place.store(u64::from(row) << 32 | u64::from(line), Ordering::Relaxed);
        for (word, &last) in slot.last.iter().zip(last) {
            // Relaxed: as above.
            word.store(last, Ordering::Relaxed);
        }
    }

    /// Returns what was read last of a slot's line.
    #[inline]
    #[must_use]
    pub fn last(&self, slot: usize) -> [i64; WORDS] {
        // Relaxed: for the flusher, which wrote it.
        std::array::from_fn(|n| self.slots[slot].last[n].load(Ordering::Relaxed))
    }

    /// Compares a slot's line with what was read last, and takes note of it. Returns by how much it
    /// differs, if it does.
    #[inline]
    pub fn advance(&self, slot: usize, now: &[i64; WORDS]) -> Option<[i64; WORDS]> {
        let slot = &self.slots[slot];
        // Relaxed: for the flusher, which wrote it.
        let last = |n: usize| slot.last[n].load(Ordering::Relaxed);
        let new: [i64; WORDS] = std::array::from_fn(|n| now[n].wrapping_sub(last(n)));
        // Not by comparison of arrays, which calls a function of libc.
        if new.iter().fold(0, |any, word| any | word) == 0 {
            return None;
        }
        self.begin();
        for (word, &now) in slot.last.iter().zip(now) {
            // Relaxed: as in `put`.
            word.store(now, Ordering::Relaxed);
        }
        Some(new)
    }

    /// Returns whether all updates that returned before are in the totals though lines are marked:
    /// they are kept ones, and none of those has changed. False while a flush changes totals.
    ///
    /// The next update of a line that this loads waits for the line to come back from the reader's
    /// cache. So it loads none where others are marked too, and stops at the first that has
    /// changed: a tree in which much changes waits for few.
    ///
    /// `count` counts the marks that were not released; `load` loads a line of a row.
    ///
    /// # Ordering
    /// Where this returns true, totals that are loaded later have all that happened before.
    pub fn is_unchanged(
        &self,
        count: impl FnOnce() -> u64,
        load: impl Fn(usize, usize) -> [i64; WORDS],
    ) -> bool {
        // Acquire: pairs with the Release in `end`, for the slots and the totals.
        let version = self.version.load(Ordering::Acquire);
        // Relaxed, both: published by the version.
        let (lines, marked) =
            (self.lines.load(Ordering::Relaxed), self.marked.load(Ordering::Relaxed));
        // Between the two looks at the version: a flush that takes one mark and comes upon another
        // would leave as many.
        let unchanged = version.is_multiple_of(2)
            && marked != 0
            && count() == marked
            && self.slots.iter().take(lines as usize).all(|slot| {
                // Acquire: pairs with the Release fence in `begin`, before which the line was
                // opened: it can be loaded even if this slot is newer than the version.
                let place = slot.place.load(Ordering::Acquire);
                let now = load((place >> 32) as usize, place as u32 as usize);
                // Relaxed: a torn slot is found out below.
                let word = |n: usize| slot.last[n].load(Ordering::Relaxed);
                (0..WORDS).all(|n| now[n] == word(n))
            });
        // Acquire: pairs with the Release fence in `begin`.
        fence(Ordering::Acquire);
        // Relaxed: ordered by the fence.
        unchanged && self.version.load(Ordering::Relaxed) == version
    }
}
