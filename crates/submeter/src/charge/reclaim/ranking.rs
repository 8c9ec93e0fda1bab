//! Who is to be asked next, where a look at all callbacks for each charge would take too long.
//!
//! A look visits each callback's group, and each charge at a full limit asks for no more than it
//! needs: with ten thousand callbacks it would take milliseconds to have a kilobyte freed. So a
//! look is remembered, as a heap. Its first is looked at anew before it is asked, and goes back to
//! its place if others come before it now. What a group was asked for, and what it gave up itself,
//! is thus seen at once; what others have come to use since, with the next look at all. Rejected:
//! an order that charges keep up to date, for which each would pay.

use std::collections::BinaryHeap;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use super::registry::Entry;
use super::standing::Standing;

/// With no more callbacks than this each charge looks at all: rows `callbacks` of the table
/// `limits` in BENCHMARKS.md have what that takes.
pub(super) const LOOKED_AT_MAX: usize = 8;

/// A look serves others for so many times as long as it took: asking then takes no more than a
/// tenth of a thread.
const LASTS: u32 = 10;

/// But no longer than this: the thread that looked may have been stopped meanwhile.
const LASTS_MAX: Duration = Duration::from_secs(1);

/// What could be had has to be so many times what is missing: others have taken of it since.
const MARGIN: u64 = 2;

/// The order in which callbacks are asked; the highest comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Rank {
    score: i32,
    beyond_low: u64,
    current: u64,
}

impl Rank {
    pub(super) fn of(entry: &Entry, standing: &Standing) -> Rank {
        let (beyond_low, current) = (standing.beyond_low(), standing.current);
        Rank { score: entry.score(), beyond_low, current }
    }

    /// Returns the highest rank with a score: what has it is looked at anew before all others.
    pub(super) fn first_of(entry: &Entry) -> Rank {
        Rank { score: entry.score(), beyond_low: u64::MAX, current: u64::MAX }
    }
}

/// A callback and its rank when it was looked at. Weak: what a registration owns goes with it.
struct Place(Rank, Weak<Entry>);

impl PartialEq for Place {
    fn eq(&self, other: &Place) -> bool {
        self.0 == other.0
    }
}

impl Eq for Place {}

impl PartialOrd for Place {
    fn partial_cmp(&self, other: &Place) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Place {
    fn cmp(&self, other: &Place) -> std::cmp::Ordering {
        self.0.cmp(&other.0)
    }
}

/// A look at all callbacks below one limit that is remembered.
pub(super) struct Ranking {
    places: BinaryHeap<Place>,
    /// What could be had then without what `low` protects, but for what was freed since.
    most: u64,
    took: Duration,
    until: Instant,
}

impl Ranking {
    /// Remembers a look that took so long.
    pub(super) fn new<'a>(
        looked_at: impl Iterator<Item = (Rank, &'a Arc<Entry>)>,
        most: u64,
        took: Duration,
    ) -> Ranking {
        let places = looked_at.map(|(rank, entry)| Place(rank, Arc::downgrade(entry))).collect();
        let until = Instant::now() + LASTS_MAX.min(took.saturating_mul(LASTS));
        Ranking { places, most, took, until }
    }

    pub(super) fn is_over(&self) -> bool {
        Instant::now() >= self.until
    }

    /// Returns for how long it serves for a charge that misses so much: no longer than a look at
    /// all takes, which it is there to spare.
    pub(super) fn serves(&self, missing: u64) -> Option<Duration> {
        (self.most / MARGIN >= missing).then_some(self.took)
    }

    /// Puts a callback at the place of its rank.
    pub(super) fn put(&mut self, rank: Rank, entry: &Arc<Entry>) {
        self.places.push(Place(rank, Arc::downgrade(entry)));
    }

    /// Takes the first whose registration has not ended.
    pub(super) fn take(&mut self) -> Option<Arc<Entry>> {
        std::iter::from_fn(|| self.places.pop()).find_map(|Place(_, entry)| entry.upgrade())
    }

    /// Whether a rank comes before all that are in it.
    pub(super) fn is_first(&self, rank: Rank) -> bool {
        self.places.peek().is_none_or(|first| first.0 <= rank)
    }

    /// Notes that so much of it was freed.
    pub(super) fn count(&mut self, freed: u64) {
        self.most = self.most.saturating_sub(freed);
    }
}
