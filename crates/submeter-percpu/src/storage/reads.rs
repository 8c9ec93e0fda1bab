//! The loads that readers make from an area: words of shared and of data rows, and two figures that
//! they need for all rows at once, the number of marked lines and the number of adds in flight.
//!
//! The natural place for those figures would be each CPU's own row, since no count would then pass
//! between CPUs. But a reader would load a line of every row, each in a page of its own and all in
//! the same set of the cache: with 512 CPUs this takes 400 times as long as the rest of a read. One
//! count for all rows would be the quickest to read, but every CPU would wait for it. So there are
//! a few: up to [`TALLIES_MAX`] rows each have their own, and with 512 rows 64 share one.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use crossbeam_utils::CachePadded;

use super::Area;
use super::layout::LINE_WORDS;
use super::raw::DataRows;
use crate::overflow::{InFlight, in_flight};

/// Reading.
impl Area {
    /// Returns the maximum number of lines that hold something that readers do not find yet, where
    /// at most `most` lines of a row matter. Costs at most sixteen loads, from eight lines, however
    /// many rows there are.
    ///
    /// # Ordering
    /// A reader that calls this and then loads the results of flushes finds in them every update
    /// that returned before, except those of the lines counted.
    #[inline]
    #[must_use]
    pub fn dirty_lines(&self, most: u64) -> u64 {
        self.inner.tallies.dirty(most)
    }

    /// Returns how many adds are in flight: they may have reached their word but have not posted
    /// their overflow, which may turn out to be 0. For each of them, less than a batch of the
    /// returned adds may be missing in the overflows, in addition to the amount that each word
    /// keeps below its boundary. Each add under way may or may not count. In a forked child, adds
    /// of threads that the fork left behind stay in flight, and so do those that a handler left by
    /// a long jump.
    ///
    /// # Ordering
    /// Call it before the overflows are loaded: for an add that it does not count, either the
    /// overflow is found, or no add that found it in the same word had returned.
    #[must_use]
    pub fn in_flight(&self) -> u64 {
        self.inner.tallies.data.iter().map(|tally| in_flight(&tally.in_flight)).sum()
    }

    /// Returns the data rows, for many loads of lines that were handed out before.
    #[must_use]
    pub fn data(&self) -> DataRows<'_> {
        self.inner.rows.data()
    }

    /// Loads a word of a data row.
    ///
    /// # Panics
    /// When there is no such row or word.
    #[inline]
    #[must_use]
    pub fn load(&self, row: usize, word: usize) -> i64 {
        // SeqCst: after a flush took the dirty bits; pairs with a locked add's "store, then look".
        // It is a plain load on x86-64.
        self.inner.rows.load(row, word, Ordering::SeqCst)
    }

    /// Returns a word of one of the shared rows.
    ///
    /// # Panics
    /// When there is no such row or word.
    #[inline]
    #[must_use]
    pub fn shared(&self, row: usize, word: usize) -> &AtomicI64 {
        self.inner.rows.shared(row, word)
    }

    /// Returns the lines of one of the shared rows.
    ///
    /// # Panics
    /// When there is no such row.
    #[inline]
    #[must_use]
    pub fn shared_lines(&self, row: usize) -> &[[AtomicI64; LINE_WORDS]] {
        self.inner.rows.shared_lines(row)
    }
}

/// Maximum number of tallies for data rows. A read costs three loads for each, from one line.
const TALLIES_MAX: usize = 8;

/// Counts over all rows.
#[derive(Debug)]
pub(super) struct Tallies {
    /// Each tally is for the data rows whose number has the same remainder.
    data: Box<[CachePadded<Tally>]>,
}

#[derive(Debug, Default)]
struct Tally {
    /// See [`DirtyBits`](crate::dirty::DirtyBits).
    dirty: AtomicU64,
    /// An upper bound of the number of its rows that ever had a marked line.
    marked_rows: AtomicU64,
    in_flight: AtomicU64,
}

impl Tallies {
    pub(super) fn new(data_rows: usize) -> Tallies {
        let tallies = data_rows.clamp(1, TALLIES_MAX);
        Tallies { data: (0..tallies).map(|_| CachePadded::default()).collect() }
    }

    fn of(&self, row: usize) -> &Tally {
        &self.data[row % self.data.len()]
    }

    /// Returns the count of marks for the rows that are counted together with a data row.
    #[inline]
    pub(super) fn dirty_of(&self, row: usize) -> &AtomicU64 {
        &self.of(row).dirty
    }

    /// Returns the count of rows with marks, for the rows that are counted together with a data
    /// row.
    #[inline]
    pub(super) fn marked_rows_of(&self, row: usize) -> &AtomicU64 {
        &self.of(row).marked_rows
    }

    /// Returns how many lines of data rows are marked, where at most `most` lines of a row matter.
    #[inline]
    pub(super) fn dirty(&self, most: u64) -> u64 {
        crate::dirty::after_own_updates();
        let of = |tally: &CachePadded<Tally>| {
            // SeqCst: pairs with `DirtyBits::mark` and `release`, as `DirtyBits::count` does.
            let dirty = tally.dirty.load(Ordering::SeqCst);
            // SeqCst: after the marks: a row is counted before it has one.
            let rows = tally.marked_rows.load(Ordering::SeqCst);
            dirty.min(most.saturating_mul(rows))
        };
        self.data.iter().map(of).sum()
    }

    /// Counts an add as in flight, with those of `row`, until the result is dropped.
    pub(super) fn begin(&self, row: usize) -> InFlight<'_> {
        InFlight::new(&self.of(row).in_flight)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A row counts for no more lines than matter, whatever rows it is counted with.
    #[test]
    fn a_row_counts_for_no_more_than_matters() {
        for rows in [1, 2, 7, 8, 9, 64, 512] {
            let tallies = Tallies::new(rows);
            // Relaxed, both: one thread.
            (0..rows).for_each(|row| {
                tallies.dirty_of(row).fetch_add(3, Ordering::Relaxed);
                tallies.marked_rows_of(row).fetch_add(1, Ordering::Relaxed);
            });
            for (most, each) in [(0, 0), (1, 1), (3, 3), (4, 3), (u64::MAX, 3)] {
                assert_eq!(tallies.dirty(most), rows as u64 * each, "{rows}, {most}");
            }
        }
    }

    /// A read visits at most eight tallies, however many rows there are.
    #[test]
    fn a_read_visits_eight_tallies_at_most() {
        assert_eq!([1, 8, 512].map(|rows| Tallies::new(rows).data.len()), [1, 8, 8]);
    }
}
