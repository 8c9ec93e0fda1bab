//! Lines whose marks stay where they are, and for how long.
//!
//! A flush clears marks only once there are more than [`QUIET_MAX`]. It then clears those that it
//! has just found and those of lines that no longer change, behind one barrier. For a millisecond
//! after that, a flush clears none unless there are more than [`BUSY_MAX`]. More than [`COLD_MAX`]
//! lines that have not changed for long are cleared too.

use std::ops::Range;

use submeter_percpu::dirty::KeptView;
use submeter_percpu::storage::DirtyLines;

use super::propagate::{Candidate, Propagator};
use super::scope::ScopeLines;

/// Maximum number of lines that keep their marks after a flush that may issue a barrier: readers of
/// a quiet tree compare them all.
pub(super) const QUIET_MAX: usize = 128;

/// Maximum number of lines that keep their marks until the next flush that may issue a barrier. A
/// flush reads an unchanged line in about 3 ns, so this many take about as long as a barrier, which
/// also interrupts every CPU.
pub(super) const BUSY_MAX: usize = 2048;

/// Number of lines, unchanged for [`COLD`] flushes, that are worth a barrier of their own.
pub(super) const COLD_MAX: usize = QUIET_MAX / 4;

/// Number of binary digits of an age.
const DIGITS: usize = 3;

/// The highest age: the number of flushes for which a cold line has not changed.
#[cfg(test)]
pub(super) const COLD: u32 = (1 << DIGITS) - 1;

/// The ages of 64 lines: the number of flushes in a row for which each has not changed. Each word
/// has one digit of every age, so that all 64 age at once.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Ages([u64; DIGITS]);

impl Ages {
    /// Returns the lines that had not changed at the last flush that looked.
    pub(super) fn unchanged(self) -> u64 {
        self.0.into_iter().fold(0, |any, digit| any | digit)
    }

    /// Returns the lines that have not changed for long.
    pub(super) fn cold(self) -> u64 {
        self.0.into_iter().fold(u64::MAX, |all, digit| all & digit)
    }

    fn advance(&mut self, looked_at: u64, changed: u64) {
        let mut carry = looked_at & !changed & !self.cold();
        for digit in &mut self.0 {
            (*digit, carry) = ((*digit ^ carry) & !changed, *digit & carry);
        }
    }
}

/// Some of 64 lines of a row.
#[derive(Clone, Copy, Debug)]
struct Word {
    lines: DirtyLines,
    ages: Ages,
}

/// Lines that keep their marks.
#[derive(Debug, Default)]
pub(super) struct KeptLines {
    /// Sorted by [`place`], so that the lines of a group are side by side.
    words: Vec<Word>,
    len: usize,
    /// Whether readers have been shown the current state.
    is_published: bool,
}

/// Returns the sort key of words.
fn place(lines: &DirtyLines) -> (u32, u32) {
    (lines.word, lines.row)
}

impl KeptLines {
    /// Returns the number of lines.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Returns the number of lines that have not changed for long.
    pub(super) fn cold(&self) -> usize {
        self.words.iter().map(|word| word.ages.cold().count_ones() as usize).sum()
    }

    /// Returns those of `lines` that are not kept.
    pub(super) fn others(&self, lines: DirtyLines) -> u64 {
        match self.find(&lines) {
            Ok(at) => lines.bits & !self.words[at].lines.bits,
            Err(_) => lines.bits,
        }
    }

    fn find(&self, lines: &DirtyLines) -> Result<usize, usize> {
        self.words.binary_search_by_key(&place(lines), |word| place(&word.lines))
    }

    /// Keeps the marks of lines that were not kept before.
    pub(super) fn adopt(&mut self, found: &[DirtyLines]) {
        if found.is_empty() {
            return;
        }
        let before = self.words.len();
        for &lines in found {
            self.len += lines.bits.count_ones() as usize;
            self.is_published = false;
            let old = &self.words[..before];
            match old.binary_search_by_key(&place(&lines), |word| place(&word.lines)) {
                Ok(at) => self.words[at].lines.bits |= lines.bits,
                Err(_) => self.words.push(Word { lines, ages: Ages::default() }),
            }
        }
        // Two sorted runs, which this sort merges.
        self.words.sort_by_key(|word| place(&word.lines));
    }

    /// Releases the lines that `which` returns, and appends them to `left`. Their marks are still
    /// set.
    #[cold]
    pub(super) fn let_go(
        &mut self,
        mut which: impl FnMut(DirtyLines, Ages) -> u64,
        left: &mut Vec<DirtyLines>,
    ) {
        let before = left.len();
        self.words.retain_mut(|Word { lines, ages }| {
            let bits = lines.bits & which(*lines, *ages);
            if bits != 0 {
                left.push(DirtyLines { bits, ..*lines });
                lines.bits &= !bits;
                ages.advance(bits, bits);
            }
            lines.bits != 0
        });
        let gone =
            left[before..].iter().map(|lines| lines.bits.count_ones() as usize).sum::<usize>();
        self.len -= gone;
        self.is_published &= gone == 0;
    }

    /// Lists the lines that belong to the groups of `which`, to be compared and then
    /// [noted](KeptLines::note). If there is a `range`, lists its lines and looks at no others.
    #[inline(never)]
    pub(super) fn list(
        &self,
        range: Option<Range<usize>>,
        which: &ScopeLines,
        propagator: &Propagator,
        candidates: &mut Vec<Candidate>,
    ) {
        let among = range.as_ref().map_or(0..self.words.len(), |range| self.among(range));
        for (kept, word) in (among.start..).zip(&self.words[among]) {
            let bits = match &range {
                Some(range) => word.lines.among(range),
                None => which.of(propagator, word.lines),
            };
            if bits != 0 {
                let lines = DirtyLines { bits, ..word.lines };
                candidates.push(Candidate { lines, kept: Some(kept as u32), changed: 0 });
            }
        }
    }

    /// Returns the words that have lines of a range.
    fn among(&self, range: &Range<usize>) -> Range<usize> {
        let first = self.words.partition_point(|word| word.lines.word < (range.start / 64) as u32);
        let count = self.words[first..]
            .partition_point(|word| (word.lines.word as usize) < range.end.div_ceil(64));
        first..first + count
    }

    /// Notes which of the listed lines have changed.
    pub(super) fn note(&mut self, candidates: &[Candidate]) {
        for &Candidate { lines, kept, changed } in candidates {
            if let Some(kept) = kept {
                self.words[kept as usize].ages.advance(lines.bits, changed);
            }
        }
    }

    /// Tells readers which lines are kept, if that has changed, and ends the flush for them.
    pub(super) fn end(&mut self, shared: &KeptView) {
        if !self.is_published {
            shared.begin();
            for (slot, Word { lines, .. }) in self.words.iter().enumerate() {
                shared.put(slot, lines.row, lines.word, lines.bits);
            }
            self.is_published = true;
        }
        shared.end(self.words.len());
    }
}
