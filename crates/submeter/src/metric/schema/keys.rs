//! Keys, by which a program refers to the metrics of its schema.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::marker::PhantomData;

use crate::metric::histogram::Buckets;
use crate::metric::unit::{Count, Nanoseconds, Unit};

/// Key of a monotonic counter; `Copy`, just an index.
///
/// Declared by [`SchemaBuilder::counter`](super::SchemaBuilder::counter), added to by
/// [`Group::add`](crate::Group::add).
///
/// # Examples
/// ```
/// # use submeter::{Count, Schema, Tree};
/// # let mut schema = Schema::builder();
/// # let requests = schema.counter::<Count>("requests", "Requests answered");
/// # let tree = Tree::new(schema.build()?)?;
/// tree.root().add(requests, 1);
/// assert_eq!(tree.root().sum(requests), 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Counter<U> {
    pub(crate) key: Key,
    pub(super) unit: PhantomData<fn() -> U>,
}

/// Key of a value that goes up and down without a limit; `Copy`, just an index.
///
/// Declared by [`SchemaBuilder::gauge`](super::SchemaBuilder::gauge), changed by
/// [`Group::adjust`](crate::Group::adjust). For a value that must stay within a limit, use a
/// [`Quota`].
///
/// # Examples
/// ```
/// # use submeter::{Count, Schema, Tree};
/// # let mut schema = Schema::builder();
/// # let waiting = schema.gauge::<Count>("waiting", "Requests in the queue");
/// # let tree = Tree::new(schema.build()?)?;
/// tree.root().adjust(waiting, 2);
/// tree.root().adjust(waiting, -1);
/// assert_eq!(tree.root().sum(waiting), 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Gauge<U> {
    pub(crate) key: Key,
    pub(super) unit: PhantomData<fn() -> U>,
}

/// Key of a distribution; `Copy`, just an index and its buckets.
///
/// Declared by [`SchemaBuilder::histogram`](super::SchemaBuilder::histogram), recorded into by
/// [`Group::record`](crate::Group::record).
///
/// # Examples
/// ```
/// # use submeter::{Buckets, Nanoseconds, Schema, Tree};
/// # let mut schema = Schema::builder();
/// # let latency = schema.histogram::<Nanoseconds>("latency", "", Buckets::LATENCY_NS);
/// # let tree = Tree::new(schema.build()?)?;
/// tree.root().record(latency, 1_500_000);
/// assert_eq!(tree.root().sum_histogram(latency).count(), 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Histogram<U> {
    pub(crate) key: Key,
    pub(crate) buckets: Buckets,
    pub(super) unit: PhantomData<fn() -> U>,
}

/// Key of something that groups hold and that may be limited: charged before use and released
/// afterwards; `Copy`, just an index.
///
/// Declared by [`SchemaBuilder::quota`](super::SchemaBuilder::quota), charged by
/// [`Group::try_charge`](crate::Group::try_charge).
///
/// # Examples
/// ```
/// # use submeter::{Bytes, Schema, Tree};
/// # let mut schema = Schema::builder();
/// # let memory = schema.quota::<Bytes>("memory", "Memory held");
/// # let tree = Tree::new(schema.build()?)?;
/// let held = tree.root().try_charge(memory, 4096)?;
/// assert_eq!(tree.root().usage(memory).current, 4096);
/// # drop(held);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Quota<U> {
    pub(crate) key: Key,
    pub(super) unit: PhantomData<fn() -> U>,
}

/// Key of something of which groups may take only a limited amount in a given time: requests, bytes
/// sent, CPU time; `Copy`, just an index.
///
/// Declared by [`SchemaBuilder::rate_limit`](super::SchemaBuilder::rate_limit), taken from by
/// [`Group::try_take`](crate::Group::try_take). For something that is held and given back, use a
/// [`Quota`].
///
/// # Examples
/// ```
/// # use submeter::{Count, Rate, Schema, Tree};
/// # let mut schema = Schema::builder();
/// let requests = schema.rate_limit::<Count>("requests", "Requests per time");
/// # let tree = Tree::new(schema.build()?)?;
/// let hour = std::time::Duration::from_secs(3600);
/// tree.root().set_rate(requests, Some(Rate::new(2, hour)))?;
/// tree.root().try_take(requests, 2)?;
/// assert!(tree.root().try_take(requests, 1).is_err());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct RateLimit<U> {
    /// The metric is that of `throttled`; the slot is the index among the rate limits.
    pub(crate) key: Key,
    pub(super) throttled: Counter<Count>,
    pub(super) throttled_time: Counter<Nanoseconds>,
    pub(super) overdrafts: Counter<Count>,
    pub(super) unit: PhantomData<fn() -> U>,
}

impl<U> RateLimit<U> {
    /// Returns the counter of the takes that a group's rate refused, the group's own and its
    /// descendants': the metric `NAME_throttled`.
    #[must_use]
    pub fn throttled(self) -> Counter<Count> {
        self.throttled
    }

    /// Returns the counter of the time during which takes were refused, each from the refusal until
    /// it would have been granted: the metric `NAME_throttled_time`. Overlapping times count once.
    /// A refusal counts at most a second ahead.
    #[must_use]
    pub fn throttled_time(self) -> Counter<Nanoseconds> {
        self.throttled_time
    }

    /// Returns the counter of the takes that a group's [soft](crate::Group::set_rate_mode) rate
    /// granted and an enforced one would have refused: the metric `NAME_overdrafts`.
    #[must_use]
    pub fn overdrafts(self) -> Counter<Count> {
        self.overdrafts
    }
}

/// Key of a section: metrics that are flushed together, separately from those of other sections;
/// `Copy`, just an index.
///
/// Declared by [`SchemaBuilder::section`](super::SchemaBuilder::section), found by
/// [`Schema::section`](super::Schema::section) and [`Metric::section`](super::Metric::section).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Section {
    /// As in [`Key`].
    pub(crate) id: u32,
}

/// An index into the schema, with the section that it belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    /// The number of the schema's section that created it, which is unique in the process: one
    /// comparison finds the right words, and a key that is used with another tree by mistake reads
    /// no other metric. A quota has the number of the first section: quotas are exact without a
    /// flush, so sections do not matter to them.
    pub(crate) section: u32,
    /// Index into `Schema::metrics`.
    pub(crate) metric: u16,
    /// The first word in the group's block for the section; for a quota, its index among the
    /// quotas.
    pub(crate) slot: u16,
}

macro_rules! key_traits {
    ($($name:ident),*) => {$(
        impl<U> Clone for $name<U> {
            fn clone(&self) -> Self {
                *self
            }
        }
        impl<U> Copy for $name<U> {}
        impl<U> PartialEq for $name<U> {
            fn eq(&self, other: &Self) -> bool {
                self.key == other.key
            }
        }
        impl<U> Eq for $name<U> {}
        impl<U> Hash for $name<U> {
            fn hash<H: Hasher>(&self, state: &mut H) {
                self.key.hash(state);
            }
        }
        impl<U: Unit> fmt::Debug for $name<U> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}<{:?}>(#{})", stringify!($name), U::KIND, self.key.metric)
            }
        }
    )*};
}
key_traits!(Counter, Gauge, Histogram, Quota, RateLimit);
