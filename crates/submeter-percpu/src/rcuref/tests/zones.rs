//! The count: six numbered statements, and the edges of the zones.

use std::cell::RefCell;
use std::sync::Barrier;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;

use crate::rcuref::count::{Count, DEAD, MAXREF, NOREF, Notice, RELEASED, SATURATED, TOLERANCE};
use crate::rcuref::{RcuRef, pin};
use crate::witness::Witness;

const THREADS: u32 = 4;
/// Capacities shrink under Miri, which runs about a thousand times slower.
const ROUNDS: u64 = if cfg!(miri) { 8 } else { 2_000 };

fn unexpected(notice: Notice) {
    panic!("told of misuse where there was none: {notice:?}");
}

/// Collects the notices of a count.
#[derive(Default)]
struct Told(RefCell<Vec<Notice>>);

impl Told {
    fn note(&self) -> impl Fn(Notice) + '_ {
        |notice| self.0.borrow_mut().push(notice)
    }

    fn take(&self) -> Vec<Notice> {
        self.0.take()
    }
}

#[test]
fn rcuref_1_exactly_one_put_returns_true() {
    let count = RcuRef::with_refs(5);
    let guard = pin();
    let wins: Vec<bool> = (0..5).map(|_| count.put(&guard)).collect();
    assert_eq!(wins, [false, false, false, false, true]);
}

#[test]
fn rcuref_1_exactly_one_put_returns_true_stress() {
    one_put_wins(THREADS, |_, count| {
        let got = count.get(unexpected);
        assert!(got, "this thread holds a reference");
        let puts = [count.put(unexpected), count.put(unexpected)];
        puts.iter().map(|&won| u32::from(won)).sum()
    });
}

/// Runs `puts` on several threads at once, with each thread's number, on a count of `refs`
/// references. `puts` returns how many puts were the last one; exactly one must be, and not that of
/// the same thread each time: otherwise the threads do not meet.
fn one_put_wins(refs: u32, puts: impl Fn(u32, &Count) -> u32 + Sync) {
    let (witness, winners) = (Witness::new(), AtomicU32::new(0));
    for _ in (0..).take_while(|&n| witness.goes_on(n, ROUNDS)) {
        let (count, wins, start) = (Count::new(refs), AtomicU32::new(0), spinning(THREADS));
        thread::scope(|scope| {
            for thread in 0..THREADS {
                let (count, wins, start, puts) = (&count, &wins, &start, &puts);
                let winners = &winners;
                scope.spawn(move || {
                    start();
                    let won = puts(thread, count);
                    // Relaxed, both: read after the joins.
                    wins.fetch_add(won, Ordering::Relaxed);
                    winners.fetch_or(won.min(1) << thread, Ordering::Relaxed);
                });
            }
        });
        // Relaxed: after the joins.
        assert_eq!((wins.load(Ordering::Relaxed), count.word()), (1, DEAD));
        // Relaxed: as above.
        witness.met(winners.load(Ordering::Relaxed).count_ones() > 1);
    }
    witness.assert_met();
}

/// Returns a function that lets `threads` threads through together.
fn spinning(threads: u32) -> impl Fn() + Sync {
    let barrier = Barrier::new(threads as usize);
    move || {
        barrier.wait();
    }
}

#[test]
fn rcuref_2_no_get_succeeds_after_dead() {
    let count = RcuRef::new();
    assert!(!count.is_dead());
    assert!(count.put(&pin()));
    for _ in 0..3 {
        assert!(count.is_dead() && !count.get() && !count.get_ordered());
        assert_eq!(count.read(), 0);
    }
    assert_eq!(count.0.word(), DEAD, "failed gets leave no trace");
}

#[test]
fn rcuref_3_a_reviving_get_defeats_the_put() {
    // The put is between its two halves, with a get in the middle.
    let count = Count::new(1);
    assert!(count.decrement());
    assert_eq!((count.word(), count.read()), (NOREF, 0));
    assert!(!count.is_dead(), "nobody marked it yet");
    assert!(count.get(unexpected));
    assert!(!count.put_slow(unexpected), "revived: not this put's to free");
    assert_eq!(count.read(), 1);
    assert!(count.put(unexpected), "the later put wins");
}

#[test]
fn rcuref_3_of_two_slow_puts_one_wins() {
    let count = Count::new(1);
    assert!(count.decrement());
    assert!(count.get(unexpected));
    assert!(count.decrement());
    assert!(count.put_slow(unexpected));
    assert!(!count.put_slow(unexpected));
}

/// The slow path uses the result of its decrement.
#[test]
fn rcuref_4_slow_path_uses_its_decrement() {
    // The order of January 2025: two decrements reached NOREF, and the second putter continues only
    // after the first one marked the count dead. It must not regard itself as surplus, even while a
    // failing get is half done.
    let count = Count::new(1);
    assert!(count.decrement());
    assert!(count.get(unexpected));
    assert!(count.decrement());
    assert!(count.put_slow(unexpected));
    assert!(!count.get(unexpected));
    assert!(!count.put_slow(unexpected));
    assert_eq!(count.word(), DEAD);
}

#[test]
fn rcuref_5_zones_hold_with_2_pow_28_in_flight() {
    let told = Told::default();
    for word in [DEAD - TOLERANCE, DEAD - 1, DEAD, DEAD + 1, DEAD + TOLERANCE - 1] {
        let at = Count::at(word);
        assert!(at.is_dead() && at.read() == 0, "{word:#x}");
        assert!(!at.get(told.note()) && !at.get_ordered(told.note()), "{word:#x}");
        assert!(!at.put(told.note()), "{word:#x}");
        assert!(at.word() >= DEAD - 1 && at.word() <= DEAD + TOLERANCE, "{word:#x}");
    }
    told.take();
    for word in [SATURATED - TOLERANCE, SATURATED - 1, SATURATED, SATURATED + TOLERANCE] {
        for operation in [|at: &Count| at.get(unexpected), |at: &Count| !at.put(unexpected)] {
            let at = Count::at(word);
            assert!(!at.is_dead() && at.read() > MAXREF, "{word:#x}");
            // Below the tolerated drift it looks like a fresh overflow, so start inside it.
            let at = if word == SATURATED - TOLERANCE { Count::at(word + 1) } else { at };
            assert!(operation(&at), "{word:#x}");
            assert_eq!(at.word(), SATURATED, "{word:#x}");
        }
    }
}

#[test]
fn rcuref_6_saturated_never_frees() {
    let (count, told) = (Count::new(1 << 31), Told::default());
    assert_eq!((count.word(), count.read()), (MAXREF, 1 << 31));
    assert!(count.get(told.note()), "one reference too many, and it is granted");
    assert_eq!((told.take(), count.word()), (vec![Notice::Saturated], SATURATED));
    for _ in 0..100_u32 {
        assert!(!count.put(unexpected), "a pinned count never frees");
        assert!(count.get(unexpected) && count.get_ordered(unexpected));
        assert_eq!(count.word(), SATURATED, "told of once, and pinned");
    }
}

#[test]
fn rcuref_overflow_put_in_time_saturates_nothing() {
    let count = Count::at(MAXREF);
    assert!(count.get_ordered(|_| ()));
    let count = Count::at(MAXREF + 1);
    assert!(!count.put(unexpected), "back in the valid zone by itself");
    assert_eq!(count.word(), MAXREF);
}

#[test]
fn rcuref_excess_put_of_the_dead_is_told_of_once() {
    let (count, told) = (Count::new(1), Told::default());
    assert!(count.put(told.note()));
    assert!(!count.put(told.note()));
    assert_eq!((told.take(), count.word()), (vec![Notice::ExcessPuts(1)], DEAD));
    assert!(!count.get(told.note()) && told.take().is_empty());
}

#[test]
fn rcuref_hidden_excess_put_is_told_by_the_get() {
    let (count, told) = (Count::at(DEAD + 1), Told::default());
    assert!(!count.put(told.note()), "meets the increment of a get in flight");
    assert!(told.take().is_empty(), "which hides it for now");
    // The get continues after its increment: a whole get does the same there.
    let count = Count::at(count.word() - 1);
    assert!(!count.get(told.note()));
    assert_eq!((told.take(), count.word()), (vec![Notice::ExcessPuts(1)], DEAD));
}

#[test]
fn rcuref_excess_put_before_the_mark_leaks() {
    for excess in 1..4 {
        let (count, told) = (Count::new(1), Told::default());
        assert!((0..=excess).all(|_| count.decrement()));
        assert!((0..=excess).all(|_| !count.put_slow(told.note())));
        assert_eq!((told.take(), count.word()), (vec![Notice::ExcessPuts(excess)], DEAD));
    }
}

#[test]
fn rcuref_zones_begin_where_they_are_said_to() {
    let told = Told::default();
    for (drift, notices) in [(1, vec![]), (2, vec![Notice::Saturated])] {
        let count = Count::at(SATURATED - TOLERANCE - drift);
        assert!(count.get(told.note()));
        assert_eq!((told.take(), count.word()), (notices, SATURATED));
    }
    let count = Count::at(RELEASED - 1);
    assert!(!count.get(unexpected), "that reaches the zone of the dead");
    for word in [1, 2, MAXREF] {
        assert!(!Count::at(word).decrement(), "others hold it: {word:#x}");
    }
}

#[test]
fn rcuref_gets_of_both_kinds_count() {
    let (count, guard) = (RcuRef::new(), pin());
    assert!(count.get() && count.get_ordered());
    assert_eq!(count.read(), 3);
    assert_eq!([(); 3].map(|()| count.put(&guard)), [false, false, true]);
    assert!(count.is_dead() && !count.get() && !count.get_ordered());
}

#[test]
fn rcuref_excess_puts_stress() {
    let rounds = if cfg!(miri) { 4 } else { 500 };
    for _ in 0..rounds {
        let (count, told, start) = (Count::at(DEAD), AtomicU32::new(0), spinning(THREADS));
        thread::scope(|scope| {
            for thread in 0..THREADS {
                let (count, told, start) = (&count, &told, &start);
                scope.spawn(move || {
                    let notify = |notice| match notice {
                        // Relaxed: read after the joins.
                        Notice::ExcessPuts(more) => drop(told.fetch_add(more, Ordering::Relaxed)),
                        Notice::Saturated => unexpected(notice),
                    };
                    start();
                    for _ in 0..8 {
                        match thread % 2 {
                            0 => assert!(!count.get(notify)),
                            _ => assert!(!count.put(notify)),
                        }
                    }
                });
            }
        });
        // Relaxed: after the joins.
        assert_eq!((told.load(Ordering::Relaxed), count.word()), (8 * THREADS / 2, DEAD));
    }
}

#[test]
fn rcuref_revival_stress() {
    one_put_wins(1, |number, count| match number {
        0 => u32::from(count.put(unexpected)),
        _ => (0..4)
            .map(|_| {
                let got = count.get(unexpected);
                if number % 2 == 1 {
                    // Where all share a CPU, only now does another one come.
                    thread::yield_now();
                }
                u32::from(got && count.put(unexpected))
            })
            .sum(),
    });
}

/// A put of one of many does not touch the last reference or the other zones.
///
/// These need the guard: the last put, and any put in a zone other than the valid one.
#[test]
fn rcuref_put_leaves_other_zones_alone() {
    for (word, left) in [(1, 0), (7, 6), (MAXREF, MAXREF - 1)] {
        let count = Count::at(word);
        assert!(count.put_one_of_many(), "{word:#x}");
        assert_eq!(count.word(), left);
    }
    for word in [0, MAXREF + 1, SATURATED, RELEASED, DEAD, NOREF] {
        let count = Count::at(word);
        assert!(!count.put_one_of_many(), "{word:#x}");
        assert_eq!(count.word(), word);
    }
}

/// One put is the last, with guards and without, on several threads.
#[test]
fn rcuref_puts_of_both_kinds_end_it_once_stress() {
    one_put_wins(THREADS, |thread, count| {
        let done = thread % 2 == 0 && count.put_one_of_many();
        u32::from(!done && count.put(unexpected))
    });
}

#[test]
fn rcuref_starts_with_what_it_is_given() {
    assert_eq!(RcuRef::default().read(), 1);
    assert_eq!(RcuRef::with_refs(1 << 31).read(), 1 << 31);
    assert_eq!(size_of::<RcuRef>(), 4);
    assert_eq!(format!("{:?}", RcuRef::with_refs(3)), "RcuRef(3)");
    let dead = RcuRef(Count::at(RELEASED));
    assert_eq!(format!("{dead:?}"), "RcuRef(dead)");
    for refs in [0, (1 << 31) + 1] {
        assert!(std::panic::catch_unwind(|| RcuRef::with_refs(refs)).is_err(), "{refs}");
    }
}
