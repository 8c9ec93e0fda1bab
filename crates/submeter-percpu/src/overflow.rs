//! Batch overflows: the amount by which an add crossed boundaries of its batch, and the number of
//! adds in flight between their word and the place to which the overflow goes.

use submeter_sys::CENTRE;

use crate::sync::atomic::{AtomicU64, Ordering};

/// Returns the amount by which `n` moved a word over boundaries of the batch `mask + 1`: 0, or a
/// multiple of the batch.
///
/// This is the difference of a potential (the word rounded down to a multiple), so the overflows of
/// a word add up to its own rounded value whatever the path. All overflows of a word must therefore
/// use the same batch.
#[inline]
pub(crate) fn batch_overflow(before: i64, n: i64, mask: u64) -> i64 {
    whole(before.wrapping_add(n), mask).wrapping_sub(whole(before, mask))
}

/// Does the same as [`batch_overflow`], for batches whose boundaries lie [`CENTRE`] lower. They are
/// for adds that mark their line, whose sequences refuse to leave such a batch. The code that posts
/// a crossing must find the same boundaries.
#[inline]
pub(crate) fn marked_overflow(before: i64, n: i64, mask: u64) -> i64 {
    batch_overflow(before.wrapping_add(CENTRE.into()), n, mask)
}

/// Returns `word` rounded down to a multiple of the batch `mask + 1`.
#[inline]
pub(crate) fn whole(word: i64, mask: u64) -> i64 {
    word & !mask.cast_signed()
}

/// An add in flight: it may have reached its word while its overflow has not been posted. Counted
/// from before the add commits until this is dropped.
///
/// In between, its thread may lose the CPU while others add to the same word. They find it already
/// beyond the boundary and overflow nothing, though together with the word's previous value they
/// may have crossed it. So the overflows lack up to two batches of returned adds instead of one,
/// and one more for each further add that is stuck there. A reader that states a bound has to know
/// how many there are.
#[must_use = "it ends when this is dropped"]
pub(crate) struct InFlight<'a>(&'a AtomicU64);

impl<'a> InFlight<'a> {
    #[inline]
    pub(crate) fn new(count: &'a AtomicU64) -> InFlight<'a> {
        // SeqCst: before the add commits; pairs with the load in `in_flight`, which comes before
        // overflows are loaded: a reader that does not count this add finds its overflow or comes
        // before it. A sequence's plain store may overtake this one, without harm: a later thread
        // that adds to the word runs after a context switch on this CPU (with rows by thread, after
        // two of them and the kernel's handover), or in a handler. So it sees both, and makes both
        // visible by returning.
        count.fetch_add(1, Ordering::SeqCst);
        InFlight(count)
    }
}

impl Drop for InFlight<'_> {
    #[inline]
    fn drop(&mut self) {
        // SeqCst: after the overflow was posted; pairs with the load in `in_flight`, as above.
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Returns how many adds are in flight. Must be called before overflows are loaded.
#[inline]
pub(crate) fn in_flight(count: &AtomicU64) -> u64 {
    // SeqCst: pairs with the add in `InFlight::new`, so that an add that this load misses has
    // posted its overflow, or has not committed.
    count.load(Ordering::SeqCst)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// Overflows add up to the word rounded down, whatever the path.
    #[test]
    fn overflows_add_up_to_the_word_rounded_down() {
        for mask in [0, 1, 31, (1 << 48) - 1] {
            let (mut word, mut overflow) = (0i64, 0i64);
            for n in [1, 30, 1, -1, -1, 64, i64::MAX, 5, i64::MIN, -70, i64::MAX, 1 << 48] {
                overflow = overflow.wrapping_add(batch_overflow(word, n, mask));
                word = word.wrapping_add(n);
                assert_eq!(overflow, whole(word, mask));
                assert_eq!(word.wrapping_sub(overflow) as u64 & !mask, 0, "less than a batch");
            }
        }
    }
}
