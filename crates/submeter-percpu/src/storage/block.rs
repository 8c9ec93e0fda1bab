//! A block: some words, and the adds to them.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use submeter_sys::{CpuHint, Exit, Rseq};

use super::raw::{CpuPlace, CpuWord, LINE_WORDS, LockedWord};
use super::{Area, Inner, Kept, Word};
use crate::backend::{emulated, rseq};
use crate::carry::{Announced, carry};

/// Holds words of an [`Area`]. Cloning is a pointer copy; the words are zeroed and reused when the last clone goes.
pub struct Block<T = ()> {
    /// `None` where there are no sequences.
    fast: Option<Fast>,
    kept: Kept<T>,
}

/// What a sequence needs, without following a pointer.
#[derive(Clone, Copy)]
struct Fast {
    rseq: Rseq,
    first: CpuWord,
    words: u32,
}

/// Words that are given back on drop. Numbers of 32 bits, of which a row has fewer words: every group has two.
pub(crate) struct Owned {
    area: Area,
    /// The first word, from the start of a row.
    first: u32,
    words: u32,
    /// The lines to give back; 0 for words that share theirs.
    lines: u32,
}

impl Block {
    pub(super) fn new(area: Area, first: usize, words: usize, lines: usize) -> Block {
        let first_word = area.inner.rseq.map(|rseq| (rseq, area.inner.rows.cpu_word(first)));
        let [first, words, lines] = [first as u32, words as u32, lines as u32];
        let fast = first_word.map(|(rseq, first)| Fast { rseq, first, words });
        Block { fast, kept: Kept::new(Owned { area, first, words, lines }, ()) }
    }

    /// Gives it a value that is kept with the words: one allocation for both.
    ///
    /// # Panics
    /// When the block was cloned.
    #[must_use]
    pub fn with<T>(self, value: T) -> Block<T> {
        Block { fast: self.fast, kept: Kept::new(self.into_owned(), value) }
    }
}

impl<T> Block<T> {
    /// Returns the words alone, of a block that has no clone: for who knows the way to them.
    pub(crate) fn into_owned(self) -> Owned {
        Arc::into_inner(self.kept.held).expect("a block that was not cloned").words
    }

    /// Returns a pointer to words and value, without the way to add.
    #[must_use]
    pub fn keep(&self) -> Kept<T> {
        self.kept.clone()
    }

    /// Returns what [`keep`](Block::keep) clones.
    #[inline]
    #[must_use]
    pub fn kept(&self) -> &Kept<T> {
        &self.kept
    }

    #[inline(always)]
    pub(super) fn owned(&self) -> &Owned {
        &self.kept.held.words
    }

    /// Returns the area that it is of.
    #[must_use]
    pub fn area(&self) -> &Area {
        &self.owned().area
    }

    /// Returns its first word's index in a row.
    #[must_use]
    pub fn first_word(&self) -> usize {
        self.owned().first()
    }

    /// Returns its first line's index in a row.
    #[must_use]
    pub fn first_line(&self) -> usize {
        self.owned().first() / LINE_WORDS
    }

    /// Returns how many words it has.
    #[must_use]
    pub fn len(&self) -> usize {
        self.owned().words as usize
    }

    /// Always false.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        false
    }

    /// Adds `n` to a word: about the price of a plain add. Wraps around.
    ///
    /// # Panics
    /// When there is no such word.
    ///
    /// # Ordering
    /// None: it publishes nothing but itself.
    #[inline(always)]
    pub fn add(&self, word: usize, n: i64) {
        if let Some(fast) = &self.fast
            && rseq::add(fast.rseq, fast.place(word), n)
        {
            return;
        }
        self.owned().add_slow(word, n);
    }

    /// Adds `n` to a word and returns what that carried over the boundaries of the batch `mask + 1`,
    /// a power of two: 0 in the common case, otherwise a multiple of the batch.
    ///
    /// Once the adds are over, what they returned is less than the sum of the words by less than a batch for each
    /// row. An add that is over can be missing in what others, still on their way, are about to return.
    ///
    /// # Panics
    /// When there is no such word.
    #[inline(always)]
    #[must_use]
    pub fn add_carry(&self, word: usize, n: i64, mask: u64) -> i64 {
        debug_assert!(mask.wrapping_add(1).is_power_of_two());
        if let Some(fast) = &self.fast
            && rseq::add_within(fast.rseq, fast.place(word), n, mask)
        {
            return 0;
        }
        self.owned().add_carry_slow(word, n, mask)
    }

    /// Adds `n` to a word, and marks the word's line first where it is not, so that [`Area::take_marked`]
    /// finds it. Hands what that carried over the boundaries of the batch `mask + 1`, a power of two, to
    /// `carried`, unless it is 0: a multiple of the batch.
    ///
    /// Until `carried` returns the add counts in [`Area::announced`].
    ///
    /// # Panics
    /// When there is no such word.
    #[inline(always)]
    pub fn add_marked(&self, word: usize, n: i64, mask: u64, carried: impl FnOnce(i64)) {
        debug_assert!(mask.wrapping_add(1).is_power_of_two());
        if let Some(fast) = &self.fast
            && rseq::add_marked_within(fast.rseq, fast.place(word), n, mask)
        {
            return;
        }
        self.owned().add_marked_slow(word, n, mask, carried);
    }

    /// Sums a word over its rows: exact once the adds are over, and never misses an add that returned before.
    ///
    /// # Panics
    /// When there is no such word.
    #[must_use]
    pub fn sum(&self, word: usize) -> i64 {
        assert!(word < self.len(), "no such word");
        let area = self.area();
        area.rows_in_use()
            .map(|row| area.load(row, self.owned().first() + word))
            .fold(0, i64::wrapping_add)
    }

    /// Finds a word, for adds that do not look for it again.
    ///
    /// # Panics
    /// When there is no such word.
    #[inline]
    #[must_use]
    pub fn word(&self, word: usize) -> Word<'_> {
        Word::new(self.owned(), word)
    }

    /// Returns a word for sequences, where there are any.
    #[inline(always)]
    pub(crate) fn cpu_word(&self, word: usize) -> Option<(Rseq, CpuWord)> {
        self.fast.as_ref().map(|fast| (fast.rseq, fast.word(word)))
    }

    /// Returns a word of the locked rows. Whoever writes it leaves it to `Drop` to zero it again; `sum`
    /// and flushes do not look there unless [`add`](Block::add) was ever used.
    pub(crate) fn locked_word(&self, word: usize) -> LockedWord {
        assert!(word < self.len(), "no such word");
        self.area().inner.rows.locked_word(self.owned().first() + word)
    }

    /// Returns what tells the locked row for the calling thread.
    pub(crate) fn hint(&self) -> Option<CpuHint> {
        self.area().inner.hint
    }
}

impl Fast {
    /// A word of the block.
    #[inline(always)]
    fn place(&self, word: usize) -> CpuPlace {
        self.word(word).place()
    }

    #[inline(always)]
    fn word(&self, word: usize) -> CpuWord {
        assert!(word < self.words as usize, "no such word");
        self.first.plus(word)
    }
}

/// What follows an add whose sequence did not commit, or where there are none: not on `Block`, so that a
/// caller who has one in registers need not put it in memory for this.
impl Owned {
    pub(crate) fn area(&self) -> &Area {
        &self.area
    }

    #[inline]
    pub(super) fn first(&self) -> usize {
        self.first as usize
    }

    /// A word for sequences, where there are any.
    #[inline]
    pub(super) fn cpu_word(&self, word: usize) -> Option<(Rseq, CpuWord)> {
        assert!(word < self.words as usize, "no such word");
        let inner = &*self.area.inner;
        inner.rseq.map(|rseq| (rseq, inner.rows.cpu_word(self.first() + word)))
    }

    /// With a batch that nothing carries over but a change of sign.
    #[cold]
    #[inline(never)]
    pub(super) fn add_slow(&self, word: usize, n: i64) {
        let _ = self.add_carry_slow(word, n, i64::MAX.cast_unsigned());
    }

    #[cold]
    #[inline(never)]
    pub(super) fn add_carry_slow(&self, word: usize, n: i64, mask: u64) -> i64 {
        if let Some((rseq, cpu_word)) = self.cpu_word(word) {
            let place = cpu_word.place();
            let again = || rseq::add_carry(rseq, place, n);
            // The first time by itself: an add that only crosses a boundary ends here.
            let mut added = again();
            if added.exit().is_some() {
                match rseq::retry(added, |exit| may_retry(rseq, exit), again) {
                    Some(done) => added = done,
                    None => return carry(self.locked_add(word, n).1, n, mask),
                }
            }
            return carry(added.after().wrapping_sub(n), n, mask);
        }
        carry(self.locked_add(word, n).1, n, mask)
    }

    #[cold]
    #[inline(never)]
    pub(super) fn add_marked_slow(
        &self,
        word: usize,
        n: i64,
        mask: u64,
        carried: impl FnOnce(i64),
    ) {
        if self.add_marked_inside(word, n, mask) {
            return;
        }
        let _announced = self.announce();
        let by = self.add_marked_across(word, n, mask);
        if by != 0 {
            carried(by);
        }
    }

    /// Adds where that crosses no boundary, so that it need not be announced; may return false without such a reason.
    fn add_marked_inside(&self, word: usize, n: i64, mask: u64) -> bool {
        let inner: &Inner = &self.area.inner;
        let line = (self.first() + word) / LINE_WORDS;
        let Some((rseq, cpu_word)) = self.cpu_word(word) else {
            let row = self.locked_add_within(word, n, mask);
            return row.inspect(|&row| self.mark_locked(row, line)).is_some();
        };
        // Here, and not after it was announced: that would put into use a locked row that the add has no need of.
        let adopted = || rseq.adopt_thread().then(|| rseq.cpu()).flatten();
        let Some(cpu) = rseq.cpu().or_else(adopted) else { return false };
        let marks = inner.rows.marks(cpu as usize);
        if marks.is_marked(line) {
            // What is refused with its line marked crosses a boundary, or was disturbed, which is rare.
            return false;
        }
        // The thread may have moved: then this is a mark too many, and the add is refused once more.
        marks.mark(line);
        rseq::add_marked_within(rseq, cpu_word.place(), n, mask)
    }

    /// Adds, whatever that crosses; returns what it carried.
    fn add_marked_across(&self, word: usize, n: i64, mask: u64) -> i64 {
        let line = (self.first() + word) / LINE_WORDS;
        if let Some((rseq, cpu_word)) = self.cpu_word(word) {
            let before_retry = |exit| {
                if exit == Exit::Unmarked {
                    // The thread may move before it tries again; then it finds another mark clear,
                    // and this one is a mark too many.
                    if let Some(cpu) = rseq.cpu() {
                        self.area.inner.rows.marks(cpu as usize).mark(line);
                    }
                }
                may_retry(rseq, exit)
            };
            let place = cpu_word.place();
            let again = || rseq::add_marked(rseq, place, n);
            if let Some(added) = rseq::retry(again(), before_retry, again) {
                return carry(added.after().wrapping_sub(n), n, mask);
            }
        }
        let (row, before) = self.locked_add(word, n);
        self.mark_locked(row, line);
        carry(before, n, mask)
    }

    /// Marks a line of a locked row, unless it is. After the add, unlike a sequence: see the protocol in `marks`.
    fn mark_locked(&self, row: usize, line: usize) {
        let inner: &Inner = &self.area.inner;
        let marks = inner.rows.marks(inner.rows.shape().cpus + row);
        if !marks.is_marked(line) {
            marks.mark(line);
        }
    }

    /// Announces an add in a row that is close: any serves, as those who count add up all.
    fn announce(&self) -> Announced<'_> {
        let inner: &Inner = &self.area.inner;
        let row = inner.rseq.and_then(Rseq::cpu).map_or_else(
            || {
                inner.use_locked();
                inner.rows.shape().cpus + self.locked_row()
            },
            |cpu| cpu as usize,
        );
        Announced::new(inner.rows.announced(row))
    }

    /// The locked row for the calling thread.
    #[inline]
    fn locked_row(&self) -> usize {
        let inner: &Inner = &self.area.inner;
        emulated::row(inner.hint, inner.rows.shape().locked)
    }

    /// Adds by a locked instruction unless that crosses a boundary of the batch `mask + 1`. Returns the locked row where it
    /// was done; may return `None` without such a reason.
    pub(super) fn locked_add_within(&self, word: usize, n: i64, mask: u64) -> Option<usize> {
        assert!(word < self.words as usize, "no such word");
        let inner: &Inner = &self.area.inner;
        let row = self.locked_row();
        let word = inner.rows.locked(row, self.first() + word);
        // SeqCst: as every load of a word that an exchange follows.
        let before = word.load(Ordering::SeqCst);
        if carry(before, n, mask) != 0 {
            return None;
        }
        inner.use_locked();
        // Once: who fails was overtaken, and may as well ask.
        // SeqCst: as in `locked_add`, whose place this takes.
        let after = before.wrapping_add(n);
        let done = word.compare_exchange(before, after, Ordering::SeqCst, Ordering::SeqCst);
        done.ok().map(|_| row)
    }

    /// Adds by a locked instruction, in a row that no sequence writes; returns the locked row and the
    /// word before.
    #[inline]
    fn locked_add(&self, word: usize, n: i64) -> (usize, i64) {
        assert!(word < self.words as usize, "no such word");
        let inner: &Inner = &self.area.inner;
        let row = self.locked_row();
        inner.use_locked();
        // SeqCst: the "store" of "store, then look at the mark"; see `marks`.
        let before = inner.rows.locked(row, self.first() + word).fetch_add(n, Ordering::SeqCst);
        (row, before)
    }
}

/// Whether another attempt may do better.
fn may_retry(rseq: Rseq, exit: Exit) -> bool {
    exit != Exit::Outside || rseq.adopt_thread()
}

impl Drop for Owned {
    fn drop(&mut self) {
        let inner = &*self.area.inner;
        // The last `Block` is gone: nobody can add any more, and the adds of others happened before
        // their clones went, which the reference count orders before this.
        let (first, words) = (self.first(), self.words as usize);
        inner.rows.zero(first..first + words);
        let mut allocator = inner.allocator.lock();
        if self.lines == 0 {
            allocator.give_words(first, words);
        } else {
            allocator.give_lines(first / LINE_WORDS, self.lines as usize);
        }
    }
}

impl fmt::Debug for Owned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Block({}+{})", self.first, self.words)
    }
}

// Derived, it would ask the same of the value.
impl<T> Clone for Block<T> {
    fn clone(&self) -> Block<T> {
        Block { fast: self.fast, kept: self.kept.clone() }
    }
}

impl<T> fmt::Debug for Block<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.kept.fmt(f)
    }
}
