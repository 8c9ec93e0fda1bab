//! What a user would pick instead of submeter to count the requests of tenants: other counters,
//! metrics libraries, a pool with a limit at each level, and counters of other languages.
//!
//! For `submeter-bench count` alone, behind the feature `peers` of the command: nothing that ships
//! depends on it. Each peer does what its own documentation shows for the case, no less and no
//! more, and tells afterwards what it counted: a peer that loses requests is not measured. Those of
//! other languages run in processes of their own, [`outside`]; where their compilers are missing,
//! the reason is told instead.

#![forbid(unsafe_code)]

mod counters;
mod family;
mod labels;
mod otel;
pub mod outside;
mod pool;

use std::fmt;

/// The levels of [`Case::Levels`]: a leaf and three above it.
pub const LEVELS: usize = 4;

/// What is at hand when a request is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Case {
    /// The counter of the one tenant.
    Held,
    /// Each tenant's name, and nothing else.
    Lookup,
    /// The counters of one leaf and of all above it, each of which must count.
    Levels,
}

/// A counter, in one case.
pub struct Peer {
    /// What it is called in records.
    pub variant: &'static str,
    /// The case.
    pub case: Case,
    /// Counts a request for each of these tenants; in cases other than [`Case::Lookup`] so many for
    /// its own.
    pub count: Count,
    /// Tells what was counted, of each level, when nobody counts.
    pub totals: Totals,
}

/// Counts requests; on all threads at once.
pub type Count = Box<dyn Fn(&[String]) + Send + Sync>;

/// Tells totals of all these tenants together.
pub type Totals = Box<dyn Fn(&[String]) -> Vec<u64> + Send + Sync>;

/// A peer that cannot be measured here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Absence {
    /// What it would be called.
    pub variant: &'static str,
    /// What is missing and how to get it.
    pub reason: String,
}

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

/// Returns all peers that count in this process, new ones that have counted nothing.
#[must_use]
pub fn peers() -> Vec<Peer> {
    let mut peers = counters::peers();
    peers.extend(labels::peers());
    peers.extend(family::peers());
    peers.extend(otel::peers());
    peers.push(pool::peer());
    peers
}

#[cfg(test)]
mod tests;
