//! A copy of the whole tree at one point in time, for exporters and web pages.

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::{Instant, SystemTime};

use crate::metric::histogram::{Buckets, HistogramSnapshot};
use crate::metric::schema::{Counter, Gauge, Histogram, Key, Metric, MetricKind, Quota, Schema};
use crate::metric::unit::Unit;
use crate::metric::usage::Usage;
use crate::tree::buckets::OwnRates;
use crate::tree::group::Group;
use crate::tree::quotas::Quotas;
use crate::tree::tree_stats::{Moment, TreeStats};
use submeter_percpu::Pressure;

mod index;
mod of_tree;
mod rates;
mod top;
mod waits;
mod words;

use index::Index;
pub(crate) use words::Words;

/// A copy of the values of every live group, each group before its children.
///
/// A parent's counters, gauges and histograms are its own plus its children's plus what killed
/// children left behind, as of one flush. Quotas are read while copying.
///
/// # Examples
/// ```
/// use submeter::{Count, Schema, Tree};
///
/// let mut schema = Schema::builder();
/// let requests = schema.counter::<Count>("requests", "Requests answered");
/// let tree = Tree::new(schema.build()?)?;
/// tree.get_or_create("/acme/web")?.add(requests, 3);
///
/// let snapshot = tree.snapshot();
/// for group in &snapshot {
///     println!("{}: {}", group.path(), group.counter(requests));
/// }
/// assert_eq!(snapshot.get("/acme").expect("exists").counter(requests), 3);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Snapshot {
    schema: Schema,
    moment: Moment,
    system_time: SystemTime,
    pub(crate) groups: Vec<GroupValues>,
    /// Indices into `groups`; built by the first search.
    index: OnceLock<Index>,
}

/// The values of one group in a [`Snapshot`].
///
/// # Examples
/// ```
/// # use submeter::{Count, Schema, Tree};
/// # let mut schema = Schema::builder();
/// # let requests = schema.counter::<Count>("requests", "Requests answered");
/// # let tree = Tree::new(schema.build()?)?;
/// tree.create("/web")?.add(requests, 3);
/// let snapshot = tree.snapshot();
/// let [root, web] = snapshot.groups() else { panic!("two groups") };
/// assert_eq!((root.path(), root.counter(requests)), ("/", 3));
/// assert_eq!((web.name(), web.depth(), web.parent()), ("web", 1, Some(0)));
/// assert!(web.id() > root.id(), "it was created later");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct GroupValues {
    schema: Schema,
    pub(crate) path: Arc<str>,
    id: u64,
    depth: usize,
    parent: Option<usize>,
    /// Section after section.
    pub(crate) words: Words,
    /// The same without descendants; only if the program asked for them.
    own: Option<Words>,
    /// One for each slot, in order.
    usage: Vec<Usage>,
    /// The pressure of quotas for which a charge ever waited, by slot.
    pub(crate) pressure: Box<[(usize, Pressure)]>,
    /// The group's own rates and weights, by slot.
    pub(crate) rates: OwnRates,
}

/// The value of any metric, as [`GroupValues::value`] returns it.
///
/// # Examples
/// ```
/// # use submeter::{Schema, Tree};
/// # let tree = Tree::new(Schema::builder().build()?)?;
/// use submeter::Value;
///
/// let snapshot = tree.snapshot();
/// for metric in snapshot.schema().metrics() {
///     if let Value::Counter(n) = snapshot.groups()[0].value(metric) {
///         println!("{} = {n}", metric.name());
///     }
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Value {
    /// A counter's.
    Counter(u64),
    /// A gauge's.
    Gauge(i64),
    /// A histogram's.
    Histogram(HistogramSnapshot),
    /// A quota's.
    Quota(Usage),
}

impl Snapshot {
    pub(crate) fn take(stats: &TreeStats, root: &Group, own: bool) -> Snapshot {
        // One version for all groups, whatever is declared meanwhile.
        let version = stats.version();
        let schema = &version.schema;
        // Dropped after the flush locks are released: dropping a group's last handle wakes the
        // tasks that wait for it and drops its aggregators' state. Both may run user code, which
        // may flush.
        let mut held = Vec::new();
        let (groups, moment) = stats.flushed(version, |flushed| {
            let own = |group: &Group| own.then(|| group.own_words(schema, flushed));
            copy(schema, root, own, &mut held)
        });
        drop(held);
        let (schema, system_time, index) = (schema.clone(), SystemTime::now(), OnceLock::new());
        Snapshot { schema, moment, system_time, groups, index }
    }

    /// Returns the schema of the tree at that moment, without metrics that were declared later.
    #[must_use]
    pub fn schema(&self) -> &Schema {
        &self.schema
    }

    /// Returns when the flush that produced the values began.
    #[must_use]
    pub fn at(&self) -> Instant {
        self.moment.at
    }

    /// Returns the number of the tree among those of all processes: random, and never used again.
    #[must_use]
    pub fn epoch(&self) -> u64 {
        self.moment.epoch
    }

    /// Returns the number of this moment among those of the tree, in their order.
    #[must_use]
    pub fn sequence(&self) -> u64 {
        self.moment.sequence
    }

    /// Returns the wall-clock time at which the copy was made.
    #[must_use]
    pub fn system_time(&self) -> SystemTime {
        self.system_time
    }

    /// Returns the groups, root first, each before its children.
    #[must_use]
    pub fn groups(&self) -> &[GroupValues] {
        &self.groups
    }

    /// Finds a group by its path: O(1), except for the first search, which visits every group.
    #[must_use]
    pub fn get(&self, path: &str) -> Option<&GroupValues> {
        self.index.get_or_init(|| Index::new(&self.groups)).find(&self.groups, path)
    }
}

/// The groups, root first, each before its children.
impl<'a> IntoIterator for &'a Snapshot {
    type Item = &'a GroupValues;
    type IntoIter = std::slice::Iter<'a, GroupValues>;

    fn into_iter(self) -> Self::IntoIter {
        self.groups.iter()
    }
}

/// Writes the value as its own type displays it.
impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Counter(value) => value.fmt(f),
            Value::Gauge(value) => value.fmt(f),
            Value::Histogram(histogram) => histogram.fmt(f),
            Value::Quota(usage) => usage.fmt(f),
        }
    }
}

/// Copies the values of every live group; leaves all handles in `held` instead of dropping them.
fn copy(
    schema: &Schema,
    root: &Group,
    mut own: impl FnMut(&Group) -> Option<Box<[i64]>>,
    held: &mut Vec<Group>,
) -> Vec<GroupValues> {
    let mut groups = Vec::new();
    // Depth first, siblings in order of name.
    let mut stack = vec![(root.clone(), None)];
    while let Some((group, parent)) = stack.pop() {
        let index = groups.len();
        groups.push(GroupValues {
            schema: schema.clone(),
            path: group.path().into(),
            id: group.id(),
            depth: group.depth(),
            parent,
            words: Words::pack(&group.totals(schema)),
            own: own(&group).map(|own| Words::pack(&own)),
            usage: Vec::with_capacity(schema.quotas()),
            pressure: group.pressures(),
            rates: group.own_rates(),
        });
        stack.extend(group.children().into_iter().rev().map(|child| (child, Some(index))));
        held.push(group);
    }
    for slot in 0..schema.quotas() {
        let usages = Quotas::usages(slot, held.iter().map(|group| &group.inner.quotas));
        groups.iter_mut().zip(usages).for_each(|(values, usage)| values.usage.push(usage));
    }
    groups
}

impl GroupValues {
    #[cfg(feature = "serde")]
    pub(crate) fn schema(&self) -> &Schema {
        &self.schema
    }

    /// Returns the absolute path.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Returns a number that no other group of the process has or had: it tells a killed group from
    /// its successor at the same path.
    #[must_use]
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Returns the last component of the path, `""` for the root.
    #[must_use]
    pub fn name(&self) -> &str {
        self.path.rsplit('/').next().unwrap_or("")
    }

    /// Returns the number of ancestors.
    #[must_use]
    pub fn depth(&self) -> usize {
        self.depth
    }

    /// Returns the parent's index in [`Snapshot::groups`], or `None` for the root.
    #[must_use]
    pub fn parent(&self) -> Option<usize> {
        self.parent
    }

    /// Returns a counter's value. Panics when it belongs to another schema.
    #[must_use]
    pub fn counter<U: Unit>(&self, counter: Counter<U>) -> u64 {
        self.place(counter.key).map_or(0, |word| self.words.get(word).cast_unsigned())
    }

    /// Returns a gauge's value. Panics when it belongs to another schema.
    #[must_use]
    pub fn gauge<U: Unit>(&self, gauge: Gauge<U>) -> i64 {
        self.place(gauge.key).map_or(0, |word| self.words.get(word))
    }

    /// Returns a histogram's distribution. Panics when it belongs to another schema.
    #[must_use]
    pub fn histogram<U: Unit>(&self, histogram: Histogram<U>) -> HistogramSnapshot {
        histogram_at(&self.words, self.place(histogram.key), histogram.buckets)
    }

    /// Returns a quota's usage. Panics when it belongs to another schema.
    #[must_use]
    pub fn usage<U: Unit>(&self, quota: Quota<U>) -> Usage {
        self.usage[self.slot(quota.key)]
    }

    /// Returns the value of any metric of this snapshot's schema.
    ///
    /// # Panics
    /// When the metric belongs to another schema.
    #[must_use]
    pub fn value(&self, metric: &Metric) -> Value {
        match metric.kind {
            MetricKind::Quota => Value::Quota(self.usage[self.slot(metric.key)]),
            _ => self.value_in(&self.words, metric),
        }
    }

    /// Returns what the group itself counted, without descendants, as of the snapshot's flush.
    ///
    /// The own values of all groups in a snapshot add up to the root's total, except for what
    /// killed groups counted, which is only in the totals above them. What a killed group leaves of
    /// a gauge is its parent's own as soon as its last handle is gone. `None` for a quota, because
    /// a charge is made in all ancestors at once, and in a snapshot taken by
    /// [`Tree::snapshot`](crate::Tree::snapshot); see
    /// [`Tree::snapshot_with_own`](crate::Tree::snapshot_with_own).
    ///
    /// # Examples
    /// ```
    /// use submeter::{Count, Schema, Tree, Value};
    ///
    /// let mut schema = Schema::builder();
    /// let requests = schema.counter::<Count>("requests", "Requests answered");
    /// let tree = Tree::new(schema.build()?)?;
    /// tree.create("/web")?.add(requests, 3);
    /// tree.root().add(requests, 1);
    ///
    /// let snapshot = tree.snapshot_with_own();
    /// let (root, metric) = (&snapshot.groups()[0], &snapshot.schema().metrics()[0]);
    /// assert_eq!(root.value(metric), Value::Counter(4));
    /// assert_eq!(root.own(metric), Some(Value::Counter(1)));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Panics
    /// When the metric belongs to another schema.
    #[must_use]
    pub fn own(&self, metric: &Metric) -> Option<Value> {
        if metric.kind == MetricKind::Quota {
            self.slot(metric.key);
            return None;
        }
        self.own.as_ref().map(|own| self.value_in(own, metric))
    }

    /// Returns the value of any metric but a quota in `words`, which are the group's own or totals.
    fn value_in(&self, words: &Words, metric: &Metric) -> Value {
        let place = self.place(metric.key);
        let value = place.map_or(0, |word| words.get(word));
        match (metric.kind, metric.buckets) {
            (MetricKind::Counter, _) => Value::Counter(value.cast_unsigned()),
            (MetricKind::Gauge, _) => Value::Gauge(value),
            (MetricKind::Histogram, Some(buckets)) => {
                Value::Histogram(histogram_at(words, place, buckets))
            }
            (MetricKind::Histogram, None) => unreachable!("a histogram has buckets"),
            (MetricKind::Quota, _) => unreachable!("a quota has no words"),
        }
    }

    /// Returns the index of a quota in `usage`.
    pub(crate) fn slot(&self, key: Key) -> usize {
        assert!(key.section == self.schema.id(), "{WRONG_SCHEMA}");
        usize::from(key.slot)
    }

    /// Returns the index of any other metric of this schema in `words`.
    pub(crate) fn word(&self, key: Key) -> usize {
        self.schema.word(key).expect(WRONG_SCHEMA)
    }

    /// Returns [`word`](GroupValues::word), or `None` for a metric that was declared in the tree
    /// later.
    fn place(&self, key: Key) -> Option<usize> {
        let word = self.schema.word(key);
        assert!(word.is_some() || self.schema.may_add(key.section), "{WRONG_SCHEMA}");
        word
    }
}

fn histogram_at(words: &Words, slot: Option<usize>, buckets: Buckets) -> HistogramSnapshot {
    let Some(slot) = slot else { return HistogramSnapshot::none(buckets) };
    let counts = words.range(slot + 1..slot + 1 + buckets.len()).map(i64::cast_unsigned);
    HistogramSnapshot::new(buckets, counts.collect(), words.get(slot).cast_unsigned())
}

const WRONG_SCHEMA: &str = "the metric belongs to the schema of another tree";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Tree;

    #[test]
    fn no_group_is_released_while_flushes_are_locked() {
        let schema = Schema::builder().build().expect("valid");
        let tree = Tree::new(schema).expect("address space");
        let group = tree.get_or_create("/a/b").expect("room");
        let mut held = Vec::new();
        let groups = copy(tree.schema(), tree.root(), |_| None, &mut held);
        assert_eq!(groups.iter().map(GroupValues::path).collect::<Vec<_>>(), ["/", "/a", "/a/b"]);
        let killed = group.kill().expect("alive");
        drop(group);
        assert!(!killed.is_released(), "the copy holds its last handle");
        drop(held);
        assert!(killed.is_released());
    }

    #[test]
    fn own_values_are_those_of_the_flush() {
        let mut schema = Schema::builder();
        let requests = schema.counter::<crate::Count>("requests", "");
        let tree = Tree::new(schema.build().expect("valid")).expect("address space");
        let group = tree.create("/a").expect("room");
        group.add(requests, 3);
        let stats = group.tree_stats();
        let (words, _) = stats.flushed(stats.version(), |flushed| {
            group.add(requests, 40);
            [tree.root().totals(tree.schema()), group.own_words(tree.schema(), flushed)]
        });
        assert_eq!(words.map(|words| words[0]), [3, 3], "what came later is in neither");
    }
}
