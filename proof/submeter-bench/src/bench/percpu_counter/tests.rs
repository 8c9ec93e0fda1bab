//! Tests of the table's shape, and of the compared counters.

use std::thread;

use crossbeam_utils::CachePadded;
use parking_lot::Mutex;
use submeter_percpu::{Area, PercpuCounter};

use super::designs::{Atomic, Counter, LockFold};
use super::lock::{Lock, Spin};
use super::*;
use crate::row::Param;

const BATCH: u64 = 32;

#[test]
fn every_test_has_every_variant_on_every_path() {
    let plan = plan().expect("this process may run somewhere");
    let several = affinity().expect("this process may run somewhere").len() > 1;
    let mut cells = Vec::new();
    for group in plan.groups.iter().filter(|group| group[0].params.0[0].0 == "test") {
        let variants: Vec<&str> = group.iter().map(|cell| cell.variant).collect();
        assert_eq!(variants, ["lock_fold", "lock_fold_mutex", "submeter", "atomic"]);
        let params: Vec<String> =
            group[0].params.0.iter().map(|(name, value)| format!("{name}={value}")).collect();
        cells.push(params.join(" "));
    }
    let mut expected = vec![
        "test=1 path=slow mmap=no cpus=all",
        "test=1 path=slow mmap=yes cpus=all",
        "test=2 path=fast mmap=no cpus=1",
        "test=2 path=slow mmap=no cpus=1",
    ];
    if several {
        expected.push("test=3 path=fast mmap=no cpus=all");
        expected.push("test=3 path=slow mmap=no cpus=all");
    }
    assert_eq!(cells, expected);
}

#[test]
fn each_simulated_machine_has_each_way_to_read() {
    let mut notes = Vec::new();
    let groups = scaling::groups(0, &mut notes);
    if let [note] = &notes[..] {
        eprintln!("skipped: {note}; raise ulimit -v");
        return;
    }
    assert_eq!(groups.len(), scaling::OPERATIONS.len() * scaling::CPUS.len());
    for (group, cpus) in groups.iter().zip(scaling::CPUS.iter().cycle()) {
        for cell in group {
            assert_eq!(cell.params.0[1], ("simulated_cpus".into(), Param::number(*cpus as u64)));
        }
    }
}

#[test]
fn every_cell_gives_a_rate_and_ends_at_zero() {
    for cells in plan().expect("this process may run somewhere").groups {
        for mut cell in cells {
            // Asserts that everything that was added was also subtracted.
            let sample = (cell.measure)().expect("measured");
            assert_eq!(sample.readings.len(), 1, "{}", cell.variant);
            assert!(sample.readings[0].values[0] > 0.0, "{}: {sample:?}", cell.variant);
        }
    }
}

#[test]
fn one_cpu_alone_has_no_third_test() {
    let cpu = &affinity().expect("this process may run somewhere")[..1];
    let mut notes = Vec::new();
    let groups = document::groups(cpu, &mut notes).expect("words");
    assert_eq!(groups.len(), 4);
    assert!(notes.len() == 1 && notes[0].contains("test 3"), "{notes:?}");
}

#[test]
fn every_variant_counts_what_two_threads_add() {
    let percpu = PercpuCounter::with_batch(Area::common().expect("space"), BATCH).expect("a word");
    counts("submeter", &CachePadded::new(percpu));
    counts("atomic", &Atomic::default());
    counts("lock_fold", &LockFold::<Spin>::new(2, BATCH));
    counts("lock_fold_mutex", &LockFold::<Mutex<()>>::new(2, BATCH));
}

/// Adds below the batch, up to it and beyond, in both directions, while a third thread sums.
fn counts<C: Counter>(name: &str, counter: &C) {
    const ROUNDS: i64 = 2000;
    let steps = [1, 31, 32, -7, 100, -33, 5];
    let each: i64 = steps.iter().sum::<i64>() * ROUNDS;
    thread::scope(|scope| {
        for place in 0..2 {
            scope.spawn(move || {
                let add = counter.adder(place);
                for _ in 0..ROUNDS {
                    steps.iter().for_each(|&n| add(n));
                }
            });
        }
        // No step takes a thread's part below 0, or far above the sum of all steps.
        let possible = 0..=2 * (each + 100);
        scope.spawn(move || (0..100).for_each(|_| assert!(possible.contains(&counter.sum()))));
    });
    assert_eq!(counter.sum(), 2 * each, "{name}");
}

#[test]
fn a_slot_is_folded_when_it_reaches_the_batch() {
    let counter = LockFold::<Spin>::new(1, BATCH);
    let add = counter.adder(0);
    for (n, folds) in [(31, 0), (1, 1), (-31, 1), (-1, 2), (5, 2), (-32, 2), (64, 3)] {
        add(n);
        assert_eq!(counter.folds(), folds, "after {n}");
    }
    assert_eq!(counter.sum(), 37);
}

#[test]
fn locks_admit_one_thread_at_a_time() {
    fn excludes<L: Lock>() {
        let (lock, shared) = (L::default(), std::sync::atomic::AtomicI64::new(0));
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..5000 {
                        lock.hold(|| {
                            // Relaxed, both: the lock under test must order them.
                            let seen = shared.load(std::sync::atomic::Ordering::Relaxed);
                            // Relaxed: as above.
                            shared.store(seen + 1, std::sync::atomic::Ordering::Relaxed);
                        });
                    }
                });
            }
        });
        assert_eq!(shared.into_inner(), 20_000);
    }
    excludes::<Spin>();
    excludes::<Mutex<()>>();
}
