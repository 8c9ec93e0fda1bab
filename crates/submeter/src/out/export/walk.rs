//! The choice of the groups that an export shows, and their values as of one flush.

use std::cmp::Reverse;
use std::collections::HashSet;
use std::time::SystemTime;

use foldhash::fast::RandomState;

use super::activity::{self, Activity};
use crate::metric::schema::{Key, MetricKind, Schema};
use crate::metric::totals::Restored;
use crate::metric::unit::UnitKind;
use crate::metric::usage::{Usage, UsageCounts};
use crate::stats::rstat::Flushed;
use crate::tree::group::Group;
use crate::tree::quotas::Quotas;
use crate::tree::tree::Tree;
use crate::tree::tree_stats::{Moment, Version};
use submeter_percpu::Pressure;

/// The numbers of groups. Not hashed with std's SipHash: each scrape does a lookup for every group,
/// and the numbers do not come from strangers.
pub(super) type Ids = HashSet<u64, RandomState>;

/// The bounds that keep an export small.
#[derive(Clone, Copy, Debug)]
pub(super) struct Brakes {
    /// A group at this depth stands for its subtree, which is not visited.
    pub(super) depth: usize,
    /// The number of groups that are shown, and the metric that chooses them.
    pub(super) top: usize,
    pub(super) by: Option<Key>,
    /// Whether groups that have counted nothing are shown too.
    pub(super) idle: bool,
}

/// A group that is shown. It comes after its parent.
pub(super) struct Member {
    pub(super) path: Box<str>,
    pub(super) id: u64,
    /// The parent's index among the members.
    pub(super) parent: Option<usize>,
    pub(super) has_children: bool,
    /// The values with descendants, section after section.
    pub(super) total: Box<[i64]>,
    /// The values without descendants; `None` if the group stands for its subtree.
    pub(super) own: Option<Box<[i64]>>,
    /// One for each quota, in order of their slots.
    pub(super) usage: Vec<Usage>,
    /// For each quota, by slot, the nanoseconds for which some charges, and all charges, have
    /// waited; then, for each, the reclaimed amount and the number of times that `low` protected
    /// it.
    pub(super) unsummed: Vec<[u64; 2]>,
}

struct Visit {
    group: Group,
    parent: usize,
    has_children: bool,
    shown: bool,
}

/// Flushes the tree, and copies the values of the groups that are shown. For the others, it looks
/// only at what groups are chosen by. `stays` has the groups that are already shown. Also returns
/// the moment of the values.
///
/// Takes neither a snapshot nor a copy of all paths: 100,000 idle groups cost a look at each.
pub(super) fn members(
    tree: &Tree,
    version: &Version,
    brakes: &Brakes,
    stays: &Ids,
    activity: &mut Activity,
) -> (Vec<Member>, Moment) {
    // Dropped after the flush locks are released: see `Snapshot::take`.
    let mut visits = Vec::with_capacity(tree.stats().group_count());
    let rank = Rank::of(&version.schema, brakes);
    // Held for the flush, and recursive: see `Tree::snapshot_and_past`.
    let restored = tree.restored().read_recursive();
    let (mut members, moment) = tree.stats().flushed(version, |flushed| {
        visit(tree.root(), brakes.depth, &mut visits);
        let groups = visits.iter().map(|visit| &visit.group);
        let by = match rank.by {
            By::Metric(key, kind) => values(groups, key, kind),
            // All are shown.
            By::Activity(_) if brakes.idle => vec![0; groups.count()],
            By::Activity(_) => {
                let counted = groups.map(|group| (group.id(), rank.counted(group, &restored)));
                activity.advance(counted, tree.stats().began(), SystemTime::now())
            }
        };
        choose(&rank, &by, brakes, stays, &mut visits);
        copy(&version.schema, &visits, brakes.depth, flushed)
    });
    restored.iter().for_each(|restored| take_off(restored, &mut members));
    drop(restored);
    (members, moment)
}

/// Subtracts restored values. Prometheus has them from the process that counted them, and would
/// take a counter that falls back to a checkpoint's value for one that has restarted.
fn take_off(restored: &Restored, members: &mut [Member]) {
    for Member { id, total, own, .. } in members {
        if let Some(base) = restored.base.get(id) {
            subtract(total, base);
        }
        if let (Some(own), Some(base)) = (own, restored.own.get(id)) {
            subtract(own, base);
        }
    }
}

/// Lists all groups down to a depth, each after its parent.
fn visit(root: &Group, depth: usize, visits: &mut Vec<Visit>) {
    visits.push(Visit { group: root.clone(), parent: 0, has_children: false, shown: true });
    let mut at = 0;
    while let Some(Visit { group, .. }) = visits.get(at) {
        if group.depth() < depth {
            let children = group.children_unsorted();
            visits[at].has_children = !children.is_empty();
            visits.extend(children.into_iter().map(|group| Visit {
                group,
                parent: at,
                has_children: false,
                shown: false,
            }));
        }
        at += 1;
    }
}

/// Marks the groups that are shown: those with the most, and all above them.
fn choose(rank: &Rank<'_>, by: &[u64], brakes: &Brakes, stays: &Ids, visits: &mut [Visit]) {
    let (mut candidates, mut others): (Vec<Candidate>, Vec<Candidate>) = Default::default();
    for (at, &value) in by.iter().enumerate().skip(1) {
        let id = visits[at].group.id();
        // A group that is shown stays until another has a quarter more: if two are about equal,
        // each change would end a series and begin another.
        let by_chance = match rank.by {
            By::Metric(..) => 0,
            By::Activity(_) => activity::by_chance(value),
        };
        let bonus = if stays.contains(&id) { value / 4 + by_chance } else { 0 };
        let candidate = (Reverse(value.saturating_add(bonus)), id, at);
        if value == 0 { &mut others } else { &mut candidates }.push(candidate);
    }
    let mut limited: Vec<Candidate> = Vec::new();
    if brakes.idle {
        candidates.append(&mut others);
    } else if matches!(rank.by, By::Activity(_)) {
        let has_limit = |&mut (_, _, at): &mut Candidate| has_limit(rank.schema, &visits[at].group);
        limited.extend(candidates.extract_if(.., has_limit));
        limited.extend(others.extract_if(.., has_limit));
    }
    if candidates.len() + limited.len() < brakes.top {
        // Only if there is room for them, since this is another look at each group for each metric.
        // A histogram is judged by its sum: a group that has recorded nothing but zeros, and has
        // nothing else, counts as idle.
        for metric in rank.schema.metrics() {
            let groups = others.iter().map(|(_, _, at)| &visits[*at].group);
            let mut values = values(groups, metric.key, metric.kind).into_iter();
            candidates.extend(others.extract_if(.., |_| values.next() != Some(0)));
        }
    }
    if candidates.len() + limited.len() > brakes.top {
        // Up to half of the places: if every group has a limit, the busy ones need the rest.
        limited.sort_unstable();
        candidates.extend(limited.drain(limited.len().min(brakes.top / 2)..));
        keep_first(&mut candidates, brakes.top - limited.len());
    }
    for (_, _, mut at) in candidates.into_iter().chain(limited) {
        while !visits[at].shown {
            visits[at].shown = true;
            at = visits[at].parent;
        }
    }
}

/// A group's value, its number and its place among the visits. The oldest of equals is first, so
/// that scrapes agree: the first by name would need the paths of all groups that have little.
type Candidate = (Reverse<u64>, u64, usize);

fn keep_first(candidates: &mut Vec<Candidate>, most: usize) {
    if candidates.len() > most {
        candidates.select_nth_unstable(most);
        candidates.truncate(most);
    }
}

/// Returns whether the group has a limit or a rate of its own, or a limit of its own has refused
/// something.
fn has_limit(schema: &Schema, group: &Group) -> bool {
    let refuses = |usage: Usage| usage.limit.is_some() || usage.refused > 0;
    let mut rates = (0..schema.rate_limits().len()).filter_map(|at| group.inner.extras.rate(at));
    (0..schema.quotas()).any(|slot| refuses(group.inner.quotas.usage_at_most(slot)))
        || rates.any(|bucket| bucket.rate().is_some())
}

fn copy(
    schema: &Schema,
    visits: &[Visit],
    depth: usize,
    flushed: &mut [Flushed<'_>],
) -> Vec<Member> {
    let mut places = vec![usize::MAX; visits.len()];
    let mut members: Vec<Member> = Vec::new();
    for (at, visit) in visits.iter().enumerate().filter(|(_, visit)| visit.shown) {
        let group = &visit.group;
        places[at] = members.len();
        members.push(Member {
            path: group.path().into(),
            id: group.id(),
            parent: (at != 0).then(|| places[visit.parent]),
            has_children: visit.has_children,
            total: group.totals(schema),
            own: (group.depth() < depth).then(|| group.own_words(schema, flushed)),
            usage: Vec::with_capacity(schema.quotas()),
            unsummed: (0..schema.quotas()).map(|slot| stalled(group, slot)).collect(),
        });
    }
    let shown = visits.iter().filter(|visit| visit.shown).map(|visit| &visit.group.inner.quotas);
    for slot in 0..schema.quotas() {
        let usages = Quotas::usages(slot, shown.clone());
        for (member, usage) in members.iter_mut().zip(usages) {
            member.unsummed.push([usage.counts.reclaimed, usage.counts.reclaimed_low]);
            member.usage.push(usage);
        }
    }
    members
}

fn stalled(group: &Group, slot: usize) -> [u64; 2] {
    let Pressure { some, full, .. } = group.inner.quotas.pressure(slot);
    [some, full].map(|stall| u64::try_from(stall.total.as_nanos()).unwrap_or(u64::MAX))
}

/// The order in which groups are chosen.
struct Rank<'a> {
    schema: &'a Schema,
    by: By,
}

enum By {
    Metric(Key, MetricKind),
    /// By what these counters counted lately, together.
    Activity(Vec<Key>),
}

impl<'a> Rank<'a> {
    /// Ranks by the caller's metric; without one, by all counters of things that happened. In bytes
    /// or nanoseconds, some counter would outweigh the others.
    fn of(schema: &'a Schema, brakes: &Brakes) -> Rank<'a> {
        let metrics = schema.metrics();
        if let Some(key) = brakes.by {
            let named = metrics.iter().find(|metric| metric.key == key);
            let named = named.expect("the metric of `top` belongs to the schema of another tree");
            return Rank { schema, by: By::Metric(named.key, named.kind) };
        }
        let counters = metrics.iter().filter(|metric| metric.kind == MetricKind::Counter);
        let counts = counters.clone().filter(|counter| counter.unit == UnitKind::Count);
        let counts: Vec<Key> = counts.map(|counter| counter.key).collect();
        let by = match (counts.is_empty(), counters.clone().next(), metrics.first()) {
            (true, None, Some(first)) => By::Metric(first.key, first.kind),
            (true, Some(first), _) => By::Activity(vec![first.key]),
            _ => By::Activity(counts),
        };
        Rank { schema, by }
    }

    /// Returns what a group has counted in this process.
    fn counted(&self, group: &Group, restored: &[Restored]) -> u64 {
        let By::Activity(keys) = &self.by else { return 0 };
        let total = |key: &Key| {
            let stats = group.counted(*key);
            stats.map_or(0, |stats| stats.total(usize::from(key.slot)).cast_unsigned())
        };
        let past = |key: &Key| {
            let word = self.schema.word(*key)?;
            let bases = restored.iter().filter_map(|restored| restored.base.get(&group.id()));
            Some(bases.filter_map(|base| base.get(word)).map(|n| n.cast_unsigned()).sum())
        };
        let sum = keys.iter().fold(0_u64, |sum, key| sum.saturating_add(total(key)));
        if restored.is_empty() {
            return sum;
        }
        sum.saturating_sub(keys.iter().filter_map(past).fold(0, u64::saturating_add))
    }
}

/// Returns one value for each group: a total as of the last flush, a quota's usage, or a
/// histogram's sum.
///
/// Reads all values in a loop that does nothing else: if each read misses the cache, as among
/// 100,000 groups, the processor waits for many of them at once.
fn values<'g>(
    groups: impl Iterator<Item = &'g Group> + Clone,
    key: Key,
    kind: MetricKind,
) -> Vec<u64> {
    let slot = usize::from(key.slot);
    let total = |group: &Group| group.counted(key).map_or(0, |stats| stats.total(slot));
    match kind {
        // A group is not idle if all its charges were refused or waited in vain, or if it has given
        // back everything that it held.
        MetricKind::Quota => {
            let usages = Quotas::usages(slot, groups.clone().map(|group| &group.inner.quotas));
            let value = |(usage, group): (Usage, &Group)| {
                let UsageCounts { paused, reclaimed, .. } = usage.counts;
                let events = usage.refused | usage.overdrafts | paused | reclaimed;
                let is_idle = events == 0 && stalled(group, slot) == [0; 2];
                usage.current.max(u64::from(!is_idle))
            };
            usages.zip(groups).map(value).collect()
        }
        MetricKind::Gauge => groups.map(|group| total(group).unsigned_abs()).collect(),
        MetricKind::Counter | MetricKind::Histogram => {
            groups.map(|group| total(group).cast_unsigned()).collect()
        }
    }
}

/// Subtracts as many words as there are: metrics may have been declared since.
pub(super) fn subtract(from: &mut [i64], words: &[i64]) {
    for (from, word) in from.iter_mut().zip(words) {
        *from = from.wrapping_sub(*word);
    }
}
