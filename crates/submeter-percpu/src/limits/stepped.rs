//! Atomics that let a test run another thread's part before any access.
//!
//! loom's search with few preemptions misses bugs that need a whole fold, an opening and a refill
//! between two loads; this runs all of that there, at each place in turn. It covers one switch and
//! one memory order; the models cover the others.

use std::cell::{Cell, RefCell};
use std::sync::atomic::{self, Ordering};

type Other = Box<dyn FnOnce()>;

thread_local! {
    /// The number of accesses left before the other part runs, and that part.
    static ARMED: RefCell<Option<(u32, Other)>> = const { RefCell::new(None) };
    /// The number of accesses left before the code that makes them counts as caught in a loop.
    static FUEL: Cell<u32> = const { Cell::new(FUEL_MAX) };
}

const FUEL_MAX: u32 = 100_000;

/// Lets the code that follows make that many accesses again.
pub(super) fn refuel() {
    FUEL.set(FUEL_MAX);
}

/// Runs `other` before access number `accesses` from now.
pub(super) fn arm(accesses: u32, other: impl FnOnce() + 'static) {
    refuel();
    ARMED.set(Some((accesses, Box::new(other))));
}

/// Returns whether the part that was armed has run.
pub(super) fn disarm() -> bool {
    ARMED.take().is_none()
}

pub(super) fn step() {
    let fuel = FUEL.get().checked_sub(1);
    FUEL.set(fuel.expect("it comes to an end"));
    let due = ARMED.with_borrow_mut(|armed| match armed {
        Some((0, _)) => armed.take(),
        Some((accesses, _)) => {
            *accesses -= 1;
            None
        }
        None => None,
    });
    if let Some((_, other)) = due {
        other();
    }
}

macro_rules! stepped {
    ($name:ident, $value:ty) => {
        #[derive(Debug)]
        pub(super) struct $name(atomic::$name);

        #[allow(dead_code, reason = "of each width some are used")]
        impl $name {
            pub(super) fn new(value: $value) -> $name {
                $name(atomic::$name::new(value))
            }
            pub(super) fn load(&self, order: Ordering) -> $value {
                step();
                self.0.load(order)
            }
            pub(super) fn store(&self, value: $value, order: Ordering) {
                step();
                self.0.store(value, order);
            }
            pub(super) fn fetch_add(&self, n: $value, order: Ordering) -> $value {
                step();
                self.0.fetch_add(n, order)
            }
            pub(super) fn fetch_sub(&self, n: $value, order: Ordering) -> $value {
                step();
                self.0.fetch_sub(n, order)
            }
            pub(super) fn fetch_max(&self, value: $value, order: Ordering) -> $value {
                step();
                self.0.fetch_max(value, order)
            }
            pub(super) fn fetch_update(
                &self,
                set: Ordering,
                fetch: Ordering,
                update: impl FnMut($value) -> Option<$value>,
            ) -> Result<$value, $value> {
                step();
                self.0.fetch_update(set, fetch, update)
            }
            pub(super) fn compare_exchange(
                &self,
                from: $value,
                to: $value,
                done: Ordering,
                failed: Ordering,
            ) -> Result<$value, $value> {
                step();
                self.0.compare_exchange(from, to, done, failed)
            }
        }
    };
}

stepped!(AtomicU32, u32);
stepped!(AtomicU64, u64);
