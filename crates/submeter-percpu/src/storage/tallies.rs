//! The figures that readers need of all rows at once: how many lines are marked, how many adds are
//! in flight.
//!
//! A row of its CPU's own would be the natural place, as no count then passes between CPUs. But a
//! reader would load a line of every row, each in a page of its own and all in the same set of the
//! cache: with 512 CPUs, 400 times as long as the rest of a read takes. One count for all rows
//! would be the shortest to read, and every CPU would wait for it. So there are a few: a row has
//! one to itself up to [`TALLIES_MAX`] rows, and 64 of 512 share one.

use std::sync::atomic::{AtomicU64, Ordering};

use crossbeam_utils::CachePadded;

use crate::overflow::{InFlight, in_flight};

/// The most for data rows. A read costs three loads for each, of one line.
const TALLIES_MAX: usize = 8;

/// Counts over all rows.
#[derive(Debug)]
pub(super) struct Tallies {
    /// Each of the data rows whose number has the same remainder.
    data: Box<[CachePadded<Tally>]>,
}

#[derive(Debug, Default)]
struct Tally {
    /// See [`DirtyBits`](crate::dirty::DirtyBits).
    dirty: AtomicU64,
    /// How many of the rows ever had a marked line, or more.
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

    /// The marks that are counted with those of a data row.
    #[inline]
    pub(super) fn dirty_of(&self, row: usize) -> &AtomicU64 {
        &self.of(row).dirty
    }

    /// The counter of rows with marks, for the rows that are counted together with a data row.
    #[inline]
    pub(super) fn marked_rows_of(&self, row: usize) -> &AtomicU64 {
        &self.of(row).marked_rows
    }

    /// Returns how many lines of data rows are marked, where no more than `most` of a row matter.
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

    /// Counts an add as in flight, with those of `row`, until what is returned goes.
    pub(super) fn begin(&self, row: usize) -> InFlight<'_> {
        InFlight::new(&self.of(row).in_flight)
    }

    pub(super) fn in_flight(&self) -> u64 {
        self.data.iter().map(|tally| in_flight(&tally.in_flight)).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A row counts for no more than matters, whatever rows it is counted with.
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

    #[test]
    fn a_read_visits_no_more_tallies_however_many_rows_there_are() {
        assert_eq!([1, 8, 512].map(|rows| Tallies::new(rows).data.len()), [1, 8, 8]);
    }
}
