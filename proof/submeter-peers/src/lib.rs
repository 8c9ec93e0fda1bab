//! Alternatives to submeter that a user of Rust could pick: other counters, metrics libraries,
//! admission gates, memory pools and allocators.
//!
//! Only `submeter-bench` uses it, for the tables `count`, `limits`, `admission` and `alloc`, behind
//! the feature `peers`: nothing that ships depends on it. Each peer does exactly what its own
//! documentation shows for the case, and reports afterwards what it counted: a peer that loses
//! requests is not measured.

#![forbid(unsafe_code)]
#![cfg(feature = "libraries")]

mod counters;
pub mod datafusion;
mod family;
pub mod gates;
#[cfg(feature = "heaps")]
pub mod heaps;
mod labels;
mod otel;

use std::fmt;

/// The levels of [`Case::Levels`]: a leaf and three above it.
pub const LEVELS: usize = 4;

/// What the caller holds when it counts a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Case {
    /// The counter of the one tenant.
    Held,
    /// Only each tenant's name.
    Lookup,
    /// The counters of one leaf and its ancestors, each of which must count.
    Levels,
}

/// A counter, in one case.
pub struct Peer {
    /// Its name in records.
    pub variant: &'static str,
    /// The case.
    pub case: Case,
    /// Counts a request for each of these tenants; in cases other than [`Case::Lookup`], as many
    /// requests for its own tenant.
    pub count: Count,
    /// Returns what was counted on each level, while no thread counts.
    pub totals: Totals,
}

/// Counts requests; called on all threads at once.
pub type Count = Box<dyn Fn(&[String]) + Send + Sync>;

/// Returns the totals of all these tenants together.
pub type Totals = Box<dyn Fn(&[String]) -> Vec<u64> + Send + Sync>;

impl Peer {
    fn new(
        variant: &'static str,
        case: Case,
        count: impl Fn(&[String]) + Send + Sync + 'static,
        totals: impl Fn(&[String]) -> Vec<u64> + Send + Sync + 'static,
    ) -> Peer {
        Peer { variant, case, count: Box::new(count), totals: Box::new(totals) }
    }
}

impl fmt::Debug for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Peer({} {:?})", self.variant, self.case)
    }
}

/// Returns new instances of all peers that count in this process.
#[must_use]
pub fn peers() -> Vec<Peer> {
    let mut peers = counters::peers();
    peers.extend(labels::peers());
    peers.extend(family::peers());
    peers.extend(otel::peers());
    peers
}

#[cfg(test)]
mod tests;
