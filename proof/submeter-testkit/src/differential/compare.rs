//! Comparisons of each kind of read with the oracle.

use std::time::Duration;

use submeter::{Group, GroupValues, Tolerance};

use super::{Differential, Holding};
use crate::op::Source;
use crate::oracle::Id;
use crate::schema::{COUNTERS, QUOTAS, Sums};
use crate::visits::Visited;

impl Differential {
    /// Checks that a read without a flush is within its bound, and that a counter never falls.
    pub(super) fn read(&mut self, id: Id) {
        let (group, truth) = (self.group(id).clone(), self.oracle.get(id).totals.sums);
        let seen = self.seen.entry(id).or_default();
        let of_each = self.schema.counters.iter().zip(truth.counters).zip(&mut seen.counters);
        for ((key, truth), seen) in of_each {
            let reading = group.read(*key);
            assert!(truth.abs_diff(reading.value) <= reading.max_error, "{truth} in {reading:?}");
            assert!(reading.value >= *seen, "fell from {seen} to {reading:?}");
            *seen = reading.value;
        }
        let reading = group.read_histogram(self.schema.histogram);
        let of_each = truth.buckets.iter().zip(reading.value.counts());
        let off: u64 = of_each.map(|(truth, seen)| truth.abs_diff(*seen)).sum();
        assert!(off <= reading.max_error, "{:?} in {reading:?}", truth.buckets);
        let (reading, truth) = (group.read(self.schema.gauge), truth.gauge);
        assert!(truth.abs_diff(reading.value) <= reading.max_error, "{truth} in {reading:?}");
        self.tally.compared += COUNTERS as u64 + 2;
    }

    /// Checks that a read that accepts an error is off by no more than that.
    pub(super) fn read_within(&mut self, id: Id, error: u64, fresh: bool) {
        let tolerance = Tolerance::max_error(error);
        let tolerance = if fresh { tolerance.max_age(Duration::ZERO) } else { tolerance };
        let (group, truth) = (self.group(id), &self.oracle.get(id).totals.sums);
        for (key, truth) in self.schema.counters.into_iter().zip(truth.counters) {
            let reading = group.read_within(key, tolerance);
            let off = truth.abs_diff(reading.value);
            assert!(
                off <= error && off <= reading.max_error,
                "{truth} in {reading:?}, {error} off"
            );
        }
        let (reading, truth) = (group.read_within(self.schema.gauge, tolerance), truth.gauge);
        let off = truth.abs_diff(reading.value);
        assert!(off <= error && off <= reading.max_error, "{truth} in {reading:?}, {error} off");
        self.tally.compared += COUNTERS as u64 + 1;
    }

    /// Checks that an exact read is exact, and that the values it caches are exact too.
    pub(super) fn sum(&mut self, id: Id) {
        // One exact read per section makes all of them exact.
        let (group, truth) = (self.group(id), &self.oracle.get(id).totals.sums);
        let sums = self.schema.counters.map(|key| group.sum(key));
        assert_eq!(sums, truth.counters, "{}", group.path());
        assert_eq!(group.sum(self.schema.gauge), truth.gauge, "{}", group.path());
        self.tally.flushes += COUNTERS as u64 + 1;
        self.tally.compared += COUNTERS as u64 + 1;
        self.compare_cached(id);
        self.compare_held(id);
    }

    /// Checks that a flush visits only what changed, and frees groups without holders.
    pub(super) fn flush(&mut self) {
        self.tally.flushes += 1;
        let report = self.tree.flush();
        if self.alone {
            // Once per section.
            assert!(report.groups <= self.oracle.created() * self.schema.sections.len());
            let again = self.tree.flush();
            let did = (again.groups, again.lines, again.joined);
            assert_eq!(did, (0, 0, false), "nothing changed");
            assert_eq!(self.tree.group_count(), self.oracle.existing(), "groups that exist");
        }
        for id in self.near(0) {
            self.compare_cached(id);
            self.compare_held(id);
        }
    }

    /// Flushes one section; checks that its metrics are exact, and the others within their bounds.
    pub(super) fn flush_section(&mut self, section: u32) {
        self.tally.flushes += 1;
        let sections = &self.schema.sections;
        let section = sections[section as usize % sections.len()];
        self.tree.flush_section(section);
        if self.alone {
            let again = self.tree.flush_section(section);
            assert_eq!((again.groups, again.lines), (0, 0), "nothing changed");
        }
        let flushed = ["first", "second", "gauge"].map(|name| self.schema.is_in(name, section));
        for id in self.near(0) {
            let (group, truth) = (self.group(id), &self.oracle.get(id).totals.sums);
            for (counter, key) in self.schema.counters.into_iter().enumerate() {
                if flushed[counter] {
                    assert_eq!(group.read(key).value, truth.counters[counter], "{}", group.path());
                }
            }
            if flushed[COUNTERS] {
                assert_eq!(group.read(self.schema.gauge).value, truth.gauge, "{}", group.path());
            }
            self.read(id);
        }
    }

    /// Flushes a subtree; checks that its groups are exact, and the others within their bounds.
    pub(super) fn flush_below(&mut self, top: Id) {
        self.tally.flushes += 1;
        self.group(top).flush();
        if self.alone {
            let again = self.group(top).flush();
            assert_eq!((again.groups, again.lines), (0, 0), "nothing changed in {top}");
        }
        let mut near = self.near(top);
        if self.source == Source::Stream {
            // The ancestors, whose totals the flush raised, and one path downwards.
            near.extend(self.oracle.upward(top));
            let mut below = top;
            while let Some(&child) = self.rng.choice(self.oracle.get(below).children.values()) {
                near.push(child);
                below = child;
            }
            near.retain(|id| self.positions.contains_key(id));
        }
        for id in near {
            if self.oracle.upward(id).any(|above| above == top) {
                self.compare_cached(id);
                self.compare_held(id);
            } else {
                self.read(id);
            }
        }
    }

    /// Checks that visits read without a flush never exceed the true number, and never fall.
    pub(super) fn read_visits(&mut self, id: Id) {
        let truth = self.oracle.get(id).totals.visited;
        let found = self.visits.read(self.group(id), |seen| (*seen.total, seen.broken_below));
        let (found, broken) = found.expect("no callback panics");
        assert_eq!(broken, 0);
        let seen = self.seen.entry(id).or_default();
        let bounds = |of: fn(Visited) -> u64| of(seen.visited)..=of(truth);
        assert!(bounds(|v| v.count).contains(&found.count), "{found:?} of {truth:?}");
        assert!(bounds(|v| v.longest).contains(&found.longest), "{found:?} of {truth:?}");
        seen.visited = found;
        self.tally.compared += 2;
    }

    pub(super) fn sum_visits(&mut self, id: Id) {
        let found = self.visits.sum(self.group(id), |seen| *seen.total);
        let truth = self.oracle.get(id).totals.visited;
        assert_eq!(found.expect("no callback panics"), truth, "{}", self.group(id).path());
        self.tally.flushes += 1;
        self.tally.compared += 2;
    }

    /// Checks that cached values are exact if nothing was updated since the flush.
    fn compare_cached(&mut self, id: Id) {
        let group = self.group(id);
        let found = self.schema.cached(group);
        assert_eq!(found, self.oracle.get(id).totals.sums, "{}", group.path());
        self.tally.compared += values(&found);
    }

    /// Compares what groups hold: all of them in a script, only the group `id` in a stream.
    pub(super) fn compare_held_near(&mut self, id: Id) {
        if self.source == Source::Script {
            self.near(id).into_iter().for_each(|id| self.compare_held(id));
        } else {
            self.compare_held(id);
        }
    }

    pub(super) fn compare_held(&self, id: Id) {
        self.compare_held_of(id, self.group(id));
    }

    /// The same for a group of which the stream may hold no handle.
    pub(super) fn compare_held_of(&self, id: Id, group: &Group) {
        let entry = self.oracle.get(id);
        for (found, truth) in self.schema.held(group).iter().zip(&entry.held) {
            found.assert_is(truth, &entry.path);
        }
    }

    /// Takes a snapshot and compares every value of every live group below the top.
    pub(super) fn compare_everything(&mut self) {
        self.tally.flushes += 1;
        let snapshot = self.tree.snapshot_with_own();
        let topmost = self.oracle.get(0).path.clone();
        let below = |values: &&GroupValues| {
            let rest = values.path().strip_prefix(topmost.trim_end_matches('/'));
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        let groups: Vec<&GroupValues> = snapshot.groups().iter().filter(below).collect();
        let live = self.oracle.live_below(0);
        assert_eq!(groups.len(), live.len(), "live groups");
        for (copied, id) in groups.into_iter().zip(live) {
            let entry = self.oracle.get(id);
            assert_eq!(copied.path(), entry.path);
            let found = self.schema.copied(copied);
            assert_eq!(found, entry.totals.sums, "{}", entry.path);
            let mut own = entry.own.sums;
            own.gauge += entry.left;
            assert_eq!(self.schema.own(copied), own, "own part of {}", entry.path);
            for (found, truth) in self.schema.held_copied(copied).iter().zip(&entry.held) {
                found.assert_is(truth, &entry.path);
            }
            let parent = copied.parent().map(|at| snapshot.groups()[at].path());
            if id != 0 || self.alone {
                let expected = entry.parent.map(|parent| &*self.oracle.get(parent).path);
                assert_eq!(parent, expected, "{}", entry.path);
            }
            self.tally.compared += values(&found) + QUOTAS as u64;
        }
        self.visits.flush().expect("not from a callback");
        for Holding { id, handle } in &self.held {
            self.compare_held(*id);
            let found = self.visits.read(&handle.group, |seen| *seen.total);
            let truth = self.oracle.get(*id).totals.visited;
            assert_eq!(found.expect("no callback panics"), truth, "{}", handle.group.path());
            self.tally.compared += 2;
        }
        let Differential { seen, oracle, .. } = self;
        seen.retain(|id, _| oracle.exists(*id));
    }
}

fn values(sums: &Sums) -> u64 {
    (COUNTERS + 2 + sums.buckets.len()) as u64
}
