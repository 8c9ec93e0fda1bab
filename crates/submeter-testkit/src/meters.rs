//! A small schema with every kind of metric.

use submeter::{Buckets, Bytes, Count, Counter, Gauge, Histogram, Nanoseconds, Resource, Schema};

/// How many counters [`Meters`] has.
pub const COUNTERS: usize = 2;

/// How many resources [`Meters`] has.
pub const RESOURCES: usize = 2;

/// The buckets of the histogram of [`Meters`]: eighteen, so few that all of them are hit, both open
/// ones included.
pub const BUCKETS: Buckets = Buckets::powers(2, 6);

/// Holds the keys of a schema that has every kind of metric, some of them twice.
#[derive(Clone, Debug)]
pub struct Meters {
    /// The schema.
    pub schema: Schema,
    /// Two, so that an update of one that lands in the other is seen.
    pub counters: [Counter<Count>; COUNTERS],
    /// Goes below zero in tests.
    pub gauge: Gauge<Bytes>,
    /// Over [`BUCKETS`].
    pub histogram: Histogram<Nanoseconds>,
    /// Two, as with the counters.
    pub resources: [Resource<Bytes>; RESOURCES],
}

impl Meters {
    /// Declares them, interleaved so that every kind has a neighbour of another.
    ///
    /// # Panics
    /// Never: the names are fixed, distinct and well formed.
    #[must_use]
    pub fn new() -> Meters {
        let mut schema = Schema::builder();
        let first = schema.counter("first", "A counter");
        let held = schema.resource("held", "A resource");
        let histogram = schema.histogram("histogram", "A histogram", BUCKETS);
        let second = schema.counter("second", "Another counter");
        let kept = schema.resource("kept", "Another resource");
        let gauge = schema.gauge("gauge", "A gauge");
        Meters {
            schema: schema.build().expect("fixed names"),
            counters: [first, second],
            gauge,
            histogram,
            resources: [held, kept],
        }
    }
}

impl Default for Meters {
    fn default() -> Self {
        Meters::new()
    }
}
