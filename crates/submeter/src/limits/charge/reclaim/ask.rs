//! Which callbacks are asked, and for how much.
//!
//! Before each call all callbacks below the limit are looked at again, as usage and protection
//! change while callbacks run. Rejected: remembering an order, which is stale at once; and letting
//! charges maintain one, for which every charge would pay.

use std::cmp::Reverse;
use std::collections::{BTreeSet, HashMap};
use std::iter::{successors, zip};
use std::sync::Arc;
use std::time::Instant;

use super::ATTEMPTS_MAX;
use super::registry::{Called, Entry, PATIENCE_MAX, entries_of, let_go, registry_of};
use crate::limits::charge::protect::{Division, Held, claimed};
use crate::tree::group::Group;
use crate::tree::quotas::Quotas;

/// The numbers of callbacks that freed nothing when one charge asked them, or that take too long:
/// that charge does not ask them again.
pub(super) type PassedOver = BTreeSet<u64>;

/// How often callbacks freed less than requested, by number.
type Shortfalls = HashMap<u64, usize>;

/// How much waits for room below a group. An amount freed there may be granted at once, and is then
/// in use again.
type Waiting<'a> = &'a dyn Fn(&Group) -> u64;

/// The callbacks of one group and those below it.
pub(super) struct Below<'a> {
    target: &'a Group,
    slot: usize,
    waiting: Waiting<'a>,
    /// Whether only the group's own callbacks are asked. The others still answer for their parts.
    only_own: bool,
}

/// The usage of a group with callbacks, without the parts that callbacks further down answer for:
/// beyond all protection, and beyond `min` alone. The group with the most is asked first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Standing {
    beyond_low: u64,
    beyond_min: u64,
}

impl Standing {
    /// Whether nothing is left but what `low` protects.
    fn is_below_low(self) -> bool {
        self.beyond_low == 0
    }

    /// The amount that may be asked for.
    fn most(self) -> u64 {
        if self.is_below_low() { self.beyond_min } else { self.beyond_low }
    }
}

/// A callback that may be asked.
#[derive(Clone)]
struct Candidate {
    entry: Arc<Entry>,
    standing: Standing,
    /// The usage of its group, and the amount it waited for, at the time of the look.
    used: u64,
}

impl<'a> Below<'a> {
    pub(super) fn new(target: &'a Group, slot: usize, waiting: Waiting<'a>) -> Below<'a> {
        Below { target, slot, waiting, only_own: false }
    }

    pub(super) fn only_own(self) -> Below<'a> {
        Below { only_own: true, ..self }
    }

    /// Returns how much could be freed, if every callback did what it was asked.
    pub(super) fn most(&self, passed_over: &PassedOver) -> u64 {
        self.look(passed_over, |candidates, _| {
            let by_group = candidates.chunk_by(|a, b| a.entry.group() == b.entry.group());
            by_group.map(|group| group[0].standing.beyond_min).fold(0, u64::saturating_add)
        })
    }

    /// Asks one after another until nothing is missing; `missing` gets the amount freed so far.
    /// Returns the amount freed.
    pub(super) fn ask(&self, missing: impl Fn(u64) -> u64, passed_over: &mut PassedOver) -> u64 {
        let (mut freed, mut calls, mut since) = (0, 0, Instant::now());
        let mut shortfalls = Shortfalls::new();
        while missing(freed) > 0 {
            let Some(next) = self.next(calls, &shortfalls, passed_over) else { break };
            let Candidate { entry, standing, used } = next;
            let before = self.uses(entry.group());
            // Others may have asked it since the look.
            let left = standing.most().saturating_sub(used.saturating_sub(before));
            let wanted = left.min(missing(freed));
            match entry.call(wanted) {
                Called::Unwanted => calls += 1,
                Called::Busy if since.elapsed() < PATIENCE_MAX && entry.wait() => {}
                Called::Busy | Called::Ended => _ = passed_over.insert(entry.number()),
                called @ (Called::Returned | Called::Panicked) => {
                    let more = before.saturating_sub(self.uses(entry.group()));
                    entry.count(more, standing.is_below_low(), called == Called::Panicked);
                    if more == 0 {
                        passed_over.insert(entry.number());
                    } else if more < wanted {
                        *shortfalls.entry(entry.number()).or_default() += 1;
                    }
                    (freed, calls, since) = (freed + more, calls + 1, Instant::now());
                }
            }
            // This may be the last reference to it.
            let_go([entry]);
        }
        freed
    }

    /// Returns the next callback to ask after so many calls, if one is left that has something.
    ///
    /// It is the one that uses most, but those that fell short less often come before it: it may
    /// hold the most for long, and would take all calls. It has its attempts before `low` gives
    /// way.
    fn next(
        &self,
        calls: usize,
        shortfalls: &Shortfalls,
        passed_over: &PassedOver,
    ) -> Option<Candidate> {
        self.look(passed_over, |candidates, callbacks| {
            let place = |one: &&Candidate| {
                let short = shortfalls.get(&one.entry.number()).copied().unwrap_or_default();
                let has_tried = short >= ATTEMPTS_MAX;
                (has_tried, one.standing.is_below_low(), short, Reverse(one.standing))
            };
            let have_some = candidates.iter().filter(|one| one.standing.most() > 0);
            let may_ask = calls < ATTEMPTS_MAX * callbacks;
            have_some.min_by_key(place).filter(|_| may_ask).cloned()
        })
    }

    /// Shows all that may be asked, by group, and the number of all callbacks.
    fn look<T>(&self, passed_over: &PassedOver, show: impl FnOnce(&[Candidate], usize) -> T) -> T {
        let registry = registry_of(self.target, self.slot);
        let mut entries = registry.map_or_else(Vec::new, entries_of);
        entries.sort_unstable_by_key(|entry| (entry.group().id(), entry.number()));
        let by_group = || entries.chunk_by(|a, b| a.group() == b.group());
        let groups: Vec<&Group> = by_group().map(|entries| entries[0].group()).collect();
        let mut candidates = Vec::new();
        // Of all callbacks: if one cannot be asked, none above it frees its part.
        for (entries, (standing, current)) in by_group().zip(self.standings(&groups)) {
            let used = current.saturating_add((self.waiting)(entries[0].group()));
            if self.only_own && entries[0].group() != self.target {
                continue;
            }
            let may_be = |e: &&Arc<Entry>| !passed_over.contains(&e.number()) && !e.is_stuck();
            let candidate = |e: &Arc<Entry>| Candidate { entry: Arc::clone(e), standing, used };
            candidates.extend(entries.iter().filter(may_be).map(candidate));
        }
        let shown = show(&candidates, entries.len());
        let_go(candidates.into_iter().map(|one| one.entry).chain(entries));
        shown
    }

    /// Returns how each group stands, with its whole usage. Each group occurs once.
    fn standings(&self, groups: &[&Group]) -> Vec<(Standing, u64)> {
        let Below { target, slot, .. } = *self;
        if groups.is_empty() {
            return Vec::new();
        }
        let usages = Quotas::usages(slot, groups.iter().map(|group| &group.inner.quotas));
        let held: Vec<Held> =
            zip(groups, usages).map(|(group, usage)| Held::new(group, usage)).collect();
        let mut division = Division::of(target, slot);
        let mut whole = |group: &Group, held: Held| {
            if group == target { claimed_below(target, slot) } else { division.part(group, held) }
        };
        let whole: Vec<[u64; 2]> =
            zip(groups, &held).map(|(group, held)| whole(group, *held)).collect();

        let places: HashMap<u64, usize> =
            groups.iter().enumerate().map(|(place, group)| (group.id(), place)).collect();
        let mut own: Vec<u64> = held.iter().map(|held| held.current).collect();
        let mut protected = whole.clone();
        for (place, group) in groups.iter().enumerate().filter(|(_, group)| **group != target) {
            let to_target = successors(group.parent(), |at| at.parent().filter(|_| *at != target));
            if let Some(&above) = to_target.filter_map(|at| places.get(&at.id())).next() {
                own[above] = own[above].saturating_sub(held[place].current);
                protected[above] =
                    [0, 1].map(|at| protected[above][at].saturating_sub(whole[place][at]));
            }
        }
        let standing = |(own, [min, low]): (u64, [u64; 2])| {
            let beyond_low = own.saturating_sub(min.max(low));
            Standing { beyond_low, beyond_min: own.saturating_sub(min) }
        };
        let standings = zip(own, protected).map(standing);
        standings.zip(held.iter().map(|held| held.current)).collect()
    }

    fn uses(&self, group: &Group) -> u64 {
        let used = group.inner.quotas.usage(self.slot).current;
        used.saturating_add((self.waiting)(group))
    }
}

/// Returns the used part of the claims of a group's children. Against the group itself nothing else
/// is protected.
fn claimed_below(group: &Group, slot: usize) -> [u64; 2] {
    let children = group.children_unsorted();
    let usages = Quotas::usages(slot, children.iter().map(|child| &child.inner.quotas));
    claimed(zip(&children, usages))
}
