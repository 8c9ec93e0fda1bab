//! The bound of a read of a word that leaves its batch: a flush beside it, and a reader beside
//! both.
//!
//! The line's mark stays, so the reader compares the line with its last known contents. Batches,
//! adds in flight, pending sums and the readers' comparison are the real ones. A sequence is a
//! plain load and a plain store, by the only thread that writes the word.

use loom::sync::Arc;
use loom::thread;

use super::{Note, explore_within, witness};
use crate::dirty::{KeptView, Unread};
use crate::overflow::{InFlight, batch_overflow, in_flight, marked_overflow};
use crate::pending::{Noted, Pending, Updated};
use crate::sync::atomic::{AtomicI64, AtomicU64, Ordering};

/// One of those that have a boundary half of it away from 0.
const BATCH: i64 = 1 << 12;
const MASK: u64 = BATCH.cast_unsigned() - 1;
/// Adds from the lower end of a batch to its upper end, and to that of the next.
const ADDS: [i64; 2] = [BATCH - 1, BATCH];
/// The lower end of the batch that contains 0, and its upper end.
const UP_FROM: i64 = -BATCH / 2;
const DOWN_FROM: i64 = BATCH / 2 - 1;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Mistake {
    None,
    /// A crossing by the boundaries of a sequence is counted by those of other adds.
    OtherBoundaries,
    /// The reader assumes that a word is at most half a batch away from its last known value, as it
    /// is from 0.
    HalfABatch,
}

struct Model {
    word: AtomicI64,
    in_flight: AtomicU64,
    pending: [AtomicI64; 2],
    noted: [AtomicI64; 3],
    kept: KeptView,
    /// The contents of the line that a flush read last; then the total.
    last: AtomicI64,
    total: AtomicI64,
    /// The amount added by updates that have returned.
    returned: AtomicI64,
    /// Whether adds go downward instead of upward.
    down: bool,
    mistake: Mistake,
    /// The ends of updater and flusher.
    ended: Note,
}

impl Model {
    fn new(mistake: Mistake, down: bool) -> Arc<Model> {
        let start = if down { DOWN_FROM } else { UP_FROM };
        let kept = KeptView::new(1);
        kept.put(0, 0, 0, 1);
        kept.end(1);
        Arc::new(Model {
            word: AtomicI64::new(start),
            in_flight: AtomicU64::new(0),
            pending: [(); 2].map(|()| AtomicI64::new(0)),
            noted: [(); 3].map(|()| AtomicI64::new(0)),
            kept,
            last: AtomicI64::new(start),
            total: AtomicI64::new(start),
            returned: AtomicI64::new(start),
            down,
            mistake,
            ended: Note::default(),
        })
    }

    fn start(&self) -> i64 {
        if self.down { DOWN_FROM } else { UP_FROM }
    }

    fn noted(&self) -> Noted<'_> {
        Noted(self.noted.each_ref())
    }

    fn update(&self, n: i64) {
        let n = if self.down { -n } else { n };
        // Relaxed, here and below: a sequence's plain accesses.
        let before = self.word.load(Ordering::Relaxed);
        if marked_overflow(before, n, MASK) == 0 {
            self.word.store(before + n, Ordering::Relaxed);
        } else {
            let _in_flight = InFlight::new(&self.in_flight);
            self.word.store(before + n, Ordering::Relaxed);
            let overflow = match self.mistake {
                Mistake::OtherBoundaries => batch_overflow(before, n, MASK),
                _ => marked_overflow(before, n, MASK),
            };
            if overflow != 0 {
                self.crossed(&Updated::fenced(overflow >> MASK.count_ones()));
            }
        }
        // SeqCst: the caller returns; a thread that sees this must find the update.
        self.returned.fetch_add(n, Ordering::SeqCst);
    }

    fn crossed(&self, updated: &Updated<'_>) {
        let again = || self.noted().collections(updated);
        let batches = updated.batches().unsigned_abs() as u32;
        Pending(self.pending.each_ref()).add(again(), batches, again);
    }

    fn flush(&self, number: u64) {
        self.noted().begin(number);
        // SeqCst: as in the real one.
        let now = self.word.load(Ordering::SeqCst);
        self.kept.begin();
        // Relaxed, both: as in the real ones.
        self.last.store(now, Ordering::Relaxed);
        self.total.store(now, Ordering::Relaxed);
        self.kept.end(1);
        self.noted().complete(number);
    }

    /// Reads as a group does.
    fn read(&self) {
        let before = self.returned.load(Ordering::SeqCst);
        // SeqCst and Relaxed: as in the real ones.
        let is_same = |_, _| self.word.load(Ordering::SeqCst) == self.last.load(Ordering::Relaxed);
        let mut compares = true;
        let (total, bound, batches) = loop {
            let (lines, found) = if compares {
                let found = self.kept.unread(|| 1, is_same);
                (found.lines, found)
            } else {
                (1, Unread::default())
            };
            let (mut stuck, mut batches) = (0, 0);
            if lines != 0 {
                stuck = in_flight(&self.in_flight);
                // Acquire: no earlier than any number that an adder had loaded.
                let begun = || self.noted[0].load(Ordering::Acquire).cast_unsigned();
                let covered = self.noted().covered();
                batches = u64::from(Pending(self.pending.each_ref()).sum(covered, begun));
            }
            // Relaxed: as in the real one.
            let total = self.total.load(Ordering::Relaxed);
            if !self.kept.holds(&found) {
                compares = false;
                continue;
            }
            let most = if self.mistake == Mistake::HalfABatch { MASK / 2 } else { MASK };
            break (total, (lines + stuck) * most + batches * (MASK + 1), batches);
        };
        let beside = self.ended.count() < 2;
        let off = total.abs_diff(before);
        witness("a read between, of what has crossed", beside && batches != 0);
        witness("a read between, of what has not", beside && batches == 0 && off != 0);
        witness("one that is exact", beside && bound == 0 && total != self.start());
        witness("a bound that is met", off == bound && batches == 0 && bound != 0);
        witness("one that is met across a boundary", off == bound && batches == 1);
        // The amount of a concurrent update may already be in the total.
        let missing = if self.down { total - before } else { before - total };
        assert!(missing <= bound.cast_signed(), "{before} is not {total} ± {bound}");
    }
}

fn a_crossing_beside_a_flush_and_a_reader(adds: [i64; 2], mistake: Mistake, down: bool) {
    let model = Model::new(mistake, down);
    let updater = thread::spawn({
        let model = Arc::clone(&model);
        move || {
            adds.into_iter().for_each(|n| model.update(n));
            model.ended.take();
        }
    });
    let flusher = thread::spawn({
        let model = Arc::clone(&model);
        move || {
            model.flush(1);
            model.ended.take();
        }
    });
    model.read();
    updater.join().expect("no panic");
    model.read();
    flusher.join().expect("no panic");
    model.read();
    model.flush(2);
    assert_eq!(model.total.load(Ordering::Relaxed), model.returned.load(Ordering::Relaxed));
}

/// A read is within its bound beside a crossing and a flush.
#[test]
fn loom_a_read_beside_a_crossing_is_bounded() {
    for down in [false, true] {
        explore_within(2, move || {
            a_crossing_beside_a_flush_and_a_reader(ADDS, Mistake::None, down);
        });
    }
}

/// Finds crossings that are counted by other boundaries than the sequence's.
#[test]
#[should_panic(expected = " is not ")]
fn loom_finds_crossings_by_other_boundaries() {
    // A single step: a larger one crosses by any boundaries.
    let adds = [BATCH - 1, 1];
    explore_within(2, move || {
        a_crossing_beside_a_flush_and_a_reader(adds, Mistake::OtherBoundaries, false);
    });
}

#[test]
#[should_panic(expected = " is not ")]
fn loom_half_a_batch_is_too_narrow_a_bound() {
    explore_within(2, || a_crossing_beside_a_flush_and_a_reader(ADDS, Mistake::HalfABatch, false));
}
