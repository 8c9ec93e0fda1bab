//! Adds that commit only within a batch.

use std::sync::atomic::Ordering;

use super::Block;
use crate::backend::{emulated, rseq};
use crate::carry::carry;

impl<T> Block<T> {
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
        self.locked_add_within(word, n, mask)
    }

    fn locked_add_within(&self, word: usize, n: i64, mask: u64) -> bool {
        let inner = &*self.area().inner;
        let row = emulated::row(inner.hint, inner.rows.shape().locked);
        let word = inner.rows.locked(row, self.first_word() + word);
        // SeqCst: as every load of a word that an exchange follows.
        let before = word.load(Ordering::SeqCst);
        if carry(before, n, mask) != 0 {
            return false;
        }
        inner.use_locked();
        // Once: who fails was overtaken, and may as well ask.
        // SeqCst: as in `locked_add`, whose place this takes.
        let after = before.wrapping_add(n);
        word.compare_exchange(before, after, Ordering::SeqCst, Ordering::SeqCst).is_ok()
    }
}
