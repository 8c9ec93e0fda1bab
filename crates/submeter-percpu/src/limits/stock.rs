//! The operations of a leaf on the words that hold its stock.

use std::time::Duration;

/// The stock of each CPU, behind a gate.
pub(crate) trait Stock {
    /// Adds `n`, which may be negative, to the running CPU's stock, if that is open and stays
    /// between 0 and `cap`. Returns whether it was done; may return false without such a reason.
    fn add(&self, n: i64, cap: u64) -> bool;
    /// The part of [`add`](Stock::add) that is inlined into callers. Where it returns false,
    /// [`add_slowly`](Stock::add_slowly) is the rest.
    fn add_inline(&self, n: i64, cap: u64) -> bool {
        self.add(n, cap)
    }
    fn add_slowly(&self, _n: i64, _cap: u64) -> bool {
        false
    }
    /// As [`add`](Stock::add), with several attempts.
    fn add_again(&self, n: i64, cap: u64) -> bool;
    /// Lets adds commit from now on. With the lock held.
    fn open(&self);
    /// Lets no add commit that starts after the next barrier. With the lock held.
    fn close(&self);
    /// Waits until no add is under way that found it open.
    fn barrier(&self);
    /// As [`barrier`](Stock::barrier), unless that takes longer than `patience`. Returns whether it
    /// was done.
    fn try_barrier(&self, _patience: Duration) -> bool {
        self.barrier();
        true
    }
    /// Sums the stock. Stable while it is closed, after the barrier.
    fn sum(&self) -> i64;
    /// The time in milliseconds, which wraps around.
    fn now_ms(&self) -> u32;
}
