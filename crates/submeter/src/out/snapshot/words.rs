//! Mostly zero words, stored in about the memory of the nonzero ones.

use std::ops::Range;

/// The number of words that one word of the map has bits for.
const BITS: usize = u64::BITS as usize;

/// The words of one group, read only.
///
/// A histogram has a word for each of a hundred buckets, and a group's values fall into a few of
/// them: a copy of a tree of 10,000 tenants of the cache server took 16 MB for nothing but zeros,
/// and a page has three copies. A bit for each word says whether it is nonzero; the nonzero words
/// follow in order. Pairs of index and value would be shorter only for groups that counted next to
/// nothing.
#[derive(Clone, Debug)]
pub(crate) struct Words {
    /// The number of words of `packed` that make up the map.
    maps: usize,
    packed: Box<[i64]>,
}

impl Words {
    pub(crate) fn pack(words: &[i64]) -> Words {
        let maps = words.len().div_ceil(BITS);
        let used = words.iter().filter(|word| **word != 0).count();
        let mut packed = Vec::with_capacity(maps + used);
        packed.extend(words.chunks(BITS).map(|part| {
            let bits = part.iter().enumerate().map(|(at, word)| u64::from(*word != 0) << at);
            bits.sum::<u64>().cast_signed()
        }));
        packed.extend(words.iter().filter(|word| **word != 0));
        Words { maps, packed: packed.into() }
    }

    /// Returns the word at `at`; zero beyond the last word, where the map has no bits.
    pub(crate) fn get(&self, at: usize) -> i64 {
        let Some(&map) = self.packed[..self.maps].get(at / BITS) else { return 0 };
        let bit = 1u64 << (at % BITS);
        if map.cast_unsigned() & bit == 0 {
            return 0;
        }
        let before = self.packed[..at / BITS].iter().map(|map| map.count_ones() as usize);
        let before: usize =
            before.sum::<usize>() + (map.cast_unsigned() & (bit - 1)).count_ones() as usize;
        self.packed[self.maps + before]
    }

    pub(crate) fn range(&self, range: Range<usize>) -> impl Iterator<Item = i64> {
        range.map(|at| self.get(at))
    }

    /// Returns the words in order. The last may be followed by zeros that were not packed.
    pub(crate) fn unpacked(&self) -> Vec<i64> {
        let mut values = self.packed[self.maps..].iter();
        let mut words = Vec::with_capacity(self.maps * BITS);
        for map in &self.packed[..self.maps] {
            let has = |at: usize| map.cast_unsigned() >> at & 1 == 1;
            words.extend((0..BITS).map(|at| match has(at) {
                true => *values.next().expect("a value for each bit"),
                false => 0,
            }));
        }
        words
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Unpacking returns what was packed, including zeros at the start, in the middle and at the
    /// end.
    #[test]
    fn unpacking_returns_what_was_packed() {
        for len in [0, 1, 63, 64, 65, 128, 300] {
            for every in [1, 2, 3, 63, 64, 65, 1000] {
                let word = |at: usize| match at % every {
                    0 => at as i64 - 70,
                    _ => 0,
                };
                let words: Vec<i64> = (0..len).map(word).collect();
                let packed = Words::pack(&words);
                let read: Vec<i64> = packed.range(0..len).collect();
                assert_eq!(read, words, "{len} words, each {every}th");
                let unpacked = packed.unpacked();
                assert_eq!(unpacked[..len], words);
                assert!(unpacked[len..].iter().all(|word| *word == 0));
                assert_eq!(packed.get(len + 1000), 0, "beyond the last");
                let used = words.iter().filter(|word| **word != 0).count();
                assert_eq!(packed.packed.len(), len.div_ceil(64) + used);
            }
        }
    }
}
