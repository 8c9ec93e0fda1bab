//! The description of one metric in a schema.

use std::fmt;

use super::keys::{Counter, Key, Section};
use crate::metric::histogram::Buckets;
use crate::metric::unit::{Unit, UnitKind};

/// The kind of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum MetricKind {
    /// See [`Counter`](super::Counter).
    Counter,
    /// See [`Gauge`](super::Gauge).
    Gauge,
    /// See [`Histogram`](super::Histogram).
    Histogram,
    /// See [`Quota`](super::Quota).
    Quota,
}

/// Writes `counter`, `gauge`, `histogram` or `quota`.
impl fmt::Display for MetricKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            MetricKind::Counter => "counter",
            MetricKind::Gauge => "gauge",
            MetricKind::Histogram => "histogram",
            MetricKind::Quota => "quota",
        })
    }
}

/// One metric of a schema: name, help, kind and unit.
///
/// # Examples
/// ```
/// # use submeter::{Schema, Tree};
/// # let tree = Tree::new(Schema::builder().build()?)?;
/// for metric in tree.schema().metrics() {
///     println!("{} ({:?}): {}", metric.name(), metric.unit(), metric.help());
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
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

    /// Returns whether a counter's key belongs to this metric.
    ///
    /// # Examples
    /// ```
    /// # use submeter::Schema;
    /// let mut schema = Schema::builder();
    /// schema.cpu_time("cpu", "CPU time");
    /// let schema = schema.build()?;
    /// assert!(schema.cpu_time().is_some_and(|cpu_time| schema.metrics()[0].is(cpu_time)));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn is<U: Unit>(&self, counter: Counter<U>) -> bool {
        self.kind == MetricKind::Counter && self.key == counter.key
    }

    /// Returns the one-line description.
    #[must_use]
    pub fn help(&self) -> &str {
        &self.help
    }

    /// Returns the metric's kind.
    #[must_use]
    pub fn kind(&self) -> MetricKind {
        self.kind
    }

    /// Returns the metric's unit.
    #[must_use]
    pub fn unit(&self) -> UnitKind {
        self.unit
    }

    /// Returns the metric's section; the first one for a quota, which needs no flush.
    #[must_use]
    pub fn section(&self) -> Section {
        Section { id: self.key.section }
    }

    /// Returns the histogram's buckets, or `None` for any other kind.
    #[must_use]
    pub fn buckets(&self) -> Option<Buckets> {
        self.buckets
    }

    pub(crate) fn words(&self) -> usize {
        match self.kind {
            MetricKind::Counter | MetricKind::Gauge => 1,
            // One word for the sum of the values, then one per bucket.
            MetricKind::Histogram => 1 + self.buckets.map_or(0, Buckets::len),
            MetricKind::Quota => 0,
        }
    }
}
