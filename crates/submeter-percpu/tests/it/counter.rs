//! The guarantees of a counter, on every backend: those that Linux documents for its own, and more.

use std::cmp::Ordering;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering::SeqCst};

use submeter_percpu::counter::{BATCH_DEFAULT, Setter};
use submeter_percpu::{Area, PercpuCounter};

use crate::common::{migrate, on_every_backend, rounds};
use crate::met::until_met;
use crate::stop::StopOnDrop;

/// Number of adds that each thread makes.
const ADDS: u32 = rounds(if cfg!(miri) { 2_000 } else { 40_000 });
const THREADS: usize = 4;

/// Runs `work` on a few threads that change CPU between rounds.
fn on_threads(work: impl Fn(usize) + Sync) {
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let work = &work;
            scope.spawn(move || {
                for round in 0..3 {
                    migrate(thread + round);
                    work(thread);
                }
            });
        }
    });
}

/// A read is within CPUs × batch of the truth, and a sum at rest is exact.
#[test]
fn reads_are_bounded_and_sums_exact_stress() {
    on_every_backend(|area| {
        let counter = PercpuCounter::with_batch(area, 64).expect("room");
        on_threads(|thread| {
            let signs = [5, -7, 3, -70];
            (0..ADDS).for_each(|_| counter.add(signs[thread]));
        });
        let truth = -69 * 3 * i64::from(ADDS);
        assert_eq!(counter.sum(), truth);
        let read = counter.read();
        assert!(read.low() <= truth && truth <= read.high(), "{read:?} for {truth}");
        assert!(read.low().abs_diff(read.high()) < area.data_rows() as u64 * 64);
        assert!((read.value() - truth).unsigned_abs() <= read.max_error());
    });
}

#[test]
fn read_is_within_64_cpus_batches_of_the_truth() {
    let cpus = if cfg!(miri) { 9 } else { 64 };
    let counter = on_simulated(cpus, 32);
    let mut truth = 0;
    for step in 0..i64::from(rounds(if cfg!(miri) { 4_000 } else { 20_000 })) {
        Area::simulate_cpu((step * 7 % cpus as i64) as u32);
        let n = step % 83 - 40;
        counter.add(n);
        truth += n;
        let read = counter.read();
        assert!(read.low() <= truth && truth <= read.high(), "{read:?} for {truth}");
    }
    assert_eq!(counter.sum(), truth);
}

fn on_simulated(cpus: usize, batch: u64) -> PercpuCounter {
    let area = Area::simulated(cpus).expect("address space");
    PercpuCounter::with_batch(&area, batch).expect("room")
}

/// Rows exist for all possible CPUs, so the counts of a CPU that went offline remain. Linux sums
/// the online CPUs and must fold the words of a CPU that goes offline; a concurrent sum used to
/// miss them.
#[test]
fn a_sum_counts_what_cpus_that_are_gone_counted() {
    let area = Area::simulated(4).expect("address space");
    let counter = PercpuCounter::with_batch(&area, 32).expect("room");
    for cpu in 0..4 {
        Area::simulate_cpu(cpu);
        counter.add(31);
    }
    // From here on, nothing runs on CPUs 2 and 3.
    Area::simulate_cpu(1);
    counter.add(1);
    assert_eq!((counter.sum(), counter.compare(124)), (125, Ordering::Greater));
    assert!(counter.read().low() <= 125 && counter.read().high() >= 125);
}

/// A read includes every add that returned, while others add.
#[test]
fn read_has_every_add_that_returned_stress() {
    on_every_backend(|area| {
        let (counter, stop) =
            (PercpuCounter::with_batch(area, 1).expect("room"), AtomicBool::new(false));
        let returned = AtomicI64::new(0);
        std::thread::scope(|scope| {
            let _stopping = StopOnDrop(&stop);
            for _ in 0..2 {
                scope.spawn(|| {
                    while !stop.load(SeqCst) {
                        counter.add(1);
                        returned.fetch_add(1, SeqCst);
                    }
                });
            }
            until_met(ADDS / 10, || {
                let before = returned.load(SeqCst);
                let (read, sum) = (counter.read().low(), counter.sum());
                assert!(before <= read && before <= sum, "{before} had returned: {read}, {sum}");
                before != 0 && returned.load(SeqCst) != before
            });
        });
        assert_eq!(counter.sum(), returned.into_inner());
    });
}

#[test]
fn a_sum_is_not_off_by_a_fold_stress() {
    on_every_backend(|area| {
        let counter = PercpuCounter::with_batch(area, 4).expect("room");
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let _stopping = StopOnDrop(&stop);
            scope.spawn(|| {
                // Every add crosses a boundary, in one direction or the other.
                while !stop.load(SeqCst) {
                    counter.add(4);
                    counter.add(-4);
                }
            });
            until_met(ADDS / 10, || {
                let sum = counter.sum();
                // The sum loads one word after another while the adder changes one at a time:
                // it may miss one step for each CPU that the adder moves to.
                assert!(sum % 4 == 0 && sum.abs() <= 4 * area.data_rows() as i64, "{sum}");
                sum != 0
            });
        });
        assert_eq!(counter.sum(), 0);
    });
}

/// A comparison never contradicts the truth at the boundaries of its window.
#[test]
fn compare_is_right_at_the_window_boundaries() {
    for cpus in if cfg!(miri) { [1, 5].as_slice() } else { &[1, 2, 5, 16] } {
        let counter = on_simulated(*cpus, 8);
        for step in 0..i64::from(rounds(1_000)) {
            Area::simulate_cpu(step as u32);
            counter.add(step % 29 - 11);
            let (truth, read) = (counter.sum(), counter.read());
            let window = [read.low(), read.high(), truth, read.value()];
            for rhs in window.into_iter().flat_map(|at| [at - 1, at, at + 1]) {
                assert_eq!(counter.compare(rhs), truth.cmp(&rhs), "{read:?} {truth} {rhs}");
            }
            assert_eq!(counter.compare(i64::MAX), Ordering::Less);
            assert_eq!(counter.compare(i64::MIN), Ordering::Greater);
        }
    }
}

#[test]
fn compare_and_sum_wrap_around_together() {
    on_every_backend(|area| {
        let counter = PercpuCounter::with_batch(area, 1 << 20).expect("room");
        counter.add(i64::MAX);
        assert_eq!(counter.compare(i64::MAX), Ordering::Equal);
        counter.add(1);
        assert_eq!(counter.sum(), i64::MIN);
        assert_eq!(counter.compare(0), Ordering::Less);
        assert_eq!(counter.compare(i64::MIN), Ordering::Equal);
    });
}

/// Returns a counter, and what sets it.
fn settable(area: &Area) -> (PercpuCounter, Setter) {
    (PercpuCounter::with_batch(area, 32).expect("room"), Setter::new())
}

#[test]
fn a_set_loses_no_add_that_races_with_it_stress() {
    on_every_backend(|area| {
        let (counter, setter) = settable(area);
        let set = |value| setter.set(value, || counter.sum(), |lacking| counter.add(lacking));
        let (done, stop) = (AtomicBool::new(false), AtomicBool::new(false));
        let added = AtomicI64::new(0);
        std::thread::scope(|scope| {
            let stopping = StopOnDrop(&stop);
            // Sets write multiples of 1000 and adds add 1, so the remainder is the amount added
            // after the last set.
            let adders: Vec<_> = (0..2)
                .map(|_| {
                    scope.spawn(|| {
                        let mut late = 0;
                        while !stop.load(SeqCst) {
                            let after = done.load(SeqCst);
                            counter.add(1);
                            added.fetch_add(1, SeqCst);
                            late += i64::from(after);
                        }
                        late
                    })
                })
                .collect();
            // Until a set has met adds, and some adds came after the last set.
            let mut values = [5, 77, -3].into_iter().cycle();
            until_met(rounds(60), || {
                let before = added.load(SeqCst);
                set(values.next().expect("again and again") * 1_000_000_000);
                before != 0 && added.load(SeqCst) != before
            });
            set(-3_000_000_000);
            done.store(true, SeqCst);
            let before = added.load(SeqCst);
            until_met(rounds(1_000), || added.load(SeqCst) > before + 2);
            drop(stopping);
            let late: i64 = adders.into_iter().map(|adder| adder.join().expect("no panic")).sum();
            let (over, most) = (counter.sum() + 3_000_000_000, added.load(SeqCst));
            assert!((late..=most).contains(&over), "{over} on top, {late} came after the last set");
        });
        set(i64::MIN);
        assert_eq!(counter.sum(), i64::MIN);
    });
}

/// Sets that race leave the value of one of them.
///
/// Two threads meet before each set, so that most sets race. A loom model has the proof.
#[test]
fn racing_sets_leave_one_value_stress() {
    on_every_backend(|area| {
        let (counter, setter) = settable(area);
        let (setting, raced) = (AtomicI64::new(0), AtomicBool::new(false));
        let set = |value| {
            let sum = || {
                // Where both share a CPU, only now does the other one come.
                std::thread::yield_now();
                counter.sum()
            };
            raced.fetch_or(setting.fetch_add(1, SeqCst) > 0, SeqCst);
            setter.set(value, sum, |lacking| counter.add(lacking));
            setting.fetch_sub(1, SeqCst);
        };
        let (arrived, wrong) = (AtomicI64::new(0), AtomicI64::new(0));
        let meet = |at: i64| {
            arrived.fetch_add(1, SeqCst);
            while arrived.load(SeqCst) < at {
                std::thread::yield_now();
            }
        };
        std::thread::scope(|scope| {
            for value in [100, 10_000] {
                let (counter, set, meet, wrong) = (&counter, &set, &meet, &wrong);
                scope.spawn(move || {
                    for round in 0..i64::from(rounds(if cfg!(miri) { 1_000 } else { 5_000 })) {
                        meet(4 * round + 2);
                        set(value);
                        meet(4 * round + 4);
                        // Asserted below: a panic here would leave the other thread waiting.
                        let neither = ![100, 10_000].contains(&counter.sum());
                        wrong.fetch_add(i64::from(neither), SeqCst);
                    }
                });
            }
        });
        assert_eq!(wrong.into_inner(), 0, "sums of neither 100 nor 10,000");
        assert!(raced.load(SeqCst), "no set began amid another");
    });
}

#[test]
fn many_counters_are_apart_and_come_back_as_zero() {
    for round in 0..3 {
        let counters = PercpuCounter::many(21).expect("room");
        assert_eq!(counters.len(), 21);
        for (n, counter) in counters.iter().enumerate() {
            assert_eq!((counter.sum(), counter.read().low()), (0, 0), "round {round}");
            counter.add(n as i64 * 101);
        }
        assert!((0..21).all(|n| counters[n].sum() == n as i64 * 101));
    }
    assert!(PercpuCounter::many(0).expect("nothing to allocate").is_empty());
    let few = PercpuCounter::many(3).expect("room");
    few[1].add(BATCH_DEFAULT as i64);
    assert_eq!([few[0].sum(), few[1].sum(), few[2].sum()], [0, 32, 0]);
    assert!(PercpuCounter::many(usize::MAX).is_err());
}
