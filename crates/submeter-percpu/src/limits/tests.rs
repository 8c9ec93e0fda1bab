//! Tests that need to look inside a tree of one node; `tests/it` covers the guarantees of a
//! counter.

use std::cell::Cell;
use std::sync::mpsc::RecvTimeoutError;
use std::time::Duration;

use submeter_sys::Backend;

use super::Inside;
use super::common::Common;
use super::flat::Flat;
use super::leaf::{Leaf, Phase};
use super::level::{LEFT_MS, Level, REST_MS, Refusal, Tight};
use super::path::Path;
use super::rows::StockRows;
use super::stock::Stock;
use super::tree;
use crate::storage::Area;
use crate::sync::atomic::{AtomicBool, AtomicU32, Ordering};

const LIMIT: u64 = 1 << 20;
/// The amount held at the start, as in a counter; the limit and the amounts held come on top.
const ZERO: u64 = 1 << 63;

fn on_each(test: impl Fn(Flat<StockRows>)) {
    let machine = submeter_sys::probe().backend;
    let mut backends = vec![machine, Backend::LockedByCpu, Backend::LockedByThread];
    // The first two are the same where there are no sequences.
    backends.dedup();
    for backend in backends {
        let area = Area::with_backend(backend, |_| 0).expect("address space");
        let stock = StockRows::new(&area).expect("room");
        test(Flat::new(stock, 100, area.data_rows() as u64, ZERO, ZERO + LIMIT));
    }
}

fn fits<S: Stock>(flat: &Flat<S>, n: u64) -> bool {
    flat.try_charge(n).is_ok()
}

fn held<S: Stock>(flat: &Flat<S>) -> u64 {
    flat.level.held() - ZERO
}

fn charged<S: Stock>(flat: &Flat<S>) -> u64 {
    flat.charged() - ZERO
}

/// Returns the amount held, and by how much it may exceed the amount charged.
fn bounds<S: Stock>(flat: &Flat<S>) -> (u64, u64) {
    let (held, slack) = flat.held();
    (held - ZERO, slack)
}

fn refused(held: u64, limit: u64) -> Result<(), Refusal> {
    Err(Refusal { held: ZERO + held, limit: ZERO + limit })
}

/// Opens it, and gives the running CPU some stock.
fn stocked<S: Stock>(flat: &Flat<S>) {
    assert!(fits(flat, 1) && fits(flat, 1));
    assert_eq!((flat.leaf.phase(), charged(flat)), (Phase::Open, 2));
    assert!(held(flat) > 2, "some of it lies in stock");
}

/// Makes all stock be given back, by a charge that never fits.
fn fold<S: Stock>(flat: &Flat<S>) {
    assert!(!fits(flat, LIMIT + 1));
    assert_eq!(flat.leaf.phase(), Phase::Closed);
}

#[test]
fn a_refusal_returns_stock_and_time_opens_again() {
    on_each(|flat| {
        stocked(&flat);
        assert!(!fits(&flat, LIMIT - 1));
        assert_eq!((flat.leaf.phase(), held(&flat)), (Phase::Closed, 2));
        assert!(fits(&flat, LIMIT - 2), "to the unit");
        flat.release(LIMIT);
        while flat.leaf.phase() == Phase::Closed {
            std::thread::sleep(Duration::from_millis(1));
            assert!(fits(&flat, 1));
            flat.release(1);
        }
        assert_eq!(charged(&flat), 0);
    });
}

#[test]
fn what_words_hold_is_reserved_before_they_open() {
    on_each(|flat| {
        stocked(&flat);
        let stock = held(&flat) - 2;
        fold(&flat);
        assert_eq!((held(&flat), flat.leaf.stock.sum().cast_unsigned()), (2, stock));
        while flat.leaf.phase() == Phase::Closed {
            std::thread::sleep(Duration::from_millis(1));
            assert!(fits(&flat, 1));
        }
        assert_eq!(held(&flat) - charged(&flat), stock);
    });
}

#[test]
fn a_fold_that_a_fork_left_half_done_is_finished() {
    on_each(|flat| {
        stocked(&flat);
        assert!(flat.leaf.close(1), "the second half is to follow");
        flat.leaf.lock.abandon();
        flat.visit.abandon();
        assert!(!fits(&flat, LIMIT - 1));
        assert_eq!((flat.leaf.phase(), held(&flat)), (Phase::Closed, 2));
        assert!(fits(&flat, LIMIT - 2) && !fits(&flat, 1));
    });
}

#[test]
fn a_forks_unfinished_move_keeps_nothing_waiting() {
    let (tell, told) = std::sync::mpsc::channel();
    // In a thread, so that the test fails where it would wait forever.
    let charging = std::thread::spawn(move || {
        on_each(|flat| {
            stocked(&flat);
            flat.leaf.lock.abandon();
            flat.visit.abandon();
            assert_eq!(charged(&flat), 2);
            flat.leaf.lock.abandon();
            flat.visit.abandon();
            tell.send(flat.try_charge(LIMIT - 1)).expect("somebody waits");
        });
    });
    // One for each backend; then the sender is gone.
    let mut answer = told.recv_timeout(Duration::from_secs(60));
    while let Ok(refusal) = answer {
        assert_eq!(refusal, refused(2, LIMIT));
        answer = told.recv_timeout(Duration::from_secs(60));
    }
    assert_eq!(answer, Err(RecvTimeoutError::Disconnected), "the refusal returns");
    charging.join().expect("each backend answers");
}

/// An opening that a fork left under way makes reads inexact only until a fold.
///
/// A fork in the middle of an opening leaves an opening that never ends.
#[test]
fn a_forks_unfinished_opening_ends_with_a_fold() {
    on_each(|flat| {
        flat.level.begin_opening();
        assert_eq!(bounds(&flat), (0, flat.slack()));
        assert_eq!(charged(&flat), 0);
        fold(&flat);
        assert_eq!(bounds(&flat), (0, 0));
    });
}

/// Rows with a simulated clock, whose barrier may take longer than any caller waits; the clock
/// advances while they wait.
struct Still(StockRows, AtomicU32, AtomicBool);

impl Stock for Still {
    fn add(&self, n: i64, cap: u64) -> bool {
        self.0.add(n, cap)
    }
    fn add_again(&self, n: i64, cap: u64) -> bool {
        self.0.add_again(n, cap)
    }
    fn open(&self) {
        self.0.open();
    }
    fn close(&self) {
        self.0.close();
    }
    fn barrier(&self) {
        self.0.barrier();
    }
    fn try_barrier(&self, patience: Duration) -> bool {
        // Relaxed: one thread.
        let late = self.2.load(Ordering::Relaxed);
        if late {
            // Relaxed: one thread.
            self.1.fetch_add(patience.as_millis() as u32, Ordering::Relaxed);
        }
        !late && self.0.try_barrier(patience)
    }
    fn sum(&self) -> i64 {
        self.0.sum()
    }
    fn now_ms(&self) -> u32 {
        // Relaxed: one thread.
        self.1.load(Ordering::Relaxed)
    }
}

/// A fold whose barrier takes too long is a refusal, and the next fold ends it.
#[test]
fn a_late_fold_refuses_and_is_ended_by_the_next() {
    on_each(|Flat { leaf, .. }| {
        let (rows, cap) = (leaf.slack() / leaf.cap, leaf.cap);
        let late = Still(leaf.stock, AtomicU32::new(0), AtomicBool::new(false));
        let flat = Flat::new(late, cap, rows, ZERO, ZERO + LIMIT);
        stocked(&flat);
        let is_late = |late| {
            // Relaxed: one thread.
            flat.leaf.stock.2.store(late, Ordering::Relaxed);
        };
        is_late(true);
        for _ in 0..2 {
            assert!(!fits(&flat, LIMIT - 2), "it would fit, but stock cannot be counted");
            assert_eq!(flat.leaf.phase(), Phase::Closing);
        }
        assert!(fits(&flat, 1), "beside the stock");
        is_late(false);
        assert!(!fits(&flat, LIMIT - 2) && fits(&flat, LIMIT - 3), "to the unit");
        assert_eq!((flat.leaf.phase(), held(&flat)), (Phase::Closed, LIMIT));
    });
}

/// A fold that began after the clock was read is not 49 days old.
#[test]
fn a_later_start_is_not_49_days_old() {
    on_each(|flat| {
        let level = &flat.level;
        level.turn_over_at(level.tight(), 1001);
        assert!(!level.was_left(1000, || 1002), "a fold that began between the two");
        assert!(level.was_left(1001 + LEFT_MS, || 1001 + LEFT_MS));
        assert!(!level.was_left(1001 + LEFT_MS, || 1001 + LEFT_MS), "it is taken up");
        level.turn_over_at(level.tight(), 2000);
        let drained = level.tight();
        level.loosen(1, 1999, || 2001);
        assert_eq!(level.tight(), drained, "it has not rested");
        level.loosen(1, 2000 + REST_MS, || 2000 + REST_MS);
        assert_ne!(level.tight(), drained);
    });
}

/// A fold whose barrier takes too long is ended in time although nothing is refused any longer.
#[test]
fn a_late_fold_is_ended_without_a_refusal() {
    on_each(|Flat { leaf, .. }| {
        let (rows, cap) = (leaf.slack() / leaf.cap, leaf.cap);
        let late = Still(leaf.stock, AtomicU32::new(u32::MAX - 7), AtomicBool::new(true));
        let flat = Flat::new(late, cap, rows, ZERO, ZERO + LIMIT);
        stocked(&flat);
        assert!(!fits(&flat, LIMIT - 2), "the fold is given up");
        let waited = || flat.leaf.stock.now_ms().wrapping_sub(u32::MAX - 7);
        assert_eq!(waited(), LEFT_MS / 2, "for its patience");
        let after = |ms| {
            // Relaxed: one thread.
            flat.leaf.stock.1.fetch_add(ms, Ordering::Relaxed);
            assert!(fits(&flat, 1));
            flat.release(1);
            flat.leaf.phase()
        };
        assert_eq!(after(LEFT_MS / 2 - 1), Phase::Closing, "it may go on still");
        let before = waited();
        assert_eq!(after(1), Phase::Closing, "the barrier is late again");
        assert!(waited() - before <= 51, "it was granted: {} ms", waited() - before);
        // Relaxed: one thread.
        flat.leaf.stock.1.fetch_sub(waited() - before - 1, Ordering::Relaxed);
        // Relaxed: one thread.
        flat.leaf.stock.2.store(false, Ordering::Relaxed);
        assert_eq!(after(LEFT_MS - 1), Phase::Closing, "not tried by each charge");
        assert_eq!(after(1), Phase::Closed);
        assert_eq!(after(REST_MS), Phase::Open);
    });
}

/// A counter that has waiters, and the state of its level when they learned of a charge.
struct Awaited(Flat<StockRows>, Cell<Option<Tight>>);

impl Path for Awaited {
    type Stock = StockRows;
    fn leaf(&self) -> &Leaf<StockRows> {
        &self.0.leaf
    }
    fn level(&self) -> &Level {
        &self.0.level
    }
    fn up(&self) -> impl Iterator<Item = &Self> + Clone {
        std::iter::once(self)
    }
    fn below(&self, _: &Level, visit: &mut dyn FnMut(&mut dyn Iterator<Item = &Self>)) -> bool {
        visit(&mut std::iter::once(self));
        true
    }
    fn join(&self, _: &mut dyn FnMut() -> bool) {}
    fn common(&self) -> &Common {
        self.0.common()
    }
    fn serve(&self) {}
    fn reconsider(&self) {}
    fn note_charge(&self) {
        self.1.set(Some(Level::state(self.0.level.tight())));
    }
}

/// Waiters learn of a charge before an unfinished fold is resumed.
#[test]
fn waits_are_told_of_a_charge_before_an_old_fold() {
    let area = Area::with_backend(Backend::LockedByThread, |_| 0).expect("address space");
    let stock = StockRows::new(&area).expect("room");
    let awaited = Awaited(Flat::new(stock, 100, 1, 0, LIMIT), Cell::new(None));
    let level = awaited.level();
    awaited.common().await_room(level);
    level.turn_over_at(level.tight(), awaited.leaf().stock.now_ms().wrapping_sub(LEFT_MS));
    tree::try_charge(&awaited, 1).expect("it fits");
    assert_eq!(awaited.1.get(), Some(Tight::Tightening), "first");
    // Loose if this took longer than a level stays exact after a fold.
    let after = Level::state(level.tight());
    assert!(matches!(after, Tight::Drained | Tight::Loose), "then it is taken up: {after:?}");
    awaited.common().end_await(level);
}

#[test]
fn it_stays_exact_for_10_ms_after_a_fold() {
    on_each(|Flat { leaf, .. }| {
        let (rows, cap) = (leaf.slack() / leaf.cap, leaf.cap);
        let still = Still(leaf.stock, AtomicU32::new(u32::MAX - 3), AtomicBool::new(false));
        let flat = Flat::new(still, cap, rows, ZERO, ZERO + LIMIT);
        stocked(&flat);
        fold(&flat);
        for (tick, phase) in [(9, Phase::Closed), (1, Phase::Open)] {
            // Relaxed: one thread.
            flat.leaf.stock.1.fetch_add(tick, Ordering::Relaxed);
            assert!(fits(&flat, 1));
            flat.release(1);
            assert_eq!(flat.leaf.phase(), phase);
        }
    });
}

#[test]
fn it_opens_with_room_for_all_stock_twice() {
    on_each(|flat| {
        let twice = 2 * flat.slack();
        assert!(fits(&flat, LIMIT - twice + 1));
        assert_eq!(flat.leaf.phase(), Phase::Closed, "one less");
        flat.release(2);
        assert!(fits(&flat, 1));
        assert_eq!(flat.leaf.phase(), Phase::Open);
    });
}

#[test]
fn cpus_move_a_sixteenth_of_the_room_at_once() {
    on_each(|flat| {
        stocked(&flat);
        let rows = flat.slack() / flat.leaf.cap;
        let (n, room) = (flat.leaf.surplus(), 16 * rows * 10);
        assert!(fits(&flat, LIMIT - held(&flat) - n - room));
        let before = held(&flat);
        // Until the word has too little.
        while held(&flat) == before {
            assert!(fits(&flat, n));
        }
        assert_eq!(held(&flat) - before, n + 10);
    });
}

/// No stock is moved for a charge larger than the amount moved at once.
///
/// The stock moved at once would not suffice for the next charge, and would keep the word from
/// taking the release.
#[test]
fn nothing_is_moved_for_a_large_charge() {
    on_each(|flat| {
        stocked(&flat);
        let n = flat.leaf.surplus();
        for n in [n + 1, flat.leaf.cap, flat.leaf.cap + 1] {
            let before = held(&flat);
            let mut charged = 0;
            while held(&flat) == before {
                assert!(fits(&flat, n));
                charged += n;
            }
            assert_eq!(held(&flat) - before, n, "of {charged}");
            flat.release(charged);
        }
        assert!(fits(&flat, n));
        flat.release(n);
        let stock = || held(&flat) - charged(&flat);
        let (before, much) = (stock(), 10 * flat.leaf.cap);
        assert!(before >= n && fits(&flat, much));
        flat.release(much);
        assert_eq!(stock(), before, "it keeps what others may need");
    });
}

#[test]
fn held_is_charged_while_there_is_no_stock() {
    on_each(|flat| {
        assert_eq!(bounds(&flat), (0, 0), "it starts closed");
        stocked(&flat);
        assert_eq!(bounds(&flat), (held(&flat), flat.slack()));
        fold(&flat);
        assert_eq!(bounds(&flat), (2, 0));
        let moving = flat.leaf.lock.lock();
        assert_eq!(flat.try_charge(LIMIT - 1), refused(2, LIMIT), "without waiting");
        drop(moving);
    });
}

#[test]
fn nothing_waits_below_a_handler_in_a_move() {
    on_each(|flat| {
        stocked(&flat);
        let (inside, moving) = (Inside::new(), flat.leaf.lock.lock());
        assert!(inside.is_some());
        assert!(!fits(&flat, LIMIT - 2), "it would fit, but stock cannot be moved");
        flat.release(1);
        assert!(fits(&flat, 1));
        assert_eq!(charged(&flat), held(&flat), "stock counts");
        drop(moving);
        assert_eq!(charged(&flat), 2, "the move is of something else");
        drop(inside);
        assert!(fits(&flat, LIMIT - 2));
        assert_eq!(charged(&flat), LIMIT);
    });
}

#[test]
fn a_limit_below_the_value_takes_stock_back() {
    on_each(|flat| {
        stocked(&flat);
        flat.set_limit(ZERO + 1);
        assert_eq!((flat.leaf.phase(), held(&flat)), (Phase::Closed, 2));
        assert_eq!((flat.limit(), flat.try_charge(1)), (ZERO + 1, refused(2, 1)));
        flat.set_limit(ZERO + 3);
        assert!(fits(&flat, 1) && !fits(&flat, 1));
    });
}
