//! One word of a block, found once: for the cheapest adds.

use std::fmt;

use super::block::Words;
use super::raw::CpuWord;
use crate::pending::Updated;

/// One word of a [`Block`](super::Block), found once. An add through it makes no check and follows
/// no pointer, and it is `Copy`, so that a loop keeps it in registers.
///
/// It is for loops over the same word. Elsewhere use the block itself: loading six words from
/// memory is slower than checking an index.
///
/// # Examples
/// ```
/// use submeter_percpu::Area;
///
/// let block = Area::common()?.block(2)?;
/// let word = block.word(1);
/// (0..10).for_each(|_| word.add(1));
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
    fast: Option<CpuWord<'a>>,
    /// Its index in the block.
    index: u32,
    words: &'a Words,
}

impl<'a> Word<'a> {
    /// Finds the word. Panics when there is no such word.
    #[inline]
    pub(super) fn new(words: &'a Words, index: usize) -> Word<'a> {
        Word { fast: words.cpu_word(index), index: index as u32, words }
    }

    /// Adds `n`, with wraparound, at the lowest cost of counting on the running CPU's own word.
    #[inline(always)]
    pub fn add(self, n: i64) {
        if !self.fast.is_some_and(|at| at.add(n)) {
            self.words.add_slow(self.index as usize, n);
        }
    }

    /// Does the same as [`Block::add_dirty`](super::Block::add_dirty).
    #[inline(always)]
    pub fn add_dirty(self, n: i64, mask: u64, crossed: impl FnOnce(Updated<'_>)) {
        debug_assert!(mask.wrapping_add(1).is_power_of_two());
        if !self.fast.is_some_and(|at| at.add_dirty_within(n, mask)) {
            self.words.add_dirty_slow(self.index as usize, n, mask, crossed);
        }
    }
}

impl fmt::Debug for Word<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Word({:?}[{}])", self.words, self.index)
    }
}
