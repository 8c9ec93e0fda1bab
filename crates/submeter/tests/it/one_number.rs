//! An aggregate that keeps only a sum, for tests that update it continuously.

use std::sync::atomic::{AtomicU64, Ordering};

use submeter::{Aggregate, Origin};

/// An aggregate of one number.
pub(crate) struct OneNumber;

impl Aggregate for OneNumber {
    type Local = AtomicU64;
    type Delta = u64;

    fn flush(&self, _: &Origin<'_>, local: &AtomicU64, delta: &mut u64) {
        // Relaxed: the aggregator orders the accesses.
        *delta = local.swap(0, Ordering::Relaxed);
    }

    fn merge(&self, delta: &u64, into: &mut u64) {
        *into += delta;
    }
}
