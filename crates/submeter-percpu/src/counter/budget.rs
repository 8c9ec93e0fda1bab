//! The core of a limited counter: which adds need no agreement, and what the others agree on.
//!
//! # The protocol
//!
//! Each row's word, rounded down to its batch, is *charged* to a shared sum; what the word has
//! beyond that boundary is not charged. So the truth is never above `charged + slack`,
//! where `slack` is one less than a batch for each row. *Invariant*: `charged` is never below the
//! sum of the rounded words and the exact word.
//!
//! - An add that crosses no boundary changes neither side of the invariant: it needs `charged +
//!   slack <= limit` and no agreement. Test and commit are one sequence: an add that would cross
//!   commits nothing.
//! - An add that crosses charges first, as much as it may cross at most, then commits, then returns
//!   what it did not need.
//! - Where that does not fit, the exact amount is charged and counted in a word of its own, which
//!   has no slack.
//! - Giving back commits first and lowers the charge after.
//!
//! What Linux does instead (look at the sum and the batch, then add) lets two adders pass the same
//! look.

use crate::overflow::whole;
use crate::sync::atomic::{AtomicI64, Ordering};

/// The rows of a limited counter.
pub(super) trait Words {
    /// Adds `n` unless that crosses a boundary of the batch `mask + 1`. Returns whether it was
    /// done.
    fn add_within(&self, n: i64, mask: u64) -> bool;

    /// Adds `n` and returns the batch overflow.
    fn add_overflow(&self, n: i64, mask: u64) -> i64;
}

/// What is charged, and the part of the value that is in no row.
#[derive(Debug)]
pub(super) struct Budget {
    /// Bits: see the invariant. Writers: adds that cross, before; give-backs that cross, after; by
    /// exchange or locked add.
    charged: AtomicI64,
    /// Bits: what was granted to the unit, near the limit. Writers: such adds, by locked add.
    exact: AtomicI64,
    mask: u64,
    slack: u64,
}

impl Budget {
    /// For `rows` words with the batch `mask + 1`.
    pub(super) fn new(mask: u64, rows: u64) -> Budget {
        let (charged, exact) = (AtomicI64::new(0), AtomicI64::new(0));
        Budget { charged, exact, mask, slack: rows * mask }
    }

    pub(super) fn slack(&self) -> u64 {
        self.slack
    }

    /// Adds a positive `n` if the value stays at or below `limit`. Returns whether it was done.
    #[inline]
    pub(super) fn try_add(&self, words: &impl Words, n: i64, limit: i64) -> bool {
        // The most that may be charged: then the value is within the limit wherever the words are.
        let Some(ceiling) = limit.checked_sub_unsigned(self.slack) else { return false };
        if self.is_within(ceiling) && words.add_within(n, self.mask) {
            // Again, for callers with other limits: one with a higher limit may have charged since
            // the first look. At *this* look the value, this add included, was within the limit.
            if self.is_within(ceiling) {
                return true;
            }
            self.give_back(words, n.wrapping_neg());
        }
        self.try_add_crossing(words, n, ceiling)
    }

    /// Adds an `n` that is not positive.
    #[inline]
    pub(super) fn give_back(&self, words: &impl Words, n: i64) {
        let overflow = words.add_overflow(n, self.mask);
        if overflow != 0 {
            self.lower(overflow);
        }
    }

    /// The posted part, for reads: the value is at most `slack` above it.
    pub(super) fn charged(&self) -> i64 {
        // Relaxed: as for any statistic; the callers say what it is good for.
        self.charged.load(Ordering::Relaxed)
    }

    /// The part of the value that is in no row.
    pub(super) fn exact(&self) -> i64 {
        // SeqCst: as the loads of the rows, so that a sum misses no add that returned before.
        self.exact.load(Ordering::SeqCst)
    }

    #[cold]
    fn try_add_crossing(&self, words: &impl Words, n: i64, ceiling: i64) -> bool {
        // A boundary more than `n` has batches: where the word is now, only the sequence knows.
        let most = whole(n, self.mask).checked_add_unsigned(self.mask + 1);
        if let Some(most) = most
            && self.charge(most, ceiling)
        {
            let unused = words.add_overflow(n, self.mask).wrapping_sub(most);
            if unused != 0 {
                self.lower(unused);
            }
            return true;
        }
        let granted = self.charge(n, ceiling);
        if granted {
            // SeqCst: pairs with the load in `exact`, so that a sum misses no add that returned.
            self.exact.fetch_add(n, Ordering::SeqCst);
        }
        granted
    }

    #[inline(always)]
    fn is_within(&self, ceiling: i64) -> bool {
        // Acquire: pairs with the Release in `lower`, so that room that was given back is found
        // with what its holder did before.
        self.charged.load(Ordering::Acquire) <= ceiling
    }

    fn charge(&self, n: i64, ceiling: i64) -> bool {
        let room = |charged: i64| charged.checked_add(n).filter(|&after| after <= ceiling);
        // Not an add with an undo: until it is undone, an add that is going to be refused would
        // make others be refused. An exchange that fails was overtaken by one that succeeded.
        // AcqRel, Acquire: pairs with the Release in `lower`, as in `is_within`; Release so that
        // the chain of charges keeps that order.
        self.charged.fetch_update(Ordering::AcqRel, Ordering::Acquire, room).is_ok()
    }

    fn lower(&self, by: i64) {
        // Release: pairs with the Acquire in `is_within` and `charge`; after the commit in the
        // word.
        self.charged.fetch_add(by, Ordering::Release);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::cell::Cell;

    use super::*;
    use crate::overflow::batch_overflow;

    /// One word. Before the first add that stays within its batch commits, another caller adds.
    struct Overtaken<'a> {
        budget: &'a Budget,
        word: Cell<i64>,
        /// What the other adds, and its limit.
        other: Cell<Option<(i64, i64)>>,
    }

    impl Words for Overtaken<'_> {
        fn add_within(&self, n: i64, mask: u64) -> bool {
            if let Some((other, limit)) = self.other.take() {
                assert!(self.budget.try_add(self, other, limit), "within its own limit");
            }
            let stays = batch_overflow(self.word.get(), n, mask) == 0;
            self.word.set(self.word.get() + i64::from(stays) * n);
            stays
        }

        fn add_overflow(&self, n: i64, mask: u64) -> i64 {
            let before = self.word.replace(self.word.get() + n);
            batch_overflow(before, n, mask)
        }
    }

    #[test]
    fn a_caller_that_another_with_a_higher_limit_overtakes_is_refused() {
        let budget = Budget::new(3, 1);
        let words = Overtaken { budget: &budget, word: Cell::new(0), other: Cell::new(None) };
        assert!(budget.try_add(&words, 1, 4), "nothing is charged, and 1 is below 4");
        words.other.set(Some((8, 100)));
        assert!(!budget.try_add(&words, 1, 4), "the value was 9 before it was added");
        assert_eq!((words.word.get(), budget.exact(), budget.charged()), (9, 0, 8));
    }
}
