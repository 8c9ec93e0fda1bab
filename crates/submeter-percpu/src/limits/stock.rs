//! The operations of a leaf on the words that hold its stock.

use std::time::Duration;

/// The stock of each CPU, behind a gate.
pub(crate) trait Stock {
    /// Adds `n`, which may be negative, to the running CPU's stock, if it is open and stays between
    /// 0 and `cap`. Returns whether it was done; may fail spuriously.
    fn add(&self, n: i64, cap: u64) -> bool;
    /// The part of [`add`](Stock::add) that is inlined into callers. Where it returns false,
    /// [`add_slowly`](Stock::add_slowly) does the rest.
    fn add_inline(&self, n: i64, cap: u64) -> bool {
        self.add(n, cap)
    }
    fn add_slowly(&self, _n: i64, _cap: u64) -> bool {
        false
    }
    /// Does the same as [`add`](Stock::add), with several attempts.
    fn add_again(&self, n: i64, cap: u64) -> bool;
    /// Lets adds commit from now on. The lock is held.
    fn open(&self);
    /// Lets no add commit that starts after the next barrier. The lock is held.
    fn close(&self);
    /// Waits until no add that found the stock open is under way.
    fn barrier(&self);
    /// Does the same as [`barrier`](Stock::barrier), for at most `patience`. Returns whether it was
    /// done.
    fn try_barrier(&self, _patience: Duration) -> bool {
        self.barrier();
        true
    }
    /// Sums the stock. The sum is stable while it is closed, after the barrier.
    fn sum(&self) -> i64;
    /// Returns the time in milliseconds, which wraps around.
    fn now_ms(&self) -> u32;
}
