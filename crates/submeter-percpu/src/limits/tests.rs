//! What needs a look inside; `tests/it` has what a counter promises.

use std::time::Duration;

use submeter_sys::Backend;

use super::{Limited, Phase, Stock, StockRows};
use crate::storage::Area;
use crate::sync::atomic::{AtomicU32, Ordering};

fn on_each(test: impl Fn(Limited<StockRows>)) {
    let backends = [submeter_sys::probe().backend, Backend::LockedByCpu, Backend::LockedByThread];
    for backend in backends {
        let area = Area::with_backend(backend, |_| 0).expect("address space");
        let stock = StockRows::new(&area).expect("room");
        test(Limited::new(stock, 100, area.data_rows() as u64));
    }
}

const LIMIT: i64 = 1 << 20;

fn fits<S: Stock>(limited: &Limited<S>, n: i64, limit: i64) -> bool {
    limited.try_charge(n, limit).is_ok()
}

/// Opens it, and lets the running CPU have some stock.
fn stocked<S: Stock>(limited: &Limited<S>) {
    assert!(fits(limited, 1, LIMIT) && fits(limited, 1, LIMIT));
    assert_eq!((limited.turn().phase(), limited.charged()), (Phase::Open, 2));
    assert!(limited.level.held() > 2, "some of it lies in stock");
}

#[test]
fn a_refusal_gives_all_stock_back_and_time_opens_again() {
    on_each(|limited| {
        stocked(&limited);
        assert!(!fits(&limited, LIMIT - 1, LIMIT));
        assert_eq!((limited.turn().phase(), limited.level.held()), (Phase::Closed, 2));
        assert!(fits(&limited, LIMIT - 2, LIMIT), "to the unit");
        limited.release(LIMIT);
        while limited.turn().phase() == Phase::Closed {
            assert!(fits(&limited, 1, LIMIT));
            limited.release(1);
        }
        assert_eq!(limited.charged(), 0);
    });
}

#[test]
fn what_lies_in_words_is_reserved_before_they_open() {
    on_each(|limited| {
        stocked(&limited);
        let stock = limited.level.held() - 2;
        assert!(limited.fold());
        assert_eq!((limited.level.held(), limited.stock_of_words()), (2, stock));
        while limited.turn().phase() == Phase::Closed {
            assert!(fits(&limited, 1, LIMIT));
        }
        assert_eq!(limited.level.held() - limited.charged(), stock);
    });
}

#[test]
fn a_fold_that_a_fork_left_half_done_is_finished() {
    on_each(|limited| {
        stocked(&limited);
        limited.stock_closed();
        limited.lock.abandon();
        assert!(!fits(&limited, LIMIT - 1, LIMIT));
        assert_eq!((limited.turn().phase(), limited.level.held()), (Phase::Closed, 2));
        assert!(fits(&limited, LIMIT - 2, LIMIT) && !fits(&limited, 1, LIMIT));
    });
}

#[test]
fn a_move_that_a_fork_left_under_way_keeps_no_refusal_waiting() {
    let (tell, told) = std::sync::mpsc::channel();
    // In a thread, so that it fails where it would wait for ever.
    std::thread::spawn(move || {
        on_each(|limited| {
            assert!(fits(&limited, LIMIT, LIMIT));
            limited.lock.abandon();
            // Relaxed: one thread.
            limited.moves.fetch_or(1, Ordering::Relaxed);
            assert_eq!(limited.held(), (LIMIT, limited.slack), "there is no telling");
            tell.send(limited.try_charge(1, LIMIT)).expect("somebody waits");
            assert_eq!(limited.held(), (LIMIT, 0));
        });
    });
    for _ in 0..3 {
        let refused = told.recv_timeout(Duration::from_secs(60)).expect("the refusal returns");
        assert_eq!(refused, Err(LIMIT));
    }
}

/// Rows whose clock goes on when it is told to.
struct Still(StockRows, AtomicU32);

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
    fn sum(&self) -> i64 {
        self.0.sum()
    }
    fn now_ms(&self) -> u32 {
        // Relaxed: one thread.
        self.1.load(Ordering::Relaxed)
    }
}

#[test]
fn it_stays_exact_for_10_ms_after_a_fold() {
    on_each(|Limited { stock, slack, cap, .. }| {
        let limited = Limited::new(Still(stock, AtomicU32::new(u32::MAX - 3)), cap, slack / cap);
        stocked(&limited);
        assert!(limited.fold());
        for (tick, phase) in [(9, Phase::Closed), (1, Phase::Open)] {
            // Relaxed: one thread.
            limited.stock.1.fetch_add(tick, Ordering::Relaxed);
            assert!(fits(&limited, 1, LIMIT));
            limited.release(1);
            assert_eq!(limited.turn().phase(), phase);
        }
    });
}

#[test]
fn it_opens_where_there_is_room_for_all_stock_twice() {
    on_each(|limited| {
        let twice = 2 * limited.slack.cast_signed();
        assert!(fits(&limited, LIMIT - twice + 1, LIMIT));
        assert_eq!(limited.turn().phase(), Phase::Closed, "one less");
        limited.release(2);
        assert!(fits(&limited, 1, LIMIT));
        assert_eq!(limited.turn().phase(), Phase::Open);
    });
}

#[test]
fn all_cpus_together_move_a_sixteenth_of_the_room_at_once() {
    on_each(|limited| {
        stocked(&limited);
        let rows = (limited.slack / limited.cap).cast_signed();
        let (room, before) = (16 * rows * 10, limited.level.held());
        let n = LIMIT - room - before;
        assert!(fits(&limited, n, LIMIT));
        assert_eq!(limited.level.held() - before, n + 10);
    });
}

#[test]
fn what_is_held_is_what_is_charged_while_there_is_no_stock() {
    on_each(|limited| {
        assert_eq!(limited.held(), (0, 0), "it starts closed");
        stocked(&limited);
        assert_eq!(limited.held(), (limited.level.held(), limited.slack));
        assert!(limited.fold());
        assert_eq!(limited.held(), (2, 0));
        let moving = limited.wait_to_move();
        assert_eq!(limited.held(), (2, limited.slack), "somebody opens it, maybe");
        assert_eq!(limited.try_charge(LIMIT - 1, LIMIT), Err(2), "without waiting");
        drop(moving);
        assert_eq!(limited.held(), (2, 0));
    });
}

#[test]
fn below_a_handler_that_interrupted_a_move_nothing_waits() {
    on_each(|limited| {
        stocked(&limited);
        let moving = limited.wait_to_move();
        assert!(moving.is_some() && limited.wait_to_move().is_none());
        assert!(!fits(&limited, LIMIT - 2, LIMIT), "it would fit, but stock cannot be moved");
        limited.release(1);
        assert!(fits(&limited, 1, LIMIT));
        drop(moving);
        assert!(fits(&limited, LIMIT - 2, LIMIT));
        assert_eq!(limited.charged(), LIMIT);
    });
}

impl Limited<StockRows> {
    fn stock_of_words(&self) -> i64 {
        Stock::sum(&self.stock)
    }

    /// The first half of a fold.
    fn stock_closed(&self) {
        Stock::close(&self.stock);
        self.turn_over();
    }
}
