//! Random operations on simulated CPUs, checked against naive models of the counters.

use std::collections::HashMap;

use proptest::prelude::*;
use submeter_percpu::{Area, LimitedCounter, PercpuCounter};

const CPUS: u32 = 6;
const CASES: u32 = if cfg!(miri) { 1 } else { 400 };
/// Maximum number of steps in one case.
const STEPS: usize = if cfg!(miri) { 12 } else { 120 };

#[derive(Clone, Debug)]
enum Step {
    Add {
        cpu: u32,
        n: i64,
    },
    Compare {
        off: i64,
    },
    CompareTo {
        rhs: i64,
    },
    /// Drops the counter and makes another one in its place.
    Renew,
}

/// Yields mostly small numbers, and some at the extremes.
fn number() -> impl Strategy<Value = i64> {
    prop_oneof![
        8 => -40i64..40,
        3 => -5000i64..5000,
        1 => any::<i64>(),
        1 => prop::sample::select(vec![i64::MIN, i64::MAX, 0, 1 << 32, -(1 << 32)]),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let cpu = || 0..CPUS;
    prop_oneof![
        8 => (cpu(), number()).prop_map(|(cpu, n)| Step::Add { cpu, n }),
        2 => (-300i64..300).prop_map(|off| Step::Compare { off }),
        1 => number().prop_map(|rhs| Step::CompareTo { rhs }),
        1 => Just(Step::Renew),
    ]
}

/// The whole state of a counter: its value, and the amounts that each CPU has added but not yet
/// posted.
struct Naive {
    batch: u64,
    value: i64,
    words: HashMap<u32, i64>,
    posted: i64,
}

impl Naive {
    fn new(batch: u64) -> Naive {
        Naive { batch, value: 0, words: HashMap::new(), posted: 0 }
    }

    fn add(&mut self, cpu: u32, n: i64) {
        self.value = self.value.wrapping_add(n);
        let whole = |word: i64| word.div_euclid(self.batch as i64).wrapping_mul(self.batch as i64);
        let word = self.words.entry(cpu).or_default();
        let before = whole(*word);
        *word = word.wrapping_add(n);
        let overflow = whole(*word).wrapping_sub(before);
        self.posted = self.posted.wrapping_add(overflow);
    }
}

fn make(area: &Area, batch: u64) -> PercpuCounter {
    PercpuCounter::with_batch(area, batch).expect("room")
}

fn check(counter: &PercpuCounter, naive: &Naive) {
    assert_eq!(counter.sum(), naive.value);
    let read = counter.read();
    // Modulo 2^64, like the value.
    let over = naive.value.wrapping_sub(read.low()) as u64;
    let width = read.high().wrapping_sub(read.low()) as u64;
    assert!(over <= width, "{} is not in {read:?}", naive.value);
    assert!(naive.value.wrapping_sub(read.value()).unsigned_abs() <= read.max_error());
    assert_eq!(read.low(), naive.posted);
    assert!(width <= u64::from(CPUS) * (naive.batch - 1));
}

fn run(batch: u64, steps: Vec<Step>) {
    let area = Area::simulated(CPUS as usize).expect("address space");
    let (mut counter, mut naive) = (make(&area, batch), Naive::new(batch));
    for step in steps {
        match step {
            Step::Add { cpu, n } => {
                Area::simulate_cpu(cpu);
                counter.add(n);
                naive.add(cpu, n);
            }
            Step::Compare { off } => {
                let rhs = naive.value.saturating_add(off);
                assert_eq!(counter.compare(rhs), naive.value.cmp(&rhs));
            }
            Step::CompareTo { rhs } => assert_eq!(counter.compare(rhs), naive.value.cmp(&rhs)),
            Step::Renew => {
                drop(counter);
                (counter, naive) = (make(&area, batch), Naive::new(batch));
            }
        }
        check(&counter, &naive);
    }
}

#[derive(Clone, Debug)]
struct Charge {
    cpu: u32,
    n: i64,
    limit: i64,
}

fn charge() -> impl Strategy<Value = Charge> {
    let n = prop_oneof![6 => 1i64..70, 1 => 1i64..i64::MAX, 1 => Just(i64::MAX)];
    let limit =
        prop_oneof![6 => Just(1000i64), 1 => 0i64..2000, 1 => Just(i64::MAX), 1 => Just(-1)];
    (0..CPUS, n, limit).prop_map(|(cpu, n, limit)| Charge { cpu, n, limit })
}

/// Runs charges, each after a change of the limit, or with one limit for all.
fn run_limited(batch: u64, one: Option<i64>, charges: Vec<(Charge, bool)>) {
    let area = Area::simulated(CPUS as usize).expect("address space");
    let first = one.unwrap_or(i64::MIN);
    let counter = LimitedCounter::with_batch(&area, batch, first).expect("room");
    let (mut value, mut held) = (0i128, Vec::new());
    // Charges and stock stay within the limits of the grants, whatever the words hold.
    let mut most = counter.slack() as i64;
    for (Charge { cpu, n, limit }, keep) in charges {
        let limit = one.unwrap_or(limit);
        Area::simulate_cpu(cpu);
        if counter.limit() != limit {
            counter.set_limit(limit);
        }
        let granted = counter.try_add(n).is_ok();
        let after = value + i128::from(n);
        // Exact to the unit, in both directions.
        assert_eq!(granted, after <= i128::from(limit), "{after} of {limit}");
        if granted {
            value = after;
            held.push(n);
            most = most.max(limit);
        }
        if !keep && let Some(n) = held.pop() {
            counter.try_add(-n).expect("never refused");
            value -= i128::from(n);
        }
        assert_eq!(i128::from(counter.sum()), value);
        let read = counter.read();
        assert!(i128::from(read.low()) <= value && value <= i128::from(read.high()));
        assert!(read.high() <= most, "{read:?} of {most}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: CASES, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_counter_agrees_with_the_naive_one(
        batch in prop::sample::select(vec![1u64, 8, 32, 1 << 12, 1 << 40]),
        steps in prop::collection::vec(step(), 1..STEPS / 2),
    ) {
        run(batch, steps);
    }

    #[test]
    fn a_limited_counter_agrees_with_the_naive_one(
        batch in prop::sample::select(vec![1u64, 4, 16, 32, 1 << 20]),
        one in prop::option::of(400i64..1500),
        charges in prop::collection::vec((charge(), prop::bool::weighted(0.8)), 1..STEPS),
    ) {
        run_limited(batch, one, charges);
    }
}
