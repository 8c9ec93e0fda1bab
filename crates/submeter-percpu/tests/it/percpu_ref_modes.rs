//! Changes of mode and lives of the reference count, on every backend.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Weak};

use submeter_percpu::percpu_ref::{Options, Start};
use submeter_percpu::{Area, PercpuRef};

use crate::common::{migrate, on_every_backend, rounds, soon};
use crate::met::until_met;
use crate::stop::StopOnDrop;

/// Returns a count with `options` and the number of its releases.
fn counted(area: &Area, options: Options) -> (PercpuRef, Arc<AtomicU32>) {
    let released = Arc::new(AtomicU32::new(0));
    let counter = Arc::clone(&released);
    let release = move || {
        // Relaxed: tests look after a join or a wait.
        counter.fetch_add(1, Ordering::Relaxed);
    };
    (PercpuRef::with(options.area(area), release).expect("room"), released)
}

/// Relaxed: as in `counted`.
fn times(released: &AtomicU32) -> u32 {
    released.load(Ordering::Relaxed)
}

#[test]
fn percpu_ref_starts_as_told() {
    on_every_backend(|area| {
        let (percpu, _) = counted(area, Options::new());
        assert!(!percpu.is_zero() && !percpu.is_dying() && percpu.holders().references().is_none());
        let (atomic, released) = counted(area, Options::new().start(Start::Atomic));
        assert_eq!(atomic.holders().references(), Some(1));
        atomic.switch_to_percpu();
        assert_eq!(atomic.holders().references(), None);
        assert!(atomic.kill() && atomic.is_released() && times(&released) == 1);
        let (dead, released) = counted(area, Options::new().start(Start::Dead));
        assert!(dead.is_zero() && dead.is_dying() && dead.is_released());
        assert!(!dead.tryget() && !dead.tryget_live());
        assert!(dead.reinit() && dead.tryget_live());
        assert_eq!(dead.holders().references(), None, "per CPU from its first life on");
        dead.put();
        assert!(dead.kill() && times(&released) == 1);
    });
}

#[test]
fn percpu_ref_lives_again_and_again() {
    on_every_backend(|area| {
        let (reference, released) = counted(area, Options::new().allow_reinit());
        for life in 1..=rounds(50) {
            migrate(life as usize);
            reference.get_many(3);
            assert!(reference.tryget_live_many(2));
            migrate(life as usize + 1);
            reference.put_many(4);
            assert!(reference.kill());
            assert_eq!(reference.holders().references(), Some(1));
            assert_eq!(times(&released), life - 1);
            reference.put();
            assert_eq!(times(&released), life);
            assert!(reference.is_zero() && reference.is_released());
            assert!(reference.reinit());
            assert!(!reference.is_released() && !reference.is_zero() && !reference.is_dying());
        }
        reference.kill();
    });
}

#[test]
fn percpu_ref_resurrects_in_time_or_not_at_all() {
    on_every_backend(|area| {
        let (reference, released) = counted(area, Options::new().allow_reinit());
        reference.get();
        for _ in 0..3 {
            assert!(reference.kill() && !reference.tryget_live() && reference.is_dying());
            assert!(reference.resurrect() && reference.tryget_live() && !reference.is_dying());
            reference.put();
        }
        reference.put();
        assert_eq!(times(&released), 0, "the initial reference is back");
        assert!(reference.kill());
        assert_eq!(times(&released), 1);
        assert!(!reference.resurrect(), "too late");
    });
}

#[test]
fn percpu_ref_atomic_mode_is_sticky() {
    on_every_backend(|area| {
        let (reference, _) = counted(area, Options::new().allow_reinit());
        reference.get();
        reference.switch_to_atomic();
        reference.switch_to_atomic();
        assert_eq!(reference.holders().references(), Some(2));
        assert!(reference.kill() && reference.resurrect());
        assert_eq!(reference.holders().references(), Some(2), "sticky across a kill");
        reference.put();
        assert!(reference.kill() && reference.reinit());
        assert_eq!(reference.holders().references(), Some(1), "and a new life");
        assert!(reference.kill());
        reference.switch_to_percpu();
        assert!(reference.is_zero(), "a dead one stays as it is");
        assert!(reference.reinit());
        assert_eq!(reference.holders().references(), None, "but remembers");
        reference.kill();
    });
}

/// Several threads change modes in every way, amid gets and puts.
#[test]
fn percpu_ref_5_changes_of_mode_serialise_stress() {
    on_every_backend(|area| {
        let (reference, released) = counted(area, Options::new().allow_reinit());
        let stop = AtomicBool::new(false);
        // Relaxed: only ends the loops.
        let going = || !stop.load(Ordering::Relaxed);
        let (mut lives, mut resurrections) = (0, 0);
        std::thread::scope(|scope| {
            let _stopping = StopOnDrop(&stop);
            for thread in 0..2 {
                let (reference, going) = (&reference, &going);
                scope.spawn(move || {
                    let mut round = 0;
                    while going() {
                        round += 1;
                        migrate(thread + round / 64);
                        if reference.tryget_live() {
                            reference.get();
                            migrate(round);
                            reference.put_many(2);
                        }
                        if reference.tryget() {
                            reference.put();
                        }
                    }
                });
            }
            scope.spawn(|| {
                while going() {
                    reference.switch_to_atomic();
                    reference.switch_to_percpu();
                }
            });
            until_met(rounds(1_000), || {
                assert!(reference.kill());
                if reference.resurrect() {
                    resurrections += 1;
                } else {
                    reference.released_blocking(soon()).expect("users let go");
                    lives += 1;
                    assert_eq!(times(&released), lives, "once each life");
                    assert!(reference.reinit());
                }
                lives > 0 && resurrections > 0
            });
        });
        reference.switch_to_atomic();
        assert_eq!(reference.holders().references(), Some(1), "{lives} {resurrections}");
        assert!(reference.kill());
        assert_eq!(times(&released), lives + 1);
    });
}

/// Overlapping batches in opposite orders neither deadlock nor fold twice.
#[test]
fn percpu_ref_5_batches_serialise_stress() {
    on_every_backend(|area| {
        let (rounds, count) = if cfg!(miri) { (2, 8) } else { (100, 20) };
        let first = count * 3 / 4;
        until_met(rounds, || {
            // Changes of mode; and whether any came amid a batch.
            let (changes, met) = (AtomicU32::new(0), AtomicBool::new(false));
            let all: Vec<_> =
                (0..count).map(|_| counted(area, Options::new().allow_reinit())).collect();
            all.iter().for_each(|(reference, _)| reference.get());
            let refs = || all.iter().map(|(reference, _)| reference);
            let kill = |refs: &mut dyn Iterator<Item = &PercpuRef>| {
                // Relaxed, here and below: signs of progress, read after the joins.
                let before = changes.load(Ordering::Relaxed);
                let killed = PercpuRef::kill_many(refs);
                met.fetch_or(changes.load(Ordering::Relaxed) != before, Ordering::Relaxed);
                killed
            };
            let change = |to: fn(&PercpuRef), reference: &PercpuRef| {
                to(reference);
                changes.fetch_add(1, Ordering::Relaxed);
            };
            std::thread::scope(|scope| {
                let forth = scope.spawn(|| kill(&mut refs().take(first)));
                let back = scope.spawn(|| kill(&mut refs().skip(first).rev()));
                scope.spawn(|| refs().rev().for_each(|it| change(PercpuRef::switch_to_atomic, it)));
                scope.spawn(|| refs().for_each(|it| change(PercpuRef::switch_to_percpu, it)));
                assert_eq!(forth.join().expect("no panic") + back.join().expect("no panic"), count);
            });
            for (reference, released) in &all {
                assert_eq!(reference.holders().references(), Some(1));
                reference.put();
                assert_eq!(times(released), 1);
            }
            met.into_inner()
        });
    });
}

#[test]
fn percpu_ref_no_life_begins_amid_a_release() {
    on_every_backend(|area| {
        let options = Options::new().area(area).allow_reinit();
        let reference = Arc::new_cyclic(|this: &Weak<PercpuRef>| {
            let this = Weak::clone(this);
            let release = move || {
                let reference = this.upgrade().expect("kept below");
                assert!(reference.is_zero() && !reference.reinit());
            };
            PercpuRef::with(options, release).expect("room")
        });
        assert!(reference.kill() && reference.is_released());
        assert!(reference.reinit() && reference.tryget_live());
        reference.put();
        assert!(reference.kill());
    });
}

/// A count takes 8 bytes per CPU, or a line per row without sequences, plus the size that `api.rs`
/// asserts.
#[test]
fn percpu_ref_takes_one_word_or_one_line_a_cpu() {
    on_every_backend(|area| {
        let room = || (area.word().expect("room").first_word(), area.block(1).expect("room"));
        let ((word, block), _count, (next_word, next_block)) =
            (room(), counted(area, Options::new()), room());
        // `room` returns its word at once and keeps its lines.
        let (words, lines) = if area.rseq().is_some() { (1, 1) } else { (0, 2) };
        assert_eq!(next_word - word, words);
        assert_eq!(next_block.first_line() - block.first_line(), lines);
    });
}
