//! One group's token buckets.

use std::sync::Arc;

use once_cell::race::OnceBox;
use submeter_percpu::clock::Clock;
use submeter_percpu::{Rate, TokenBucket};

use crate::metric::schema::Schema;

/// The buckets of one group, in slot order; none before its first rate is set.
#[derive(Default)]
pub(crate) struct Rates(OnceBox<Arc<[TokenBucket]>>);

/// The rates and weights that a group has, by slot.
pub(crate) type OwnRates = Box<[(usize, Option<Rate>, Option<u32>)]>;

impl Rates {
    pub(crate) fn at(&self, slot: usize) -> Option<&TokenBucket> {
        Some(&self.0.get()?[slot])
    }

    pub(crate) fn create(&self, schema: &Schema, clock: &Clock) -> &Arc<[TokenBucket]> {
        let buckets =
            || schema.rate_limits().map(|_| TokenBucket::with_clock(clock.clone())).collect();
        self.0.get_or_init(|| Box::new(buckets()))
    }

    /// Shares another group's buckets, unless it has its own; returns whether it had none.
    pub(crate) fn share(&self, buckets: &Arc<[TokenBucket]>) -> bool {
        self.0.set(Box::new(Arc::clone(buckets))).is_ok()
    }
}
