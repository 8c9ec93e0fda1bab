//! The extent to which rows are open.
//!
//! A row begins with the lines that are *open*, and the dirty bits of these are open too. The rest
//! may not be accessed, so that mechanisms that treat a process as a whole (`mlockall`, a core
//! dump, strict overcommit) do not take the reservation for memory. Lines are opened before they
//! are handed out, and stay open.

use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};

use submeter_sys::STRIDE;
use submeter_sys::memory::{Reservation, page_size};

use super::layout::{END, LINE_WORDS, LINES, LINKING_AT, MARKS_AT};

/// Lines are opened in multiples of this: 256 KiB of a row.
const STEP: usize = 4096;
/// Maximum number of rows of a process, in all its areas, that are opened as needed. Each takes up
/// to six mappings, and a process may have 65,530 for everything (`vm.max_map_count`). An area that
/// finds too few left is opened as a whole.
const ROWS_IN_PARTS_MAX: usize = 2048;

/// Number of further rows that may be opened in parts.
static ROWS_LEFT: AtomicUsize = AtomicUsize::new(ROWS_IN_PARTS_MAX);

/// A reservation of rows, all zero, and how far it is open.
#[derive(Debug)]
pub(crate) struct Mapping {
    pub(super) reservation: Reservation,
    /// Number of rows that are accessed atomically, and have dirty bits.
    atomic: usize,
    /// Number of rows that follow those.
    owned: usize,
    /// Whether its rows were taken from `ROWS_LEFT`.
    in_parts: bool,
    /// Number of lines of each row that may be accessed. It only grows.
    open: AtomicUsize,
}

impl Mapping {
    /// Reserves rows; lines must be [opened](Mapping::open) before they are used.
    pub(super) fn new(atomic: usize, owned: usize) -> io::Result<Mapping> {
        // Checked: every later bound is this product.
        let bytes = atomic.checked_add(owned).and_then(|rows| rows.checked_mul(STRIDE));
        let reservation = Reservation::closed(bytes.ok_or(io::ErrorKind::OutOfMemory)?)?;
        let less = |left: usize| left.checked_sub(atomic + owned);
        // Relaxed, twice: a budget, which publishes nothing else.
        let in_parts = ROWS_LEFT.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).is_ok();
        let open = AtomicUsize::new(0);
        let mapping = Mapping { reservation, atomic, owned, in_parts, open };
        mapping.open_states()?;
        Ok(mapping)
    }

    /// Returns the number of lines of each row that may be accessed.
    #[inline(always)]
    pub(super) fn open_lines(&self) -> usize {
        // Acquire: pairs with the Release in `open`, so that the lines are accessible. It is a
        // plain load on x86-64.
        self.open.load(Ordering::Acquire)
    }

    /// Opens at least the first `lines` lines of each row. Costs a comparison where they are open;
    /// otherwise a system call or two for each row. It then opens some more lines than requested,
    /// so that it is seldom needed.
    ///
    /// # Errors
    /// The error that the system returns. In that case some rows may be open further than others,
    /// but none of that is used.
    ///
    /// # Panics
    /// When a row does not have that many lines.
    pub(super) fn open(&self, lines: usize) -> io::Result<()> {
        assert!(lines <= LINES, "no such lines");
        let open = self.open_lines();
        if lines <= open {
            return Ok(());
        }
        // A quarter more each time: where memory is locked, open lines are committed.
        let mut to = lines.max(open + open / 4).next_multiple_of(STEP).min(LINES);
        if self.in_parts {
            (0..self.rows()).try_for_each(|row| self.open_row(row, open..to))?;
        } else {
            self.reservation.open(0, self.reservation.len())?;
            to = LINES;
        }
        // Release: pairs with the Acquire in `open_lines`. If two threads race the greater value
        // stays: both have opened their lines.
        self.open.fetch_max(to, Ordering::Release);
        Ok(())
    }

    /// Opens lines of a row, whose earlier lines are open, and their dirty bits.
    fn open_row(&self, row: usize, lines: Range<usize>) -> io::Result<()> {
        const LINE: usize = LINE_WORDS * 8;
        let start = row * STRIDE;
        let words = lines.start * LINE..lines.end * LINE;
        self.open_more(start, words)?;
        if row >= self.atomic {
            return Ok(());
        }
        // A bit for each line, in whole words.
        let bits = |lines: usize| lines.div_ceil(64) * 8;
        self.open_more(start + MARKS_AT, bits(lines.start)..bits(lines.end))
    }

    /// Opens the parts that each atomically accessed row has in addition to lines and their bits.
    fn open_states(&self) -> io::Result<()> {
        if !self.in_parts {
            return self.open(1);
        }
        (0..self.atomic).try_for_each(|row| {
            let start = row * STRIDE + LINKING_AT;
            self.reservation.open(start, END - LINKING_AT)
        })
    }

    /// Opens a range of the bytes from `start` on. Those before the range are already open, and
    /// thus the rest of the page in which it begins.
    fn open_more(&self, start: usize, range: Range<usize>) -> io::Result<()> {
        let first = start + range.start;
        let first = if range.start == 0 { first } else { first.next_multiple_of(page_size()) };
        match (start + range.end).checked_sub(first) {
            None | Some(0) => Ok(()),
            Some(len) => self.reservation.open(first, len),
        }
    }

    fn rows(&self) -> usize {
        self.atomic + self.owned
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        if self.in_parts {
            // Relaxed: a budget.
            ROWS_LEFT.fetch_add(self.rows(), Ordering::Relaxed);
        }
    }
}

#[cfg(all(test, target_pointer_width = "64", not(any(miri, windows))))]
mod tests {
    use super::*;

    /// Rows of an area that is gone can be opened in parts again.
    #[test]
    fn rows_that_end_are_no_longer_counted() {
        // Other tests have a few hundred at the same time.
        for _ in 0..8 {
            let mapping = Mapping::new(400, 100).expect("address space");
            assert!(mapping.in_parts);
        }
    }

    /// Lines are opened as far as they are asked for, and some more.
    #[test]
    fn few_lines_are_open_beyond_those_asked_for() {
        let mapping = Mapping::new(1, 1).expect("address space");
        for lines in [1, 4096, 4097, 5000, 100_000, 100_001] {
            mapping.open(lines).expect("room");
            let open = mapping.open_lines();
            assert!((lines..=lines + lines / 4 + STEP).contains(&open), "{open} for {lines}");
        }
        let mut steps = 0;
        for lines in (100_000..800_000).step_by(1000) {
            let before = mapping.open_lines();
            mapping.open(lines).expect("room");
            steps += u32::from(mapping.open_lines() != before);
        }
        assert!(steps <= 11, "{steps}: each is a quarter more than the one before");
        mapping.open(LINES).expect("room");
        assert_eq!(mapping.open_lines(), LINES);
    }
}
