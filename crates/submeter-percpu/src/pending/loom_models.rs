//! An updater, a collector that may fail, and a reader; and the consequence of each mistake.

// Not the checker's: it does not explore this state.
use std::sync::Mutex;

use loom::sync::Arc;
use loom::thread;

use super::{Collections, Noted, Pending, Updated};
use crate::models::{Note, witness};
use crate::sync::atomic::{AtomicI64, Ordering};

/// The mistake in a model, if any.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mistake {
    None,
    /// The updater takes no fence between its update and its load of *begun*.
    NoFenceInUpdate,
    /// The collector takes none between its number and its load of the word.
    NoFenceInCollection,
    /// The collector announces completion before its result is there.
    CoversBeforeTotal,
    /// The reader loads the collected total before the sum.
    TotalFirst,
    /// The updater takes a collection that has begun for complete.
    BegunIsCovered,
}

/// A word for each CPU; each update adds 1 to its CPU's word, and to the sum.
struct Model {
    words: [AtomicI64; 2],
    slots: [AtomicI64; 2],
    /// The collection numbers.
    noted: [AtomicI64; 3],
    total: AtomicI64,
    /// The amount added by updates that have returned.
    returned: AtomicI64,
    mistake: Mistake,
    /// The collection that each update found begun, in order; the updates that are over; and the
    /// threads that are over.
    looks: Mutex<Vec<u64>>,
    updated: Note,
    ended: Note,
}

impl Model {
    fn new(mistake: Mistake) -> Arc<Model> {
        Arc::new(Model {
            words: [AtomicI64::new(0), AtomicI64::new(0)],
            slots: [AtomicI64::new(0), AtomicI64::new(0)],
            noted: [AtomicI64::new(0), AtomicI64::new(0), AtomicI64::new(0)],
            total: AtomicI64::new(0),
            returned: AtomicI64::new(0),
            mistake,
            looks: Mutex::default(),
            updated: Note::default(),
            ended: Note::default(),
        })
    }

    fn pending(&self) -> Pending<'_> {
        Pending([&self.slots[0], &self.slots[1]])
    }

    fn noted(&self) -> Noted<'_> {
        Noted(self.noted.each_ref())
    }

    fn looks(&self) -> Vec<u64> {
        self.looks.lock().expect("no panic inside").clone()
    }

    /// Updates. Returns whether another update has loaded the numbers and is not over.
    fn update(&self, cpu: usize) -> bool {
        let word = &self.words[cpu];
        // Relaxed, both: a sequence's plain load and store, of a word that only this CPU writes.
        word.store(word.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        let updated = match self.mistake {
            Mistake::NoFenceInUpdate => Updated::unfenced(1),
            _ => Updated::fenced(1),
        };
        let load = || {
            let Collections { begun, mut covered, .. } = self.noted().collections(&updated);
            if self.mistake == Mistake::BegunIsCovered {
                covered = begun;
            }
            // Sometimes the wrong one.
            Collections { begun, covered, turn: begun / 2 }
        };
        let collections = load();
        self.looks.lock().expect("no panic inside").push(collections.begun);
        self.pending().add(collections, 1, load);
        let meets = self.looks().len() > self.updated.count() + 1;
        self.updated.take();
        // Release: the caller returns; a thread that acquires this must find the update.
        self.returned.fetch_add(1, Ordering::Release);
        meets
    }

    /// Collects, unless it fails half-way.
    fn collect(&self, number: u64, fails: bool) {
        let updated = self.updated.count();
        match self.mistake {
            Mistake::NoFenceInCollection => self.noted().begin_unfenced(number),
            _ => self.noted().begin(number),
        }
        if fails {
            return;
        }
        // Relaxed, here and below: as in the real ones.
        let now: i64 = self.words.iter().map(|word| word.load(Ordering::Relaxed)).sum();
        // The last update that it finds, if that was not over when the collection began.
        let found = now as usize;
        let looks = self.looks();
        let look = looks.get(found.wrapping_sub(1)).filter(|_| found > updated);
        let missed = look.is_some_and(|&begun| begun < number);
        witness("a collection that finds an update which missed that it began", missed);
        witness("one that finds an update which saw it", look.is_some() && !missed);
        if self.mistake == Mistake::CoversBeforeTotal {
            self.noted().complete(number);
        }
        self.total.store(now, Ordering::Relaxed);
        self.noted().complete(number);
    }

    /// Checks that updates that returned before are in the total or in the sum, and returns all
    /// three.
    fn read(&self) -> [i64; 3] {
        // Acquire: sees everything done by the updates that returned.
        let returned = self.returned.load(Ordering::Acquire);
        let early = self.total.load(Ordering::Relaxed);
        let covered = self.noted().covered();
        // Acquire: no earlier than any number that an adder had loaded.
        let begun = || self.noted[0].load(Ordering::Acquire).cast_unsigned();
        let sum = i64::from(self.pending().sum(covered, begun));
        let late = self.total.load(Ordering::Relaxed);
        let total = if self.mistake == Mistake::TotalFirst { early } else { late };
        assert!(
            returned - total <= sum,
            "{returned} returned, {total} in the total, {sum} pending"
        );
        [returned, total, sum]
    }
}

/// Explores an updater and a collector beside the reader. Two preemptions show each of the
/// mistakes.
fn explore(mistake: Mistake, fails: [bool; 2], updates: usize) {
    crate::models::explore_briefly(2, move || {
        let model = Model::new(mistake);
        // An amount that already counts.
        model.update(0);
        let updater = thread::spawn({
            let model = Arc::clone(&model);
            move || {
                (0..updates).for_each(|_| _ = model.update(0));
                model.ended.take();
            }
        });
        let collector = thread::spawn({
            let model = Arc::clone(&model);
            move || {
                (1..).zip(fails).for_each(|(number, fails)| model.collect(number, fails));
                model.ended.take();
            }
        });
        let [returned, total, sum] = model.read();
        let beside = model.ended.count() < 2;
        witness("a read beside both, of what is pending", beside && returned > total.max(1));
        witness("one of what is in the total alone", beside && total != 0 && sum == 0);
        updater.join().expect("no panic");
        collector.join().expect("no panic");
        model.read();
        // The next collection ends everything pending, whatever came before it.
        model.collect(3, false);
        assert_eq!(model.pending().sum(3, || 3), 0);
        model.read();
    });
}

/// Two updaters find the same empty or covered word, beside a collector that does not.
fn explore_updaters(begun_before: u64) {
    crate::models::explore_briefly(2, move || {
        let model = Model::new(Mistake::None);
        if begun_before > 0 {
            model.update(0);
            (1..=begun_before).for_each(|number| model.collect(number, false));
        }
        let updater = thread::spawn({
            let model = Arc::clone(&model);
            move || _ = model.update(1)
        });
        let collector = thread::spawn({
            let model = Arc::clone(&model);
            move || model.collect(begun_before + 1, false)
        });
        let meets = model.update(0);
        witness("an update that is over while another has looked and is not", meets);
        updater.join().expect("no panic");
        model.read();
        collector.join().expect("no panic");
        model.read();
    });
}

#[test]
fn loom_updaters_drop_nothing_of_each_others() {
    [0, 2].into_iter().for_each(explore_updaters);
}

#[test]
fn loom_what_returned_is_in_the_total_or_pending() {
    explore(Mistake::None, [false, false], 1);
}

#[test]
fn loom_so_it_is_where_a_collection_fails() {
    explore(Mistake::None, [true, false], 2);
    explore(Mistake::None, [false, true], 2);
}

/// Finds an update without its fence, which is covered and not collected.
#[test]
#[should_panic(expected = "returned")]
fn loom_finds_an_update_without_its_fence() {
    explore(Mistake::NoFenceInUpdate, [false, false], 1);
}

#[test]
#[should_panic(expected = "returned")]
fn loom_an_unfenced_collection_covers_its_misses() {
    explore(Mistake::NoFenceInCollection, [false, false], 1);
}

/// Finds that a value covered before it is in the total is nowhere.
#[test]
#[should_panic(expected = "returned")]
fn loom_what_is_covered_too_early_is_nowhere() {
    explore(Mistake::CoversBeforeTotal, [false, false], 1);
}

/// Finds a total that is loaded first, which lacks amounts covered since.
#[test]
#[should_panic(expected = "returned")]
fn loom_finds_a_total_loaded_first() {
    explore(Mistake::TotalFirst, [false, false], 1);
}

#[test]
#[should_panic(expected = "returned")]
fn loom_what_has_only_begun_covers_nothing() {
    explore(Mistake::BegunIsCovered, [true, true], 2);
}
