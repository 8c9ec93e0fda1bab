//! A small schema with every kind of metric.

use submeter::{
    Buckets, Bytes, Count, Counter, Gauge, Histogram, MetricSet, Nanoseconds, Resource, Schema,
    SchemaBuilder,
};

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
    /// The sets that the metrics are in.
    pub sets: Vec<MetricSet>,
}

impl Meters {
    /// Declares them in one set, interleaved so that every kind has a neighbour of another.
    #[must_use]
    pub fn new() -> Meters {
        Meters::declare(Schema::builder(), |_| ())
    }

    /// Declares them in two sets, which are flushed apart: the second counter and the gauge are in another one
    /// than the rest.
    #[must_use]
    pub fn split() -> Meters {
        Meters::declare(Schema::builder(), |schema| {
            schema.set("apart");
        })
    }

    fn declare(mut schema: SchemaBuilder, between: impl FnOnce(&mut SchemaBuilder)) -> Meters {
        let first = schema.counter("first", "A counter");
        let held = schema.resource("held", "A resource");
        let histogram = schema.histogram("histogram", "A histogram", BUCKETS);
        between(&mut schema);
        let second = schema.counter("second", "Another counter");
        let kept = schema.resource("kept", "Another resource");
        let gauge = schema.gauge("gauge", "A gauge");
        let schema = schema.build().expect("the names are fixed, distinct and well formed");
        Meters {
            sets: schema.set_names().map(|(set, _)| set).collect(),
            schema,
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
