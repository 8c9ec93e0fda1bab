//! Adds that commit only within a batch.

use super::Block;
use crate::backend::rseq;
use crate::carry::carry;

impl<T> Block<T> {
    /// Adds `n` to a word by a sequence that refuses what crosses a boundary of the batch `mask + 1`. Returns whether it was
    /// done: never without sequences.
    ///
    /// # Panics
    /// When there is no such word.
    #[inline(always)]
    #[must_use]
    pub(crate) fn add_inside(&self, word: usize, n: i64, mask: u64) -> bool {
        debug_assert!((mask + 1).is_power_of_two());
        let word = self.cpu_word(word);
        word.is_some_and(|(rseq, word)| rseq::add_within(rseq, word.place(), n, mask))
    }

    /// As [`add_carry`](Block::add_carry), for an add that [`add_inside`](Block::add_inside) refused: supposes that it crosses.
    ///
    /// # Panics
    /// When there is no such word.
    #[inline(always)]
    #[must_use]
    pub(crate) fn add_across(&self, word: usize, n: i64, mask: u64) -> i64 {
        if let Some((rseq, word)) = self.cpu_word(word) {
            let added = rseq::add_carry(rseq, word.place(), n);
            if added.exit().is_none() {
                return carry(added.after().wrapping_sub(n), n, mask);
            }
        }
        self.add_carry(word, n, mask)
    }

    /// Adds `n` to a word unless that crosses a boundary of the batch `mask + 1`; test and commit are one. Returns whether it
    /// was done; may return false without such a reason.
    ///
    /// # Panics
    /// When there is no such word.
    #[inline(always)]
    #[must_use]
    pub(crate) fn add_within(&self, word: usize, n: i64, mask: u64) -> bool {
        debug_assert!((mask + 1).is_power_of_two());
        if let Some((rseq, cpu_word)) = self.cpu_word(word) {
            return rseq::add_within(rseq, cpu_word.place(), n, mask);
        }
        self.owned().locked_add_within(word, n, mask).is_some()
    }
}
