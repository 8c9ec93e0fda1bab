//! Every interleaving of charges, releases, refills, folds and openings: `RUSTFLAGS="--cfg loom"
//! cargo test --release`.
//!
//! A sequence is a critical section of its CPU: whole or not at all. Everything else is the real
//! code. Models of mistakes pass only while loom finds them.

use std::cell::Cell;

use loom::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, Ordering};
use loom::sync::{Arc, Mutex};
use loom::thread;

use super::{Limited, REST_MS, Stock};

loom::thread_local! {
    /// The CPU that the calling thread runs on.
    pub(super) static CPU: Cell<usize> = Cell::new(0);
}

/// What a model leaves out.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Mistake {
    None,
    /// A fold sums words that a sequence may still take from.
    NoBarrier,
    /// The gate is looked at before the sequence begins.
    GateOutside,
    /// So is the word.
    WordOutside,
    /// A fold gives back what the words held before the barrier.
    SummedEarly,
}

/// The CPUs, each of which runs one sequence at a time, on whatever word.
pub(super) type Sections = Arc<[Mutex<()>; 2]>;

pub(super) fn sections() -> Sections {
    Arc::new([Mutex::new(()), Mutex::new(())])
}

pub(super) struct Cpus {
    sections: Sections,
    words: [AtomicI64; 2],
    gate: AtomicBool,
    early: AtomicI64,
    mistake: Mistake,
    now: AtomicU32,
    /// How much time goes by between two looks at the clock.
    tick: u32,
}

impl Cpus {
    pub(super) fn new(sections: &Sections, mistake: Mistake, tick: u32) -> Cpus {
        Cpus {
            sections: Arc::clone(sections),
            words: [AtomicI64::new(0), AtomicI64::new(0)],
            gate: AtomicBool::new(false),
            early: AtomicI64::new(0),
            mistake,
            now: AtomicU32::new(0),
            tick,
        }
    }

    fn load(&self) -> i64 {
        // Acquire: as the real one.
        self.words.iter().map(|word| word.load(Ordering::Acquire)).sum()
    }
}

impl Stock for Cpus {
    fn add(&self, n: i64, cap: u64) -> bool {
        // Relaxed, both: a plain load of the sequence.
        let before = self.gate.load(Ordering::Relaxed);
        let cpu = CPU.with(Cell::get);
        let word = &self.words[cpu];
        // Relaxed, here and below: plain accesses by the only CPU that writes the word.
        let load = || word.load(Ordering::Relaxed);
        let looked = (self.mistake == Mistake::WordOutside).then(load);
        let _section = self.sections[cpu].lock().unwrap();
        let outside = self.mistake == Mistake::GateOutside;
        let open = if outside { before } else { self.gate.load(Ordering::Relaxed) };
        let done = open && looked.unwrap_or_else(load).wrapping_add(n).cast_unsigned() <= cap;
        if done {
            word.store(load() + n, Ordering::Relaxed);
        }
        done
    }

    fn add_again(&self, n: i64, cap: u64) -> bool {
        self.add(n, cap)
    }

    fn open(&self) {
        self.gate.store(true, Ordering::Release);
    }

    fn close(&self) {
        // Relaxed: the barrier orders it.
        self.gate.store(false, Ordering::Relaxed);
        if self.mistake == Mistake::SummedEarly {
            self.early.store(self.load(), Ordering::Relaxed);
        }
    }

    fn barrier(&self) {
        if self.mistake != Mistake::NoBarrier {
            self.sections.iter().for_each(|section| drop(section.lock().unwrap()));
        }
    }

    fn sum(&self) -> i64 {
        let early = self.mistake == Mistake::SummedEarly && !self.gate.load(Ordering::Relaxed);
        if early { self.early.load(Ordering::Relaxed) } else { self.load() }
    }

    fn now_ms(&self) -> u32 {
        self.now.fetch_add(self.tick, Ordering::Relaxed)
    }
}

const LIMIT: i64 = 70;
/// Of which this is free at first, and two more lie in CPU 0's stock.
const FREE: i64 = 6;

type Model = Arc<Limited<Cpus>>;

fn explore(mistake: Mistake, tick: u32, model: impl Fn(&Model) + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(move || {
        let cpus = Cpus::new(&sections(), mistake, tick);
        let limited = Arc::new(Limited::new(cpus, 4, 2));
        // Opens; refills; and takes what is left but for `FREE`.
        for n in [2, 2, LIMIT - FREE - 4] {
            assert!(limited.try_charge(n, LIMIT).is_ok());
        }
        assert_eq!((limited.charged(), limited.level.held()), (LIMIT - FREE, LIMIT - FREE + 2));
        model(&limited);
    });
}

/// Charges on a CPU, one after the other; returns what was granted.
fn charges(limited: &Model, cpu: usize, all: &'static [i64]) -> thread::JoinHandle<i64> {
    let limited = Arc::clone(limited);
    thread::spawn(move || {
        CPU.with(|own| own.set(cpu));
        all.iter().filter(|&&n| limited.try_charge(n, LIMIT).is_ok()).sum()
    })
}

/// One takes from stock what the other has a fold give back.
fn a_fold_beside_a_charge_from_stock(limited: &Model) {
    let both = [charges(limited, 0, &[2]), charges(limited, 1, &[4, 2])];
    let granted: i64 = both.map(|charges| charges.join().unwrap()).iter().sum();
    assert!(granted <= FREE, "the limit is exceeded by {}", granted - FREE);
    assert_eq!(granted, FREE, "something was refused that fits");
    assert_eq!((limited.charged(), limited.level.held()), (LIMIT, LIMIT));
}

#[test]
fn loom_limits_a_fold_finds_all_stock_and_none_twice() {
    explore(Mistake::None, 0, a_fold_beside_a_charge_from_stock);
}

#[test]
#[should_panic(expected = "the limit is exceeded")]
fn loom_limits_finds_that_a_fold_without_the_barrier_grants_stock_twice() {
    explore(Mistake::NoBarrier, 0, a_fold_beside_a_charge_from_stock);
}

#[test]
#[should_panic(expected = "the limit is exceeded")]
fn loom_limits_finds_that_a_gate_read_outside_the_sequence_grants_stock_twice() {
    explore(Mistake::GateOutside, 0, a_fold_beside_a_charge_from_stock);
}

#[test]
#[should_panic(expected = "the limit is exceeded")]
fn loom_limits_finds_that_stock_summed_before_the_barrier_is_granted_twice() {
    explore(Mistake::SummedEarly, 0, a_fold_beside_a_charge_from_stock);
}

/// Two on one CPU, one of which may be a handler on top of the other, want the same stock.
fn two_on_one_cpu(limited: &Model) {
    let other = charges(limited, 0, &[2]);
    CPU.with(|own| own.set(0));
    let own = limited.stock.add(-2, limited.cap);
    // Whether from stock or not, what is held covers it.
    other.join().unwrap();
    let charged = limited.charged();
    assert!(charged <= limited.level.held(), "{charged} of {} held", limited.level.held());
    assert_eq!(charged, LIMIT - FREE + 2 + if own { 2 } else { 0 });
}

#[test]
fn loom_limits_decision_and_update_are_atomic() {
    explore(Mistake::None, 0, two_on_one_cpu);
}

#[test]
#[should_panic(expected = "held")]
fn loom_limits_finds_that_a_charge_between_look_and_update_takes_what_is_not_there() {
    explore(Mistake::WordOutside, 0, two_on_one_cpu);
}

/// Somebody with a higher limit refills the word from which a charge with a lower one takes.
fn a_narrow_charge_beside_a_wide_one(try_charge: fn(&Model) -> bool) {
    explore(Mistake::None, 0, move |limited| {
        assert!([2, FREE - 2].iter().all(|&n| limited.try_charge(n, LIMIT).is_ok()));
        let wide = Arc::clone(limited);
        let wide = thread::spawn(move || assert!(wide.try_charge(2, 1000).is_ok()));
        assert!(!try_charge(limited), "granted beyond its own limit");
        wide.join().unwrap();
    });
}

#[test]
fn loom_limits_a_grant_is_within_its_own_limit() {
    a_narrow_charge_beside_a_wide_one(|limited| limited.try_charge(2, LIMIT).is_ok());
}

/// The mistake: no second look, after the charge.
#[test]
#[should_panic(expected = "granted beyond its own limit")]
fn loom_limits_finds_that_one_look_grants_beyond_its_own_limit() {
    a_narrow_charge_beside_a_wide_one(|limited| {
        limited.level.held() <= LIMIT && limited.stock.add(-2, limited.cap)
    });
}

/// Two folds at once: the second helps the first, and gives nothing back twice.
#[test]
fn loom_limits_two_folds_at_once_give_stock_back_once() {
    explore(Mistake::None, 0, |limited| {
        let both = [charges(limited, 0, &[5]), charges(limited, 1, &[5])];
        let granted: i64 = both.map(|charges| charges.join().unwrap()).iter().sum();
        assert_eq!(granted, 5, "one of two that do not both fit");
        assert_eq!((limited.charged(), limited.level.held()), (LIMIT - 1, LIMIT - 1));
    });
}

/// A fold beside a refill, which another thread's release makes room for; and openings after it.
#[test]
fn loom_limits_a_refill_and_an_opening_beside_a_fold_lose_no_room() {
    explore(Mistake::None, REST_MS, |limited| {
        let folds = charges(limited, 1, &[5]);
        limited.release(60);
        // On this CPU: opens again, or refills.
        let own: i64 = [3, 1].into_iter().filter(|&n| limited.try_charge(n, LIMIT).is_ok()).sum();
        let granted = own + folds.join().unwrap();
        assert_eq!(granted, 9, "all of it fits");
        assert_eq!(limited.charged(), LIMIT - FREE - 60 + granted);
        assert!((limited.level.held() - limited.charged()) as u64 <= limited.slack());
    });
}

/// An opening that has reserved what its words hold, and is not over, makes nobody be refused.
#[test]
fn loom_limits_a_refusal_beside_an_opening_is_exact() {
    explore(Mistake::None, REST_MS, |limited| {
        assert!(limited.try_charge(FREE + 1, LIMIT).is_err(), "one too many, so that it folds");
        limited.release(14);
        let both = [charges(limited, 0, &[1]), charges(limited, 1, &[FREE + 13])];
        let granted: i64 = both.map(|charges| charges.join().unwrap()).iter().sum();
        assert_eq!(granted, FREE + 14, "both fit");
    });
}

/// A sum beside a fold and a release never misses what was charged before.
#[test]
fn loom_limits_a_sum_beside_moves_of_stock_is_never_too_low() {
    explore(Mistake::None, 0, |limited| {
        let folds = charges(limited, 1, &[6]);
        let (held, width) = limited.held();
        let low = held.wrapping_sub_unsigned(width);
        assert!(low <= LIMIT && LIMIT - FREE <= held && (width > 0 || held <= LIMIT), "{held}");
        let sum = limited.charged();
        assert!((LIMIT - FREE..=LIMIT).contains(&sum), "{sum}");
        assert_eq!(folds.join().unwrap(), 6, "it fits once stock was given back");
    });
}
