//! `stats detail`: requests by prefix, while a client wants them.
//!
//! A prefix is a tenant below the root with everything below it, and tenants are metered anyway.
//! Switching this on therefore only records what they have counted so far, and costs requests
//! nothing.

use std::collections::BTreeMap;

use parking_lot::Mutex;
use submeter::{GroupValues, Tree};

use crate::metrics::Metrics;

/// The numbers of one prefix.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Prefix {
    pub(crate) gets: u64,
    pub(crate) hits: u64,
    pub(crate) sets: u64,
    pub(crate) deletes: u64,
}

type Prefixes = BTreeMap<String, Prefix>;

/// The collected figures, and the start of the collection.
#[derive(Debug, Default)]
pub(crate) struct Detail {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    collected: Prefixes,
    /// The tenants' counts when it was switched on; `None` while it is off.
    since: Option<Prefixes>,
}

impl Detail {
    pub(crate) fn is_on(&self) -> bool {
        self.state.lock().since.is_some()
    }

    pub(crate) fn switch(&self, on: bool, tree: &Tree, metrics: &Metrics) {
        let mut state = self.state.lock();
        match (&state.since, on) {
            (None, true) => state.since = Some(prefixes(tree, metrics)),
            (Some(_), false) => {
                state.collected = state.all(tree, metrics);
                state.since = None;
            }
            _ => {}
        }
    }

    /// Discards what was collected.
    pub(crate) fn reset(&self, tree: &Tree, metrics: &Metrics) {
        let mut state = self.state.lock();
        state.collected.clear();
        if state.since.is_some() {
            state.since = Some(prefixes(tree, metrics));
        }
    }

    /// Returns the prefixes with collected figures.
    pub(crate) fn dump(&self, tree: &Tree, metrics: &Metrics) -> Prefixes {
        self.state.lock().all(tree, metrics)
    }
}

impl State {
    fn all(&self, tree: &Tree, metrics: &Metrics) -> Prefixes {
        let mut all = self.collected.clone();
        if let Some(since) = &self.since {
            for (name, now) in prefixes(tree, metrics) {
                let grown = now.since(since.get(&name));
                if grown != Prefix::default() {
                    all.entry(name).or_default().add(grown);
                }
            }
        }
        all
    }
}

impl Prefix {
    fn of(group: &GroupValues, metrics: &Metrics) -> Prefix {
        // A `gat` is a get here, as in memcached.
        let hits = group.counter(metrics.get_hits);
        Prefix {
            gets: hits + group.counter(metrics.get_misses),
            hits,
            sets: group.counter(metrics.cmd_set),
            deletes: group.counter(metrics.cmd_delete),
        }
    }

    /// Returns what has been counted since `before`. A tenant that was deleted in between counts
    /// from zero.
    fn since(self, before: Option<&Prefix>) -> Prefix {
        let Some(before) = before else { return self };
        let parts = |of: &Prefix| [of.gets, of.hits, of.sets, of.deletes];
        if parts(&self).iter().zip(parts(before)).any(|(now, before)| *now < before) {
            return self;
        }
        Prefix {
            gets: self.gets - before.gets,
            hits: self.hits - before.hits,
            sets: self.sets - before.sets,
            deletes: self.deletes - before.deletes,
        }
    }

    fn add(&mut self, more: Prefix) {
        self.gets += more.gets;
        self.hits += more.hits;
        self.sets += more.sets;
        self.deletes += more.deletes;
    }
}

/// Returns the counts of the tenants below the root, by name.
fn prefixes(tree: &Tree, metrics: &Metrics) -> Prefixes {
    let snapshot = tree.snapshot();
    let top = snapshot.groups().iter().filter(|group| group.parent() == Some(0));
    top.map(|group| (group.path()[1..].to_owned(), Prefix::of(group, metrics))).collect()
}
