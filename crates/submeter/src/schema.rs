//! What is measured: a fixed list of metrics that every group of a tree has.
//!
//! A schema is closed before its tree exists. That is what lets a group be one contiguous block of
//! words whose layout is the same at every level, so that a flush adds word to word without a lookup.

use std::collections::HashSet;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::histogram::Buckets;
use crate::unit::{Unit, UnitKind};

/// The most words (8 bytes each) that the metrics of one group may take.
///
/// A flush keeps one bit for each 64-byte line of a group's block in one 64-bit mask.
pub const WORDS_MAX: usize = 512;

/// The most metrics of a schema: a key numbers them with 16 bits.
pub const METRICS_MAX: usize = u16::MAX as usize;

/// Names a monotonic sum. Copy it around; it is an index.
pub struct Counter<U> {
    pub(crate) key: Key,
    unit: PhantomData<fn() -> U>,
}

/// Names a value that goes up and down without a limit.
pub struct Gauge<U> {
    pub(crate) key: Key,
    unit: PhantomData<fn() -> U>,
}

/// Names a distribution.
pub struct Histogram<U> {
    pub(crate) key: Key,
    pub(crate) buckets: Buckets,
    unit: PhantomData<fn() -> U>,
}

/// Names something that is held and may be limited: it is charged before use and uncharged after.
pub struct Resource<U> {
    pub(crate) key: Key,
    unit: PhantomData<fn() -> U>,
}

/// An index into the schema, with the schema it belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    /// Which schema made it: a key used with another tree is a bug that must not read other metrics.
    pub(crate) schema: u32,
    /// Index into `Schema::metrics`.
    pub(crate) metric: u16,
    /// First word in the group's block; for a resource its index among the resources.
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
        impl<U: Unit> fmt::Debug for $name<U> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}<{:?}>(#{})", stringify!($name), U::KIND, self.key.metric)
            }
        }
    )*};
}
key_traits!(Counter, Gauge, Histogram, Resource);

/// What a metric is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum MetricKind {
    /// See [`Counter`].
    Counter,
    /// See [`Gauge`].
    Gauge,
    /// See [`Histogram`].
    Histogram,
    /// See [`Resource`].
    Resource,
}

/// Describes one metric of a schema.
#[derive(Clone, Debug)]
pub struct Metric {
    pub(crate) name: String,
    pub(crate) help: String,
    pub(crate) kind: MetricKind,
    pub(crate) unit: UnitKind,
    pub(crate) key: Key,
    pub(crate) buckets: Option<Buckets>,
}

impl Metric {
    /// Returns the name, without unit or type suffix.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the one-line description.
    #[must_use]
    pub fn help(&self) -> &str {
        &self.help
    }

    /// Returns what the metric is.
    #[must_use]
    pub fn kind(&self) -> MetricKind {
        self.kind
    }

    /// Returns what one step of it means.
    #[must_use]
    pub fn unit(&self) -> UnitKind {
        self.unit
    }

    /// Returns the histogram's buckets, or `None` for any other kind.
    #[must_use]
    pub fn buckets(&self) -> Option<Buckets> {
        self.buckets
    }

    pub(crate) fn words(&self) -> usize {
        match self.kind {
            MetricKind::Counter | MetricKind::Gauge => 1,
            // One word for the sum of the values, then one a bucket.
            MetricKind::Histogram => 1 + self.buckets.map_or(0, Buckets::len),
            MetricKind::Resource => 0,
        }
    }
}

/// The closed list of metrics of a tree. Cloning is a pointer copy.
///
/// # Examples
/// ```
/// use submeter::{Bytes, Count, Schema};
///
/// let mut schema = Schema::builder();
/// let requests = schema.counter::<Count>("requests", "Requests answered");
/// let memory = schema.resource::<Bytes>("memory", "Memory held by items");
/// let schema = schema.build()?;
/// assert_eq!(schema.metrics().len(), 2);
/// # let _ = (requests, memory);
/// # Ok::<(), submeter::SchemaError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Schema {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    id: u32,
    metrics: Vec<Metric>,
    words: usize,
    resources: usize,
}

impl Schema {
    /// Starts an empty schema.
    #[must_use]
    pub fn builder() -> SchemaBuilder {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        SchemaBuilder {
            // Relaxed: only uniqueness matters, and one atomic's modification order gives that.
            id: NEXT.fetch_add(1, Ordering::Relaxed),
            metrics: Vec::new(),
            words: 0,
            resources: 0,
        }
    }

    /// Returns the metrics in the order in which they were declared.
    #[must_use]
    pub fn metrics(&self) -> &[Metric] {
        &self.inner.metrics
    }

    /// Finds a metric by its name.
    #[must_use]
    pub fn metric(&self, name: &str) -> Option<&Metric> {
        self.inner.metrics.iter().find(|m| m.name == name)
    }

    /// Returns the 8-byte words that the per-CPU block of one group takes.
    #[must_use]
    pub fn words(&self) -> usize {
        self.inner.words
    }

    pub(crate) fn id(&self) -> u32 {
        self.inner.id
    }

    pub(crate) fn resources(&self) -> usize {
        self.inner.resources
    }
}

/// Collects the metrics of a [`Schema`].
#[derive(Debug)]
pub struct SchemaBuilder {
    id: u32,
    metrics: Vec<Metric>,
    words: usize,
    resources: usize,
}

impl SchemaBuilder {
    /// Declares a monotonic sum. Add to it with [`Group::add`](crate::Group::add).
    pub fn counter<U: Unit>(&mut self, name: &str, help: &str) -> Counter<U> {
        let key = self.push(name, help, MetricKind::Counter, U::KIND, None);
        Counter { key, unit: PhantomData }
    }

    /// Declares a value that goes up and down. Change it with [`Group::adjust`](crate::Group::adjust).
    pub fn gauge<U: Unit>(&mut self, name: &str, help: &str) -> Gauge<U> {
        let key = self.push(name, help, MetricKind::Gauge, U::KIND, None);
        Gauge { key, unit: PhantomData }
    }

    /// Declares a distribution over `buckets`. Record with [`Group::record`](crate::Group::record).
    pub fn histogram<U: Unit>(&mut self, name: &str, help: &str, buckets: Buckets) -> Histogram<U> {
        let key = self.push(name, help, MetricKind::Histogram, U::KIND, Some(buckets));
        Histogram { key, buckets, unit: PhantomData }
    }

    /// Declares something held that may be limited. Charge it with
    /// [`Group::try_charge`](crate::Group::try_charge).
    pub fn resource<U: Unit>(&mut self, name: &str, help: &str) -> Resource<U> {
        let key = self.push(name, help, MetricKind::Resource, U::KIND, None);
        Resource { key, unit: PhantomData }
    }

    /// Closes the schema.
    ///
    /// # Errors
    /// A name that is empty, repeated or not `[a-z][a-z0-9_]*`; more than [`WORDS_MAX`] words, or
    /// [`METRICS_MAX`] metrics.
    pub fn build(self) -> Result<Schema, SchemaError> {
        let mut names = HashSet::new();
        for metric in &self.metrics {
            let mut bytes = metric.name.bytes();
            let well_formed = bytes.next().is_some_and(|b| b.is_ascii_lowercase())
                && bytes.all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_');
            if !well_formed {
                return Err(SchemaError::Name(metric.name.clone()));
            }
            if !names.insert(metric.name.as_str()) {
                return Err(SchemaError::Repeated(metric.name.clone()));
            }
        }
        // Resources take no words, so that nothing else bounds them.
        if self.metrics.len() > METRICS_MAX {
            return Err(SchemaError::TooMany { metrics: self.metrics.len() });
        }
        if self.words > WORDS_MAX {
            return Err(SchemaError::TooLarge { words: self.words });
        }
        Ok(Schema {
            inner: Arc::new(Inner {
                id: self.id,
                metrics: self.metrics,
                words: self.words,
                resources: self.resources,
            }),
        })
    }

    fn push(
        &mut self,
        name: &str,
        help: &str,
        kind: MetricKind,
        unit: UnitKind,
        buckets: Option<Buckets>,
    ) -> Key {
        let slot = if kind == MetricKind::Resource { self.resources } else { self.words };
        // Saturation is safe: `build` refuses a schema of 65,536 words or metrics.
        let narrow = |n: usize| u16::try_from(n).unwrap_or(u16::MAX);
        let key = Key { schema: self.id, metric: narrow(self.metrics.len()), slot: narrow(slot) };
        let metric =
            Metric { name: name.to_owned(), help: help.to_owned(), kind, unit, key, buckets };
        self.words += metric.words();
        self.resources += usize::from(kind == MetricKind::Resource);
        self.metrics.push(metric);
        key
    }
}

/// Says why a schema was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SchemaError {
    /// The name is not `[a-z][a-z0-9_]*`.
    Name(String),
    /// Two metrics have this name.
    Repeated(String),
    /// The metrics need more than [`WORDS_MAX`] words.
    TooLarge {
        /// What they need.
        words: usize,
    },
    /// There are more than [`METRICS_MAX`] metrics.
    TooMany {
        /// How many there are.
        metrics: usize,
    },
}

impl fmt::Display for SchemaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SchemaError::Name(name) => {
                write!(f, "metric name {name:?} is not of the form [a-z][a-z0-9_]*")
            }
            SchemaError::Repeated(name) => write!(f, "two metrics are named {name:?}"),
            SchemaError::TooLarge { words } => write!(
                f,
                "the metrics need {words} words of {WORDS_MAX}: use fewer or coarser histograms"
            ),
            SchemaError::TooMany { metrics } => {
                write!(f, "{metrics} metrics are too many: declare at most {METRICS_MAX}")
            }
        }
    }
}

impl std::error::Error for SchemaError {}
