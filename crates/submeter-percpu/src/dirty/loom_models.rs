//! Every interleaving of updates, marks and flushes, and of the mistakes that the protocol avoids.

use super::*;
use crate::models::{Note, either_first, explore, explore_all, witness};
use crate::sync::atomic::AtomicI64;
use loom::sync::Arc;
use loom::thread;

/// Two lines of one word each, and the total that a reader finds.
struct Shared {
    lines: AtomicU64,
    summary: AtomicU64,
    linking: AtomicU64,
    tally: AtomicU64,
    words: [AtomicI64; 2],
    total: AtomicI64,
}

/// A flusher's private state.
#[derive(Default)]
struct Flusher {
    last: [i64; 2],
}

impl Shared {
    fn new() -> Arc<Shared> {
        Arc::new(Shared {
            lines: AtomicU64::new(0),
            summary: AtomicU64::new(0),
            linking: AtomicU64::new(0),
            tally: AtomicU64::new(0),
            words: [AtomicI64::new(0), AtomicI64::new(0)],
            total: AtomicI64::new(0),
        })
    }

    fn row(&self) -> DirtyBits<'_> {
        DirtyBits {
            lines: std::slice::from_ref(&self.lines),
            summary: std::slice::from_ref(&self.summary),
            linking: &self.linking,
            tally: &self.tally,
        }
    }

    /// Does what a locked update does.
    fn add(&self, line: usize) {
        self.words[line].fetch_add(1, Ordering::SeqCst);
        crate::sync::seq_cst_order();
        if !self.row().is_dirty(line) {
            self.row().mark(line);
        }
    }

    /// Reads the changes in the lines of `bits`; returns their sum.
    fn collect(&self, flusher: &mut Flusher, bits: u64) -> i64 {
        crate::sync::seq_cst_order();
        let mut found = 0;
        for line in (0..2).filter(|line| bits >> line & 1 == 1) {
            let now = self.words[line].load(Ordering::SeqCst);
            found += now - flusher.last[line];
            flusher.last[line] = now;
        }
        found
    }

    /// Does what a flush of everything does.
    fn flush(&self, flusher: &mut Flusher) -> i64 {
        let mut taken = 0;
        self.row().find(64, |index, bits| taken |= self.row().take_bits(index, bits));
        self.finish(flusher, taken)
    }

    /// Does what a flush of the part that consists of `line` does.
    fn flush_part(&self, flusher: &mut Flusher, line: usize) -> i64 {
        let mut taken = 0;
        self.row().find_some(64, |index, bits| {
            taken |= self.row().take_bits(index, bits & (1 << line));
        });
        self.finish(flusher, taken)
    }

    fn finish(&self, flusher: &mut Flusher, taken: u64) -> i64 {
        let found = self.collect(flusher, taken);
        let total = self.total.load(Ordering::Relaxed);
        self.total.store(total + found, Ordering::Relaxed);
        self.row().release(taken.count_ones());
        found
    }
}

/// Adds to `line` on a new thread.
fn spawn_add(shared: &Arc<Shared>, line: usize) -> thread::JoinHandle<()> {
    let shared = Arc::clone(shared);
    thread::spawn(move || shared.add(line))
}

/// An update that returned is found by the next flush, whatever else marks and flushes.
#[test]
fn loom_a_flush_finds_every_update_that_returned() {
    explore(|| {
        let shared = Shared::new();
        let updater = spawn_add(&shared, 0);
        let second = spawn_add(&shared, 0);
        let mut flusher = Flusher::default();
        let mut total = shared.flush(&mut flusher);
        witness("a flush that finds one of two updates", total == 1);
        second.join().expect("no panic");
        // `second` returned: this flush must find it even if `updater` is half-way through.
        total += shared.flush(&mut flusher);
        assert!(total >= 1, "a returned update was not found");
        updater.join().expect("no panic");
        total += shared.flush(&mut flusher);
        assert_eq!(total, 2);
    });
}

/// A partial flush loses nothing: it finds updates that returned in its part, and the next flush
/// finds those that it leaves, or that come to a word that it emptied.
#[test]
fn loom_a_partial_flush_loses_nothing() {
    explore(|| {
        let shared = Shared::new();
        let first = spawn_add(&shared, 0);
        let second = spawn_add(&shared, 1);
        let mut flusher = Flusher::default();
        let mut total = shared.flush_part(&mut flusher, 1);
        witness("a flush of a part that finds what is under way beside it", total == 1);
        second.join().expect("no panic");
        total += shared.flush_part(&mut flusher, 1);
        assert_eq!(total, 1, "a returned update was not found");
        first.join().expect("no panic");
        total += shared.flush(&mut flusher);
        assert_eq!(total, 2, "an update was lost");
    });
}

/// Runs a flush of line 1 only that takes its mark incorrectly, while another thread adds to line
/// 0.
fn check_partial_flush(take: fn(&Shared) -> u64) {
    explore_all(move || {
        let shared = Shared::new();
        shared.add(1);
        let updater = spawn_add(&shared, 0);
        let mut flusher = Flusher::default();
        let taken = take(&shared);
        let mut total = shared.finish(&mut flusher, taken & 2);
        updater.join().expect("no panic");
        total += shared.flush(&mut flusher);
        assert_eq!(total, 2, "an update was lost");
    });
}

/// Finds that a partial flush that stores the word less its bits, where another thread may mark at
/// the same time, loses a mark: the locked instruction is needed.
#[test]
#[should_panic(expected = "an update was lost")]
fn loom_clearing_bits_by_a_store_loses_a_mark() {
    check_partial_flush(|shared| {
        let bits = shared.lines.load(Ordering::SeqCst);
        shared.lines.store(bits & !2, Ordering::SeqCst);
        bits
    });
}

/// Finds that a partial flush that clears the summary's bit along with that of the last line it saw
/// loses marks made in between.
#[test]
#[should_panic(expected = "an update was lost")]
fn loom_summary_cleared_by_a_part_loses_marks() {
    check_partial_flush(|shared| {
        let before = shared.lines.fetch_and(!2, Ordering::SeqCst);
        if before & !2 == 0 {
            shared.summary.store(0, Ordering::SeqCst);
        }
        before
    });
}

/// A reader that finds no mark counted finds every update that returned in the total, even while a
/// flush is between taking a mark and storing the total.
#[test]
fn loom_zero_marks_mean_that_the_total_has_all() {
    explore(|| {
        let shared = Shared::new();
        shared.add(0);
        let updater = spawn_add(&shared, 1);
        let reader = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                let count = shared.row().count();
                witness("a reader that finds no mark", count == 0);
                witness("a reader that finds one of two", count == 1);
                if count == 0 {
                    let total = shared.total.load(Ordering::Relaxed);
                    assert!(total >= 1, "exact, but it is not");
                }
            })
        };
        shared.flush(&mut Flusher::default());
        updater.join().expect("no panic");
        reader.join().expect("no panic");
    });
}

/// Finds that releasing marks before the total is stored shows too little.
///
/// The same model, with marks that no longer count once they are taken, must fail.
#[test]
#[should_panic(expected = "exact, but it is not")]
fn loom_marks_released_before_the_total_fail() {
    explore_all(|| {
        let shared = Shared::new();
        shared.add(0);
        let reader = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                if shared.row().count() == 0 {
                    let total = shared.total.load(Ordering::Relaxed);
                    assert!(total >= 1, "exact, but it is not");
                }
            })
        };
        let mut taken = 0;
        shared.row().find(64, |index, bits| taken |= shared.row().take_bits(index, bits));
        shared.row().release(taken.count_ones());
        let found = shared.collect(&mut Flusher::default(), taken);
        shared.total.store(found, Ordering::Relaxed);
        reader.join().expect("no panic");
    });
}

/// Finds that a flush that trusts only the summary fails: the count of linking threads is needed.
#[test]
#[should_panic(expected = "a returned update was not found")]
fn loom_without_linking_an_update_is_missed() {
    explore_all(|| {
        let shared = Shared::new();
        let mark = |shared: &Shared| {
            shared.tally.fetch_add(1, Ordering::SeqCst);
            shared.lines.fetch_or(1, Ordering::SeqCst);
            shared.summary.fetch_or(1, Ordering::SeqCst);
        };
        let updater = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                shared.words[0].fetch_add(1, Ordering::SeqCst);
                mark(&shared);
            })
        };
        let second = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                shared.words[0].fetch_add(1, Ordering::SeqCst);
                if !shared.row().is_dirty(0) {
                    mark(&shared);
                }
            })
        };
        second.join().expect("no panic");
        let total = shared.flush(&mut Flusher::default());
        assert!(total >= 1, "a returned update was not found");
        updater.join().expect("no panic");
    });
}

/// Finds that reading the summary before the line is marked loses the line.
///
/// A thread that finds the summary's bit set does nothing more, but only after it has set the
/// line's bit: a flush may clear the former and take its lines before the latter is set.
#[test]
#[should_panic(expected = "an update was lost")]
fn loom_a_summary_read_before_the_mark_fails() {
    explore_all(|| {
        let shared = Shared::new();
        shared.add(1);
        let updater = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                shared.words[0].fetch_add(1, Ordering::SeqCst);
                shared.linking.fetch_add(1, Ordering::SeqCst);
                shared.tally.fetch_add(1, Ordering::SeqCst);
                let linked = shared.summary.load(Ordering::SeqCst) & 1 == 1;
                shared.lines.fetch_or(1, Ordering::SeqCst);
                if !linked {
                    shared.summary.fetch_or(1, Ordering::SeqCst);
                }
                shared.linking.fetch_sub(1, Ordering::SeqCst);
            })
        };
        let mut flusher = Flusher::default();
        let mut total = shared.flush(&mut flusher);
        updater.join().expect("no panic");
        total += shared.flush(&mut flusher);
        assert_eq!(total, 2, "an update was lost");
    });
}

/// Finds that reading the mark before the locked add, not after it, fails.
#[test]
#[should_panic(expected = "an update was lost")]
fn loom_a_look_before_a_locked_add_loses_it() {
    explore_all(|| {
        let shared = Shared::new();
        shared.row().mark(0);
        let updater = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                if !shared.row().is_dirty(0) {
                    shared.row().mark(0);
                }
                shared.words[0].fetch_add(1, Ordering::SeqCst);
            })
        };
        let mut flusher = Flusher::default();
        let mut total = shared.flush(&mut flusher);
        updater.join().expect("no panic");
        total += shared.flush(&mut flusher);
        assert_eq!(total, 1, "an update was lost");
    });
}

/// No line is stuck when an update in a signal handler comes between another update's load of the
/// mark and its marking of the same line, while a flush drains it (Linux has seen nodes stuck that
/// way).
#[test]
fn loom_no_line_is_stuck_by_a_handler() {
    explore(|| {
        let (shared, handler) = (Shared::new(), Note::default());
        let updater = {
            let (shared, handled) = (Arc::clone(&shared), handler.clone());
            thread::spawn(move || {
                shared.words[0].fetch_add(1, Ordering::SeqCst);
                crate::sync::seq_cst_order();
                if !shared.row().is_dirty(0) {
                    // The handler runs on the same thread, to its end.
                    handled.take();
                    shared.add(0);
                    shared.row().mark(0);
                }
            })
        };
        either_first();
        let mut flusher = Flusher::default();
        let mut total = shared.flush(&mut flusher);
        witness("a flush beside a handler", handler.is_taken() && total > 0);
        updater.join().expect("no panic");
        let rest = shared.flush(&mut flusher);
        witness("what was interrupted marks a line that was drained", total == 2 && rest == 0);
        total += rest;
        assert_eq!(total, shared.words[0].load(Ordering::SeqCst), "an update was lost");
        // The line is not stuck: the next update marks it, and is found.
        shared.add(0);
        assert_eq!(shared.flush(&mut flusher), 1, "an update was lost");
        assert_eq!(shared.row().count(), 0);
    });
}
