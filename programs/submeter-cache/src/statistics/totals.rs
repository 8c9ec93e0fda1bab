//! Counters of the whole server only: the finer figures of `stats`.
//!
//! They are not metrics of the tree: up to ten thousand tenants would each have a row for every
//! counter in `/metrics`, although few people read them.

use std::fmt;
use std::io;

use submeter::counter::PercpuCounter;

/// One total.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Total {
    /// Items stored.
    Items,
    Flushes,
    /// Meta commands.
    Meta,
    DeleteHits,
    DeleteMisses,
    IncrHits,
    IncrMisses,
    DecrHits,
    DecrMisses,
    CasHits,
    CasMisses,
    /// Compared stores that found an item with another `cas`.
    CasBadval,
    /// Hits of `touch`.
    TouchHits,
    TouchMisses,
    /// Hits of `gat` and `gats`, which the tenants' metrics count with those of `get`.
    GatHits,
    GatMisses,
    /// Retrievals that found an expired item.
    GetExpired,
    /// Expired items that were dropped without having been requested.
    Reclaimed,
    /// Expired items that were never fetched.
    ExpiredUnfetched,
    /// Evicted items that were never fetched.
    EvictedUnfetched,
    /// Values refused because of their size.
    StoreTooLarge,
    /// Attempts to log in.
    Logins,
    LoginsFailed,
    /// How often a connection with more to do yielded to others.
    Yields,
}

const COUNT: usize = Total::Yields as usize + 1;

/// All totals.
pub(crate) struct Totals {
    /// Counters by `Total`; empty if nothing is metered.
    counters: Vec<PercpuCounter>,
}

impl Totals {
    pub(crate) fn new(metering: bool) -> io::Result<Totals> {
        let counters = if metering { PercpuCounter::many(COUNT)? } else { Vec::new() };
        Ok(Totals { counters })
    }

    #[inline]
    pub(crate) fn count(&self, total: Total) {
        if let Some(counter) = self.counters.get(total as usize) {
            counter.add(1);
        }
    }

    #[inline]
    pub(crate) fn count_if(&self, condition: bool, total: Total) {
        if condition {
            self.count(total);
        }
    }

    #[inline]
    pub(crate) fn hit_or_miss(&self, hit: bool, of_hit: Total, of_miss: Total) {
        self.count(if hit { of_hit } else { of_miss });
    }

    pub(crate) fn read(&self, total: Total) -> u64 {
        let counter = self.counters.get(total as usize);
        // Never negative: nothing is ever subtracted.
        counter.map_or(0, |counter| counter.sum().cast_unsigned())
    }
}

impl fmt::Debug for Totals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Totals").finish_non_exhaustive()
    }
}
