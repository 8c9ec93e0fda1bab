//! A small schema with every kind of metric, and the values of a group in it.

use submeter::{
    Buckets, Bytes, Count, Counter, Gauge, Group, GroupValues, Histogram, HistogramSnapshot,
    LimitMode, MetricKind, Nanoseconds, Quota, Schema, SchemaBuilder, Section, Usage, Value,
};

use crate::visits::Visited;

/// The number of counters in a [`TestSchema`].
pub const COUNTERS: usize = 2;

/// The number of quotas in a [`TestSchema`].
pub const QUOTAS: usize = 2;

/// The buckets of the histogram in a [`TestSchema`]: eighteen, few enough that random values reach
/// all of them, including both open ones.
pub const BUCKETS: Buckets = Buckets::powers(2, 6);

/// The keys of a schema that has every kind of metric, some of them twice.
#[derive(Clone, Debug)]
pub struct TestSchema {
    /// The schema.
    pub schema: Schema,
    /// Two, so that a test notices an update that lands in the wrong one.
    pub counters: [Counter<Count>; COUNTERS],
    /// A gauge, which tests take below zero.
    pub gauge: Gauge<Bytes>,
    /// A histogram over [`BUCKETS`].
    pub histogram: Histogram<Nanoseconds>,
    /// Two, for the same reason as the counters.
    pub quotas: [Quota<Bytes>; QUOTAS],
    /// The sections that the metrics are in.
    pub sections: Vec<Section>,
}

/// The totals of one group that a flush of the tree makes exact.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sums {
    /// The total of each counter.
    pub counters: [u64; COUNTERS],
    /// The total of the gauge.
    pub gauge: i64,
    /// The number of values in each bucket of the histogram.
    pub buckets: [u64; BUCKETS.len()],
    /// The sum of the values in the histogram.
    pub recorded: u64,
}

/// All totals of one group: its sums, and the aggregate of its visits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// The sums.
    pub sums: Sums,
    /// The visits, which are not a sum.
    pub visited: Visited,
}

/// A group's usage of one quota.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Held {
    /// Current usage.
    pub current: u64,
    /// The highest usage after any granted charge, or more.
    pub peak: u64,
    /// That usage, or less.
    pub peak_low: u64,
    /// The limit.
    pub limit: Option<u64>,
    /// Charges that this group's own limit refused.
    pub refused: u64,
    /// Charges that were granted beyond it.
    pub overdrafts: u64,
    /// What it does with a charge that exceeds it.
    pub mode: LimitMode,
    /// The usage claimed to be protected: `min` and `low`.
    pub claims: [Option<u64>; 2],
}

impl Held {
    /// Returns the limit, or `u64::MAX` for none.
    #[must_use]
    pub fn max(&self) -> u64 {
        self.limit.unwrap_or(u64::MAX)
    }
}

impl TestSchema {
    /// Declares the metrics in one section, interleaved so that each has a neighbour of another
    /// kind.
    #[must_use]
    pub fn new() -> TestSchema {
        TestSchema::declare(false)
    }

    /// Declares the metrics in two sections, which are flushed separately: the second counter, the
    /// second quota and the gauge are in one section, the rest in the other.
    #[must_use]
    pub fn split() -> TestSchema {
        TestSchema::declare(true)
    }

    fn declare(split: bool) -> TestSchema {
        let mut schema = Schema::builder();
        let first = schema.counter("first", "A counter");
        let held = schema.quota("held", "A quota");
        let histogram = schema.histogram("histogram", "A histogram", BUCKETS);
        let rest = |s: &mut SchemaBuilder| {
            let second = s.counter("second", "Another counter");
            (second, s.quota("kept", "Another quota"), s.gauge("gauge", "A gauge"))
        };
        let (second, kept, gauge) =
            if split { schema.section("apart", rest) } else { rest(&mut schema) };
        let schema = schema.build().expect("the names are fixed, distinct and well formed");
        TestSchema {
            sections: schema.sections().map(|(section, _)| section).collect(),
            schema,
            counters: [first, second],
            gauge,
            histogram,
            quotas: [held, kept],
        }
    }

    /// Returns the totals as of the last flush, without a flush.
    #[must_use]
    pub fn cached(&self, group: &Group) -> Sums {
        Sums {
            counters: self.counters.map(|key| group.read(key).value),
            gauge: group.read(self.gauge).value,
            ..Sums::of(&group.read_histogram(self.histogram).value)
        }
    }

    /// Returns the totals of a group in a snapshot.
    #[must_use]
    pub fn copied(&self, values: &GroupValues) -> Sums {
        Sums {
            counters: self.counters.map(|key| values.counter(key)),
            gauge: values.gauge(self.gauge),
            ..Sums::of(&values.histogram(self.histogram))
        }
    }

    /// Returns what a group itself counted, in a snapshot that has it.
    ///
    /// # Panics
    /// When the snapshot does not have it, or has it for a quota.
    #[must_use]
    pub fn own(&self, values: &GroupValues) -> Sums {
        let (mut sums, mut counters) = (Sums::default(), 0);
        for metric in self.schema.metrics() {
            match (metric.kind(), values.own(metric)) {
                (_, Some(Value::Counter(n))) => {
                    sums.counters[counters] = n;
                    counters += 1;
                }
                (_, Some(Value::Gauge(n))) => sums.gauge = n,
                (_, Some(Value::Histogram(own))) => {
                    sums = Sums { counters: sums.counters, gauge: sums.gauge, ..Sums::of(&own) };
                }
                (MetricKind::Quota, None) => {}
                (_, own) => panic!("{own:?} of {}", metric.name()),
            }
        }
        sums
    }

    /// Returns a group's usage of each quota.
    #[must_use]
    pub fn held(&self, group: &Group) -> [Held; QUOTAS] {
        self.quotas.map(|key| Held::from(group.usage(key)))
    }

    /// Returns the usage of each quota by a group in a snapshot.
    #[must_use]
    pub fn held_copied(&self, values: &GroupValues) -> [Held; QUOTAS] {
        self.quotas.map(|key| Held::from(values.usage(key)))
    }

    /// Returns whether the metric called `name` is in a section.
    #[must_use]
    pub fn is_in(&self, name: &str, section: Section) -> bool {
        let mut metrics = self.schema.metrics().iter();
        metrics.any(|metric| metric.name() == name && metric.section() == section)
    }
}

impl Default for TestSchema {
    fn default() -> Self {
        TestSchema::new()
    }
}

impl Sums {
    /// Returns sums with the histogram's part filled in.
    ///
    /// # Panics
    /// When the snapshot is inconsistent.
    fn of(histogram: &HistogramSnapshot) -> Sums {
        assert_eq!(histogram.count(), histogram.counts().iter().sum::<u64>());
        let buckets = histogram.counts().try_into().expect("the schema's buckets");
        Sums { buckets, recorded: histogram.sum(), ..Sums::default() }
    }

    /// Records a value in the histogram `n` times.
    pub fn record(&mut self, value: u64, n: u64) {
        // Uses the published bounds, not the arithmetic that finds a value's bucket.
        let inside = |&index: &usize| BUCKETS.upper(index).is_none_or(|upper| value <= upper);
        self.buckets[(0..BUCKETS.len()).find(inside).expect("the last is open")] += n;
        self.recorded += value * n;
    }
}

impl Totals {
    /// Adds the totals of other groups or threads.
    pub fn merge(&mut self, other: &Totals) {
        let sum = |mine: &mut [u64], others: &[u64]| {
            mine.iter_mut().zip(others).for_each(|(mine, other)| *mine += other);
        };
        sum(&mut self.sums.counters, &other.sums.counters);
        sum(&mut self.sums.buckets, &other.sums.buckets);
        self.sums.gauge += other.sums.gauge;
        self.sums.recorded += other.sums.recorded;
        self.visited.merge(&other.visited);
    }
}

impl From<Usage> for Held {
    fn from(usage: Usage) -> Held {
        let Usage { current, peak, peak_low, limit, refused, overdrafts, mode, .. } = usage;
        let claims = [usage.min, usage.low];
        Held { current, peak, peak_low, limit, refused, overdrafts, mode, claims }
    }
}

impl Held {
    /// Compares what was found with the truth: everything exactly, except the peak, which must be
    /// within its bounds.
    ///
    /// # Panics
    /// When they differ.
    pub fn assert_is(&self, truth: &Held, whose: &str) {
        let Held { peak, peak_low, .. } = *truth;
        assert_eq!(Held { peak, peak_low, ..*self }, *truth, "{whose}");
        let within = self.peak_low <= peak_low && peak <= self.peak;
        assert!(within, "{whose}: the peak was {peak}, not {}..={}", self.peak_low, self.peak);
    }
}
