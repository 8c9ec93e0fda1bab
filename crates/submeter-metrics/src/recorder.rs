//! The recorder: finds the slot of a metric, or assigns one.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use metrics::{Key, KeyName, Metadata, SharedString, Unit};
use parking_lot::RwLock;
use submeter::{Group, Snapshot};

use crate::handles::{Charged, CounterSlot, GaugeSlot, HistogramSlot, Unplaced};
use crate::slots::{Declared, Named, Slot};
use crate::text;

/// How many descriptions are kept for each slot. Further ones are dropped: names are the program's,
/// but it may make them up at run time.
const DESCRIPTIONS_PER_SLOT: usize = 4;

/// A [`metrics::Recorder`] that charges the current group: see the [crate](crate). Cloning is a
/// pointer copy.
///
/// # Examples
/// ```
/// use submeter::{Schema, Tree};
/// use submeter_metrics::{Recorder, Slots};
///
/// let mut schema = Schema::builder();
/// let slots = Slots::new().declare(&mut schema);
/// let tree = Tree::new(schema.build()?)?;
/// let recorder = Recorder::new(tree.root(), slots);
/// metrics::with_local_recorder(&recorder, || metrics::counter!("queries").increment(3));
/// assert_eq!(recorder.named()[0].name, "queries");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Recorder {
    inner: Arc<Inner>,
}

struct Inner {
    charged: Charged,
    declared: Declared,
    unplaced: Arc<Unplaced>,
    table: RwLock<Table>,
}

#[derive(Default)]
struct Table {
    counters: HashMap<Key, Arc<CounterSlot>>,
    gauges: HashMap<Key, Arc<GaugeSlot>>,
    histograms: HashMap<Key, Arc<HistogramSlot>>,
    /// In the order of first use, so that clashing names are numbered the same way in every export.
    placed: Vec<(Key, Slot)>,
    descriptions: HashMap<String, String>,
}

impl Recorder {
    /// Creates a recorder. While a thread works for no group of that tree, it charges `outside`,
    /// usually the root.
    ///
    /// # Panics
    /// When the slots belong to another schema than the group.
    #[must_use]
    pub fn new(outside: &Group, slots: Declared) -> Recorder {
        let charged = Charged { outside: outside.clone(), losses: slots.losses };
        // Here rather than at the first update, which happens in another crate's code.
        outside.add(slots.losses.unplaced_updates, 0);
        let unplaced = Arc::new(Unplaced(charged.clone()));
        let table = RwLock::default();
        Recorder { inner: Arc::new(Inner { charged, declared: slots, unplaced, table }) }
    }

    /// Returns the metrics that have a slot, in the order of first use, for the program's own
    /// exporters.
    ///
    /// # Examples
    /// ```
    /// # use submeter::{Schema, Tree};
    /// # use submeter_metrics::{Recorder, Slots};
    /// use submeter_metrics::Slot;
    ///
    /// # let mut schema = Schema::builder();
    /// # let slots = Slots::new().declare(&mut schema);
    /// # let tree = Tree::new(schema.build()?)?;
    /// # let recorder = Recorder::new(tree.root(), slots);
    /// let snapshot = tree.snapshot();
    /// for metric in recorder.named() {
    ///     if let Slot::Counter(counter) = metric.slot {
    ///         println!("{} {}", metric.name, snapshot.groups()[0].counter(counter));
    ///     }
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn named(&self) -> Vec<Named> {
        let table = self.inner.table.read();
        let named = |(key, slot): &(Key, Slot)| Named {
            name: key.name().to_owned(),
            labels: key.labels().map(|l| (l.key().to_owned(), l.value().to_owned())).collect(),
            help: table.descriptions.get(key.name()).cloned(),
            slot: *slot,
        };
        table.placed.iter().map(named).collect()
    }

    /// Writes the metrics that have a slot as OpenMetrics text under their own names, each metric
    /// of each group with descendants, and the updates that were not counted for lack of a slot.
    ///
    /// It writes no line `# EOF`: put the text before the program's own metrics, or add the line.
    /// Use a prefix of its own: an `Export` of the same tree, and the page's `/metrics`, also show
    /// the slots, by number (`app_metrics_counter_0_total`), and the updates that had none, without
    /// descendants. Two under one name would be one series with two values.
    ///
    /// Names are made legal: `http.requests` becomes `prefix_http_requests_total`. If two names
    /// become one, or one name has several kinds, the later gets a number.
    ///
    /// # Errors
    /// Only those of `out`; writing to a `String` never fails.
    ///
    /// # Panics
    /// When the snapshot has another schema.
    pub fn openmetrics<W: fmt::Write>(
        &self,
        snapshot: &Snapshot,
        prefix: &str,
        out: &mut W,
    ) -> fmt::Result {
        let Declared { losses, per_unit, .. } = self.inner.declared;
        text::write(snapshot, prefix, &self.named(), &losses, per_unit, out)
    }

    fn describe(&self, name: &KeyName, help: &SharedString) {
        let Declared { counters, gauges, histograms, .. } = &self.inner.declared;
        let slots = counters.len() + gauges.len() + histograms.len();
        let mut table = self.inner.table.write();
        let known = table.descriptions.contains_key(name.as_str());
        if known || table.descriptions.len() < slots * DESCRIPTIONS_PER_SLOT {
            table.descriptions.insert(name.as_str().to_owned(), help.clone().into_owned());
        }
    }
}

/// Finds the slot of `$key`, or takes the next one.
macro_rules! place {
    ($self:ident, $key:ident, $table:ident, |$slot:ident| $make:expr, $kind:path) => {{
        let Inner { declared, table, unplaced, .. } = &*$self.inner;
        let found = table.read().$table.get($key).cloned();
        if let Some(found) = found {
            return found.into();
        }
        let mut table = table.write();
        // Another thread may have been first.
        if let Some(found) = table.$table.get($key) {
            return found.clone().into();
        }
        let Some(&$slot) = declared.$table.get(table.$table.len()) else {
            return unplaced.clone().into();
        };
        let handle = Arc::new($make);
        table.$table.insert($key.clone(), handle.clone());
        table.placed.push(($key.clone(), $kind($slot)));
        handle.into()
    }};
}

impl metrics::Recorder for Recorder {
    fn describe_counter(&self, name: KeyName, _: Option<Unit>, help: SharedString) {
        self.describe(&name, &help);
    }

    fn describe_gauge(&self, name: KeyName, _: Option<Unit>, help: SharedString) {
        self.describe(&name, &help);
    }

    fn describe_histogram(&self, name: KeyName, _: Option<Unit>, help: SharedString) {
        self.describe(&name, &help);
    }

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> metrics::Counter {
        let charged = || self.inner.charged.clone();
        place!(
            self,
            key,
            counters,
            |counter| CounterSlot { charged: charged(), counter, absolute: AtomicU64::new(0) },
            Slot::Counter
        )
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> metrics::Gauge {
        let charged = || self.inner.charged.clone();
        place!(self, key, gauges, |gauge| GaugeSlot { charged: charged(), gauge }, Slot::Gauge)
    }

    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> metrics::Histogram {
        let charged = || self.inner.charged.clone();
        let per_unit = self.inner.declared.per_unit;
        place!(
            self,
            key,
            histograms,
            |histogram| HistogramSlot { charged: charged(), histogram, per_unit },
            Slot::Histogram
        )
    }
}

/// Writes how many metrics have a slot.
impl fmt::Debug for Recorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let placed = self.inner.table.read().placed.len();
        write!(f, "Recorder({placed} metrics, outside {})", self.inner.charged.outside.path())
    }
}
