//! The figures of `stats` other than the tenants' metrics.

mod detail;
mod totals;

use std::collections::HashMap;

use parking_lot::Mutex;

pub(crate) use detail::{Detail, Prefix};
pub(crate) use totals::{Total, Totals};

/// The state behind `stats`.
#[derive(Debug, Default)]
pub(crate) struct Statistics {
    pub(crate) detail: Detail,
    zero: Mutex<HashMap<&'static str, u64>>,
}

impl Statistics {
    /// Makes `stats` count from these values on. The totals themselves never decrease, which
    /// scrapers rely on.
    pub(crate) fn reset(&self, totals: impl Iterator<Item = (&'static str, u64)>) {
        *self.zero.lock() = totals.collect();
    }

    /// Returns by how much a total has grown since the last reset.
    pub(crate) fn since_reset(&self, name: &str, total: u64) -> u64 {
        total.saturating_sub(self.zero.lock().get(name).copied().unwrap_or(0))
    }
}
