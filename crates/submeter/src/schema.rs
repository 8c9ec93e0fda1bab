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
use crate::perf::{Event, LinuxPmu, NotSupported};
use crate::unit::{Count, Nanoseconds, Unit, UnitKind};

/// The most words (8 bytes each) that the metrics of one set may take in a group.
///
/// A flush keeps one bit for each 64-byte line of a group's block in one 64-bit mask.
pub const WORDS_MAX: usize = 512;

/// The most metrics of a schema: a key numbers them with 16 bits.
pub const METRICS_MAX: usize = u16::MAX as usize;

/// The most sets that the metrics of a schema may be split into: each takes address space of its own.
pub const SETS_MAX: usize = 16;

/// The name of the set that metrics belong to unless [`SchemaBuilder::set`] says otherwise.
const FIRST_SET: &str = "main";

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

/// Names metrics that are flushed together, apart from those of other sets. Copy it around; it is an index.
///
/// Made by [`SchemaBuilder::set`], found by [`Schema::set`] and [`Metric::set`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MetricSet {
    /// As in [`Key`].
    pub(crate) id: u32,
}

/// An index into the schema, with the set of metrics that it belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    /// Which set of which schema made it, by a number that no two sets of the process share: one comparison
    /// finds the right words, and a key used with another tree, a bug, reads no other metrics. For a
    /// resource that of the first set: resources are exact without a flush, so sets mean nothing to them.
    pub(crate) set: u32,
    /// Index into `Schema::metrics`.
    pub(crate) metric: u16,
    /// First word in the group's block for the set; for a resource its index among the resources.
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

    /// Returns the set that it is flushed with; the first one for a resource, which needs no flush.
    #[must_use]
    pub fn set(&self) -> MetricSet {
        MetricSet { id: self.key.set }
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
    metrics: Vec<Metric>,
    /// Never empty.
    sets: Vec<Set>,
    resources: usize,
    cpu_time: Option<Counter<Nanoseconds>>,
    events: Box<[(Event, Counter<Count>)]>,
}

/// What metrics of one set need.
#[derive(Debug)]
pub(crate) struct Set {
    pub(crate) id: u32,
    pub(crate) name: String,
    /// Of one group, all CPUs alike.
    pub(crate) words: usize,
}

impl Set {
    fn new(name: &str) -> Set {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        // Relaxed: only uniqueness matters, and one atomic's modification order gives that.
        Set { id: NEXT.fetch_add(1, Ordering::Relaxed), name: name.to_owned(), words: 0 }
    }
}

impl Schema {
    /// Starts an empty schema.
    #[must_use]
    pub fn builder() -> SchemaBuilder {
        SchemaBuilder {
            metrics: Vec::new(),
            sets: vec![Set::new(FIRST_SET)],
            current: 0,
            resources: 0,
            cpu_times: Vec::new(),
            events: Vec::new(),
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

    /// Finds a set by its name: `main` is where metrics are unless another set was begun.
    #[must_use]
    pub fn set(&self, name: &str) -> Option<MetricSet> {
        let set = self.inner.sets.iter().find(|set| set.name == name)?;
        Some(MetricSet { id: set.id })
    }

    /// Returns the sets with their names, in the order in which they were begun.
    pub fn set_names(&self) -> impl Iterator<Item = (MetricSet, &str)> {
        self.inner.sets.iter().map(|set| (MetricSet { id: set.id }, set.name.as_str()))
    }

    /// Returns the 8-byte words that one group takes on each CPU that updates it, all sets together.
    #[must_use]
    pub fn words(&self) -> usize {
        self.inner.sets.iter().map(|set| set.words).sum()
    }

    /// Returns the counter that takes the groups' CPU time, if one was declared.
    #[inline]
    #[must_use]
    pub fn cpu_time(&self) -> Option<Counter<Nanoseconds>> {
        self.inner.cpu_time
    }

    /// Returns the counters that take events, in the order in which they were declared.
    #[inline]
    #[must_use]
    pub fn events(&self) -> &[(Event, Counter<Count>)] {
        &self.inner.events
    }

    /// The number of the first set, of which no other schema has the same.
    pub(crate) fn id(&self) -> u32 {
        self.inner.sets[0].id
    }

    pub(crate) fn sets(&self) -> &[Set] {
        &self.inner.sets
    }

    pub(crate) fn resources(&self) -> usize {
        self.inner.resources
    }
}

/// Collects the metrics of a [`Schema`].
#[derive(Debug)]
pub struct SchemaBuilder {
    metrics: Vec<Metric>,
    sets: Vec<Set>,
    /// The set that takes what is declared next.
    current: usize,
    resources: usize,
    /// One at most in a schema that is accepted.
    cpu_times: Vec<Counter<Nanoseconds>>,
    events: Vec<(Event, Counter<Count>)>,
}

impl SchemaBuilder {
    /// Begins a set of metrics, or goes back to one: what is declared from here on is flushed with it, and apart
    /// from all others. A read that flushes then pays for its own set only.
    ///
    /// Costs a reservation of address space for each tree, a block of words and what keeps it for each group, and a
    /// few instructions for each update of a metric outside the first set. Worth it where metrics are
    /// read at different times; where all are read together it only adds a barrier to each flush.
    ///
    /// # Examples
    /// ```
    /// use submeter::{Bytes, Count, Schema, Tree};
    ///
    /// let mut schema = Schema::builder();
    /// let requests = schema.counter::<Count>("requests", "Requests answered");
    /// let io = schema.set("io");
    /// let written = schema.counter::<Bytes>("written", "Bytes written to disk");
    /// let tree = Tree::new(schema.build()?)?;
    ///
    /// tree.root().add(requests, 1);
    /// tree.root().add(written, 4096);
    /// assert_eq!(tree.root().sum(written), 4096); // flushes the metrics of `io`
    /// assert_eq!(tree.root().read(requests).value, 0); // and no others
    /// tree.flush();
    /// assert_eq!(tree.root().read(requests).value, 1);
    /// # let _ = io;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Differences from Linux
    /// There each controller has its tree of updated groups, since 2025. Here the user decides what
    /// belongs together.
    pub fn set(&mut self, name: &str) -> MetricSet {
        let known = self.sets.iter().position(|set| set.name == name);
        self.current = known.unwrap_or_else(|| {
            self.sets.push(Set::new(name));
            self.sets.len() - 1
        });
        MetricSet { id: self.sets[self.current].id }
    }

    /// Declares a monotonic sum. Add to it with [`Group::add`](crate::Group::add).
    pub fn counter<U: Unit>(&mut self, name: &str, help: &str) -> Counter<U> {
        let key = self.push(name, help, MetricKind::Counter, U::KIND, None);
        Counter { key, unit: PhantomData }
    }

    /// Declares the counter that takes the CPU time of what runs in a group, for every group of the tree: see
    /// [`switch`](crate::switch). At most one a schema.
    ///
    /// Costs a read of the CPU's counter each time that a thread enters or leaves a group.
    pub fn cpu_time(&mut self, name: &str, help: &str) -> Counter<Nanoseconds> {
        let counter = self.counter(name, help);
        self.cpu_times.push(counter);
        counter
    }

    /// Declares a counter that takes what happens of `event` in a group, for every group of the tree: see
    /// [`switch`](crate::switch).
    ///
    /// Costs a system call for each event each time that a thread enters or leaves a group, and a file descriptor for
    /// each thread and event.
    ///
    /// # Examples
    /// ```
    /// use submeter::{Schema, perf};
    ///
    /// let mut schema = Schema::builder();
    /// for group in perf::parse("page-faults:u,cycles:u")? {
    ///     let event = &group.events()[0];
    ///     // A machine without the counter shows no such metric, rather than 0.
    ///     if let Err(error) = schema.event(&event.kind().to_string().replace('-', "_"), "", event) {
    ///         eprintln!("{error}");
    ///     }
    /// }
    /// # Ok::<(), submeter::perf::ParseError>(())
    /// ```
    ///
    /// # Errors
    /// When the event cannot be counted here; nothing is declared then.
    pub fn event(
        &mut self,
        name: &str,
        help: &str,
        event: &Event,
    ) -> Result<Counter<Count>, NotSupported> {
        LinuxPmu::supports(event)?;
        let counter = self.counter(name, help);
        self.events.push((*event, counter));
        Ok(counter)
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
    /// A name that is empty, repeated or not `[a-z][a-z0-9_]*`; more than [`WORDS_MAX`] words in a set,
    /// [`METRICS_MAX`] metrics, [`SETS_MAX`] sets, or one counter of CPU time.
    pub fn build(self) -> Result<Schema, SchemaError> {
        let mut names = HashSet::new();
        for metric in &self.metrics {
            if !is_well_formed(&metric.name) {
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
        if let Some(set) = self.sets.iter().find(|set| !is_well_formed(&set.name)) {
            return Err(SchemaError::SetName(set.name.clone()));
        }
        if self.sets.len() > SETS_MAX {
            return Err(SchemaError::TooManySets { sets: self.sets.len() });
        }
        if let Some(set) = self.sets.iter().find(|set| set.words > WORDS_MAX) {
            return Err(SchemaError::TooLarge { words: set.words });
        }
        if let [_, second, ..] = self.cpu_times[..] {
            let second = &self.metrics[usize::from(second.key.metric)];
            return Err(SchemaError::CpuTimeTwice(second.name.clone()));
        }
        Ok(Schema {
            inner: Arc::new(Inner {
                metrics: self.metrics,
                sets: self.sets,
                resources: self.resources,
                cpu_time: self.cpu_times.first().copied(),
                events: self.events.into(),
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
        let is_resource = kind == MetricKind::Resource;
        let set = &self.sets[if is_resource { 0 } else { self.current }];
        let slot = if is_resource { self.resources } else { set.words };
        // Saturation is safe: `build` refuses a set of 65,536 words, or as many metrics.
        let narrow = |n: usize| u16::try_from(n).unwrap_or(u16::MAX);
        let key = Key { set: set.id, metric: narrow(self.metrics.len()), slot: narrow(slot) };
        let metric =
            Metric { name: name.to_owned(), help: help.to_owned(), kind, unit, key, buckets };
        self.sets[self.current].words += metric.words();
        self.resources += usize::from(is_resource);
        self.metrics.push(metric);
        key
    }
}

fn is_well_formed(name: &str) -> bool {
    let mut bytes = name.bytes();
    bytes.next().is_some_and(|b| b.is_ascii_lowercase())
        && bytes.all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_')
}

/// Says why a schema was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SchemaError {
    /// The name is not `[a-z][a-z0-9_]*`.
    Name(String),
    /// Two metrics have this name.
    Repeated(String),
    /// A second counter of CPU time was declared.
    CpuTimeTwice(String),
    /// The name of a set is not `[a-z][a-z0-9_]*`.
    SetName(String),
    /// There are more than [`SETS_MAX`] sets.
    TooManySets {
        /// How many there are.
        sets: usize,
    },
    /// The metrics of a set need more than [`WORDS_MAX`] words.
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

/// What to do about a name that is refused.
const NAME_REMEDY: &str = "use small letters, digits and underscores, a letter first";

impl fmt::Display for SchemaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SchemaError::Name(name) => {
                write!(f, "metric name {name:?} is not of the form [a-z][a-z0-9_]*: {NAME_REMEDY}")
            }
            SchemaError::Repeated(name) => {
                write!(f, "two metrics are named {name:?}: rename one, or declare it once")
            }
            SchemaError::CpuTimeTwice(name) => {
                write!(f, "{name:?} is the second counter of CPU time: declare one")
            }
            SchemaError::SetName(name) => {
                write!(f, "set name {name:?} is not of the form [a-z][a-z0-9_]*: {NAME_REMEDY}")
            }
            SchemaError::TooManySets { sets } => {
                write!(f, "{sets} sets are too many: declare at most {SETS_MAX}")
            }
            SchemaError::TooLarge { words } => write!(
                f,
                "the metrics need {words} words of {WORDS_MAX}: use fewer or coarser histograms, or sets"
            ),
            SchemaError::TooMany { metrics } => {
                write!(f, "{metrics} metrics are too many: declare at most {METRICS_MAX}")
            }
        }
    }
}

impl std::error::Error for SchemaError {}
