//! The allocation of words. Lines are handed out in runs, single words from lines cut in eight.

use std::collections::HashMap;
use std::ops::Range;

use super::layout::{LINE_WORDS, LINES};

/// Hands out lines and words, lowest first, and reuses freed ones.
#[derive(Debug)]
pub(crate) struct Allocator {
    /// Number of lines in a page.
    page_lines: usize,
    /// Lines below this have been handed out at some time.
    end: usize,
    /// Freed runs by length. Exact fit only: an area serves few sizes (a tree only one).
    runs: HashMap<usize, Vec<usize>>,
    /// Free pieces of lines: of 1, 2 and 4 words.
    pieces: [Vec<usize>; PIECES],
    /// Number of lines in `runs`.
    free: usize,
    /// Every page that has had a line handed out.
    pages: Vec<Page>,
    /// Number of pages that are free and still have their memory.
    fresh: usize,
    /// Whether free pages are out: meanwhile no other thread may take out runs that lie in them.
    are_out: bool,
}

/// The free lines of a page.
#[derive(Clone, Copy, Debug, Default)]
struct Page {
    free: usize,
    /// Whether its memory was given back after a line of it was last in use.
    given: bool,
}

/// Freed lines that [`Allocator::take_free_pages`] took out, so that none is handed out before it
/// is returned.
#[derive(Debug, Default)]
pub(crate) struct FreePages {
    /// The runs in these pages, by first line and length, including those that reach into other
    /// pages.
    runs: Vec<(usize, usize)>,
    /// Lines of whole pages, with neighbours joined. The pages that are still here when this is
    /// [returned](Allocator::return_free_pages) were given back.
    pub(crate) pages: Vec<Range<usize>>,
}

/// Fewer freed lines than this are not worth a scan (256 KiB per row).
const TRIM_LINES_MIN: usize = 4096;

/// The number of sizes into which a line is cut: the powers of two below its own.
const PIECES: usize = LINE_WORDS.ilog2() as usize;

impl Allocator {
    pub(crate) fn new(page_lines: usize) -> Allocator {
        Allocator {
            page_lines,
            end: 0,
            runs: HashMap::new(),
            pieces: Default::default(),
            free: 0,
            pages: Vec::new(),
            fresh: 0,
            are_out: false,
        }
    }

    /// Takes `lines` consecutive lines; returns the first, or `None` when the row is full.
    pub(crate) fn take_lines(&mut self, lines: usize) -> Option<usize> {
        if let Some(first) = self.runs.get_mut(&lines).and_then(Vec::pop) {
            self.free -= lines;
            self.note(first, lines, |page, lines| page.free -= lines);
            return Some(first);
        }
        let first = self.end;
        (first + lines <= LINES).then(|| {
            self.end += lines;
            first
        })
    }

    pub(crate) fn give_lines(&mut self, first: usize, lines: usize) {
        self.free += lines;
        self.note(first, lines, |page, lines| page.free += lines);
        self.runs.entry(lines).or_default().push(first);
    }

    /// Records how much more or less of the pages that a run touches is free.
    fn note(&mut self, first: usize, lines: usize, change: impl Fn(&mut Page, usize)) {
        let (size, end) = (self.page_lines, first + lines);
        if self.pages.len() < end.div_ceil(size) {
            self.pages.resize(end.div_ceil(size), Page::default());
        }
        let is_fresh = |page: &Page| usize::from(page.free == size && !page.given);
        for (at, page) in (first / size..end.div_ceil(size)).zip(&mut self.pages[first / size..]) {
            let before = is_fresh(page);
            change(page, end.min((at + 1) * size) - first.max(at * size));
            page.given &= page.free == size;
            self.fresh = self.fresh - before + is_fresh(page);
        }
    }

    /// Returns whether enough pages became free to be worth giving back. They must be at least an
    /// eighth of everything free, so that the cost of scanning all of it is spread over a part that
    /// is new, and at most that part keeps its memory. Everything free must be at least a quarter
    /// of all lines ever handed out, because lines that come and go while the rest stays will be
    /// needed again.
    ///
    /// The lines that were freed do not count: where many blocks share a page and end in any order,
    /// nearly all pages become free only with the last of them.
    pub(crate) fn wants_trim(&self) -> bool {
        let fresh = self.fresh * self.page_lines;
        !self.are_out && fresh >= TRIM_LINES_MIN.max(self.free / 8) && self.free >= self.end / 4
    }

    /// Takes out all runs that touch pages in which nothing is in use and that have memory to give
    /// back, or that adjoin such pages: rows whose pages begin elsewhere give back memory that lies
    /// in both. All of it must be returned by [`return_free_pages`](Allocator::return_free_pages).
    /// `None` while others are out: lines of their free pages may be handed out as soon as they are
    /// returned, before a second thread that took the same page has given back its memory.
    pub(crate) fn take_free_pages(&mut self) -> Option<FreePages> {
        if self.are_out {
            return None;
        }
        self.are_out = true;
        let size = self.page_lines;
        let mut taken = FreePages::default();
        let mut is_taken = vec![false; self.pages.len()];
        let mut first = 0;
        for run in self.pages.chunk_by(|a, b| (a.free == size) == (b.free == size)) {
            let pages = first..first + run.len();
            first = pages.end;
            if run[0].free == size && run.iter().any(|page| !page.given) {
                is_taken[pages.clone()].fill(true);
                taken.pages.push(pages.start * size..pages.end * size);
            }
        }
        for (&len, firsts) in &mut self.runs {
            let touches = |&mut first: &mut usize| {
                is_taken[first / size..=(first + len - 1) / size].contains(&true)
            };
            taken.runs.extend(firsts.extract_if(.., touches).map(|first| (first, len)));
        }
        self.free -= taken.runs.iter().map(|(_, len)| len).sum::<usize>();
        Some(taken)
    }

    /// Returns pages that were taken out, to be handed out after everything else that is free,
    /// lowest first.
    pub(crate) fn return_free_pages(&mut self, taken: FreePages) {
        self.are_out = false;
        for lines in &taken.pages {
            let pages = lines.start / self.page_lines..lines.end / self.page_lines;
            for page in &mut self.pages[pages] {
                self.fresh -= usize::from(!page.given);
                page.given = true;
            }
        }
        let mut runs = HashMap::<usize, Vec<usize>>::new();
        for (first, len) in taken.runs {
            self.free += len;
            runs.entry(len).or_default().push(first);
        }
        for (len, mut firsts) in runs {
            // The last one goes first.
            firsts.sort_unstable_by(|a, b| b.cmp(a));
            self.runs.entry(len).or_default().splice(0..0, firsts);
        }
    }

    /// Takes `words` words of one line, fewer than a line has. Pieces of the same size share the
    /// line.
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

    /// Returns one more than the last line ever handed out.
    pub(crate) fn end(&self) -> usize {
        self.end
    }
}

/// Returns the exponent of the size of a piece for `words` words, a power of two.
fn piece(words: usize) -> usize {
    words.next_power_of_two().ilog2() as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_freed_is_handed_out_again_once() {
        let mut allocator = Allocator::new(8);
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
        let mut allocator = Allocator::new(8);
        let pairs: Vec<usize> = (0..5).map(|_| allocator.take_words(2).expect("room")).collect();
        assert_eq!(pairs, [0, 2, 4, 6, 8]);
        assert_eq!(allocator.take_words(3), Some(16));
        assert_eq!(allocator.take_words(4), Some(20));
        allocator.give_words(4, 2);
        assert_eq!(allocator.take_words(1), Some(24), "pieces are not cut");
        assert_eq!(allocator.take_words(2), Some(4));
    }

    /// Free pages are found and everything that touches them is taken out.
    #[test]
    fn free_pages_are_found_and_taken_out() {
        let mut allocator = Allocator::new(8);
        let firsts: Vec<usize> = (0..20).map(|_| allocator.take_lines(3).expect("room")).collect();
        // Lines 0..60 in pages of 8. In use: the runs at 15 and at 48.
        for &first in firsts.iter().filter(|first| ![15, 48].contains(*first)) {
            allocator.give_lines(first, 3);
        }
        let taken = allocator.take_free_pages().expect("none are out");
        // Not 8..24 (15..18 is in use), 48..56, or the last, whose end was never handed out.
        assert_eq!(taken.pages, [0..8, 24..48]);
        let mut runs = taken.runs.clone();
        runs.sort_unstable();
        let expected = [0, 3, 6, 24, 27, 30, 33, 36, 39, 42, 45];
        assert_eq!(runs, expected.map(|first| (first, 3)));
        let before = allocator.free;
        // The rest may still be handed out.
        let left: Vec<usize> = (0..7).map(|_| allocator.take_lines(3).expect("left")).collect();
        assert!(left.iter().all(|first| [9, 12, 18, 21, 51, 54, 57].contains(first)), "{left:?}");
        assert_eq!(before, 21);
        allocator.give_lines(9, 3);
        allocator.return_free_pages(taken);
        let next: Vec<usize> = (0..4).map(|_| allocator.take_lines(3).expect("free")).collect();
        assert_eq!(next, [9, 0, 3, 6], "what still has its memory first");
        assert_eq!(allocator.free, 24);
    }

    #[test]
    fn free_pages_are_taken_out_by_one_at_a_time() {
        let mut allocator = Allocator::new(8);
        for _ in 0..4 {
            allocator.take_lines(8).expect("room");
        }
        allocator.give_lines(8, 8);
        let taken = allocator.take_free_pages().expect("none are out");
        assert_eq!(taken.pages.first(), Some(&(8..16)));
        // Others that become free in the meantime also wait for the next scan.
        allocator.give_lines(16, 8);
        assert!(allocator.take_free_pages().is_none() && !allocator.wants_trim());
        allocator.return_free_pages(taken);
        // It is in use again: its memory is not given back.
        assert_eq!([allocator.take_lines(8), allocator.take_lines(8)], [Some(16), Some(8)]);
        let next = allocator.take_free_pages().expect("they are back");
        assert!(next.pages.is_empty());
        allocator.return_free_pages(next);
    }

    #[test]
    fn trimming_is_due_once_much_is_newly_free() {
        let mut allocator = Allocator::new(64);
        let lines = 6 * TRIM_LINES_MIN;
        if lines > LINES {
            eprintln!("skipped: rows are too short here (64-bit addresses without Miri have room)");
            return;
        }
        assert!((0..lines).all(|_| allocator.take_lines(1).is_some()));
        let mut due = 0;
        for line in 0..lines {
            assert!(!allocator.wants_trim());
            allocator.give_lines(line, 1);
            if allocator.wants_trim() {
                due += 1;
                let taken = allocator.take_free_pages().expect("none are out");
                assert_eq!(taken.pages.len(), 1, "with what was given before");
                assert_eq!(taken.pages[0], 0..(line + 1) / 64 * 64);
                allocator.return_free_pages(taken);
            }
        }
        assert_eq!(due, 5, "at a quarter of 24,576 lines, and after each 4,096 from there on");
    }

    /// Pages that were given back are not given back again, unless a neighbour joins them.
    #[test]
    fn pages_are_given_back_once() {
        let mut allocator = Allocator::new(8);
        assert!((0..48).all(|_| allocator.take_lines(1).is_some()));
        let give = |allocator: &mut Allocator, pages: Range<usize>| {
            (pages.start * 8..pages.end * 8).for_each(|line| allocator.give_lines(line, 1));
        };
        let trim = |allocator: &mut Allocator, is_done: bool| {
            let mut taken = allocator.take_free_pages().expect("none are out");
            let pages = taken.pages.clone();
            taken.pages.retain(|_| is_done);
            allocator.return_free_pages(taken);
            pages
        };
        give(&mut allocator, 0..1);
        give(&mut allocator, 3..4);
        assert_eq!(trim(&mut allocator, false), [0..8, 24..32]);
        assert_eq!(trim(&mut allocator, true), [0..8, 24..32], "they were not given back");
        assert_eq!((trim(&mut allocator, true).len(), allocator.fresh), (0, 0));
        give(&mut allocator, 4..5);
        assert_eq!(trim(&mut allocator, true)[0], 24..40, "rows may have a page in both");
        // A page that was in use again has memory again.
        let line = allocator.take_lines(1).expect("free");
        assert_eq!((line, allocator.fresh), (0, 0));
        allocator.give_lines(line, 1);
        assert_eq!(allocator.fresh, 1);
        assert_eq!(trim(&mut allocator, true)[0], 0..8);
        // One that is in use again before it was given back is not free.
        give(&mut allocator, 2..3);
        assert_eq!((allocator.fresh, allocator.take_lines(1)), (1, Some(23)));
        assert_eq!(allocator.fresh, 0);
    }

    /// Of much that is free, an eighth is newly free before it is given back.
    #[test]
    fn trimming_waits_for_an_eighth_of_the_free() {
        let mut allocator = Allocator::new(64);
        let [given, lines] = [10, 12].map(|times| times * TRIM_LINES_MIN);
        if lines > LINES {
            eprintln!("skipped: rows are too short here (64-bit addresses without Miri have room)");
            return;
        }
        (0..lines).for_each(|_| assert!(allocator.take_lines(1).is_some()));
        (0..given).for_each(|line| allocator.give_lines(line, 1));
        let taken = allocator.take_free_pages().expect("none are out");
        allocator.return_free_pages(taken);
        for line in given..lines {
            allocator.give_lines(line, 1);
            let fresh = (line + 1 - given) / 64 * 64;
            assert_eq!(allocator.wants_trim(), fresh >= (line + 1) / 8, "{fresh} of {line}");
        }
    }

    /// Blocks that end in any order keep at most an eighth of their memory, and give it back once.
    ///
    /// Blocks of 5 lines end in any order, as those of a subtree do.
    #[test]
    fn ends_in_any_order_give_memory_back_once() {
        const BLOCKS: usize = 20_000;
        if BLOCKS * 5 > LINES {
            eprintln!("skipped: rows are too short here (64-bit addresses without Miri have room)");
            return;
        }
        let mut allocator = Allocator::new(64);
        let mut firsts: Vec<usize> =
            (0..BLOCKS).map(|_| allocator.take_lines(5).expect("room")).collect();
        fastrand::Rng::with_seed(1).shuffle(&mut firsts);
        let (mut trims, mut looks) = (0, 0);
        for first in firsts {
            allocator.give_lines(first, 5);
            if allocator.wants_trim() {
                let taken = allocator.take_free_pages().expect("none are out");
                (trims, looks) = (trims + 1, looks + taken.runs.len());
                allocator.return_free_pages(taken);
            }
        }
        let left = allocator.fresh * 64;
        assert!(left <= TRIM_LINES_MIN.max(BLOCKS * 5 / 8), "{left} lines in {trims} trims");
        assert!(looks <= 8 * BLOCKS, "{looks} runs of {BLOCKS} in {trims} trims");
    }

    #[test]
    fn a_full_row_is_said() {
        let mut allocator = Allocator::new(8);
        assert_eq!(allocator.take_lines(LINES), Some(0));
        assert_eq!(allocator.take_lines(1), None);
        assert_eq!(allocator.take_words(1), None);
        allocator.give_lines(0, LINES);
        assert_eq!(allocator.take_lines(LINES), Some(0));
    }
}
