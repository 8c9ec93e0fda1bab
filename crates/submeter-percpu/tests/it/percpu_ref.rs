//! The numbered guarantees of the reference count, one test each, on every backend.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use submeter_percpu::percpu_ref::{Options, Start};
use submeter_percpu::{Area, PercpuRef};

use crate::common::{migrate, on_every_backend, rounds, soon};
use crate::met::until_met;
use crate::stop::StopOnDrop;

/// A count whose releases are counted.
struct Counted {
    reference: PercpuRef,
    released: Arc<AtomicU32>,
}

impl Counted {
    fn new(area: &Area, options: Options) -> Counted {
        let released = Arc::new(AtomicU32::new(0));
        let counter = Arc::clone(&released);
        let release = move || {
            // Relaxed: tests join, or wait for the release, before they look.
            counter.fetch_add(1, Ordering::Relaxed);
        };
        let reference = PercpuRef::with(options.area(area), release).expect("room");
        Counted { reference, released }
    }

    fn releases(&self) -> u32 {
        // Relaxed: as above.
        self.released.load(Ordering::Relaxed)
    }
}

#[test]
fn percpu_ref_1_release_runs_exactly_once_stress() {
    on_every_backend(|area| {
        let mut rounds_done = 0;
        // Under Miri, one of each kind.
        until_met(if cfg!(miri) { 2 } else { 200 }, || {
            let round = rounds_done;
            rounds_done += 1;
            let mut is_amid = false;
            let counted = Counted::new(area, Options::new());
            let reference = &counted.reference;
            // Each thread puts references that another thread took on another CPU.
            reference.get_many(4);
            std::thread::scope(|scope| {
                for thread in 0..4 {
                    let counted = &counted;
                    scope.spawn(move || {
                        migrate(thread + round as usize);
                        for _ in 0..rounds(300) {
                            counted.reference.get();
                            migrate_rarely(round);
                            counted.reference.put();
                        }
                        assert_eq!(counted.releases(), 0, "released while held");
                        migrate(thread + 1);
                        counted.reference.put();
                    });
                }
                if round % 2 == 0 {
                    assert!(reference.kill());
                    is_amid = !reference.is_released();
                }
            });
            if round % 2 == 1 {
                assert_eq!(counted.releases(), 0, "released before the kill");
                assert!(reference.kill());
            }
            assert!(reference.is_released() && reference.is_zero());
            assert_eq!(counted.releases(), 1);
            is_amid
        });
    });
}

fn migrate_rarely(round: u32) {
    thread_local!(static COUNT: std::cell::Cell<u32> = const { std::cell::Cell::new(0) });
    let count = COUNT.get();
    COUNT.set(count + 1);
    if count.is_multiple_of(97) {
        migrate((count / 97 + round) as usize);
    }
}

/// A fold does not reach zero early although references move between CPUs, so that a single CPU's
/// word is far from the sum.
#[test]
fn percpu_ref_2_a_fold_is_not_zero_early_stress() {
    on_every_backend(|area| {
        for round in 0..rounds(300) {
            let counted = Counted::new(area, Options::new());
            let counted = &counted;
            // Every word but one is negative, and the fold reads that one first or last.
            std::thread::scope(|scope| {
                scope.spawn(move || {
                    migrate(round as usize);
                    counted.reference.get_many(1001);
                });
            });
            std::thread::scope(|scope| {
                scope.spawn(move || {
                    migrate(round as usize + 1);
                    counted.reference.put_many(1000);
                    counted.reference.kill();
                    assert_eq!(counted.releases(), 0, "one is left");
                    assert!(!counted.reference.is_zero());
                    counted.reference.put();
                });
            });
            assert_eq!(counted.releases(), 1);
        }
    });
}

#[test]
fn percpu_ref_3_confirm_ends_tryget_live_stress() {
    on_every_backend(|area| {
        for start in [Start::Percpu, Start::Atomic] {
            until_met(rounds(100), || {
                let counted = Counted::new(area, Options::new().start(start));
                let (reference, confirmed) = (&counted.reference, AtomicBool::new(false));
                let (took_some, was_late) = (AtomicBool::new(false), AtomicBool::new(false));
                reference.get();
                std::thread::scope(|scope| {
                    for _ in 0..3 {
                        scope.spawn(|| {
                            loop {
                                // SeqCst: pairs with the store below; the test asserts the order of
                                // the two.
                                let late = confirmed.load(Ordering::SeqCst);
                                let took = reference.tryget_live();
                                assert!(!(late && took), "a tryget_live after the confirmation");
                                if !took {
                                    // Relaxed: read after the joins.
                                    was_late.fetch_or(late, Ordering::Relaxed);
                                    break;
                                }
                                reference.put();
                                // Relaxed: the loop below waits for it.
                                took_some.store(true, Ordering::Relaxed);
                            }
                        });
                    }
                    // Relaxed: this only makes the kill come among the gets.
                    while !took_some.load(Ordering::Relaxed) {
                        std::thread::yield_now();
                    }
                    reference.kill_and_confirm(|| {
                        assert!(!reference.is_zero());
                        // SeqCst: as above.
                        confirmed.store(true, Ordering::SeqCst);
                        assert!(!reference.tryget_live());
                    });
                });
                assert!(reference.tryget(), "tryget may");
                reference.put_many(2);
                assert!(!reference.tryget());
                assert_eq!(counted.releases(), 1);
                was_late.into_inner()
            });
        }
    });
}

/// A kill amid many gets and puts sees exactly the references that exist: an add to a word that was
/// already summed would be lost.
#[test]
fn percpu_ref_4_no_add_after_the_fold_stress() {
    on_every_backend(|area| {
        let counted = Counted::new(area, Options::new().allow_reinit());
        let (reference, stop) = (&counted.reference, AtomicBool::new(false));
        let (held, turns) = (AtomicU32::new(0), AtomicU32::new(0));
        std::thread::scope(|scope| {
            let _stopping = StopOnDrop(&stop);
            for thread in 0..3 {
                let (held, turns, stop) = (&held, &turns, &stop);
                scope.spawn(move || {
                    let mut mine = 0u32;
                    // Relaxed: only ends the loop.
                    while !stop.load(Ordering::Relaxed) {
                        migrate_rarely(thread);
                        if mine % 7 == 6 {
                            reference.put_many(mine);
                            mine = 0;
                        }
                        reference.get();
                        mine += 1;
                        // Relaxed: a sign of progress.
                        turns.fetch_add(1, Ordering::Relaxed);
                    }
                    // Relaxed: joined before it is read.
                    held.fetch_add(mine, Ordering::Relaxed);
                });
            }
            // Relaxed, both: they show that gets and puts continued in the meantime.
            until_met(rounds(2_000), || {
                let before = turns.load(Ordering::Relaxed);
                reference.switch_to_atomic();
                assert!(!reference.is_zero());
                reference.switch_to_percpu();
                before != 0 && turns.load(Ordering::Relaxed) != before
            });
        });
        reference.kill();
        let held = held.into_inner();
        assert_eq!(reference.holders().references(), Some(i64::from(held)));
        reference.put_many(held);
        assert_eq!(counted.releases(), 1);
    });
}

#[test]
fn an_excess_put_releases_nothing_again() {
    on_every_backend(|area| {
        let counted = Counted::new(area, Options::new());
        counted.reference.kill();
        counted.reference.put_many(0);
        assert_eq!(counted.releases(), 1);
    });
}

/// Writes before a put are visible in the release.
#[test]
fn percpu_ref_6_a_release_sees_writes_stress() {
    on_every_backend(|area| {
        until_met(rounds(300), || {
            let written: Arc<[AtomicU32; 4]> = Arc::default();
            let seen = Arc::clone(&written);
            let reference = PercpuRef::with(Options::new().area(area), move || {
                for word in seen.iter() {
                    // Relaxed: the test shows that only the puts order it.
                    assert_eq!(word.load(Ordering::Relaxed), 1);
                }
            })
            .expect("room");
            reference.get_many(4);
            // Whether a put releases it, and not the kill.
            let is_put = std::thread::scope(|scope| {
                for thread in 0..4 {
                    let (written, reference) = (&written, &reference);
                    scope.spawn(move || {
                        migrate(thread);
                        // Relaxed: as above.
                        written[thread].store(1, Ordering::Relaxed);
                        reference.put();
                    });
                }
                reference.kill();
                !reference.is_released()
            });
            reference.released_blocking(soon()).expect("every reference was put");
            is_put
        });
    });
}

#[test]
fn a_batch_kills_each_that_is_alive_once() {
    on_every_backend(|area| {
        let all: Vec<Counted> = (0..100).map(|_| Counted::new(area, Options::new())).collect();
        all.iter().step_by(2).for_each(|counted| counted.reference.get());
        all[4].reference.kill();
        let refs = || all.iter().map(|counted| &counted.reference);
        assert_eq!(PercpuRef::kill_many(refs()), 99);
        assert!(refs().all(PercpuRef::is_dying));
        assert!(refs().all(|reference| !reference.tryget_live()));
        for (number, counted) in all.iter().enumerate() {
            assert_eq!(counted.releases(), u32::from(number % 2 == 1));
            if number % 2 == 0 {
                counted.reference.put();
            }
        }
        assert!(all.iter().all(|counted| counted.releases() == 1));
    });
}
