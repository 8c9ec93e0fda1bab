//! Which words are taken. Lines are handed out in runs, single words from lines cut in eight.

use std::collections::HashMap;

use super::raw::{LINE_WORDS, LINES};

/// Hands out lines and words, lowest first, reusing what was freed.
#[derive(Debug, Default)]
pub(crate) struct Allocator {
    /// Lines below this were handed out at some time.
    end: usize,
    /// Freed runs by length. Exact fit only: an area serves few sizes (one, for a tree).
    runs: HashMap<usize, Vec<usize>>,
    words: Vec<usize>,
}

impl Allocator {
    /// Takes `lines` lines in a row; returns the first, or `None` when the row is full.
    pub(crate) fn take_lines(&mut self, lines: usize) -> Option<usize> {
        if let Some(first) = self.runs.get_mut(&lines).and_then(Vec::pop) {
            return Some(first);
        }
        let first = self.end;
        (first + lines <= LINES).then(|| {
            self.end += lines;
            first
        })
    }

    pub(crate) fn give_lines(&mut self, first: usize, lines: usize) {
        self.runs.entry(lines).or_default().push(first);
    }

    /// Takes one word.
    pub(crate) fn take_word(&mut self) -> Option<usize> {
        if self.words.is_empty() {
            let first = self.take_lines(1)? * LINE_WORDS;
            self.words.extend((first..first + LINE_WORDS).rev());
        }
        self.words.pop()
    }

    pub(crate) fn give_word(&mut self, word: usize) {
        self.words.push(word);
    }

    /// One more than the last line ever handed out.
    pub(crate) fn end(&self) -> usize {
        self.end
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_freed_is_reused_and_nothing_is_handed_out_twice() {
        let mut allocator = Allocator::default();
        let a = allocator.take_lines(3).expect("room");
        let b = allocator.take_lines(3).expect("room");
        assert_eq!((a, b), (0, 3));
        let words: Vec<usize> = (0..9).map(|_| allocator.take_word().expect("room")).collect();
        assert_eq!(words, [48, 49, 50, 51, 52, 53, 54, 55, 56]);
        allocator.give_lines(a, 3);
        allocator.give_word(50);
        assert_eq!(allocator.take_lines(2), Some(8), "exact fit only");
        assert_eq!(allocator.take_lines(3), Some(a));
        assert_eq!(allocator.take_word(), Some(50));
        assert_eq!(allocator.end(), 10);
    }

    #[test]
    fn a_full_row_is_said() {
        let mut allocator = Allocator::default();
        assert_eq!(allocator.take_lines(LINES), Some(0));
        assert_eq!(allocator.take_lines(1), None);
        assert_eq!(allocator.take_word(), None);
        allocator.give_lines(0, LINES);
        assert_eq!(allocator.take_lines(LINES), Some(0));
    }
}
