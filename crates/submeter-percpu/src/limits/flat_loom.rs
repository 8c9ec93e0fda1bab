//! Every interleaving of charges, releases and reads of one node. `tree_loom` covers what a tree of
//! one shares with larger trees.

use loom::sync::Arc;
use loom::thread;

use super::cpus_loom::{CPU, Cpus, Mistake, forget, sections, seen};
use super::flat::Flat;
use super::level::REST_MS;
use super::stock::Stock;
use crate::models::{either_first, witness};

/// The amount held at the start, as in a counter; everything below comes on top.
const ZERO: u64 = 1 << 63;
const LIMIT: u64 = 70;
/// The free part of the limit at first; two more lie in CPU 0's stock.
const FREE: u64 = 6;

type Model = Arc<Flat<Cpus>>;

/// Explores with two preemptions, which are enough to show each of the mistakes.
fn explore(mistake: Mistake, tick: u32, model: impl Fn(&Model) + Sync + Send + 'static) {
    crate::models::explore_briefly(2, move || {
        let cpus = Cpus::new(&sections(), mistake, tick);
        let flat = Arc::new(Flat::new(cpus, 4, 2, ZERO, ZERO + LIMIT));
        // Opens; refills; and takes the rest except `FREE`.
        for n in [2, 2, LIMIT - FREE - 4] {
            assert!(flat.try_charge(n).is_ok());
        }
        assert_eq!((charged(&flat), held(&flat)), (LIMIT - FREE, LIMIT - FREE + 2));
        forget();
        model(&flat);
    });
}

fn held(flat: &Model) -> u64 {
    flat.level.held() - ZERO
}

fn charged(flat: &Model) -> u64 {
    flat.charged() - ZERO
}

/// Makes charges on a CPU, one after the other; returns the amount granted.
fn charges(flat: &Model, cpu: usize, all: &'static [u64]) -> thread::JoinHandle<u64> {
    let flat = Arc::clone(flat);
    thread::spawn(move || {
        CPU.with(|own| own.set(cpu));
        all.iter().filter(|&&n| flat.try_charge(n).is_ok()).sum()
    })
}

/// Two concurrent folds give stock back once: one of them drains the leaf.
#[test]
fn loom_flat_two_folds_give_stock_back_once() {
    explore(Mistake::None, 0, |flat| {
        let both = [charges(flat, 0, &[FREE]), charges(flat, 1, &[FREE])];
        let granted: u64 = both.map(|charges| charges.join().unwrap()).iter().sum();
        witness("two folds at once", seen().waiting_max > 1);
        assert_eq!(granted, FREE, "one of two that do not both fit");
        assert_eq!((charged(flat), held(flat)), (LIMIT, LIMIT));
    });
}

/// One charge takes stock that the other's fold gives back.
fn a_fold_beside_a_charge_from_stock(flat: &Model) {
    let both = [charges(flat, 0, &[2]), charges(flat, 1, &[4, 2])];
    let granted: u64 = both.map(|charges| charges.join().unwrap()).iter().sum();
    witness("a fold that finds the stock taken", seen().taken > 0 && seen().closed > 0);
    witness("a fold that gives it back", seen().taken == 0 && seen().closed > 0);
    assert!(granted <= FREE, "the limit is exceeded by {}", granted - FREE);
    assert_eq!(granted, FREE, "something was refused that fits");
    assert_eq!((charged(flat), held(flat)), (LIMIT, LIMIT));
}

#[test]
fn loom_flat_a_fold_finds_all_stock_once() {
    explore(Mistake::None, 0, a_fold_beside_a_charge_from_stock);
}

/// Stock that is summed before the barrier is granted twice.
#[test]
#[should_panic(expected = "the limit is exceeded")]
fn loom_flat_finds_stock_summed_too_early() {
    explore(Mistake::SummedEarly, 0, a_fold_beside_a_charge_from_stock);
}

/// Two charges on one CPU, one of which may be in a handler on top of the other, want the same
/// stock.
fn two_on_one_cpu(flat: &Model) {
    let other = charges(flat, 0, &[2]);
    CPU.with(|own| own.set(0));
    let own = flat.leaf.stock.add(-2, flat.leaf.cap);
    // Whether taken from stock or not, it is covered by the amount held.
    other.join().unwrap();
    witness("the one that takes what there is", own);
    witness("the other that takes it", !own && seen().taken > 0);
    let (charged, held) = (charged(flat), held(flat));
    assert!(charged <= held, "{charged} of {held} held");
    assert_eq!(charged, LIMIT - FREE + 2 + if own { 2 } else { 0 });
}

#[test]
fn loom_flat_decision_and_update_are_atomic() {
    explore(Mistake::None, 0, two_on_one_cpu);
}

/// Finds that a charge between the check and the update takes stock that is not there.
#[test]
#[should_panic(expected = "held")]
fn loom_flat_finds_a_look_apart_from_its_update() {
    explore(Mistake::WordOutside, 0, two_on_one_cpu);
}

/// An opening that has reserved the amount in its words and is not over causes no refusal.
#[test]
fn loom_flat_refusal_beside_an_opening_is_exact() {
    explore(Mistake::None, REST_MS, |flat| {
        assert!(flat.try_charge(FREE + 1).is_err(), "one too many, so that it folds");
        flat.release(20);
        forget();
        let both = [charges(flat, 0, &[1, 1]), charges(flat, 1, &[FREE + 18])];
        let granted: u64 = both.map(|charges| charges.join().unwrap()).iter().sum();
        witness("an opening and a fold", seen().opened > 0 && seen().closed > 0);
        assert_eq!((granted, charged(flat)), (FREE + 20, LIMIT), "all of it fits");
    });
}

/// A limit lowered beside an opening and a charge from stock grants no stock: charges that begin
/// later are compared with it.
#[test]
fn loom_flat_a_lowered_limit_grants_no_stock() {
    explore(Mistake::None, REST_MS, |flat| {
        let other = charges(flat, 0, &[1, 1]);
        flat.set_limit(ZERO + 30);
        witness("a charge from stock beside it", seen().taken > 0);
        assert!(flat.try_charge(1).is_err(), "more than the limit is held");
        other.join().unwrap();
        assert!(flat.try_charge(1).is_err() && charged(flat) == held(flat), "no stock is left");
    });
}

/// A sum beside a fold subtracts stock once, whether it was already given back or not.
#[test]
fn loom_flat_a_sum_beside_a_fold_counts_no_stock() {
    explore(Mistake::None, 0, |flat| {
        let folds = charges(flat, 1, &[6]);
        let (held, width) = flat.held();
        let (low, high) = (held - width - ZERO, held - ZERO);
        assert!(low <= LIMIT && LIMIT - FREE <= high && (width > 0 || high <= LIMIT), "{high}");
        let sum = charged(flat);
        witness("a sum before the fold", sum == LIMIT - FREE && seen().closed == 0);
        witness("a sum in the middle of it", sum == LIMIT - FREE && seen().closed > 0);
        witness("a sum after it", sum == LIMIT);
        assert!([LIMIT - FREE, LIMIT].contains(&sum), "{sum}");
        assert_eq!(folds.join().unwrap(), 6, "it fits once stock was given back");
    });
}

/// A sum beside an opening and a refill counts the amount they reserve for stock once, and
/// subtracts it.
#[test]
fn loom_flat_sum_beside_opening_counts_no_stock() {
    explore(Mistake::None, REST_MS, |flat| {
        assert!(flat.try_charge(FREE + 1).is_err(), "one too many, so that it folds");
        flat.release(40);
        forget();
        // It opens, takes the rest of its word, and fills the word again.
        let opens = charges(flat, 0, &[1, 2, 1]);
        either_first();
        let before = LIMIT - FREE - 40;
        let sum = charged(flat);
        witness("a sum after an opening", seen().opened > 0 && seen().refilled == 0);
        witness("a sum after a refill", seen().refilled > 0);
        assert!([0, 1, 3, 4].map(|n| before + n).contains(&sum), "{sum}");
        assert_eq!((opens.join().unwrap(), charged(flat)), (4, before + 4));
    });
}

/// One thread opens; another takes from the stock that it finds, then reads the level.
fn a_look_after_a_charge_from_stock(look: fn(&Model)) {
    explore(Mistake::None, REST_MS, move |flat| {
        assert!(flat.try_charge(FREE + 1).is_err(), "one too many, so that it folds");
        let opens = {
            let flat = Arc::clone(flat);
            thread::spawn(move || {
                CPU.with(|own| own.set(1));
                flat.release(20);
                assert!(flat.try_charge(1).is_ok());
            })
        };
        let takes = {
            let flat = Arc::clone(flat);
            thread::spawn(move || {
                CPU.with(|own| own.set(0));
                let takes = flat.leaf.stock.add(-1, flat.leaf.cap);
                witness("one that takes from what was opened", takes);
                if takes {
                    look(&flat);
                }
            })
        };
        opens.join().unwrap();
        takes.join().unwrap();
    });
}

/// The minimum amount charged once one unit was taken from stock.
const TAKEN: u64 = LIMIT - FREE - 20 + 1;

#[test]
fn loom_flat_a_charge_from_stock_is_in_the_sum() {
    a_look_after_a_charge_from_stock(|flat| {
        let sum = charged(flat);
        assert!([TAKEN, TAKEN + 1].contains(&sum), "{sum}");
    });
}

#[test]
fn loom_flat_a_charge_from_stock_is_held() {
    a_look_after_a_charge_from_stock(|flat| {
        let high = flat.held().0 - ZERO;
        assert!(high >= TAKEN, "{high}");
    });
}

/// The mistake: a read that is not ordered after the opening.
#[test]
#[should_panic(expected = "as it was before the opening")]
fn loom_flat_finds_an_unordered_look() {
    a_look_after_a_charge_from_stock(|flat| {
        assert!(held(flat) >= TAKEN, "as it was before the opening");
    });
}

/// A charge after one from stock is not refused as it would be before the opening.
#[test]
fn loom_flat_no_refusal_as_before_the_opening() {
    a_look_after_a_charge_from_stock(|flat| {
        assert!(flat.try_charge(10).is_ok(), "refused what fits");
    });
}
