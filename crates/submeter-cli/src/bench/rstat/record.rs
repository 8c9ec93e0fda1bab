//! What measurements find, and the rows that become of it.

use hdrhistogram::Histogram;

use crate::bench::row::{Param, Params, Row, quantile, sorted};

/// The document's buckets: names, and what is below the end of each, in microseconds.
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

/// The quantiles that are rows.
const QUANTILES: [(&str, f64); 3] = [("p50", 0.5), ("p99", 0.99), ("p999", 0.999)];

/// Times of one sample.
#[derive(Clone, Debug)]
pub(super) struct Times {
    histogram: Histogram<u64>,
    buckets: [u64; BUCKETS.len()],
    /// All of them together.
    sum_ns: u64,
}

impl Times {
    pub(super) fn new() -> Times {
        // Two digits up to a minute; longer counts as that.
        let histogram = Histogram::new_with_bounds(1, 60_000_000_000, 2);
        Times {
            histogram: histogram.expect("constant bounds, in their order"),
            buckets: [0; BUCKETS.len()],
            sum_ns: 0,
        }
    }

    /// Notes one.
    #[inline]
    pub(super) fn add(&mut self, ns: u64) {
        self.histogram.saturating_record(ns.max(1));
        self.sum_ns = self.sum_ns.saturating_add(ns);
        if ns < 1000 {
            self.buckets[0] += 1;
        } else {
            let bucket = BUCKETS.iter().position(|(_, end_us)| ns / 1000 < *end_us);
            self.buckets[bucket.unwrap_or(BUCKETS.len() - 1)] += 1;
        }
    }

    /// Adds those of another.
    pub(super) fn merge(&mut self, other: &Times) {
        self.histogram.add(&other.histogram).expect("the same bounds");
        for (mine, others) in self.buckets.iter_mut().zip(other.buckets) {
            *mine += others;
        }
        self.sum_ns = self.sum_ns.saturating_add(other.sum_ns);
    }

    pub(super) fn len(&self) -> u64 {
        self.buckets.iter().sum()
    }

    fn over_1us(&self) -> u64 {
        self.len() - self.buckets[0]
    }

    /// Appends a count for each bucket, then the quantiles and the largest, in `unit`.
    pub(super) fn tell(&self, measure: &'static str, unit: Unit, to: &mut Vec<Reading>) {
        for ((name, _), count) in BUCKETS.iter().zip(self.buckets) {
            let extra = Some(("bucket_us", Param::Word(name)));
            let value = count as f64;
            to.push(Reading { measure, extra, unit: "count", value, combine: Combine::Sum });
        }
        if self.len() == 0 {
            return;
        }
        let mut push = |name, ns: u64, combine| {
            let extra = Some(("quantile", Param::Word(name)));
            let value = ns as f64 / unit.ns();
            to.push(Reading { measure, extra, unit: unit.name(), value, combine });
        };
        for (name, part) in QUANTILES {
            push(name, self.histogram.value_at_quantile(part), Combine::Median);
        }
        push("max", self.histogram.max(), Combine::Max);
    }

    /// Appends how many took longer than a microsecond, and how many that is for each second of waiting: what
    /// comes from the machine comes by the second, not by the update.
    pub(super) fn tell_tail(&self, measure: &'static str, to: &mut Vec<Reading>) {
        let per_s = self.over_1us() as f64 / (self.sum_ns.max(1) as f64 / 1e9);
        let below = (self.len() - self.over_1us()) as f64 / self.len().max(1) as f64 * 100.0;
        to.push(Reading::median(measure, "below_1us_percent", "%", below));
        to.push(Reading::median(measure, "over_1us_per_busy_s", "1/s", per_s));
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

/// One figure of one sample.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Reading {
    /// What was measured.
    pub(super) measure: &'static str,
    /// What distinguishes it from others of that measure.
    pub(super) extra: Option<(&'static str, Param)>,
    pub(super) unit: &'static str,
    pub(super) value: f64,
    pub(super) combine: Combine,
}

/// How a row's value comes of its samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Combine {
    Sum,
    Median,
    Max,
}

impl Reading {
    /// Makes one that stands for itself.
    pub(super) fn of(measure: &'static str, unit: &'static str, value: f64) -> Reading {
        Reading { measure, extra: None, unit, value, combine: Combine::Median }
    }

    fn median(
        measure: &'static str,
        figure: &'static str,
        unit: &'static str,
        value: f64,
    ) -> Reading {
        let extra = Some(("figure", Param::Word(figure)));
        Reading { measure, extra, unit, value, combine: Combine::Median }
    }

    /// Makes its row the sum of its samples.
    pub(super) fn summed(mut self) -> Reading {
        self.combine = Combine::Sum;
        self
    }

    fn is_like(&self, other: &Reading) -> bool {
        (self.measure, self.extra, self.unit) == (other.measure, other.extra, other.unit)
    }
}

impl Combine {
    fn of(self, samples: &[f64]) -> f64 {
        let median = || quantile(&sorted(samples), 0.5).unwrap_or(f64::NAN);
        match self {
            Combine::Sum => samples.iter().sum(),
            Combine::Max => samples.iter().copied().fold(f64::MIN, f64::max),
            Combine::Median => median(),
        }
    }
}

/// Everything that was read, of all cells.
#[derive(Debug, Default)]
pub(super) struct Record {
    groups: Vec<Group>,
}

/// Cells that are compared with each other.
#[derive(Debug)]
struct Group {
    params: Params,
    variants: Vec<&'static str>,
    /// In the order in which they were first read; samples by variant.
    readings: Vec<Figure>,
}

/// A figure, and its samples by variant.
type Figure = (Reading, Vec<Samples>);

/// Samples of one figure of one variant.
#[derive(Clone, Debug, Default)]
struct Samples {
    calm: Vec<f64>,
    disturbed: Vec<f64>,
}

impl Samples {
    /// Returns what there is to show: the disturbed only where there is nothing else.
    fn best(&self) -> &[f64] {
        if self.calm.is_empty() { &self.disturbed } else { &self.calm }
    }
}

impl Record {
    /// Makes room for a group; returns its number.
    pub(super) fn group(&mut self, params: Params, variants: Vec<&'static str>) -> usize {
        self.groups.push(Group { params, variants, readings: Vec::new() });
        self.groups.len() - 1
    }

    /// Takes down a sample.
    pub(super) fn add(
        &mut self,
        group: usize,
        variant: &'static str,
        sample: Vec<Reading>,
        disturbed: bool,
    ) {
        let Group { variants, readings, .. } = &mut self.groups[group];
        let index = variants.iter().position(|v| *v == variant).expect("one of the group's");
        for reading in sample {
            let value = reading.value;
            let known = readings.iter().position(|(known, _)| known.is_like(&reading));
            let known = known.unwrap_or_else(|| {
                readings.push((reading, vec![Samples::default(); variants.len()]));
                readings.len() - 1
            });
            let samples = &mut readings[known].1[index];
            let to = if disturbed { &mut samples.disturbed } else { &mut samples.calm };
            to.push(value);
        }
    }

    /// Returns the rows: all variants of one figure together.
    pub(super) fn rows(&self, table: &'static str) -> Vec<Row> {
        let mut rows = Vec::new();
        for group in &self.groups {
            for (reading, samples) in ordered(&group.readings) {
                for (variant, samples) in group.variants.iter().zip(samples) {
                    let samples = samples.best();
                    if samples.is_empty() {
                        continue;
                    }
                    let mut params = group.params.clone();
                    params.push(("measure", Param::Word(reading.measure)));
                    params.extend(reading.extra);
                    let value = reading.combine.of(samples);
                    let (unit, samples) = (reading.unit, samples.to_vec());
                    rows.push(Row { table, params, variant, value, unit, samples });
                }
            }
        }
        rows
    }
}

/// Orders figures so that those of one kind follow each other: a variant that lacks some of them, and was read
/// first, would tear them apart.
fn ordered(readings: &[Figure]) -> Vec<&Figure> {
    let first = |of: &Reading| {
        let kind = |r: &Reading| (r.measure, r.extra.map(|(name, _)| name), r.unit);
        readings.iter().position(|(reading, _)| kind(reading) == kind(of))
    };
    let mut ordered: Vec<&Figure> = readings.iter().collect();
    ordered.sort_by_key(|(reading, _)| first(reading));
    ordered
}
