//! Counters of the whole server alone: the finer numbers of `stats`.
//!
//! Not metrics of the tree: each of up to ten thousand tenants would have a row of each in
//! `/metrics`, for what few look at.

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
    /// Retrievals that found an item which had expired.
    GetExpired,
    /// Expired items that were dropped without being asked for.
    Reclaimed,
    /// Expired items that no client ever fetched.
    ExpiredUnfetched,
    /// Evicted items that no client ever fetched.
    EvictedUnfetched,
    /// Values that were refused for their size.
    StoreTooLarge,
    /// Attempts to log in.
    Logins,
    LoginsFailed,
    /// How often a connection with more to do let others have their turn.
    Yields,
}

const COUNT: usize = Total::Yields as usize + 1;

/// All totals.
pub(crate) struct Totals {
    /// By `Total`; none where nothing is metered.
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
        // Never negative: nothing is ever taken away.
        counter.map_or(0, |counter| counter.sum().cast_unsigned())
    }
}

impl fmt::Debug for Totals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Totals").finish_non_exhaustive()
    }
}
