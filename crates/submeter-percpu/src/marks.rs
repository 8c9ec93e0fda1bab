//! Marks: one bit a 64-byte line and row, set before the first add to that line since the last flush.
//!
//! A flush must find what changed without looking at what did not. Bits instead of the kernel's
//! linked list of updated groups: setting a bit is one wait-free instruction, is idempotent (a
//! signal handler may do it in the middle of another thread's, or its own thread's, marking), and
//! cannot leave a node half linked. The price is a scan of one word for each 64 × 64 lines.
//!
//! # The protocol
//! *Invariant*: an add to a line commits only when the line's bit is set (sequences test it in the
//! same sequence), or tests it afterwards (locked adds). A flush takes bits first, then issues the
//! barrier, then reads words. So an add that no flush will find cannot have returned:
//!
//! - A **sequence** that saw the bit before a flush took it has committed when the barrier returns,
//!   or starts again and finds the bit clear.
//! - A **locked add** stores first, then loads the bit; a flush clears the bit first, then loads the
//!   word. Both are sequentially consistent, so one of them sees the other.
//!
//! The summary (a bit for each word of bits) would break this if a flush trusted it alone: between
//! setting the two bits, another thread can find the first one set, add and return. `linking` counts
//! the threads that are between them; a flush that finds it above zero scans every word of bits.

use crate::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// The marks of one row.
#[derive(Clone, Copy, Debug)]
pub struct MarkRow<'a> {
    /// Bits: a line each. Writers: anybody who marks sets, flushes clear; read-modify-write only.
    pub lines: &'a [AtomicU64],
    /// Bits: a word of `lines` each. Same writers.
    pub summary: &'a [AtomicU64],
    /// Threads between setting a bit in `lines` and the one in `summary`.
    pub linking: &'a AtomicU32,
}

impl MarkRow<'_> {
    /// Returns whether `line` is marked.
    #[inline]
    #[must_use]
    pub fn is_marked(&self, line: usize) -> bool {
        // SeqCst: the second half of a locked add's "store, then look"; pairs with the swap in
        // `take`, so that either this sees the bit taken or the flush sees the add.
        self.lines[line / 64].load(Ordering::SeqCst) >> (line % 64) & 1 == 1
    }

    /// Marks `line`. Wait-free, async-signal-safe, idempotent; three locked instructions and a
    /// fourth to say so.
    pub fn mark(&self, line: usize) {
        // SeqCst: before the bits; a flush that misses the summary's bit must see this.
        self.linking.fetch_add(1, Ordering::SeqCst);
        // SeqCst: orders the bit against a flush's swap, as `is_marked` does, and against `linking`.
        self.lines[line / 64].fetch_or(1 << (line % 64), Ordering::SeqCst);
        // SeqCst: after the line's bit: a flush clears the summary first, so that a bit in `lines`
        // without its bit here is always followed by this instruction.
        self.summary[line / 4096].fetch_or(1 << (line / 64 % 64), Ordering::SeqCst);
        // SeqCst: after both, as above.
        self.linking.fetch_sub(1, Ordering::SeqCst);
    }

    /// Clears every mark below `lines_end` and calls `found` for each line that was marked. Costs one
    /// load for each 4,096 lines, and one swap for each 64 lines that have a marked one.
    pub fn take(&self, lines_end: usize, mut found: impl FnMut(usize)) {
        let words_end = lines_end.div_ceil(64);
        let mut take_word = |index: usize| {
            // Relaxed: a hint that spares the swap; a bit set after it is the next flush's.
            if self.lines[index].load(Ordering::Relaxed) == 0 {
                return;
            }
            // SeqCst: before the flush's barrier and its reads of the words; see `is_marked`.
            let mut bits = self.lines[index].swap(0, Ordering::SeqCst);
            while bits != 0 {
                found(index * 64 + bits.trailing_zeros() as usize);
                bits &= bits - 1;
            }
        };
        // SeqCst: pairs with `mark`. Zero means that every mark made so far is in the summary.
        if self.linking.load(Ordering::SeqCst) != 0 {
            // The summary stays as it is: a bit too many costs one load at the next flush.
            (0..words_end).for_each(take_word);
            return;
        }
        for (index, summary) in self.summary[..words_end.div_ceil(64)].iter().enumerate() {
            // Relaxed: a hint, as above. Not stale for marks that this flush owes: `linking` was
            // read before, in the same order in which they were written.
            if summary.load(Ordering::Relaxed) == 0 {
                continue;
            }
            // SeqCst: before the swaps of `lines`: clearing in the order in which marks are found
            // is what keeps a bit in `lines` from outliving its bit in the summary.
            let mut bits = summary.swap(0, Ordering::SeqCst);
            while bits != 0 {
                take_word(index * 64 + bits.trailing_zeros() as usize);
                bits &= bits - 1;
            }
        }
    }

    /// Returns whether any line below `lines_end` may be marked.
    #[must_use]
    pub fn any(&self, lines_end: usize) -> bool {
        // SeqCst: as in `take`.
        self.linking.load(Ordering::SeqCst) != 0
            || self.summary[..lines_end.div_ceil(4096)]
                .iter()
                // SeqCst: an update that returned before is ordered before this load.
                .any(|word| word.load(Ordering::SeqCst) != 0)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    struct Owned {
        lines: Vec<AtomicU64>,
        summary: Vec<AtomicU64>,
        linking: AtomicU32,
    }

    impl Owned {
        fn new(lines: usize) -> Owned {
            let zeroed = |n: usize| (0..n).map(|_| AtomicU64::new(0)).collect();
            Owned {
                lines: zeroed(lines.div_ceil(64)),
                summary: zeroed(lines.div_ceil(4096)),
                linking: AtomicU32::new(0),
            }
        }

        fn row(&self) -> MarkRow<'_> {
            MarkRow { lines: &self.lines, summary: &self.summary, linking: &self.linking }
        }
    }

    fn take(row: MarkRow<'_>, end: usize) -> Vec<usize> {
        let mut lines = Vec::new();
        row.take(end, |line| lines.push(line));
        lines
    }

    #[test]
    fn marks_are_found_once_in_order() {
        let owned = Owned::new(20_000);
        let row = owned.row();
        assert!(!row.any(20_000));
        for line in [0, 1, 63, 64, 4095, 4096, 8191, 19_999, 63] {
            row.mark(line);
            assert!(row.is_marked(line));
        }
        assert!(row.any(20_000));
        assert_eq!(take(row, 20_000), [0, 1, 63, 64, 4095, 4096, 8191, 19_999]);
        assert!(!row.any(20_000));
        assert_eq!(take(row, 20_000), [0usize; 0]);
    }

    #[test]
    fn a_mark_that_is_half_made_is_found_and_not_stuck() {
        let owned = Owned::new(4096);
        let row = owned.row();
        // The first two steps of `mark`, as a preempted thread leaves them.
        owned.linking.fetch_add(1, Ordering::SeqCst);
        owned.lines[3].fetch_or(1 << 7, Ordering::SeqCst);
        assert!(row.any(4096));
        assert_eq!(take(row, 4096), [3 * 64 + 7]);
        // The thread goes on: a summary bit without a line's is harmless.
        owned.summary[0].fetch_or(1 << 3, Ordering::SeqCst);
        owned.linking.fetch_sub(1, Ordering::SeqCst);
        assert_eq!(take(row, 4096), [0usize; 0]);
        row.mark(200);
        assert_eq!(take(row, 4096), [200]);
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use crate::sync::atomic::AtomicI64;
    use loom::sync::Arc;
    use loom::thread;

    struct Shared {
        line: AtomicU64,
        summary: AtomicU64,
        linking: AtomicU32,
        word: AtomicI64,
    }

    impl Shared {
        fn new() -> Arc<Shared> {
            Arc::new(Shared {
                line: AtomicU64::new(0),
                summary: AtomicU64::new(0),
                linking: AtomicU32::new(0),
                word: AtomicI64::new(0),
            })
        }

        fn row(&self) -> MarkRow<'_> {
            MarkRow {
                lines: std::slice::from_ref(&self.line),
                summary: std::slice::from_ref(&self.summary),
                linking: &self.linking,
            }
        }

        /// What a locked update does.
        fn add(&self) {
            self.word.fetch_add(1, Ordering::SeqCst);
            if !self.row().is_marked(0) {
                self.row().mark(0);
            }
        }

        /// What a flush does; `last` is its own.
        fn flush(&self, last: &mut i64) -> i64 {
            let mut found = 0;
            self.row().take(64, |_| {
                let now = self.word.load(Ordering::SeqCst);
                found += now - *last;
                *last = now;
            });
            found
        }
    }

    /// An update that returned is found by the next flush, whatever else marks and flushes.
    #[test]
    fn loom_a_flush_finds_every_update_that_returned() {
        // Three threads without a bound take hours. Three preemptions are more than the known bugs need: the
        // negative models below need one.
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(3);
        builder.check(|| {
            let shared = Shared::new();
            let updater = {
                let shared = Arc::clone(&shared);
                thread::spawn(move || shared.add())
            };
            let second = {
                let shared = Arc::clone(&shared);
                thread::spawn(move || shared.add())
            };
            let (mut last, mut total) = (0, 0);
            total += shared.flush(&mut last);
            second.join().expect("no panic");
            // `second` returned: this flush must find it even if `updater` is half-way through.
            total += shared.flush(&mut last);
            assert!(total >= 1, "a returned update was not found");
            updater.join().expect("no panic");
            total += shared.flush(&mut last);
            assert_eq!(total, 2);
        });
    }

    /// The same with a flush that trusts the summary alone must fail: it shows that `linking` earns its place.
    #[test]
    #[should_panic(expected = "a returned update was not found")]
    fn loom_without_linking_an_update_is_missed() {
        loom::model(|| {
            let shared = Shared::new();
            let updater = {
                let shared = Arc::clone(&shared);
                thread::spawn(move || {
                    shared.word.fetch_add(1, Ordering::SeqCst);
                    shared.line.fetch_or(1, Ordering::SeqCst);
                    shared.summary.fetch_or(1, Ordering::SeqCst);
                })
            };
            let second = {
                let shared = Arc::clone(&shared);
                thread::spawn(move || {
                    shared.word.fetch_add(1, Ordering::SeqCst);
                    if !shared.row().is_marked(0) {
                        shared.line.fetch_or(1, Ordering::SeqCst);
                        shared.summary.fetch_or(1, Ordering::SeqCst);
                    }
                })
            };
            second.join().expect("no panic");
            let (mut last, mut total) = (0, 0);
            total += shared.flush(&mut last);
            assert!(total >= 1, "a returned update was not found");
            updater.join().expect("no panic");
        });
    }

    /// Looking at the mark before the locked add, not after it, must fail.
    #[test]
    #[should_panic(expected = "an update was lost")]
    fn loom_testing_the_mark_before_a_locked_add_loses_it() {
        loom::model(|| {
            let shared = Shared::new();
            shared.row().mark(0);
            let updater = {
                let shared = Arc::clone(&shared);
                thread::spawn(move || {
                    if !shared.row().is_marked(0) {
                        shared.row().mark(0);
                    }
                    shared.word.fetch_add(1, Ordering::SeqCst);
                })
            };
            let (mut last, mut total) = (0, 0);
            total += shared.flush(&mut last);
            updater.join().expect("no panic");
            total += shared.flush(&mut last);
            assert_eq!(total, 1, "an update was lost");
        });
    }
}
