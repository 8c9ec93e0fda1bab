//! One group's token buckets.

use once_cell::race::OnceBox;
use submeter_percpu::TokenBucket;

use crate::schema::Schema;

/// The buckets of one group, in slot order; none before its first rate is set.
#[derive(Default)]
pub(crate) struct Rates(OnceBox<Box<[TokenBucket]>>);

impl Rates {
    pub(crate) fn at(&self, slot: usize) -> Option<&TokenBucket> {
        Some(&self.0.get()?[slot])
    }

    pub(crate) fn create(&self, schema: &Schema) -> &[TokenBucket] {
        let buckets = || schema.rate_limits().iter().map(|_| TokenBucket::new()).collect();
        self.0.get_or_init(|| Box::new(buckets()))
    }
}
