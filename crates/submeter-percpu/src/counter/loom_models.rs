//! Every interleaving of overflows and folds: `RUSTFLAGS="--cfg loom" cargo test
//! --release`.
//!
//! A sequence is a critical section of its CPU: it happens whole or not at all. The shared parts
//! are the real ones. Models of mistakes pass only while loom finds them.

use std::sync::Arc;

use loom::sync::Mutex;
use loom::thread;

use super::cpu_words::{CpuWord, CpuWords};
use super::overflows::Overflows;
use super::setter::Setter;
use crate::models::{explore, witness};
use crate::overflow::batch_overflow;

/// The word of one CPU.
#[derive(Default)]
pub(super) struct Cpu(Mutex<i64>);

impl Cpu {
    pub(super) fn load(&self) -> i64 {
        *self.0.lock().unwrap()
    }

    /// Returns the overflow.
    pub(super) fn add(&self, n: i64, mask: u64) -> i64 {
        let mut word = self.0.lock().unwrap();
        let overflow = batch_overflow(*word, n, mask);
        *word += n;
        overflow
    }
}

/// The batch of the models is two, so that every second add crosses.
pub(super) const MASK: u64 = 1;

#[derive(Default)]
struct Counter {
    cpus: [Cpu; 2],
    overflows: Shared,
}

/// Overflows as they are without sequences. `in_flight_models` covers those with sequences.
struct Shared(Overflows<NoWords>);

impl Default for Shared {
    fn default() -> Shared {
        Shared(Overflows::new(None))
    }
}

enum NoWords {}

impl CpuWords for NoWords {
    fn add(&self, _: CpuWord, _: i64) -> bool {
        match *self {}
    }

    fn sum(&self, _: CpuWord) -> i64 {
        match *self {}
    }
}

impl Counter {
    fn add(&self, cpu: usize, n: i64) {
        self.overflows.0.post(self.cpus[cpu].add(n, MASK));
    }

    fn sum(&self) -> i64 {
        self.cpus.iter().map(Cpu::load).sum()
    }

    fn must_hold(&self, truth: i64) {
        assert_eq!(self.sum(), truth, "an add was lost");
        let read = self.overflows.0.read(|| 2 * MASK, MASK + 1);
        assert!(read.low() <= truth && truth <= read.high(), "{read:?} for {truth}");
    }
}

/// A sum that races with an overflow sees each add that returned, and none twice.
#[test]
fn loom_counter_sum_is_not_off_by_a_fold() {
    explore(|| {
        let counter = Arc::new(Counter::default());
        counter.add(0, 1);
        let adders = [0, 1].map(|cpu| {
            let counter = Arc::clone(&counter);
            thread::spawn(move || counter.add(cpu, 3))
        });
        let sum = counter.sum();
        witness("a sum that has one of two adds", sum == 4);
        assert!([1, 4, 7].contains(&sum), "{sum}");
        adders.into_iter().for_each(|adder| adder.join().unwrap());
        counter.must_hold(7);
    });
}

/// Two concurrent sets, over the sum of two CPUs.
fn two_sets(set: fn(&Setter, &Counter, i64)) {
    let shared = Arc::new((Setter::new(), Counter::default()));
    let other = thread::spawn({
        let shared = Arc::clone(&shared);
        move || set(&shared.0, &shared.1, 100)
    });
    set(&shared.0, &shared.1, 10_000);
    other.join().unwrap();
    let sum = shared.1.sum();
    witness("the one set last", sum == 100);
    witness("the other set last", sum == 10_000);
    assert!([100, 10_000].contains(&sum), "{sum}: neither of what was set");
}

/// Sets that race leave the value of one of them.
#[test]
fn loom_counter_racing_sets_leave_one_value() {
    explore(|| {
        two_sets(|setter, counter, to| setter.set(to, || counter.sum(), |n| counter.add(0, n)))
    });
}

/// The mistake: both add the difference to the same sum.
#[test]
#[should_panic(expected = "neither of what was set")]
fn loom_counter_finds_sets_without_a_lock() {
    explore(|| two_sets(|_, counter, to| counter.add(0, to - counter.sum())));
}
