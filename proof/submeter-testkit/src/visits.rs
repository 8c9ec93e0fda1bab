//! A small aggregator: the number of visits, and the length of the longest.

use std::sync::atomic::{AtomicU64, Ordering};

use submeter::{Aggregate, Origin};

/// An aggregator of [`Visited`]: one value that adds up and one that does not.
#[derive(Debug)]
pub struct Visits;

/// The visits of one group on one CPU.
#[derive(Debug, Default)]
pub struct VisitsHere {
    count: AtomicU64,
    longest: AtomicU64,
}

/// A summary of visits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Visited {
    /// The number of visits.
    pub count: u64,
    /// The length of the longest visit.
    pub longest: u64,
}

impl Visited {
    /// Merges another summary.
    pub fn merge(&mut self, other: &Visited) {
        self.count += other.count;
        self.longest = self.longest.max(other.longest);
    }
}

impl VisitsHere {
    /// Counts one visit.
    pub fn visit(&self, length: u64) {
        // Relaxed, both: the aggregator orders an update's stores before the flush that finds them.
        self.count.fetch_add(1, Ordering::Relaxed);
        self.longest.fetch_max(length, Ordering::Relaxed);
    }
}

impl Aggregate for Visits {
    type Local = VisitsHere;
    type Delta = Visited;

    fn flush(&self, _: &Origin<'_>, local: &VisitsHere, delta: &mut Visited) {
        // Relaxed, both: as above. A maximum that arrives before its count belongs to a visit in
        // progress.
        delta.count = local.count.swap(0, Ordering::Relaxed);
        delta.longest = local.longest.load(Ordering::Relaxed);
    }

    fn merge(&self, delta: &Visited, into: &mut Visited) {
        into.merge(delta);
    }
}
