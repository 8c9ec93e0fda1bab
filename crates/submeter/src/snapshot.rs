//! A copy of the whole tree at one moment, for exporters and pages.

use std::sync::Arc;
use std::time::{Instant, SystemTime};

use crate::group::Group;
use crate::histogram::HistogramSnapshot;
use crate::limit::Usage;
use crate::schema::{Counter, Gauge, Histogram, Key, Metric, MetricKind, Resource, Schema};
use crate::stats::Stats;
use crate::unit::Unit;

/// Holds the values of every live group, parents before children.
///
/// A parent's counters, gauges and histograms are its own plus its children's plus what killed
/// children left behind, as of one flush. Resources are read while copying.
#[derive(Clone, Debug)]
pub struct Snapshot {
    schema: Schema,
    at: Instant,
    system_time: SystemTime,
    groups: Vec<GroupValues>,
}

/// Holds the values of one group in a [`Snapshot`].
#[derive(Clone, Debug)]
pub struct GroupValues {
    schema: Schema,
    path: Arc<str>,
    depth: usize,
    parent: Option<usize>,
    /// Set after set.
    words: Box<[i64]>,
    usage: Box<[Usage]>,
}

/// Holds the value of any metric.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Value {
    /// A counter's.
    Counter(u64),
    /// A gauge's.
    Gauge(i64),
    /// A histogram's.
    Histogram(HistogramSnapshot),
    /// A resource's.
    Resource(Usage),
}

impl Snapshot {
    pub(crate) fn take(schema: &Schema, stats: &Stats, root: &Group) -> Snapshot {
        // Let go of once the flushers are unlocked: who drops a group's last handle runs the wakers of those who wait
        // for it, and drops what collectors kept of it. Both are anybody's code, which may flush.
        let mut held = Vec::new();
        let (groups, at) = stats.flushed(|| copy(schema, root, &mut held));
        drop(held);
        Snapshot { schema: schema.clone(), at, system_time: SystemTime::now(), groups }
    }

    /// Returns the schema of the tree.
    #[must_use]
    pub fn schema(&self) -> &Schema {
        &self.schema
    }

    /// Returns when the flush began that the values are from.
    #[must_use]
    pub fn at(&self) -> Instant {
        self.at
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

    /// Finds a group by its path. Visits groups until found.
    #[must_use]
    pub fn get(&self, path: &str) -> Option<&GroupValues> {
        self.groups.iter().find(|group| &*group.path == path)
    }
}

/// Copies the values of every live group; drops no handle, but leaves them in `held`.
fn copy(schema: &Schema, root: &Group, held: &mut Vec<Group>) -> Vec<GroupValues> {
    let mut groups = Vec::new();
    // Depth first, siblings in the order of their names.
    let mut stack = vec![(root.clone(), None)];
    while let Some((group, parent)) = stack.pop() {
        let index = groups.len();
        groups.push(GroupValues {
            schema: schema.clone(),
            path: group.path().into(),
            depth: group.depth(),
            parent,
            words: group.totals(),
            usage: (0..schema.resources()).map(|s| group.inner.limits.usage(s)).collect(),
        });
        stack.extend(group.children().into_iter().rev().map(|child| (child, Some(index))));
        held.push(group);
    }
    groups
}

impl GroupValues {
    /// Returns the absolute path.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.path
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

    /// Returns a counter's value. Panics when it is of another schema.
    #[must_use]
    pub fn counter<U: Unit>(&self, counter: Counter<U>) -> u64 {
        self.words[self.word(counter.key)].cast_unsigned()
    }

    /// Returns a gauge's value. Panics when it is of another schema.
    #[must_use]
    pub fn gauge<U: Unit>(&self, gauge: Gauge<U>) -> i64 {
        self.words[self.word(gauge.key)]
    }

    /// Returns a histogram's distribution. Panics when it is of another schema.
    #[must_use]
    pub fn histogram<U: Unit>(&self, histogram: Histogram<U>) -> HistogramSnapshot {
        self.histogram_at(self.word(histogram.key), histogram.buckets)
    }

    /// Returns a resource's usage. Panics when it is of another schema.
    #[must_use]
    pub fn usage<U: Unit>(&self, resource: Resource<U>) -> Usage {
        self.usage[self.slot(resource.key)]
    }

    /// Returns the value of any metric of this snapshot's schema.
    ///
    /// # Panics
    /// When the metric is of another schema.
    #[must_use]
    pub fn value(&self, metric: &Metric) -> Value {
        let key = metric.key;
        match (metric.kind, metric.buckets) {
            (MetricKind::Counter, _) => Value::Counter(self.words[self.word(key)].cast_unsigned()),
            (MetricKind::Gauge, _) => Value::Gauge(self.words[self.word(key)]),
            (MetricKind::Histogram, Some(buckets)) => {
                Value::Histogram(self.histogram_at(self.word(key), buckets))
            }
            (MetricKind::Histogram, None) => unreachable!("a histogram has buckets"),
            (MetricKind::Resource, _) => Value::Resource(self.usage[self.slot(key)]),
        }
    }

    fn histogram_at(&self, slot: usize, buckets: crate::Buckets) -> HistogramSnapshot {
        let counts = self.words[slot + 1..slot + 1 + buckets.len()]
            .iter()
            .map(|word| word.cast_unsigned())
            .collect();
        HistogramSnapshot::new(buckets, counts, self.words[slot].cast_unsigned())
    }

    /// The place of a resource in `usage`.
    fn slot(&self, key: Key) -> usize {
        assert!(key.set == self.schema.id(), "{WRONG_SCHEMA}");
        usize::from(key.slot)
    }

    /// The place of any other metric in `words`.
    fn word(&self, key: Key) -> usize {
        let sets = self.schema.sets();
        let set = sets.iter().position(|set| set.id == key.set).expect(WRONG_SCHEMA);
        sets[..set].iter().map(|set| set.words).sum::<usize>() + usize::from(key.slot)
    }
}

const WRONG_SCHEMA: &str = "the metric belongs to the schema of another tree";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Tree;

    #[test]
    fn no_group_is_released_while_the_flushers_are_locked() {
        let schema = Schema::builder().build().expect("valid");
        let tree = Tree::new(schema).expect("address space");
        let group = tree.get_or_create("/a/b").expect("room");
        let mut held = Vec::new();
        let groups = copy(tree.schema(), tree.root(), &mut held);
        assert_eq!(groups.iter().map(GroupValues::path).collect::<Vec<_>>(), ["/", "/a", "/a/b"]);
        let killed = group.kill().expect("alive");
        drop(group);
        assert!(!killed.is_released(), "its last handle is in the copier's hands");
        drop(held);
        assert!(killed.is_released());
    }
}
