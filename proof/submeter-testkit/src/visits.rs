//! A small aggregator: how many visits there were, and which was the longest.

use std::sync::atomic::{AtomicU64, Ordering};

use submeter::{Aggregate, Origin};

/// Collects [`Visited`] by group: one value that adds up and one that does not.
#[derive(Debug)]
pub struct Visits;

/// Holds what one group has seen on one CPU.
#[derive(Debug, Default)]
pub struct VisitsHere {
    count: AtomicU64,
    longest: AtomicU64,
}

/// Sums up visits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Visited {
    /// How many.
    pub count: u64,
    /// The longest.
    pub longest: u64,
}

impl Visited {
    /// Adds others.
    pub fn merge(&mut self, other: &Visited) {
        self.count += other.count;
        self.longest = self.longest.max(other.longest);
    }
}

impl VisitsHere {
    /// Notes one visit.
    pub fn visit(&self, length: u64) {
        // Relaxed, both: the aggregator orders what an update stored before the flush that finds
        // it.
        self.count.fetch_add(1, Ordering::Relaxed);
        self.longest.fetch_max(length, Ordering::Relaxed);
    }
}

impl Aggregate for Visits {
    type Local = VisitsHere;
    type Delta = Visited;

    fn flush(&self, _: &Origin<'_>, local: &VisitsHere, delta: &mut Visited) {
        // Relaxed, both: as above. A longest that comes with a later count is one that was begun.
        delta.count = local.count.swap(0, Ordering::Relaxed);
        delta.longest = local.longest.load(Ordering::Relaxed);
    }

    fn merge(&self, delta: &Visited, into: &mut Visited) {
        into.merge(delta);
    }
}
