//! Schemas: the list of metrics that every group of a tree has.
//!
//! A section of a schema is complete before any group has words of it. Therefore the words can be
//! one contiguous block with the same layout on every level, and a flush adds word to word without
//! a lookup. Declarations in an existing tree make a schema with one more section: existing
//! metrics, sections and words keep their numbers.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

#[cfg(feature = "perf")]
use submeter_events::Event;

#[cfg(feature = "perf")]
use crate::metric::unit::Count;
use crate::metric::unit::{Nanoseconds, UnitKind};

mod builder;
mod error;
mod extension;
mod keys;
mod later;
mod metric;
mod metrics;
mod thread_meter;

pub use builder::SchemaBuilder;
pub use error::SchemaError;
pub(crate) use keys::Key;
pub use keys::{Counter, Gauge, Histogram, Quota, RateLimit, Section};
pub use metric::{Metric, MetricKind};
pub use metrics::{MetricKey, Metrics};
pub(crate) use thread_meter::Metering;
pub use thread_meter::{THREAD_COUNTS, ThreadMeter};

/// Maximum number of words (8 bytes each) that the metrics of one section may take in a group.
///
/// A flush keeps one bit for each 64-byte line of a group's block in one 64-bit mask.
pub const WORDS_MAX: usize = 512;

/// Maximum number of metrics in a schema: a key numbers them with 16 bits.
pub const METRICS_MAX: usize = u16::MAX as usize;

/// Maximum number of sections in a schema: each reserves its own address space.
pub const SECTIONS_MAX: usize = 16;

/// The words of a quota: refusals of its limit, pauses, overdrafts.
const QUOTA_WORDS: usize = 3;

/// The name of the section of metrics that are declared outside any section.
const FIRST_SECTION: &str = "main";

/// The complete list of metrics of a tree. Cloning is a pointer copy.
///
/// # Examples
/// ```
/// use submeter::{Bytes, Count, Schema};
///
/// let mut schema = Schema::builder();
/// let requests = schema.counter::<Count>("requests", "Requests answered");
/// let memory = schema.quota::<Bytes>("memory", "Memory held by items");
/// let cpu = schema.cpu_time("cpu", "CPU time used");
/// let schema = schema.build()?;
/// assert_eq!((schema.metrics().len(), schema.cpu_time()), (3, Some(cpu)));
/// assert!(schema.words() < submeter::WORDS_MAX);
/// # let _ = (requests, memory);
/// # Ok::<(), submeter::SchemaError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Schema {
    inner: Arc<Inner>,
    /// The numbers of sections that may be added to its tree; empty for a schema without a tree.
    added: Range<u32>,
}

#[derive(Debug)]
struct Inner {
    metrics: Vec<Metric>,
    /// Never empty.
    sections: Vec<SectionLayout>,
    quotas: usize,
    rate_limits: Vec<(String, UnitKind)>,
    cpu_time: Option<Counter<Nanoseconds>>,
    off_cpu: Option<Counter<Nanoseconds>>,
    cpu_error: Option<Counter<Nanoseconds>>,
    metering: Option<Metering>,
    cpu_budget: Option<RateLimit<Nanoseconds>>,
    #[cfg(feature = "perf")]
    events: Box<[(Event, Counter<Count>)]>,
}

/// The space that the metrics of one section need.
#[derive(Clone, Debug)]
pub(crate) struct SectionLayout {
    pub(crate) id: u32,
    pub(crate) name: String,
    /// Number of words of one group on each CPU: those of its metrics and, at the end of the first
    /// section, those that count what happened at the limits of quotas.
    pub(crate) words: usize,
}

impl SectionLayout {
    fn new(name: &str) -> SectionLayout {
        SectionLayout { id: numbers(1).start, name: name.to_owned(), words: 0 }
    }
}

/// Returns `many` section numbers that no other section has.
fn numbers(many: usize) -> Range<u32> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let many = many as u32;
    // Relaxed: only uniqueness matters, and one atomic's modification order gives that.
    let first = NEXT.fetch_add(many, Ordering::Relaxed);
    first..first + many
}

impl Schema {
    /// Starts an empty schema.
    ///
    /// # Examples
    /// ```
    /// use submeter::{Count, Schema};
    ///
    /// let mut schema = Schema::builder();
    /// schema.counter::<Count>("requests", "Requests answered");
    /// assert_eq!(schema.build()?.metrics().len(), 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn builder() -> SchemaBuilder {
        SchemaBuilder::new()
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

    /// Finds a section by its name: `main` has the metrics that were declared outside any section.
    #[must_use]
    pub fn section(&self, name: &str) -> Option<Section> {
        self.sections().find(|(_, known)| *known == name).map(|(section, _)| section)
    }

    /// Returns the sections with their names in the order in which they were declared, `main`
    /// first.
    pub fn sections(&self) -> impl Iterator<Item = (Section, &str)> {
        self.inner.sections.iter().map(|layout| (Section { id: layout.id }, layout.name.as_str()))
    }

    /// Returns the number of 8-byte words that one group takes on each CPU that updates it, over
    /// all sections.
    #[must_use]
    pub fn words(&self) -> usize {
        self.inner.sections.iter().map(|layout| layout.words).sum()
    }

    /// Returns the counter of CPU time, if one was declared.
    #[inline]
    #[must_use]
    pub fn cpu_time(&self) -> Option<Counter<Nanoseconds>> {
        self.inner.cpu_time
    }

    /// Returns the counter of time off the CPU, if one was declared.
    #[inline]
    #[must_use]
    pub fn off_cpu(&self) -> Option<Counter<Nanoseconds>> {
        self.inner.off_cpu
    }

    /// Returns the counter of CPU time's error, if one was declared.
    #[inline]
    #[must_use]
    pub fn cpu_error(&self) -> Option<Counter<Nanoseconds>> {
        self.inner.cpu_error
    }

    /// Returns the counters of counts that threads keep, if any were declared.
    pub(crate) fn metering(&self) -> Option<Metering> {
        self.inner.metering
    }

    /// Returns the rate limit from which CPU time is spent, if one was declared.
    #[inline]
    #[must_use]
    pub fn cpu_budget(&self) -> Option<RateLimit<Nanoseconds>> {
        self.inner.cpu_budget
    }

    /// Returns the rate limits by their names, with the units of what they limit, in the order in
    /// which they were declared.
    ///
    /// # Examples
    /// ```
    /// use submeter::{Bytes, Schema, UnitKind};
    ///
    /// let mut schema = Schema::builder();
    /// schema.rate_limit::<Bytes>("sent", "Bytes sent per time");
    /// let schema = schema.build()?;
    /// assert!(schema.rate_limits().eq([("sent", UnitKind::Bytes)]));
    /// # Ok::<(), submeter::SchemaError>(())
    /// ```
    pub fn rate_limits(&self) -> impl ExactSizeIterator<Item = (&str, UnitKind)> {
        self.inner.rate_limits.iter().map(|(name, unit)| (name.as_str(), *unit))
    }

    /// Returns the counters of perf events, in the order in which they were declared.
    #[inline]
    #[cfg(feature = "perf")]
    #[must_use]
    pub fn events(&self) -> &[(Event, Counter<Count>)] {
        &self.inner.events
    }

    /// Returns this schema as that of one tree, to which sections may be added.
    pub(crate) fn of_a_tree(&self) -> Schema {
        Schema { inner: Arc::clone(&self.inner), added: numbers(SECTIONS_MAX) }
    }

    /// Returns whether `section` was added to the schema's tree, or may be.
    pub(crate) fn may_add(&self, section: u32) -> bool {
        self.added.contains(&section)
    }

    /// Returns the number of the first section, which no other schema shares.
    pub(crate) fn id(&self) -> u32 {
        self.inner.sections[0].id
    }

    pub(crate) fn layouts(&self) -> &[SectionLayout] {
        &self.inner.sections
    }

    /// Returns the index of a metric's first word among those of all sections, unless it belongs to
    /// another schema.
    pub(crate) fn word(&self, key: Key) -> Option<usize> {
        let section = self.layouts().iter().position(|layout| layout.id == key.section)?;
        let before: usize = self.layouts()[..section].iter().map(|layout| layout.words).sum();
        Some(before + usize::from(key.slot))
    }

    /// Returns the words of a section's gauges, counted from its first.
    pub(crate) fn levels(&self, section: &SectionLayout) -> Vec<usize> {
        let gauges = self.metrics().iter().filter(|metric| metric.kind == MetricKind::Gauge);
        let gauges = gauges.filter(|gauge| gauge.key.section == section.id);
        gauges.map(|gauge| usize::from(gauge.key.slot)).collect()
    }

    /// Returns the word that counts the refusals of a quota's limits, in the first section, which
    /// is also its index among those of all.
    ///
    /// A word like a counter's, in addition to the number in [`Usage`](crate::Usage): totals above
    /// a group keep its refusals after it has ended, and totals of one flush agree with each other.
    pub(crate) fn refused_word(&self, quota: Key) -> usize {
        self.layouts()[0].words - QUOTA_WORDS * self.inner.quotas + usize::from(quota.slot)
    }

    /// Returns the word that counts the pauses that callers were asked for, in the first section.
    pub(crate) fn paused_word(&self, quota: Key) -> usize {
        self.refused_word(quota) + self.inner.quotas
    }

    /// Returns the word that counts the charges beyond a quota's limits, in the first section.
    pub(crate) fn overdrafts_word(&self, quota: Key) -> usize {
        self.paused_word(quota) + self.inner.quotas
    }

    pub(crate) fn quotas(&self) -> usize {
        self.inner.quotas
    }
}
