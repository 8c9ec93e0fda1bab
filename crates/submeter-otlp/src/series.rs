//! What each group counted itself since the last export, however groups come and go.

use std::collections::HashMap;
use std::ops::Range;

use submeter::{Buckets, Metric, MetricKind, Schema, Snapshot, Usage, Value};

/// Where the words of each metric are: those that only grow, and those that rise and fall.
#[derive(Debug)]
pub(crate) struct Layout {
    places: Vec<Place>,
    flows: usize,
    levels: usize,
}

/// The words of one metric.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    /// The counter; the sum and then the buckets of a histogram; the refused charges of a quota.
    pub(crate) flows: Range<usize>,
    pub(crate) level: Option<usize>,
    pub(crate) buckets: Option<Buckets>,
    /// Whether a parent's flows contain its children's.
    inherited: bool,
}

/// What the receiver knows: the state as of one export.
#[derive(Clone, Debug)]
pub(crate) struct Base {
    /// By the numbers of groups, which tell them from others that had their names.
    known: HashMap<u64, Known>,
    /// When it was taken, in nanoseconds of Unix time.
    pub(crate) at: u64,
}

#[derive(Clone, Debug)]
struct Known {
    /// With descendants.
    totals: Box<[u64]>,
    /// The sum of all that was new.
    own: Box<[u64]>,
    levels: Box<[i64]>,
    since: u64,
}

/// One group at one export.
#[derive(Debug)]
pub(crate) struct Row<'a> {
    pub(crate) path: &'a str,
    /// Since the base, without descendants.
    pub(crate) news: Box<[u64]>,
    /// Since `since`, without descendants.
    pub(crate) own: Box<[u64]>,
    pub(crate) levels: Box<[i64]>,
    /// At the base.
    pub(crate) levels_before: Option<Box<[i64]>>,
    pub(crate) usages: Vec<Option<Usage>>,
    pub(crate) since: u64,
}

impl Layout {
    pub(crate) fn new(schema: &Schema) -> Layout {
        let (mut flows, mut levels) = (0, 0);
        let places = schema.metrics().iter().map(|metric| {
            let (n, level) = match metric.kind() {
                MetricKind::Counter => (1, false),
                MetricKind::Histogram => (1 + metric.buckets().map_or(0, Buckets::len), false),
                MetricKind::Quota => (1, true),
                // A gauge; and nothing is sent of a kind that a later submeter has.
                _ => (0, metric.kind() == MetricKind::Gauge),
            };
            let place = Place {
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
    ) -> impl Iterator<Item = (usize, &'a Metric, &'a Place)> {
        schema.metrics().iter().zip(&self.places).enumerate().map(|(n, (m, place))| (n, m, place))
    }

    /// Takes each group's values out of a snapshot, with descendants.
    fn read<'a>(&self, snapshot: &'a Snapshot, depth: usize) -> Vec<(Row<'a>, Option<usize>)> {
        // Of groups that are too deep, those above them have the values.
        let shown = snapshot.groups().iter().enumerate().filter(|(_, g)| g.depth() <= depth);
        let mut indices = vec![usize::MAX; snapshot.groups().len()];
        let mut rows = Vec::new();
        for (at, group) in shown {
            indices[at] = rows.len();
            let (mut flows, mut levels) = (vec![0; self.flows], vec![0; self.levels]);
            let mut usages = Vec::with_capacity(self.places.len());
            for (_, metric, place) in self.places(snapshot.schema()) {
                let mut usage = None;
                match group.value(metric) {
                    Value::Counter(n) => flows[place.flows.start] = n,
                    Value::Histogram(seen) => {
                        flows[place.flows.start] = seen.sum();
                        flows[place.flows.start + 1..place.flows.end]
                            .copy_from_slice(seen.counts());
                    }
                    Value::Gauge(n) => levels[place.level.unwrap_or(0)] = n,
                    Value::Quota(now) => {
                        flows[place.flows.start] = now.refused;
                        levels[place.level.unwrap_or(0)] = now.current.cast_signed();
                        usage = Some(now);
                    }
                    _ => {}
                }
                usages.push(usage);
            }
            let row = Row {
                path: group.path(),
                news: flows.into(),
                own: [].into(),
                levels: levels.into(),
                levels_before: None,
                usages,
                since: 0,
            };
            rows.push((row, group.parent().map(|parent| indices[parent])));
        }
        rows
    }
}

impl Base {
    /// Of a tree of which nothing was sent.
    pub(crate) fn new(at: u64) -> Base {
        Base { known: HashMap::new(), at }
    }

    /// Returns what each group counted itself since this base, and the base of the next export.
    ///
    /// All news of the tree is that of one group, once: what is new in a group's total and in no
    /// living child's is the group's own, also where a child counted it that has ended since.
    pub(crate) fn news<'a>(
        &self,
        layout: &Layout,
        snapshot: &'a Snapshot,
        depth: usize,
        at: u64,
    ) -> (Vec<Row<'a>>, Base) {
        let mut rows = layout.read(snapshot, depth);
        let ids: Vec<u64> =
            snapshot.groups().iter().filter(|g| g.depth() <= depth).map(|g| g.id()).collect();
        let totals: Vec<Box<[u64]>> = rows.iter().map(|(row, _)| row.news.clone()).collect();
        for ((row, _), id) in rows.iter_mut().zip(&ids) {
            if let Some(known) = self.known.get(id) {
                row.news
                    .iter_mut()
                    .zip(&known.totals)
                    .for_each(|(n, was)| *n = n.wrapping_sub(*was));
            }
        }
        // From the last: children come after their parents, and give them what is left of their
        // whole news, before their own children's is subtracted from it.
        let deltas: Vec<Box<[u64]>> = rows.iter().map(|(row, _)| row.news.clone()).collect();
        let levels: Vec<Box<[i64]>> = rows.iter().map(|(row, _)| row.levels.clone()).collect();
        for at in 0..rows.len() {
            let Some(parent) = rows[at].1 else { continue };
            let parent = &mut rows[parent].0;
            for place in layout.places.iter().filter(|place| place.inherited) {
                for word in place.flows.clone() {
                    parent.news[word] = parent.news[word].wrapping_sub(deltas[at][word]);
                }
            }
            parent.levels.iter_mut().zip(&levels[at]).for_each(|(n, c)| *n = n.wrapping_sub(*c));
        }
        let mut known = HashMap::with_capacity(rows.len());
        for (((row, _), id), totals) in rows.iter_mut().zip(&ids).zip(totals) {
            row.own = row.news.clone();
            row.since = self.at;
            if let Some(before) = self.known.get(id) {
                row.own.iter_mut().zip(&before.own).for_each(|(n, was)| *n = n.wrapping_add(*was));
                row.since = before.since;
                row.levels_before = Some(before.levels.clone());
            }
            let (own, levels) = (row.own.clone(), row.levels.clone());
            known.insert(*id, Known { totals, own, levels, since: row.since });
        }
        (rows.into_iter().map(|(row, _)| row).collect(), Base { known, at })
    }
}
