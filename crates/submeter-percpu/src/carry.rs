//! What an add carries over the boundaries of a batch, and who is on the way with it.

use crate::sync::atomic::{AtomicU64, Ordering};

/// How far `n` carried a word over boundaries of the batch `mask + 1`: 0, or a multiple of the batch.
///
/// The difference of a potential (the word rounded down to a multiple), so that the carries of a word add up to its own
/// rounded value whatever the path. Every carry of a word must therefore use the same batch.
#[inline]
pub(crate) fn carry(before: i64, n: i64, mask: u64) -> i64 {
    whole(before.wrapping_add(n), mask).wrapping_sub(whole(before, mask))
}

/// `word`, rounded down to a multiple of the batch `mask + 1`.
#[inline]
pub(crate) fn whole(word: i64, mask: u64) -> i64 {
    word & !mask.cast_signed()
}

/// An add that may have reached its word while nobody was told of its carry: counted from before it commits until
/// this is dropped.
///
/// Between the two its thread may lose the CPU, and others add to the same word. They find it beyond the boundary
/// already and carry nothing, though together with what the word held before they may have crossed it: of what
/// returned, up to two batches lack in the carries instead of one, and one more for each further add that is stuck there.
/// Whoever states a bound has to know how many there are.
#[cfg(not(shuttle))]
#[must_use = "it ends when this is dropped"]
pub(crate) struct Announced<'a>(&'a AtomicU64);

#[cfg(not(shuttle))]
impl<'a> Announced<'a> {
    #[inline]
    pub(crate) fn new(count: &'a AtomicU64) -> Announced<'a> {
        // SeqCst: before the add commits; pairs with the load in `announced`, which comes before what was carried is
        // loaded: a reader that does not count this either finds what it carried or comes before its add. A sequence's
        // plain store could overtake it where stores do; but who adds to the same word after it is the same CPU's, after a
        // context switch or in a handler, and so sees both, and shows both by returning.
        count.fetch_add(1, Ordering::SeqCst);
        Announced(count)
    }
}

#[cfg(not(shuttle))]
impl Drop for Announced<'_> {
    #[inline]
    fn drop(&mut self) {
        // SeqCst: after the carry was told; pairs as above.
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Returns how many adds are announced. To be called before what was carried is loaded.
#[cfg(not(shuttle))]
#[inline]
pub(crate) fn announced(count: &AtomicU64) -> u64 {
    // SeqCst: see `Announced::new`.
    count.load(Ordering::SeqCst)
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn carries_add_up_to_the_word_rounded_down_whatever_the_path() {
        for mask in [0, 1, 31, (1 << 48) - 1] {
            let (mut word, mut carried) = (0i64, 0i64);
            for n in [1, 30, 1, -1, -1, 64, i64::MAX, 5, i64::MIN, -70, i64::MAX, 1 << 48] {
                carried = carried.wrapping_add(carry(word, n, mask));
                word = word.wrapping_add(n);
                assert_eq!(carried, whole(word, mask));
                assert_eq!(word.wrapping_sub(carried) as u64 & !mask, 0, "less than a batch");
            }
        }
    }
}
