//! The counts of each group itself since the last export, however groups are created and ended.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use submeter::export::QuotaPart;
use submeter::{Buckets, GroupValues, Metric, MetricKind, Schema, Snapshot, Value};

/// Returns the parts of a quota that only grow, in the order of their words.
pub(crate) fn counters() -> impl Iterator<Item = QuotaPart> {
    QuotaPart::ALL.iter().copied().filter(|part| part.is_counter())
}

/// Where the words of each metric are: those that only grow, and those that rise and fall.
#[derive(Debug)]
pub(crate) struct Layout {
    places: Vec<SeriesPlace>,
    flows: usize,
    levels: usize,
}

/// The words of one metric.
#[derive(Clone, Debug)]
pub(crate) struct SeriesPlace {
    /// The counter; the sum and then the buckets of a histogram; the [`counters`] of a quota.
    pub(crate) flows: Range<usize>,
    pub(crate) level: Option<usize>,
    pub(crate) buckets: Option<Buckets>,
    /// Whether a parent's flows contain its children's.
    inherited: bool,
}

/// The state that the receiver knows, as of one export.
#[derive(Clone, Debug)]
pub(crate) struct Base {
    /// By the ids of groups, which tell them from others with the same names.
    known: HashMap<u64, Known>,
    /// When it was taken, in nanoseconds of Unix time.
    pub(crate) at: u64,
}

/// The known state of a group. Most groups of most trees are idle: they share their words with the
/// previous base, and groups with only zeros have no words.
#[derive(Clone, Debug)]
struct Known {
    /// With descendants.
    totals: Words<u64>,
    /// The sum of all news that has arrived.
    own: Words<u64>,
    /// Values that the receiver refused while it took others of the same export.
    unsent: Words<u64>,
    levels: Words<i64>,
    since: u64,
}

/// `None` for zeros. Metrics that the tree did not have yet are missing at the end: they are zeros
/// too.
type Words<T> = Option<Arc<[T]>>;

/// One group at one export.
#[derive(Debug)]
pub(crate) struct SeriesRow<'a> {
    pub(crate) group: &'a GroupValues,
    /// The row of the group above.
    parent: Option<usize>,
    totals: Words<u64>,
    /// Since the base, without descendants.
    pub(crate) news: Option<Box<[u64]>>,
    /// Since `since`, without descendants.
    pub(crate) own: Words<u64>,
    pub(crate) levels: Words<i64>,
    /// At the base.
    pub(crate) levels_before: Words<i64>,
    pub(crate) since: u64,
}

impl Layout {
    pub(crate) fn new(schema: &Schema) -> Layout {
        let (mut flows, mut levels) = (0, 0);
        let places = schema.metrics().iter().map(|metric| {
            let (n, level) = match metric.kind() {
                MetricKind::Counter => (1, false),
                MetricKind::Histogram => (1 + metric.buckets().map_or(0, Buckets::len), false),
                MetricKind::Quota => (counters().count(), true),
                // A gauge; and nothing is sent of a kind that a later submeter has.
                _ => (0, metric.kind() == MetricKind::Gauge),
            };
            let place = SeriesPlace {
                flows: flows..flows + n,
                level: level.then_some(levels),
                buckets: metric.buckets(),
                inherited: metric.kind() != MetricKind::Quota,
            };
            flows += n;
            levels += usize::from(level);
            place
        });
        let places = places.collect();
        Layout { places, flows, levels }
    }

    pub(crate) fn places<'a>(
        &'a self,
        schema: &'a Schema,
    ) -> impl Iterator<Item = (&'a Metric, &'a SeriesPlace)> {
        schema.metrics().iter().zip(&self.places)
    }

    /// Takes a group's values from a snapshot, with descendants.
    fn read(&self, group: &GroupValues, schema: &Schema, flows: &mut [u64], levels: &mut [i64]) {
        for (metric, place) in self.places(schema) {
            let at = place.flows.start;
            match group.value(metric) {
                Value::Counter(n) => flows[at] = n,
                Value::Histogram(seen) => {
                    flows[at] = seen.sum();
                    flows[at + 1..place.flows.end].copy_from_slice(seen.counts());
                }
                Value::Gauge(n) => levels[place.level.unwrap_or(0)] = n,
                Value::Quota(now) => {
                    for (word, part) in (at..).zip(counters()) {
                        flows[word] = part.value(group, metric).unwrap_or(0);
                    }
                    levels[place.level.unwrap_or(0)] = now.current.cast_signed();
                }
                _ => {}
            }
        }
    }
}

impl Base {
    /// Makes the base of a tree of which nothing was sent.
    pub(crate) fn new(at: u64) -> Base {
        Base { known: HashMap::new(), at }
    }

    /// Returns what each group counted itself since this base, and the base of the next export.
    ///
    /// Each of the tree's news belongs to one group, once: what is new in a group's total, but in
    /// no living child's, is the group's own, even if a child counted it that has ended since.
    pub(crate) fn news<'a>(
        &self,
        layout: &Layout,
        snapshot: &'a Snapshot,
        depth: usize,
        at: u64,
    ) -> (Vec<SeriesRow<'a>>, Base) {
        let (mut rows, mut levels) = self.rows(layout, snapshot, depth);
        // A parent comes before its children, so what a child gives to its parent is all of its
        // news.
        for at in 0..rows.len() {
            let Some(parent) = rows[at].parent else { continue };
            let (before, from) = rows.split_at_mut(at);
            if let (Some(all), Some(childs)) = (&mut before[parent].news, &from[0].news) {
                for place in layout.places.iter().filter(|place| place.inherited) {
                    for word in place.flows.clone() {
                        all[word] = all[word].wrapping_sub(childs[word]);
                    }
                }
            }
            for level in 0..layout.levels {
                let child = levels[at * layout.levels + level];
                let all = &mut levels[parent * layout.levels + level];
                *all = all.wrapping_sub(child);
            }
        }
        self.add_unsent(layout, &mut rows);
        let mut known = HashMap::with_capacity(rows.len());
        for (at, row) in rows.iter_mut().enumerate() {
            let before = self.known.get(&row.group.id());
            row.since = before.map_or(self.at, |before| before.since);
            row.own = before.and_then(|before| before.own.clone());
            row.news.take_if(|news| news.iter().all(|n| *n == 0));
            if let Some(news) = &row.news {
                let own = row.own.as_deref();
                let sum = |(n, new): (usize, &u64)| nth(own, n).wrapping_add(*new);
                row.own = Some(news.iter().enumerate().map(sum).collect());
            }
            row.levels_before = before.and_then(|before| before.levels.clone());
            let now = &levels[at * layout.levels..(at + 1) * layout.levels];
            row.levels = kept(now, row.levels_before.as_ref());
            let (totals, own, levels) = (row.totals.take(), row.own.clone(), row.levels.clone());
            let sent = Known { totals, own, unsent: None, levels, since: row.since };
            known.insert(row.group.id(), sent);
        }
        (rows, Base { known, at })
    }

    /// Adds refused values to the news of their group or, if it has ended, to the root's.
    fn add_unsent(&self, layout: &Layout, rows: &mut [SeriesRow<'_>]) {
        let mut left: HashMap<u64, &[u64]> = self
            .known
            .iter()
            .filter_map(|(id, known)| Some((*id, known.unsent.as_deref()?)))
            .collect();
        if left.is_empty() {
            return;
        }
        let add = |row: &mut SeriesRow<'_>, unsent: &[u64]| {
            let news = row.news.get_or_insert_with(|| vec![0; layout.flows].into());
            for (new, unsent) in news.iter_mut().zip(unsent) {
                *new = new.wrapping_add(*unsent);
            }
        };
        for row in rows.iter_mut() {
            if let Some(unsent) = left.remove(&row.group.id()) {
                add(row, unsent);
            }
        }
        if let Some(root) = rows.first_mut() {
            left.into_values().for_each(|unsent| add(root, unsent));
        }
    }

    /// Marks groups as not sent, in an export of which the receiver has the rest. `before` is the
    /// base of that export.
    pub(crate) fn refuse(&mut self, groups: &[u64], before: &Base) {
        for id in groups {
            let Some(now) = self.known.get_mut(id) else { continue };
            let (own, levels) = before
                .known
                .get(id)
                .map_or((None, None), |known| (known.own.clone(), known.levels.clone()));
            let was = |n: usize| nth(own.as_deref(), n);
            let all = now.own.iter().flat_map(|all| all.iter()).enumerate();
            let unsent: Vec<u64> = all.map(|(n, all)| all.wrapping_sub(was(n))).collect();
            now.unsent = kept(&unsent, None);
            (now.own, now.levels) = (own, levels);
        }
    }

    /// Returns the news of each group, and the levels of all groups in a row, with descendants.
    fn rows<'a>(
        &self,
        layout: &Layout,
        snapshot: &'a Snapshot,
        depth: usize,
    ) -> (Vec<SeriesRow<'a>>, Vec<i64>) {
        let (mut flows, mut level) = (vec![0; layout.flows], vec![0; layout.levels]);
        let (mut rows, mut levels): (Vec<SeriesRow<'_>>, _) = (Vec::new(), Vec::new());
        let mut indices = Vec::with_capacity(snapshot.groups().len());
        for group in snapshot {
            indices.push(rows.len());
            // The values of groups that are too deep are in the groups above them.
            if group.depth() > depth {
                continue;
            }
            layout.read(group, snapshot.schema(), &mut flows, &mut level);
            levels.extend_from_slice(&level);
            let before = self.known.get(&group.id()).and_then(|known| known.totals.as_ref());
            let was = |n: usize| nth(before.map(|before| &**before), n);
            let is_new = flows.iter().enumerate().any(|(n, now)| *now != was(n));
            let new = flows.iter().enumerate().map(|(n, now)| now.wrapping_sub(was(n)));
            rows.push(SeriesRow {
                group,
                parent: group.parent().map(|parent| indices[parent]),
                totals: kept(&flows, before),
                news: is_new.then(|| new.collect()),
                own: None,
                levels: None,
                levels_before: None,
                since: 0,
            });
        }
        (rows, levels)
    }
}

/// Returns one of some words.
pub(crate) fn nth<T: Copy + Default>(words: Option<&[T]>, n: usize) -> T {
    words.and_then(|words| words.get(n)).copied().unwrap_or_default()
}

/// Shares the words if nothing has changed.
fn kept<T: Copy + Default + PartialEq>(now: &[T], before: Option<&Arc<[T]>>) -> Words<T> {
    match before {
        Some(before) if **before == *now => Some(Arc::clone(before)),
        _ => now.iter().any(|n| *n != T::default()).then(|| now.into()),
    }
}
