//! One word of a block, found once: the cheapest adds there are.

use std::fmt;

use submeter_sys::Rseq;

use super::block::Owned;
use super::raw::CpuPlace;
use crate::backend::rseq;

/// Adds to one word of a [`Block`](super::Block), found once: an add through it makes no check and follows
/// no pointer, and it is copied, so that a loop keeps it in registers.
///
/// For loops over the same word. Elsewhere use the block itself: five words in memory are slower to load than
/// its index is to check.
///
/// # Examples
/// ```
/// use submeter_percpu::Area;
///
/// let block = Area::common()?.block(2)?;
/// let word = block.word(1);
/// (0..10).for_each(|_| word.increment());
/// word.add(-3);
/// assert_eq!(block.sum(1), 7);
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// # Ordering
/// Adds publish nothing but themselves.
#[derive(Clone, Copy)]
pub struct Word<'a> {
    /// `None` where there are no sequences.
    fast: Option<Fast>,
    /// In the block.
    index: u32,
    owned: &'a Owned,
}

#[derive(Clone, Copy)]
struct Fast {
    rseq: Rseq,
    place: CpuPlace,
}

impl<'a> Word<'a> {
    /// Panics when there is no such word.
    #[inline]
    pub(super) fn new(owned: &'a Owned, index: usize) -> Word<'a> {
        let word = owned.cpu_word(index);
        Word {
            fast: word.map(|(rseq, word)| Fast { rseq, place: word.place() }),
            index: index as u32,
            owned,
        }
    }

    /// Adds 1: the least that counting on the running CPU's own word can cost. Wraps around.
    #[inline(always)]
    pub fn increment(self) {
        if let Some(fast) = self.fast
            && rseq::increment(fast.rseq, fast.place)
        {
            return;
        }
        self.owned.add_slow(self.index as usize, 1);
    }

    /// Adds `n`. Wraps around.
    #[inline(always)]
    pub fn add(self, n: i64) {
        if let Some(fast) = self.fast
            && rseq::add(fast.rseq, fast.place, n)
        {
            return;
        }
        self.owned.add_slow(self.index as usize, n);
    }

    /// As [`Block::add_carry`](super::Block::add_carry).
    #[inline(always)]
    #[must_use]
    pub fn add_carry(self, n: i64, mask: u64) -> i64 {
        debug_assert!(mask.wrapping_add(1).is_power_of_two());
        if let Some(fast) = self.fast
            && rseq::add_within(fast.rseq, fast.place, n, mask)
        {
            return 0;
        }
        self.owned.add_carry_slow(self.index as usize, n, mask)
    }

    /// As [`Block::add_marked`](super::Block::add_marked).
    #[inline(always)]
    pub fn add_marked(self, n: i64, mask: u64, carried: impl FnOnce(i64)) {
        debug_assert!(mask.wrapping_add(1).is_power_of_two());
        if let Some(fast) = self.fast
            && rseq::add_marked_within(fast.rseq, fast.place, n, mask)
        {
            return;
        }
        self.owned.add_marked_slow(self.index as usize, n, mask, carried);
    }
}

impl fmt::Debug for Word<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Word({:?}[{}])", self.owned, self.index)
    }
}
