//! Who is asked, in which order, and for how much.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Instant;

use super::ATTEMPTS_MAX;
use super::ranking::{LOOKED_AT_MAX, Rank, Ranking};
use super::registry::{Called, Entry, PATIENCE_MAX, Registry, let_go};
use super::standing::{Standing, standing, standings};
use crate::group::Group;

/// Callbacks that freed nothing when one charge asked them, or take too long: that charge asks them
/// no more. By number.
#[derive(Default)]
pub(super) struct PassedOver(BTreeSet<u64>);

/// How much waits for room below a group. What is freed there may be granted at once, and is used
/// again then.
type Waiting<'a> = &'a dyn Fn(&Group) -> u64;

/// Callbacks that may be asked to free something for the sake of a group.
pub(super) struct Wish<'a> {
    /// Of the group for whose sake they are asked.
    registry: Option<&'a Registry>,
    /// In the order in which they are asked.
    asked: Vec<Asked>,
    /// What they could free together, without what is protected by `min`.
    most: u64,
}

impl<'a> Wish<'a> {
    /// Looks at the callbacks of a group and those below it.
    pub(super) fn new(
        target: &'a Group,
        slot: usize,
        passed_over: &PassedOver,
        waiting: Waiting<'_>,
    ) -> Wish<'a> {
        let start = Instant::now();
        let registry = Registry::of(target, slot);
        let mut entries = registry.map_or_else(Vec::new, Registry::entries);
        entries.sort_unstable_by_key(|entry| (entry.group().id(), entry.number()));
        let mut wish = Wish { registry, asked: Vec::new(), most: 0 };
        let mut most_beyond_low = 0_u64;
        if entries.is_empty() {
            return wish;
        }
        let by_group = || entries.chunk_by(|a, b| a.group() == b.group());
        let groups: Vec<&Group> = by_group().map(|entries| entries[0].group()).collect();
        // Of all: what one is to free that cannot be asked, none above it does.
        for (entries, standing) in by_group().zip(standings(target, slot, &groups)) {
            let before = wish.asked.len();
            let may_be = |entry: &&Arc<Entry>| !passed_over.has(entry) && !entry.is_stuck();
            let used = standing.current.saturating_add(waiting(entries[0].group()));
            let entries = entries.iter().filter(may_be).cloned();
            wish.asked.extend(entries.map(|entry| Asked::new(entry, standing, used)));
            if wish.asked.len() > before {
                wish.most = wish.most.saturating_add(standing.beyond_min());
                most_beyond_low = most_beyond_low.saturating_add(standing.beyond_low());
            }
        }
        wish.asked.sort_by_key(|asked| Reverse(asked.rank));
        // The target's own callback answers for what all others do not: to look at it anew would
        // be to look at all.
        let is_own = || wish.asked.iter().any(|asked| asked.entry.group() == target);
        if entries.len() > LOOKED_AT_MAX && passed_over.len() == 0 && !is_own() {
            let ranked = wish.asked.iter().map(|asked| (asked.rank, &asked.entry));
            let ranking = Ranking::new(ranked, most_beyond_low, start.elapsed());
            registry.expect("it has entries").remember(ranking);
        }
        let_go(entries);
        wish
    }

    /// Returns what could be had, if all did what they are asked to.
    pub(super) fn most(&self) -> u64 {
        self.most
    }

    /// Asks them until nothing is missing, first for what `low` does not protect. `missing` is told
    /// what was freed here. Returns that.
    pub(super) fn ask(
        self,
        missing: impl Fn(u64) -> u64,
        waiting: Waiting<'_>,
        passed_over: &mut PassedOver,
    ) -> u64 {
        let mut freed = 0;
        for below_low in [false, true] {
            // Again those that have freed something and could free more, before anybody loses what
            // `low` protects.
            for _ in 0..ATTEMPTS_MAX {
                let before = freed;
                for asked in &self.asked {
                    if missing(freed) == 0 {
                        break;
                    }
                    freed += asked.ask(below_low, || missing(freed), waiting, passed_over);
                }
                if freed == before {
                    break;
                }
            }
        }
        if let Some(registry) = self.registry {
            registry.with_ranking(|ranking| ranking.count(freed));
        }
        let_go(self.asked.into_iter().map(|asked| asked.entry).collect());
        freed
    }
}

/// Asks callbacks below `target` in the order that another charge found, until nothing is missing,
/// none is left that has more, or that has taken as long as a look at all does. Returns how much
/// was freed, or `None` if there is no such order that would serve.
pub(super) fn ask_remembered(
    target: &Group,
    slot: usize,
    missing: impl Fn() -> u64,
    waiting: Waiting<'_>,
    passed_over: &mut PassedOver,
) -> Option<u64> {
    let (registry, start) = (Registry::of(target, slot)?, Instant::now());
    // Not with the ranking locked, as is nothing that may call code of others.
    let wanted = missing();
    let most = registry.with_ranking(|ranking| ranking.serves(wanted))??;
    let (mut freed, mut passed) = (0, Vec::new());
    while missing() > 0 && start.elapsed() < most {
        let Some(entry) = registry.with_ranking(Ranking::take).flatten() else { break };
        let standing = standing(target, slot, entry.group());
        let used = standing.current.saturating_add(waiting(entry.group()));
        let asked = Asked::new(entry, standing, used);
        if passed_over.has(&asked.entry) {
            passed.push(asked);
            continue;
        }
        // Otherwise it is not asked any more until the next look at all.
        if standing.beyond_low() > 0 && !asked.entry.is_stuck() {
            // Put back before it is asked: others are to wait for a call that is under way, and
            // not to ask those that come after it.
            let is_first = registry.with_ranking(|ranking| {
                let is_first = ranking.is_first(asked.rank);
                ranking.put(asked.rank, &asked.entry);
                is_first
            });
            if is_first == Some(true) {
                let more = asked.ask(false, &missing, waiting, passed_over);
                registry.with_ranking(|ranking| ranking.count(more));
                freed += more;
            }
        }
        // It may be the last that keeps it.
        let_go(vec![asked.entry]);
    }
    registry.with_ranking(|ranking| {
        passed.iter().for_each(|asked| ranking.put(asked.rank, &asked.entry));
    });
    let_go(passed.into_iter().map(|asked| asked.entry).collect());
    Some(freed)
}

impl PassedOver {
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    fn has(&self, entry: &Entry) -> bool {
        self.0.contains(&entry.number())
    }
}

/// A callback that may be asked.
struct Asked {
    entry: Arc<Entry>,
    standing: Standing,
    /// As it was then: its score may change while it is compared.
    rank: Rank,
    /// What its group used and waited for then.
    used: u64,
}

impl Asked {
    fn new(entry: Arc<Entry>, standing: Standing, used: u64) -> Asked {
        let rank = Rank::of(&entry, &standing);
        Asked { entry, standing, rank, used }
    }

    /// Asks it, once others that do are through, unless it is passed over or there is nothing to
    /// ask it for. Returns how much it freed.
    fn ask(
        &self,
        below_low: bool,
        missing: impl Fn() -> u64,
        waiting: Waiting<'_>,
        passed_over: &mut PassedOver,
    ) -> u64 {
        let Asked { entry, standing, used, .. } = self;
        if passed_over.has(entry) {
            return 0;
        }
        let limits = entry.group().inner.quotas.get(entry.slot());
        let limits = limits.expect("made with the registration");
        let uses = || limits.usage().current.saturating_add(waiting(entry.group()));
        let most = if below_low { standing.beyond_min() } else { standing.beyond_low() };
        let start = Instant::now();
        loop {
            let before = uses();
            // Others may have asked it since.
            let wanted = missing().min(most.saturating_sub(used.saturating_sub(before)));
            if wanted == 0 {
                return 0;
            }
            let called = entry.call(wanted);
            let freed = match called {
                Called::Busy if start.elapsed() < PATIENCE_MAX && entry.wait() => continue,
                Called::Busy | Called::Ended => 0,
                Called::Returned | Called::Panicked => {
                    let freed = before.saturating_sub(uses());
                    let panicked = called == Called::Panicked;
                    limits.make_registry().count(freed, below_low, panicked);
                    freed
                }
            };
            if freed == 0 {
                passed_over.0.insert(entry.number());
            }
            return freed;
        }
    }
}
