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
    /// Free pieces of lines: of 1, 2 and 4 words.
    pieces: [Vec<usize>; PIECES],
}

/// The sizes that a line is cut in: the powers of two below it.
const PIECES: usize = LINE_WORDS.ilog2() as usize;

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

    /// Takes `words` words of one line, fewer than a line has. The line is shared with pieces of the same size.
    pub(crate) fn take_words(&mut self, words: usize) -> Option<usize> {
        let size = piece(words);
        if self.pieces[size].is_empty() {
            let first = self.take_lines(1)? * LINE_WORDS;
            self.pieces[size].extend((first..first + LINE_WORDS).step_by(1 << size).rev());
        }
        self.pieces[size].pop()
    }

    pub(crate) fn give_words(&mut self, first: usize, words: usize) {
        self.pieces[piece(words)].push(first);
    }

    /// One more than the last line ever handed out.
    pub(crate) fn end(&self) -> usize {
        self.end
    }
}

/// The size of a piece of so many words, as a power of two.
fn piece(words: usize) -> usize {
    words.next_power_of_two().ilog2() as usize
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
        let words: Vec<usize> = (0..9).map(|_| allocator.take_words(1).expect("room")).collect();
        assert_eq!(words, [48, 49, 50, 51, 52, 53, 54, 55, 56]);
        allocator.give_lines(a, 3);
        allocator.give_words(50, 1);
        assert_eq!(allocator.take_lines(2), Some(8), "exact fit only");
        assert_eq!(allocator.take_lines(3), Some(a));
        assert_eq!(allocator.take_words(1), Some(50));
        assert_eq!(allocator.end(), 10);
    }

    #[test]
    fn pieces_of_a_line_never_cross_into_another() {
        let mut allocator = Allocator::default();
        let pairs: Vec<usize> = (0..5).map(|_| allocator.take_words(2).expect("room")).collect();
        assert_eq!(pairs, [0, 2, 4, 6, 8]);
        assert_eq!(allocator.take_words(3), Some(16));
        assert_eq!(allocator.take_words(4), Some(20));
        allocator.give_words(4, 2);
        assert_eq!(allocator.take_words(1), Some(24), "pieces are not cut");
        assert_eq!(allocator.take_words(2), Some(4));
    }

    #[test]
    fn a_full_row_is_said() {
        let mut allocator = Allocator::default();
        assert_eq!(allocator.take_lines(LINES), Some(0));
        assert_eq!(allocator.take_lines(1), None);
        assert_eq!(allocator.take_words(1), None);
        allocator.give_lines(0, LINES);
        assert_eq!(allocator.take_lines(LINES), Some(0));
    }
}
