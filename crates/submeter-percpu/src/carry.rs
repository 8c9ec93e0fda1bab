//! What an add carries over the boundaries of a batch.

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
