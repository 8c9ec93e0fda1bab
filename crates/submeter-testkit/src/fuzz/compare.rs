//! Comparisons: each kind of read with what the ledger says.

use std::time::Duration;

use submeter::{Group, GroupValues, Tolerance, Usage};

use super::{Fuzz, Holding};
use crate::ledger::Totals;
use crate::meters::COUNTERS;
use crate::oracle::{Held, Id};
use crate::visits::Visited;

impl Fuzz {
    /// A cached read is within its bound, and a counter never falls.
    pub(super) fn read(&mut self, id: Id) {
        let place = self.places[&id];
        let Fuzz { held, ledger, meters, tally, .. } = self;
        let (holding, totals) = (&mut held[place], &ledger.get(id).totals);
        for (counter, key) in meters.counters.iter().enumerate() {
            let reading = holding.group.read(*key);
            let (truth, seen) = (totals.counters[counter], &mut holding.seen[counter]);
            assert!(truth.abs_diff(reading.value) <= reading.bound, "{truth} in {reading:?}");
            assert!(reading.value >= *seen, "fell from {seen} to {reading:?}");
            *seen = reading.value;
        }
        let (reading, truth) = (holding.group.read(meters.gauge), totals.gauge);
        assert!(truth.abs_diff(reading.value) <= reading.bound, "{truth} in {reading:?}");
        tally.compared += COUNTERS as u64 + 1;
    }

    /// An exact read, and what it leaves for the others.
    pub(super) fn sum(&mut self, id: Id) {
        // Of either set one: then all are exact.
        let (group, totals) = (self.group(id), &self.ledger.get(id).totals);
        let sums = self.meters.counters.map(|key| group.sum(key));
        assert_eq!(sums, totals.counters, "{}", group.path());
        assert_eq!(group.sum(self.meters.gauge), totals.gauge, "{}", group.path());
        self.tally.flushes += COUNTERS as u64 + 1;
        self.tally.compared += COUNTERS as u64 + 1;
        self.compare_cached(id);
        self.compare_usage(id);
    }

    /// A flush of everything; one time in sixteen everything is compared.
    pub(super) fn flush(&mut self, id: Id) {
        self.tally.flushes += 1;
        let report = self.tree.flush();
        if self.alone {
            assert!(report.groups <= self.ledger.created() * self.meters.sets.len());
            let again = self.tree.flush();
            let did = (again.groups, again.lines, again.joined);
            assert_eq!(did, (0, 0, false), "nothing changed");
            assert_eq!(self.tree.len(), self.ledger.existing(), "groups that exist");
        }
        self.compare_cached(id);
        for _ in 0..4 {
            let id = self.pick();
            self.compare_cached(id);
        }
        if self.random.below(16) == 0 {
            self.compare_everything();
        }
    }

    /// A flush of one subtree: the group and all below are exact, and the rest is within its bounds.
    pub(super) fn flush_below(&mut self, id: Id) {
        self.tally.flushes += 1;
        self.group(id).flush();
        if self.alone {
            let again = self.group(id).flush();
            assert_eq!((again.groups, again.lines), (0, 0), "nothing changed in {id}");
        }
        self.compare_cached(id);
        // Below, as far as handles are held; above, whose totals may have learned.
        let mut below = id;
        let mut above = self.ledger.get(id).parent;
        for _ in 0..4 {
            let children = &self.ledger.get(below).children;
            if children.is_empty() {
                break;
            }
            let nth = self.random.below(children.len() as u64) as usize;
            below = *children.values().nth(nth).expect("below the length");
            if self.places.contains_key(&below) {
                self.compare_cached(below);
            }
        }
        while let Some(id) = above {
            if self.places.contains_key(&id) {
                self.read(id);
            }
            above = self.ledger.get(id).parent;
        }
        let any = self.pick();
        self.read(any);
    }

    /// A read that accepts an error is off by no more than that, when nobody updates meanwhile.
    pub(super) fn read_within(&mut self, id: Id) {
        let error = [0, 1, 64, 5_000, 1 << 34, u64::MAX][self.random.below(6) as usize];
        let tolerance = Tolerance::new().error(error);
        let tolerance =
            if self.random.below(8) == 0 { tolerance.age(Duration::ZERO) } else { tolerance };
        let (group, totals) = (self.group(id), &self.ledger.get(id).totals);
        for (key, truth) in self.meters.counters.into_iter().zip(totals.counters) {
            let reading = group.read_within(key, tolerance);
            let off = truth.abs_diff(reading.value);
            assert!(off <= error && off <= reading.bound, "{truth} in {reading:?}, {error} off");
        }
        let reading = group.read_within(self.meters.gauge, tolerance);
        let off = totals.gauge.abs_diff(reading.value);
        assert!(
            off <= error && off <= reading.bound,
            "{} in {reading:?}, {error} off",
            totals.gauge
        );
        self.tally.compared += COUNTERS as u64 + 1;
    }

    /// A flush of one set: what is in it is exact, and what is not is within its bound.
    pub(super) fn flush_set(&mut self, id: Id) {
        self.tally.flushes += 1;
        let set = *self.random.pick(&self.meters.sets);
        self.tree.flush_set(set);
        if self.alone {
            let again = self.tree.flush_set(set);
            assert_eq!((again.groups, again.lines), (0, 0), "nothing changed");
        }
        let (group, totals) = (self.group(id), &self.ledger.get(id).totals);
        let metrics = self.meters.schema.metrics();
        let flushed = |name: &str| metrics.iter().any(|m| m.name() == name && m.set() == set);
        for ((name, key), total) in
            ["first", "second"].into_iter().zip(self.meters.counters).zip(totals.counters)
        {
            if flushed(name) {
                assert_eq!(group.read(key).value, total, "{name} of {}", group.path());
            }
        }
        if flushed("gauge") {
            assert_eq!(group.read(self.meters.gauge).value, totals.gauge, "{}", group.path());
        }
        self.read(id);
    }

    /// What was collected is never more than what there was, and never less than before.
    pub(super) fn read_visits(&mut self, id: Id) {
        let place = self.places[&id];
        let Fuzz { held, ledger, visits, tally, .. } = self;
        let (holding, truth) = (&mut held[place], ledger.get(id).visited);
        let found = visits.read(&holding.group, |seen| (*seen.total, seen.broken_below));
        let (found, broken) = found.expect("no callback panics");
        assert_eq!(broken, 0);
        let bounds = |of: fn(Visited) -> u64| of(holding.visited)..=of(truth);
        assert!(bounds(|v| v.count).contains(&found.count), "{found:?} of {truth:?}");
        assert!(bounds(|v| v.longest).contains(&found.longest), "{found:?} of {truth:?}");
        holding.visited = found;
        tally.compared += 2;
    }

    pub(super) fn sum_visits(&mut self, id: Id) {
        self.tally.flushes += 1;
        self.tally.compared += 2;
        let group = self.group(id);
        let found = self.visits.sum(group, |seen| *seen.total).expect("no callback panics");
        assert_eq!(found, self.ledger.get(id).visited, "{}", group.path());
    }

    /// What a flush left is exact while nothing was updated since.
    pub(super) fn compare_cached(&mut self, id: Id) {
        let (group, totals) = (self.group(id), &self.ledger.get(id).totals);
        let histogram = group.histogram(self.meters.histogram);
        let found = Totals {
            counters: self.meters.counters.map(|key| group.read(key).value),
            gauge: group.read(self.meters.gauge).value,
            buckets: histogram.counts().to_vec(),
            recorded: histogram.sum(),
        };
        assert_eq!(found, *totals, "{}", group.path());
        self.tally.compared += (COUNTERS + 2 + found.buckets.len()) as u64;
    }

    pub(super) fn compare_usage(&self, id: Id) {
        self.compare_usage_of(id, self.group(id));
    }

    /// The same for a group of which no handle may be held.
    pub(super) fn compare_usage_of(&self, id: Id, group: &Group) {
        let entry = self.ledger.get(id);
        let found = self.meters.resources.map(|key| held(group.usage(key)));
        assert_eq!(found, entry.held, "{}", entry.path);
    }

    /// Copies the tree and compares every value of every live group of this fuzz.
    pub(super) fn compare_everything(&mut self) {
        self.tally.flushes += 1;
        let snapshot = self.tree.snapshot();
        let topmost = self.ledger.get(0).path.clone();
        let below = |values: &&GroupValues| {
            let rest = values.path().strip_prefix(topmost.trim_end_matches('/'));
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        let groups: Vec<&GroupValues> = snapshot.groups().iter().filter(below).collect();
        let live = self.ledger.live();
        assert_eq!(groups.len(), live.len(), "live groups");
        for (values, id) in groups.into_iter().zip(live) {
            let entry = self.ledger.get(id);
            assert_eq!(values.path(), entry.path);
            let histogram = values.histogram(self.meters.histogram);
            let found = Totals {
                counters: self.meters.counters.map(|key| values.counter(key)),
                gauge: values.gauge(self.meters.gauge),
                buckets: histogram.counts().to_vec(),
                recorded: histogram.sum(),
            };
            assert_eq!(found, entry.totals, "{}", entry.path);
            let usage = self.meters.resources.map(|key| held(values.usage(key)));
            assert_eq!(usage, entry.held, "{}", entry.path);
            if let Some(parent) = entry.parent {
                let found = values.parent().map(|at| snapshot.groups()[at].path());
                assert_eq!(found, Some(&*self.ledger.get(parent).path), "{}", entry.path);
            }
            self.tally.compared += (COUNTERS + 4 + found.buckets.len()) as u64;
        }
        self.visits.flush().expect("not from a callback");
        for Holding { id, group, .. } in &self.held {
            self.compare_usage(*id);
            let found = self.visits.read(group, |seen| *seen.total).expect("no callback panics");
            assert_eq!(found, self.ledger.get(*id).visited, "{}", group.path());
            self.tally.compared += 2;
        }
    }
}

fn held(usage: Usage) -> Held {
    let Usage { current, peak, limit, refused, .. } = usage;
    Held { current, peak, limit, refused }
}
