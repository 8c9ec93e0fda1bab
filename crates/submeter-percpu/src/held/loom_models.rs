//! Every interleaving of threads that gain and lose, and of a reader, within loom's memory model.
//!
//! The steps are the real ones, over words of two CPUs. A sequence is a plain store, by the only
//! thread on its CPU. Loads are ordered with nothing, which is less than the real ones are.

use std::cell::Cell;

use loom::sync::Arc;
use loom::thread;

use super::{GAINED, LOST, Words, add, sum, sum_at_least};
use crate::models::{explore, witness};
use crate::sync::atomic::{AtomicBool, AtomicI64, Ordering};

/// The mistake in a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mistake {
    Nothing,
    /// A thread orders nothing before it adds.
    NoRelease,
    /// A reader orders nothing between its sums.
    NoAcquire,
    /// A reader loads the sums in the other order.
    OtherOrder,
}

use Mistake::{NoAcquire, NoRelease, Nothing, OtherOrder};

/// A word, and what its CPU has stored in it: a sequence that loaded it would hide an earlier load
/// by a reader from loom.
struct Word(AtomicI64, std::sync::atomic::AtomicI64);

impl Word {
    fn new(n: i64) -> Word {
        Word(AtomicI64::new(n), n.into())
    }
}

type Cpus = [[Word; 2]; 2];

/// The words as a thread on one of the CPUs finds them.
struct On<'a>(&'a Cpus, usize);

impl Words for On<'_> {
    fn add(&self, word: usize, n: i64) {
        let Word(word, stored) = &self.0[self.1][word];
        let before = stored.fetch_add(n, std::sync::atomic::Ordering::Relaxed);
        // Relaxed: the sequence's plain store; above, what it knows without loom.
        word.store(before + n, Ordering::Relaxed);
    }

    fn sum(&self, word: usize) -> i64 {
        // Relaxed: as `Words` allows.
        self.0.iter().map(|cpu| cpu[word].0.load(Ordering::Relaxed)).sum()
    }
}

/// Words of which a reader loads one sum too early.
struct Early<'a>(On<'a>, Cell<Option<i64>>, usize);

impl Words for Early<'_> {
    fn add(&self, word: usize, n: i64) {
        self.0.add(word, n);
    }

    fn sum(&self, word: usize) -> i64 {
        if word == self.2
            && let Some(early) = self.1.take()
        {
            return early;
        }
        if word != self.2 && self.1.get().is_none() {
            self.1.set(Some(self.0.sum(self.2)));
        }
        self.0.sum(word)
    }
}

struct Model {
    mistake: Mistake,
    cpus: Cpus,
    /// Whether the first thread has passed on what it gained.
    is_passed: AtomicBool,
}

impl Model {
    /// Makes words of which the first CPU has gained so much.
    fn new(mistake: Mistake, held: i64) -> Arc<Model> {
        let cpus = [held, 0].map(|n| [n, 0].map(Word::new));
        Arc::new(Model { mistake, cpus, is_passed: AtomicBool::new(false) })
    }

    fn add(&self, cpu: usize, n: i64) {
        let words = On(&self.cpus, cpu);
        match self.mistake {
            NoRelease => words.add(if n < 0 { LOST } else { GAINED }, n.abs()),
            _ => add(&words, n),
        }
    }

    fn sum(&self) -> i64 {
        let words = On(&self.cpus, 0);
        match self.mistake {
            NoAcquire => {
                let lost = words.sum(LOST);
                words.sum(GAINED) - lost
            }
            OtherOrder => sum(&Early(words, Cell::new(None), GAINED), i64::MAX),
            _ => sum(&words, 0),
        }
    }

    fn sum_at_least(&self) -> i64 {
        let words = On(&self.cpus, 0);
        match self.mistake {
            NoAcquire => {
                let gained = words.sum(GAINED);
                gained - words.sum(LOST)
            }
            OtherOrder => sum_at_least(&Early(words, Cell::new(None), LOST)),
            _ => sum_at_least(&words),
        }
    }
}

/// A block of 2 that grows to 3, which migrates in between, and a sum.
fn a_sum_beside_a_resize(mistake: Mistake) {
    explore(move || {
        let model = Model::new(mistake, 2);
        let resize = thread::spawn({
            let model = Arc::clone(&model);
            move || {
                model.add(1, 3);
                model.add(0, -2);
            }
        });
        let found = model.sum();
        witness("a sum amid a resize", found == 5);
        assert!(found >= 2, "{mistake:?}: {found} without the block");
        resize.join().unwrap();
        assert_eq!(sum(&On(&model.cpus, 0), 0), 3);
    });
}

#[test]
fn loom_held_a_sum_has_a_resized_block() {
    a_sum_beside_a_resize(Nothing);
}

#[test]
#[should_panic(expected = "NoRelease: ")]
fn loom_held_finds_a_loss_before_its_gain() {
    a_sum_beside_a_resize(NoRelease);
}

#[test]
#[should_panic(expected = "NoAcquire: ")]
fn loom_held_finds_a_sum_without_order() {
    a_sum_beside_a_resize(NoAcquire);
}

#[test]
#[should_panic(expected = "OtherOrder: ")]
fn loom_held_finds_gains_that_are_summed_first() {
    a_sum_beside_a_resize(OtherOrder);
}

/// A block of 2 that stays, another that is freed by another thread than made it, and a sum.
fn a_sum_beside_a_free_elsewhere(mistake: Mistake) {
    explore(move || {
        let model = Model::new(mistake, 2);
        let [makes, frees] = [0, 1].map(|cpu| {
            let model = Arc::clone(&model);
            thread::spawn(move || {
                if cpu == 0 {
                    model.add(cpu, 3);
                    // Release: passes the block on.
                    model.is_passed.store(true, Ordering::Release);
                // Acquire: as above.
                } else if model.is_passed.load(Ordering::Acquire) {
                    model.add(cpu, -3);
                }
            })
        });
        let found = model.sum();
        witness("a sum with a block that is passed on", found == 5);
        assert!(found >= 2, "{mistake:?}: {found} without the block");
        [makes, frees].into_iter().for_each(|thread| thread.join().unwrap());
    });
}

#[test]
fn loom_held_a_sum_has_what_stays_beside_frees() {
    a_sum_beside_a_free_elsewhere(Nothing);
}

#[test]
#[should_panic(expected = "NoRelease: ")]
fn loom_held_finds_a_free_before_its_block() {
    a_sum_beside_a_free_elsewhere(NoRelease);
}

/// A block of 2 comes and goes twice, on either CPU, and a lower bound is asked for.
fn a_bound_beside_blocks(mistake: Mistake) {
    explore(move || {
        let model = Model::new(mistake, 0);
        let blocks = thread::spawn({
            let model = Arc::clone(&model);
            move || {
                for (cpu, n) in [(0, 2), (1, -2), (0, 2), (1, -2)] {
                    model.add(cpu, n);
                }
            }
        });
        let found = model.sum_at_least();
        witness("a bound while there is a block", found == 2);
        assert!(found <= 2, "{mistake:?}: {found} were never held");
        blocks.join().unwrap();
        assert_eq!(sum_at_least(&On(&model.cpus, 0)), 0);
    });
}

#[test]
fn loom_held_a_bound_is_never_too_large() {
    a_bound_beside_blocks(Nothing);
}

#[test]
#[should_panic(expected = "NoRelease: ")]
fn loom_held_finds_a_gain_before_a_loss() {
    a_bound_beside_blocks(NoRelease);
}

#[test]
#[should_panic(expected = "NoAcquire: ")]
fn loom_held_finds_a_bound_without_order() {
    a_bound_beside_blocks(NoAcquire);
}

#[test]
#[should_panic(expected = "OtherOrder: ")]
fn loom_held_finds_losses_that_are_summed_first() {
    a_bound_beside_blocks(OtherOrder);
}
