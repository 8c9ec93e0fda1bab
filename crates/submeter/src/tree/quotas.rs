//! One group's usage of each quota.

use std::sync::atomic::{AtomicU64, Ordering};

use once_cell::race::OnceBox;
use submeter_percpu::{Area, LimitNode, LimitUsage, Pressure};

use crate::error::Error;
use crate::metric::schema::Schema;
use crate::metric::usage::{Usage, UsageCounts};
use crate::tree::callbacks::{Counts, Registry};

/// The quotas of one group. A single pointer until one is charged or limited: most groups of a
/// large tree are idle.
#[derive(Default)]
pub(crate) struct Quotas {
    /// If two threads are first at the same time, each makes nodes and one drops its own: with a
    /// lock, a fork could leave the child without nodes forever.
    nodes: OnceBox<Nodes>,
}

/// The limits of all quotas, in slot order.
struct Nodes {
    /// Stored in place: most schemas have only one.
    first: Limits,
    others: Box<[Limits]>,
}

/// A group's limits of one quota.
pub(crate) struct Limits {
    pub(crate) node: LimitNode,
    /// `u64::MAX` for none. Not in the node: charges do not depend on it.
    high: AtomicU64,
    paused: AtomicU64,
    /// Number of the node's overdrafts already counted in the group's word.
    overdrafts: AtomicU64,
    /// Indexed by [`Claim`]; 0 for none.
    claims: [AtomicU64; 2],
    postponed: AtomicU64,
    /// Made with the first callback of the group or of a group below it.
    registry: OnceBox<Registry>,
}

/// Kind of protection that a group claims for its usage.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Claim {
    Min,
    Low,
}

impl Limits {
    fn new(node: LimitNode) -> Limits {
        let [high, paused, overdrafts, postponed] = [u64::MAX, 0, 0, 0].map(AtomicU64::new);
        let (claims, registry) = ([0, 0].map(AtomicU64::new), OnceBox::new());
        Limits { node, high, paused, overdrafts, claims, postponed, registry }
    }

    /// `u64::MAX` for none.
    pub(crate) fn high(&self) -> u64 {
        // Relaxed, here and below: a number alone.
        self.high.load(Ordering::Relaxed)
    }

    pub(crate) fn set_high(&self, high: u64) {
        // Relaxed: as above.
        self.high.store(high, Ordering::Relaxed);
    }

    /// 0 for none.
    pub(crate) fn set_claim(&self, claim: Claim, usage: u64) {
        // Relaxed: as above.
        self.claims[claim as usize].store(usage, Ordering::Relaxed);
    }

    /// Counts a request to pause.
    pub(crate) fn count_pause(&self) {
        // Relaxed: a statistic.
        self.paused.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the number of new overdrafts, which the caller must count. Each is returned once.
    pub(crate) fn new_overdrafts(&self) -> u64 {
        let now = self.node.overdrafts();
        // Relaxed: a statistic. The highest value wins, so that no two callers return the same one.
        now.saturating_sub(self.overdrafts.fetch_max(now, Ordering::Relaxed))
    }

    /// Counts a charge that was granted after its limit had been out of room.
    pub(crate) fn count_postponed(&self) {
        // Relaxed: a statistic.
        self.postponed.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the callbacks, if there ever were any.
    pub(crate) fn registry(&self) -> Option<&Registry> {
        self.registry.get()
    }

    pub(crate) fn make_registry(&self) -> &Registry {
        self.registry.get_or_init(Box::default)
    }

    pub(crate) fn with(&self, usage: LimitUsage) -> Usage {
        let LimitUsage { current, peak, peak_low, limit, refused, overdrafts, mode, .. } = usage;
        let [limit, high] = [limit, self.high()].map(|limit| (limit != u64::MAX).then_some(limit));
        // Relaxed, all: numbers alone.
        let load = |word: &AtomicU64| word.load(Ordering::Relaxed);
        let [min, low] = self.claims.each_ref().map(|claim| Some(load(claim)).filter(|&n| n > 0));
        let (paused, postponed) = (load(&self.paused), load(&self.postponed));
        let counts = self.registry().map_or_else(Counts::default, Registry::counts);
        let Counts { reclaimed, reclaimed_low, panics } = counts;
        Usage {
            current,
            peak,
            peak_low,
            limit,
            refused,
            overdrafts,
            mode,
            high,
            min,
            low,
            counts: UsageCounts { paused, postponed, reclaimed, reclaimed_low, panics },
        }
    }

    pub(crate) fn usage(&self) -> Usage {
        self.with(self.node.usage())
    }

    pub(crate) fn usage_at_most(&self) -> Usage {
        self.with(self.node.usage_and_stock())
    }
}

impl Nodes {
    fn new(schema: &Schema, node: impl FnMut(usize) -> LimitNode) -> Box<Nodes> {
        let mut nodes = (0..schema.quotas()).map(node).map(Limits::new);
        let first = nodes.next().expect("a key of this schema names a quota");
        Box::new(Nodes { first, others: nodes.collect() })
    }

    #[inline]
    fn at(&self, slot: usize) -> &Limits {
        match slot.checked_sub(1) {
            None => &self.first,
            Some(other) => &self.others[other],
        }
    }
}

impl Quotas {
    /// Returns a root's quotas, made at once: only here can that fail.
    pub(crate) fn root(schema: &Schema) -> Result<Quotas, Error> {
        let quotas = Quotas::default();
        if schema.quotas() > 0 {
            let area = Area::common().map_err(Error::storage)?;
            quotas.nodes.get_or_init(|| Nodes::new(schema, |_| LimitNode::root(area)));
        }
        Ok(quotas)
    }

    /// Returns a quota's limits, if the group or one below it was ever charged or limited.
    #[inline]
    pub(crate) fn get(&self, slot: usize) -> Option<&Limits> {
        self.nodes.get().map(|nodes| nodes.at(slot))
    }

    /// Returns the nodes of all quotas, if there are any.
    pub(crate) fn nodes(&self) -> impl Iterator<Item = &LimitNode> {
        let made = self.nodes.get().into_iter();
        let all = made.flat_map(|nodes| std::iter::once(&nodes.first).chain(&nodes.others));
        all.map(|limits| &limits.node)
    }

    /// Makes the nodes where there are none, below those of the parent, which has some.
    pub(crate) fn make_below(&self, parent: &Quotas, schema: &Schema) {
        let above = parent.nodes.get().expect("nodes are made from the root down");
        self.nodes.get_or_init(|| Nodes::new(schema, |slot| above.at(slot).node.child()));
    }

    pub(crate) fn usage(&self, slot: usize) -> Usage {
        self.get(slot).map_or_else(Usage::default, Limits::usage)
    }

    /// The same as `usage`, without a look at stock.
    pub(crate) fn usage_at_most(&self, slot: usize) -> Usage {
        self.get(slot).map_or_else(Usage::default, Limits::usage_at_most)
    }

    /// Takes no lock where no charge ever waited.
    pub(crate) fn pressure(&self, slot: usize) -> Pressure {
        self.get(slot).map_or_else(Pressure::default, |limits| limits.node.pressure())
    }

    /// Returns the usage of several groups of one tree. Stock is visited once for all; a charge or
    /// release in progress may be in the usage of only some of its groups.
    pub(crate) fn usages<'a>(
        slot: usize,
        groups: impl Iterator<Item = &'a Quotas> + Clone,
    ) -> impl Iterator<Item = Usage> {
        loop {
            let limits: Vec<_> = groups.clone().map(|quotas| quotas.get(slot)).collect();
            let made = limits.iter().flatten().map(|limits| &limits.node);
            let mut usages = LimitNode::usages(made).into_iter();
            // Checks that no group got its nodes meanwhile: its first charge would show in the
            // usage of those above it and not in its own.
            let are_made = groups.clone().map(|group| group.get(slot).is_some());
            if are_made.eq(limits.iter().map(Option::is_some)) {
                let mut with = move |limits: &Limits| Some(limits.with(usages.next()?));
                let usage = move |limits: Option<&Limits>| limits.and_then(&mut with);
                return limits.into_iter().map(usage).map(Option::unwrap_or_default);
            }
        }
    }
}
