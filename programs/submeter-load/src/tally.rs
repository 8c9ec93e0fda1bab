//! The counts of a load, by tenant.

use std::time::Duration;

use hdrhistogram::Histogram;

use super::verb::{Kind, Verb};

/// Number of corrupt values kept for display; all are counted.
const CORRUPT_SHOWN: usize = 5;

/// The requests and answers of one tenant.
#[derive(Clone, Debug)]
pub struct Tally {
    /// Requests answered, by [`Verb`].
    pub by_verb: [u64; Verb::ALL.len()],
    /// Retrievals that found the item.
    pub hits: u64,
    /// Retrievals that did not find the item.
    pub misses: u64,
    /// Stores of missed keys, also included in `by_verb`.
    pub fills: u64,
    /// Answers `STORED`, `DELETED`, `TOUCHED` and numbers.
    pub done: u64,
    /// `NOT_STORED`.
    pub not_stored: u64,
    /// `EXISTS`.
    pub exists: u64,
    /// `NOT_FOUND`.
    pub not_found: u64,
    /// `SERVER_ERROR`: refused, usually for lack of memory.
    pub refused: u64,
    /// Values that differ from what was stored.
    pub corrupt: u64,
    /// Bytes of the requests.
    pub bytes_sent: u64,
    /// Bytes of their answers.
    pub bytes_received: u64,
    /// From sending (or the scheduled time of sending) to the answer, in nanoseconds.
    pub latency_ns: Histogram<u64>,
}

/// A value that differs from what was stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Corruption {
    /// The key.
    pub key: String,
    /// How the value differs.
    pub what: String,
}

/// The counts of all tenants. Each connection has its own, and they are merged at the end.
#[derive(Clone, Debug)]
pub struct Tallies {
    /// Counts in the order of the tenants.
    pub tenants: Vec<Tally>,
    /// The first few corrupt values.
    pub corruptions: Vec<Corruption>,
}

impl Tally {
    /// Starts at zero.
    pub fn new() -> Result<Tally, hdrhistogram::CreationError> {
        // Three digits from 1 µs on. It grows automatically beyond a second.
        let mut latency_ns = Histogram::new_with_bounds(1_000, 1_000_000_000, 3)?;
        latency_ns.auto(true);
        Ok(Tally::empty(latency_ns))
    }

    fn empty(latency_ns: Histogram<u64>) -> Tally {
        Tally {
            by_verb: [0; Verb::ALL.len()],
            hits: 0,
            misses: 0,
            fills: 0,
            done: 0,
            not_stored: 0,
            exists: 0,
            not_found: 0,
            refused: 0,
            corrupt: 0,
            bytes_sent: 0,
            bytes_received: 0,
            latency_ns,
        }
    }

    /// Counts an answered request.
    pub fn answered(&mut self, verb: Verb, sent: usize, received: usize, took: Duration) {
        self.by_verb[verb as usize] += 1;
        self.bytes_sent += sent as u64;
        self.bytes_received += received as u64;
        // Saturation at 584 years and at the histogram's end keeps the number of requests right.
        let took_ns = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        self.latency_ns.saturating_record(took_ns);
    }

    /// Returns the requests answered.
    pub fn requests(&self) -> u64 {
        self.by_verb.iter().sum()
    }

    /// Returns the requests that a server counts as `kind`.
    pub fn of_kind(&self, kind: Kind) -> u64 {
        let of_kind = Verb::ALL.into_iter().filter(|verb| verb.kind() == kind);
        of_kind.map(|verb| self.by_verb[verb as usize]).sum()
    }

    /// Adds the counts of another tally.
    pub fn merge(&mut self, other: &Tally) -> Result<(), hdrhistogram::AdditionError> {
        for (mine, theirs) in self.by_verb.iter_mut().zip(other.by_verb) {
            *mine += theirs;
        }
        self.hits += other.hits;
        self.misses += other.misses;
        self.fills += other.fills;
        self.done += other.done;
        self.not_stored += other.not_stored;
        self.exists += other.exists;
        self.not_found += other.not_found;
        self.refused += other.refused;
        self.corrupt += other.corrupt;
        self.bytes_sent += other.bytes_sent;
        self.bytes_received += other.bytes_received;
        self.latency_ns.add(&other.latency_ns)
    }
}

impl Tallies {
    /// Starts `n` tenants at zero.
    pub fn new(n: usize) -> Result<Tallies, hdrhistogram::CreationError> {
        let tenants = (0..n).map(|_| Tally::new()).collect::<Result<_, _>>()?;
        Ok(Tallies { tenants, corruptions: Vec::new() })
    }

    /// Discards the counts, except for corrupt values: those are wrong whenever they occurred.
    pub fn begin(&mut self) {
        for tally in &mut self.tenants {
            let corrupt = tally.corrupt;
            let mut latency_ns = tally.latency_ns.clone();
            latency_ns.reset();
            *tally = Tally { corrupt, ..Tally::empty(latency_ns) };
        }
    }

    /// Counts a corrupt value, and keeps it if it is among the first.
    pub fn corrupt(&mut self, tenant: usize, corruption: impl FnOnce() -> Corruption) {
        self.tenants[tenant].corrupt += 1;
        if self.corruptions.len() < CORRUPT_SHOWN {
            self.corruptions.push(corruption());
        }
    }

    /// Adds the counts of other tallies.
    pub fn merge(&mut self, other: Tallies) -> Result<(), hdrhistogram::AdditionError> {
        for (mine, theirs) in self.tenants.iter_mut().zip(&other.tenants) {
            mine.merge(theirs)?;
        }
        self.corruptions.extend(other.corruptions);
        self.corruptions.truncate(CORRUPT_SHOWN);
        Ok(())
    }

    /// Returns the sum over all tenants.
    pub fn total(&self) -> Result<Tally, hdrhistogram::AdditionError> {
        let mut tenants = self.tenants.iter();
        let Some(first) = tenants.next() else { unreachable!("a load has at least one tenant") };
        let mut total = first.clone();
        for tally in tenants {
            total.merge(tally)?;
        }
        Ok(total)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Earlier counts are discarded, except for corrupt values.
    #[test]
    fn only_the_corrupt_of_before_is_not_forgotten() {
        let mut tallies = Tallies::new(1).expect("bounds");
        tallies.tenants[0].answered(Verb::Get, 9, 9, Duration::from_millis(3));
        tallies.tenants[0].hits = 1;
        tallies.corrupt(0, || Corruption { key: "k".to_owned(), what: "w".to_owned() });
        tallies.begin();
        let [tally] = &tallies.tenants[..] else { panic!("one") };
        assert_eq!((tally.requests(), tally.hits, tally.latency_ns.len()), (0, 0, 0));
        assert_eq!((tally.corrupt, tallies.corruptions.len()), (1, 1));
    }
}
