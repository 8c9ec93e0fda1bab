//! A memory pool like those of query engines: an atomic with a limit on each level, charged from
//! the leaf up.
//!
//! Written from the documented behaviour of DataFusion's greedy pool: a reservation grows, by a
//! compare-and-exchange loop, if the pool's usage stays within its limit. If one level refuses, the
//! levels below release what they took.

use std::array;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crossbeam_utils::CachePadded;

use crate::{Case, LEVELS, Peer};

/// Never reached in a bench, but checked all the same.
const LIMIT: u64 = u64::MAX / 2;

/// Returns the pool, from which every request takes one unit.
pub(crate) fn peer() -> Peer {
    let pools = Arc::new(Pools::new([LIMIT; LEVELS]));
    let grow = Arc::clone(&pools);
    Peer::new(
        "pool_per_level",
        Case::Levels,
        move |requests| {
            requests.iter().for_each(|_| assert!(grow.try_grow(1), "far below the limit"));
        },
        move |_| pools.used(),
    )
}

/// The usage of one level, and its limit.
struct Pool {
    used: AtomicU64,
    limit: u64,
}

/// A leaf's pool and those of its ancestors, the leaf's first, each on its own cache line.
struct Pools([CachePadded<Pool>; LEVELS]);

impl Pools {
    fn new(limits: [u64; LEVELS]) -> Pools {
        let pool = |level: usize| Pool { used: AtomicU64::new(0), limit: limits[level] };
        Pools(array::from_fn(|level| CachePadded::new(pool(level))))
    }

    /// Takes `more` from every level, or from none.
    #[inline]
    fn try_grow(&self, more: u64) -> bool {
        for (level, pool) in self.0.iter().enumerate() {
            let grown = |used: u64| used.checked_add(more).filter(|used| *used <= pool.limit);
            // Relaxed: a limit concerns only its own count, and the exchange sees the latest one.
            if pool.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, grown).is_err() {
                // Relaxed: as above; releases only what this call took.
                let below = &self.0[..level];
                below.iter().for_each(|pool| _ = pool.used.fetch_sub(more, Ordering::Relaxed));
                return false;
            }
        }
        true
    }

    fn used(&self) -> Vec<u64> {
        // Relaxed: a statistic, exact once the threads were joined.
        self.0.iter().map(|pool| pool.used.load(Ordering::Relaxed)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_on_one_level_releases_all_levels() {
        let pools = Pools::new([9, 9, 5, 9]);
        assert!(pools.try_grow(4));
        assert!(!pools.try_grow(2));
        assert_eq!(pools.used(), [4; LEVELS]);
        assert!(pools.try_grow(1));
        assert_eq!(pools.used(), [5; LEVELS]);
    }
}
