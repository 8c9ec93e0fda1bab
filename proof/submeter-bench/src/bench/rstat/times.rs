//! Histograms of times, and the readings made from them.

use hdrhistogram::Histogram;

use super::reading;
use crate::bench::record::Reading;

/// The document's buckets: names and exclusive upper bounds in microseconds.
pub(super) const BUCKETS: [(&str, u64); 14] = [
    ("0-1", 1),
    ("1-5", 5),
    ("5-10", 10),
    ("10-15", 15),
    ("15-20", 20),
    ("20-25", 25),
    ("25-30", 30),
    ("30-40", 40),
    ("40-50", 50),
    ("50-60", 60),
    ("60-70", 70),
    ("70-80", 80),
    ("80-90", 90),
    ("90-", u64::MAX),
];

/// The quantiles that have a row.
const QUANTILES: [(&str, f64); 3] = [("p50", 0.5), ("p99", 0.99), ("p999", 0.999)];

/// The times of one sample.
#[derive(Clone, Debug)]
pub(super) struct Times {
    /// Times below a microsecond, by nanosecond: nearly all of them, each for the cost of an
    /// increment.
    short: Box<[u64; 1000]>,
    long: Histogram<u64>,
    /// The rest of the document's buckets; the first is the sum of `short`.
    buckets: [u64; BUCKETS.len()],
    /// The sum of all times.
    sum_ns: u64,
}

impl Times {
    pub(super) fn new() -> Times {
        // Two digits up to a minute; longer times count as a minute.
        let long = Histogram::new_with_bounds(1, 60_000_000_000, 2);
        Times {
            short: Box::new([0; 1000]),
            long: long.expect("constant bounds, in their order"),
            buckets: [0; BUCKETS.len()],
            sum_ns: 0,
        }
    }

    /// Adds a time.
    #[inline]
    pub(super) fn add(&mut self, ns: u64) {
        self.sum_ns = self.sum_ns.saturating_add(ns);
        match self.short.get_mut(ns as usize) {
            Some(short) => *short += 1,
            None => self.add_long(ns),
        }
    }

    #[cold]
    fn add_long(&mut self, ns: u64) {
        self.long.saturating_record(ns);
        let bucket = BUCKETS.iter().position(|(_, end_us)| ns / 1000 < *end_us);
        self.buckets[bucket.unwrap_or(BUCKETS.len() - 1)] += 1;
    }

    /// Adds the times of another sample.
    pub(super) fn merge(&mut self, other: &Times) {
        self.long.add(&other.long).expect("the same bounds");
        for (mine, others) in self.short.iter_mut().zip(other.short.iter()) {
            *mine += others;
        }
        for (mine, others) in self.buckets.iter_mut().zip(other.buckets) {
            *mine += others;
        }
        self.sum_ns = self.sum_ns.saturating_add(other.sum_ns);
    }

    pub(super) fn len(&self) -> u64 {
        self.below_1us() + self.long.len()
    }

    fn below_1us(&self) -> u64 {
        self.short.iter().sum()
    }

    /// Returns the smallest time that is not below `part` of all.
    fn quantile_ns(&self, part: f64) -> u64 {
        let rank = ((self.len() as f64 * part).ceil() as u64).max(1);
        let mut below = 0;
        for (ns, count) in self.short.iter().enumerate() {
            below += count;
            if below >= rank {
                return ns as u64;
            }
        }
        let left = (rank - below) as f64 / self.long.len().max(1) as f64;
        self.long.value_at_quantile(left)
    }

    fn max_ns(&self) -> u64 {
        self.quantile_ns(1.0)
    }

    /// Appends a count for each bucket, then the quantiles and the largest, in `unit`.
    pub(super) fn push_readings(&self, measure: &'static str, unit: Unit, to: &mut Vec<Reading>) {
        let mut buckets = self.buckets;
        buckets[0] = self.below_1us();
        for ((name, _), count) in BUCKETS.iter().zip(buckets) {
            to.push(reading(measure, "count", count as f64).with("bucket_us", name).summed());
        }
        if self.len() == 0 {
            return;
        }
        let of = |name, ns: u64| {
            reading(measure, unit.name(), ns as f64 / unit.ns()).with("quantile", name)
        };
        to.extend(QUANTILES.map(|(name, part)| of(name, self.quantile_ns(part))));
        to.push(of("max", self.max_ns()).largest());
    }

    /// Appends the share of times below a microsecond, and how many longer ones there were per
    /// second of waiting: what the machine causes occurs at a rate per second, not per update.
    pub(super) fn push_tail(&self, measure: &'static str, to: &mut Vec<Reading>) {
        let per_s = self.long.len() as f64 / (self.sum_ns.max(1) as f64 / 1e9);
        let below = self.below_1us() as f64 / self.len().max(1) as f64 * 100.0;
        to.push(reading(measure, "%", below).with("figure", "below_1us_percent"));
        to.push(reading(measure, "1/s", per_s).with("figure", "over_1us_per_busy_s"));
    }
}

/// A unit of time.
#[derive(Clone, Copy, Debug)]
pub(super) enum Unit {
    Microseconds,
    Nanoseconds,
}

impl Unit {
    fn name(self) -> &'static str {
        match self {
            Unit::Microseconds => "us",
            Unit::Nanoseconds => "ns",
        }
    }

    fn ns(self) -> f64 {
        match self {
            Unit::Microseconds => 1e3,
            Unit::Nanoseconds => 1.0,
        }
    }
}

#[cfg(test)]
#[path = "times_tests.rs"]
mod tests;
