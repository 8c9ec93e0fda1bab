//! The set of rows that have ever had a mark.

use super::bits_of;
use crate::sync::atomic::{AtomicU64, Ordering, fence};
use crate::sync::seq_cst_order;

/// The rows in which a line was ever marked: a flush visits no other rows, and a bound does not
/// count them.
///
/// Only those rows of a machine are in use on whose CPUs the process has run or, with rows by
/// `mm_cid`, whose numbers its threads have had. A row stays in use.
#[derive(Debug)]
pub(crate) struct MarkedRows {
    /// Bits: one per row. Writers: an updater sets a row's bit before it marks a first line there.
    bits: Box<[AtomicU64]>,
}

impl MarkedRows {
    /// Creates the set for `rows` rows, none of which has a mark yet.
    pub(crate) fn new(rows: usize) -> MarkedRows {
        MarkedRows { bits: (0..rows.div_ceil(64)).map(|_| AtomicU64::new(0)).collect() }
    }

    /// Records a row, before a line of it is marked. `count` counts rows, for readers that would
    /// otherwise load a word for each 64: it is never below the number of rows recorded. Costs one
    /// load, except for the first time.
    #[inline]
    pub(crate) fn note(&self, row: usize, count: &AtomicU64) {
        let bit = 1 << (row % 64);
        // Acquire: pairs with the instruction that sets the bit: a thread that finds the row
        // recorded may mark a line of it as if it had recorded and counted the row itself.
        if self.bits[row / 64].load(Ordering::Acquire) & bit == 0 {
            self.note_first(row, bit, count);
        }
    }

    #[cold]
    fn note_first(&self, row: usize, bit: u64, count: &AtomicU64) {
        // SeqCst: before the row's bit, and so before its marks; pairs with a reader's load of the
        // count, which follows its load of the marks.
        count.fetch_add(1, Ordering::SeqCst);
        // SeqCst: before the mark; pairs with the fence in `rows`.
        let before = self.bits[row / 64].fetch_or(bit, Ordering::SeqCst);
        seq_cst_order();
        if before & bit != 0 {
            // Another thread has counted it. SeqCst: as above.
            count.fetch_sub(1, Ordering::SeqCst);
        }
    }

    /// Returns the rows, in ascending order.
    ///
    /// # Ordering
    /// SeqCst: includes the row of every mark that earlier operations set, or found set.
    pub(crate) fn rows(&self) -> impl Iterator<Item = usize> + Clone {
        // SeqCst: pairs with `note`. Acquire would suffice where this thread's own sequence has
        // found the mark by its plain load; it may be that of another thread, which handed a group
        // over to this one.
        fence(Ordering::SeqCst);
        // Relaxed: after the fence.
        let words = self.bits.iter().map(|bits| bits.load(Ordering::Relaxed));
        words.enumerate().flat_map(|(word, bits)| bits_of(word, bits))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// Rows are listed and counted once, whatever the order of marking.
    #[test]
    fn rows_are_listed_and_counted_once() {
        let (rows, count) = (MarkedRows::new(130), AtomicU64::new(0));
        let listed = || rows.rows().collect::<Vec<_>>();
        assert_eq!(listed(), [0_usize; 0]);
        [129, 3, 64, 3, 63, 129].into_iter().for_each(|row| rows.note(row, &count));
        // Relaxed: one thread.
        assert_eq!((listed(), count.load(Ordering::Relaxed)), (vec![3, 63, 64, 129], 4));
    }
}

#[cfg(all(test, loom))]
mod loom_models {
    use super::*;
    use loom::sync::Arc;
    use loom::thread;

    const ROW: usize = 1;

    struct Shared {
        rows: MarkedRows,
        count: AtomicU64,
        mark: AtomicU64,
    }

    /// Whether an updater records its row before it marks a line there, and whether the flusher
    /// takes a fence before it lists the rows.
    #[derive(Clone, Copy)]
    struct Steps {
        note_first: bool,
        fence: bool,
    }

    impl Shared {
        fn new() -> Arc<Shared> {
            let (count, mark) = (AtomicU64::new(0), AtomicU64::new(0));
            Arc::new(Shared { rows: MarkedRows::new(2), count, mark })
        }

        fn has(&self, fenced: bool) -> bool {
            if fenced {
                return self.rows.rows().any(|row| row == ROW);
            }
            // Relaxed: this must not be enough.
            self.rows.bits[0].load(Ordering::Relaxed) >> ROW & 1 == 1
        }

        /// Marks a line of the row for the first time.
        fn mark(&self, steps: Steps) {
            if steps.note_first {
                self.rows.note(ROW, &self.count);
            }
            self.mark.fetch_or(1, Ordering::SeqCst);
            if !steps.note_first {
                self.rows.note(ROW, &self.count);
            }
        }
    }

    /// One updater marks; another's sequence finds the mark, adds and hands over to a flush.
    fn check(steps: Steps) {
        crate::models::explore_all(move || {
            let shared = Shared::new();
            let marking = {
                let shared = Arc::clone(&shared);
                thread::spawn(move || shared.mark(steps))
            };
            let finding = {
                let shared = Arc::clone(&shared);
                // Relaxed: a sequence's plain load.
                thread::spawn(move || shared.mark.load(Ordering::Relaxed) == 1)
            };
            let found = finding.join().expect("no panic");
            crate::models::witness("a mark that is found", found);
            if found {
                assert!(shared.has(steps.fence), "an update that returned is not looked for");
            }
            marking.join().expect("no panic");
            assert!(shared.has(steps.fence));
        });
    }

    #[test]
    fn loom_the_row_of_a_found_mark_is_noted() {
        check(Steps { note_first: true, fence: true });
    }

    #[test]
    #[should_panic(expected = "not looked for")]
    fn loom_a_row_noted_behind_its_mark_is_missed() {
        check(Steps { note_first: false, fence: true });
    }

    #[test]
    #[should_panic(expected = "not looked for")]
    fn loom_a_row_listed_without_a_fence_is_missed() {
        check(Steps { note_first: true, fence: false });
    }

    /// Two threads record a row at the same time. A reader that finds a mark finds the row counted,
    /// and in the end it is counted once.
    fn check_count(count_first: bool) {
        crate::models::explore_all(move || {
            let shared = Shared::new();
            let marks = || {
                let shared = Arc::clone(&shared);
                thread::spawn(move || {
                    if count_first {
                        shared.rows.note(ROW, &shared.count);
                    } else if shared.rows.bits[0].fetch_or(1 << ROW, Ordering::SeqCst) == 0 {
                        shared.count.fetch_add(1, Ordering::SeqCst);
                    }
                    shared.mark.fetch_add(1, Ordering::SeqCst);
                })
            };
            let threads = [marks(), marks()];
            let marked = shared.mark.load(Ordering::SeqCst);
            seq_cst_order();
            let counted = shared.count.load(Ordering::SeqCst);
            crate::models::witness("one mark of two", marked == 1);
            assert!(marked == 0 || counted > 0, "a mark in a row that is not counted");
            threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
            assert_eq!(shared.count.load(Ordering::SeqCst), 1);
        });
    }

    #[test]
    fn loom_a_row_is_counted_once_before_its_marks() {
        check_count(true);
    }

    /// Finds that a row counted only after it is recorded may have marks before.
    #[test]
    #[should_panic(expected = "not counted")]
    fn loom_a_row_counted_after_its_note_has_marks() {
        check_count(false);
    }
}
