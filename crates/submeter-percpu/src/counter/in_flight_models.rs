//! Adds in flight, which one CPU begins and another ends by plain stores: what a reader of a
//! counter can state while an add has crossed a boundary and has not posted its overflow.
//!
//! The overflows are the real ones, over words that sequences write: a begin is counted on the
//! first CPU, everything else on the second, the worst case of migration.

use std::sync::Arc;

use loom::sync::Mutex;
use loom::thread;

use super::cpu_words::{CpuWord, CpuWords};
use super::loom_models::{Cpu, MASK};
use super::overflows::Overflows;
use crate::models::{either_first, explore, witness};
use crate::sync::atomic::{AtomicBool, AtomicI64, Ordering};

/// The mistake in a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mistake {
    Nothing,
    /// An add does not announce that it is in flight.
    NoBegin,
    /// It announces so only once it is in its word.
    LateBegin,
    /// It ends before its overflow is posted.
    EarlyEnd,
    /// A reader loads the posts first.
    PostedFirst,
    /// A reader loads the begins before it loads the ends.
    BegunFirst,
    /// A reader asks which rows are in use before it loads the posts.
    RowsFirst,
}

/// Words of two CPUs, each of which runs one sequence at a time.
struct Sequences {
    mistake: Mistake,
    sections: [Mutex<()>; 2],
    posted: AtomicI64,
    begun: AtomicI64,
    ended: AtomicI64,
    /// The value that a reader loaded too early.
    early: std::sync::atomic::AtomicI64,
}

impl Sequences {
    fn word(&self, kept: CpuWord) -> &AtomicI64 {
        match kept {
            CpuWord::Posted => &self.posted,
            CpuWord::Begun => &self.begun,
            CpuWord::Ended => &self.ended,
        }
    }

    fn load(&self, kept: CpuWord) -> i64 {
        // Acquire: as in the real one.
        self.word(kept).load(Ordering::Acquire)
    }
}

impl CpuWords for Sequences {
    fn add(&self, kept: CpuWord, n: i64) -> bool {
        let cpu = usize::from(kept != CpuWord::Begun);
        let _section = self.sections[cpu].lock().expect("nobody panics inside");
        let word = self.word(kept);
        // Relaxed, both: the sequence's plain load and plain store.
        word.store(word.load(Ordering::Relaxed) + n, Ordering::Relaxed);
        true
    }

    fn sum(&self, kept: CpuWord) -> i64 {
        let early = match self.mistake {
            Mistake::PostedFirst => CpuWord::Posted,
            Mistake::BegunFirst => CpuWord::Begun,
            _ => return self.load(kept),
        };
        // Relaxed, both: the reader's own note.
        let order = std::sync::atomic::Ordering::Relaxed;
        if kept == CpuWord::Ended {
            self.early.store(self.load(early), order);
        }
        if kept == early { self.early.load(order) } else { self.load(kept) }
    }
}

/// A word one step from its boundary, in the direction of `sign`, with outside knowledge about it.
struct Counter {
    mistake: Mistake,
    sign: i64,
    cpu: Cpu,
    overflows: Overflows<Sequences>,
    /// Number of adds that have returned.
    returned: AtomicI64,
}

impl Counter {
    fn new(mistake: Mistake, sign: i64) -> Arc<Counter> {
        let zero = || AtomicI64::new(0);
        let sections = [Mutex::new(()), Mutex::new(())];
        let early = std::sync::atomic::AtomicI64::new(0);
        let (posted, begun, ended) = (zero(), zero(), zero());
        let words = Sequences { mistake, sections, posted, begun, ended, early };
        let overflows = Overflows::new(Some(words));
        let cpu = Cpu::default();
        // Upwards from 1, downwards from 0: the next step crosses.
        let start = i64::from(sign > 0);
        assert_eq!(cpu.add(start, MASK), 0);
        Arc::new(Counter { mistake, sign, cpu, overflows, returned: zero() })
    }

    /// Adds one step.
    fn add(&self) {
        let mut in_flight = None;
        if !matches!(self.mistake, Mistake::NoBegin | Mistake::LateBegin) {
            in_flight = Some(self.overflows.begin());
        }
        let overflow = self.cpu.add(self.sign, MASK);
        if self.mistake == Mistake::LateBegin {
            in_flight = Some(self.overflows.begin());
        }
        if self.mistake == Mistake::EarlyEnd {
            drop(in_flight.take());
        }
        if overflow != 0 {
            self.overflows.post(overflow);
        }
        drop(in_flight);
        // SeqCst: says that it returned.
        self.returned.fetch_add(1, Ordering::SeqCst);
    }

    /// Checks that a reader finds all adds that returned, whatever it finds of the rest.
    fn read(&self, adds: i64) {
        let start = i64::from(self.sign > 0);
        // SeqCst: as above.
        let returned = self.returned.load(Ordering::SeqCst);
        let read = self.overflows.read(|| MASK, MASK + 1);
        witness("a read beside an add in flight", read.high() - read.low() > MASK.cast_signed());
        witness("a read that finds one of the adds returned", returned == 1);
        let (least, most) = (start + self.sign * returned, start + self.sign * adds);
        let (low, high) = (least.min(most), least.max(most));
        assert!(
            read.low() <= high && low <= read.high(),
            "{:?}: {read:?} without what returned, {low}..={high}",
            self.mistake
        );
    }
}

/// Two adds, of which one crosses, and a reader.
fn a_read_among_adds(mistake: Mistake, sign: i64) {
    explore(move || {
        let counter = Counter::new(mistake, sign);
        let adds = [(); 2].map(|()| {
            let counter = Arc::clone(&counter);
            thread::spawn(move || counter.add())
        });
        counter.read(2);
        adds.into_iter().for_each(|add| add.join().unwrap());
        counter.read(2);
        assert_eq!(counter.cpu.load(), i64::from(sign > 0) + 2 * sign, "an add was lost");
    });
}

/// A read covers all adds that returned while overflows are in flight.
#[test]
fn loom_counter_read_covers_overflows_in_flight() {
    a_read_among_adds(Mistake::Nothing, 1);
    a_read_among_adds(Mistake::Nothing, -1);
}

/// Finds an add that does not announce that it is in flight.
#[test]
#[should_panic(expected = "NoBegin: ")]
fn loom_counter_finds_an_add_not_in_flight() {
    a_read_among_adds(Mistake::NoBegin, 1);
}

#[test]
#[should_panic(expected = "LateBegin: ")]
fn loom_counter_finds_an_add_announced_too_late() {
    a_read_among_adds(Mistake::LateBegin, 1);
}

#[test]
#[should_panic(expected = "EarlyEnd: ")]
fn loom_counter_finds_an_end_before_the_post() {
    a_read_among_adds(Mistake::EarlyEnd, 1);
}

/// Finds a reader that loads the posts before the adds in flight.
#[test]
#[should_panic(expected = "PostedFirst: ")]
fn loom_counter_finds_a_read_of_posted_first() {
    a_read_among_adds(Mistake::PostedFirst, 1);
}

/// An add is stuck; another one returns, and then announces an add that crosses nothing: a reader
/// may find all of that add, or only its end.
fn a_read_among_adds_that_end(mistake: Mistake) {
    explore(move || {
        let counter = Counter::new(mistake, 1);
        let adds = [false, true].map(|again| {
            let counter = Arc::clone(&counter);
            thread::spawn(move || {
                counter.add();
                if again {
                    drop(counter.overflows.begin());
                }
            })
        });
        counter.read(2);
        adds.into_iter().for_each(|add| add.join().unwrap());
        counter.read(2);
    });
}

/// An add that ends while a reader loads hides no other.
#[test]
fn loom_counter_an_ending_add_hides_no_other() {
    a_read_among_adds_that_end(Mistake::Nothing);
}

#[test]
#[should_panic(expected = "BegunFirst: ")]
fn loom_counter_finds_begins_loaded_before_ends() {
    a_read_among_adds_that_end(Mistake::BegunFirst);
}

/// An add that is the first in its row, and a reader: the amount the add posted is offset by what
/// its row keeps.
fn a_read_beside_the_first_add_of_a_row(mistake: Mistake) {
    explore(move || {
        let counter = Counter::new(mistake, 1);
        let row = Arc::new((AtomicBool::new(false), Cpu::default()));
        let (added, first) = (Arc::clone(&counter), Arc::clone(&row));
        let adder = thread::spawn(move || {
            let in_flight = added.overflows.begin();
            // SeqCst: as in `Inner::use_locked`.
            first.0.store(true, Ordering::SeqCst);
            added.overflows.post(first.1.add(3, MASK));
            drop(in_flight);
        });
        either_first();
        // SeqCst: as in `Area::rows_in_use`.
        let missing = || (1 + u64::from(row.0.load(Ordering::SeqCst))) * MASK;
        let read = match mistake {
            Mistake::RowsFirst => {
                let early = missing();
                counter.overflows.read(|| early, MASK + 1)
            }
            _ => counter.overflows.read(missing, MASK + 1),
        };
        let in_use = read.high() - read.low();
        witness("a read beside the first add of a row", in_use > MASK.cast_signed());
        // The word at its boundary is covered in either case.
        let covers = |truth: i64| read.low() <= truth && truth <= read.high();
        assert!(covers(1) || covers(4), "{mistake:?}: {read:?} is of neither 1 nor 4");
        adder.join().unwrap();
    });
}

#[test]
fn loom_counter_read_covers_a_rows_first_add() {
    a_read_beside_the_first_add_of_a_row(Mistake::Nothing);
}

#[test]
#[should_panic(expected = "RowsFirst: ")]
fn loom_counter_finds_rows_asked_for_first() {
    a_read_beside_the_first_add_of_a_row(Mistake::RowsFirst);
}

/// A step crosses, another is stuck with it, and whole batches are stuck unannounced: the latter
/// hide nothing.
fn a_read_beside_whole_batches(n: i64, sign: i64) {
    explore(move || {
        let counter = Counter::new(Mistake::Nothing, sign);
        let whole = thread::spawn({
            let counter = Arc::clone(&counter);
            move || {
                counter.overflows.post(counter.cpu.add(n, MASK));
            }
        });
        let add = thread::spawn({
            let counter = Arc::clone(&counter);
            move || {
                counter.add();
                counter.add();
            }
        });
        let start = i64::from(sign > 0);
        let reads = |returned: i64, adds: i64| {
            let read = counter.overflows.read(|| MASK, MASK + 1);
            witness("a read beside the steps", returned < adds && read.low() != start);
            let holds = |truth: i64| read.low() <= truth && truth <= read.high();
            let steps = || (returned..=adds).map(|steps| start + sign * steps);
            assert!(steps().any(|truth| holds(truth) || holds(truth + n)), "{n}: {read:?}");
        };
        // SeqCst: as in `read`.
        reads(counter.returned.load(Ordering::SeqCst), 2);
        whole.join().unwrap();
        add.join().unwrap();
        reads(2, 2);
        let read = counter.overflows.read(|| MASK, MASK + 1);
        let truth = start + 2 * sign + n;
        assert!(read.low() <= truth && truth <= read.high(), "{n}: {read:?} for {truth}");
    });
}

/// Whole batches hide nothing while they are unannounced.
#[test]
fn loom_counter_whole_batches_hide_nothing() {
    for n in [2, -2, 6] {
        a_read_beside_whole_batches(n, 1);
        a_read_beside_whole_batches(n, -1);
    }
}

/// Finds that an unannounced part of a batch hides others.
///
/// The mistake: an amount that is larger than a batch but not a multiple of it is not announced
/// either.
#[test]
#[should_panic(expected = "31: ")]
fn loom_counter_finds_a_hidden_part_of_a_batch() {
    a_read_beside_whole_batches(31, 1);
}
