//! Drives a tree and its oracle through the same script.

use std::collections::BTreeSet;

use submeter::{
    Charge, Collector, Error, Group, GroupValues, HistogramSnapshot, Killed, LimitError, Tolerance,
    Tree, Usage,
};

use crate::meters::{COUNTERS, Meters, RESOURCES};
use crate::oracle::{Held, Id, Limited, Oracle, Refused};
use crate::script::Op;
use crate::visits::Visits;

/// Holds a tree, its oracle, and the handles and charges that a script has collected.
///
/// Every method panics where the two differ.
pub struct Twin {
    meters: Meters,
    tree: Tree,
    visits: Collector<Visits>,
    oracle: Oracle,
    /// By id: the handle, while one is held.
    handles: Vec<Option<Group>>,
    charges: Vec<(Id, usize, Charge)>,
    /// By id: the last value read of each counter, below which none may fall.
    seen: Vec<[u64; COUNTERS]>,
}

impl Twin {
    /// Starts with two empty trees.
    ///
    /// # Panics
    /// When the kernel refuses the tree its address space.
    #[must_use]
    pub fn new(meters: Meters) -> Twin {
        let tree = Tree::new(meters.schema.clone()).expect("a tree");
        let handles = vec![Some(tree.root().clone())];
        let visits = tree.collector("visits", Visits);
        let seen = vec![[0; COUNTERS]];
        Twin { meters, tree, visits, oracle: Oracle::new(), handles, charges: Vec::new(), seen }
    }

    /// Runs a whole script, compares everything, then drops the tree and compares what handles see.
    pub fn run(meters: Meters, script: &[Op]) {
        let mut twin = Twin::new(meters);
        for op in script {
            twin.apply(op);
        }
        twin.compare_snapshot();
        for id in twin.held() {
            twin.compare_sum(id);
            twin.compare_visits(id);
        }
        twin.finish();
    }

    /// Carries one operation out on both and compares what they answer.
    pub fn apply(&mut self, op: &Op) {
        match *op {
            Op::Create { at, name } => self.create(self.pick(at), name),
            Op::Path { ref names } => self.get_or_create(names),
            Op::Find { at } => self.find(usize::from(at) % self.oracle.created()),
            Op::Kill { at } => self.kill(self.pick(at)),
            Op::KillSubtree { at } => self.kill_subtree(self.pick(at)),
            Op::DropHandle { at } => {
                let id = self.pick(at);
                // The root's stays, so that there is always one to pick.
                if id != 0 {
                    self.handles[id] = None;
                }
            }
            Op::Add { at, counter, n } => {
                let id = self.pick(at);
                self.group(id).add(self.meters.counters[counter], n);
                self.oracle.add(id, counter, n);
            }
            Op::Adjust { at, delta } => {
                let id = self.pick(at);
                self.group(id).adjust(self.meters.gauge, delta);
                self.oracle.adjust(id, delta);
            }
            Op::Record { at, value } => {
                let id = self.pick(at);
                self.group(id).record(self.meters.histogram, value);
                self.oracle.record(id, value);
            }
            Op::Visit { at, length } => {
                let id = self.pick(at);
                self.visits.attach(self.group(id)).update(|here| here.visit(length));
                self.oracle.visit(id, length);
            }
            Op::Charge { at, resource, n } => self.charge(self.pick(at), resource, n),
            Op::Resize { charge, amount } => self.resize(charge, amount),
            Op::DropCharge { charge } => self.drop_charge(charge),
            Op::SetLimit { at, resource, limit } => {
                let id = self.pick(at);
                let excess = self.group(id).set_limit(self.meters.resources[resource], limit);
                assert_eq!(excess, self.oracle.set_limit(id, resource, limit), "excess of {id}");
                self.compare_usage(id);
            }
            Op::Flush => self.flush(),
            Op::FlushSet { set } => {
                let sets = &self.meters.sets;
                self.tree.flush_set(sets[usize::from(set) % sets.len()]);
                self.held().into_iter().for_each(|id| self.compare_read(id));
            }
            Op::FlushBelow { at } => {
                let id = self.pick(at);
                self.group(id).flush();
                self.compare_part(id);
            }
            Op::ReadWithin { at, error } => self.compare_read_within(self.pick(at), error),
            Op::Read { at } => self.compare_read(self.pick(at)),
            Op::Sum { at } => self.compare_sum(self.pick(at)),
            Op::SumVisits { at } => self.compare_visits(self.pick(at)),
            Op::Snapshot => self.compare_snapshot(),
        }
    }

    // ---- groups ------------------------------------------------------------------------------

    /// The ids whose handle is held, the root's first.
    fn held(&self) -> Vec<Id> {
        (0..self.handles.len()).filter(|&id| self.handles[id].is_some()).collect()
    }

    fn pick(&self, at: u16) -> Id {
        let held = self.held();
        held[usize::from(at) % held.len()]
    }

    fn group(&self, id: Id) -> &Group {
        self.handles[id].as_ref().expect("picked among the held")
    }

    fn adopt(&mut self, id: Id, group: Group) {
        assert_eq!(group.path(), self.oracle.path(id));
        assert_eq!(group.name(), self.oracle.path(id).rsplit('/').next().expect("one part"));
        assert_eq!(group.depth(), self.oracle.path(id).matches('/').count() - usize::from(id == 0));
        let parent = group.parent().map(Group::path);
        assert_eq!(parent, self.oracle.parent(id).map(|parent| self.oracle.path(parent)));
        self.handles.resize(self.oracle.created(), None);
        self.seen.resize(self.oracle.created(), [0; COUNTERS]);
        if let Some(held) = &self.handles[id] {
            assert_eq!(*held, group, "two groups at {}", group.path());
        }
        self.handles[id] = Some(group);
    }

    fn create(&mut self, at: Id, name: &str) {
        match (self.group(at).create(name), self.oracle.create(at, name)) {
            (Ok(group), Ok(id)) => self.adopt(id, group),
            (Err(error), Err(refused)) => assert_refused(&error, refused),
            (group, id) => panic!("create {name:?} in {at}: {group:?}, oracle {id:?}"),
        }
    }

    fn get_or_create(&mut self, names: &[&str]) {
        let path = format!("/{}", names.join("/"));
        let group = self.tree.get_or_create(&path).expect("good names in a small tree");
        let mut id = 0;
        for name in names {
            let below = format!("{}/{name}", self.oracle.path(id).trim_end_matches('/'));
            let found = self.oracle.find(&below);
            id = found.unwrap_or_else(|| self.oracle.create(id, name).expect("free"));
        }
        self.adopt(id, group);
    }

    fn find(&mut self, id: Id) {
        let path = self.oracle.path(id).to_owned();
        match (self.tree.get(&path), self.oracle.find(&path)) {
            (Some(group), Some(id)) => {
                let children: Vec<Group> = group.children();
                let paths: Vec<&str> = children.iter().map(Group::path).collect();
                let expected = self.oracle.children(id);
                let expected: Vec<&str> = expected.iter().map(|&c| self.oracle.path(c)).collect();
                assert_eq!(paths, expected);
                assert_eq!(group.children_len(), expected.len());
                self.adopt(id, group);
            }
            (None, None) => {}
            (group, id) => panic!("{path}: {group:?}, oracle {id:?}"),
        }
    }

    fn kill(&mut self, id: Id) {
        match (self.group(id).kill(), self.oracle.kill(id)) {
            (Ok(_), Ok(())) => {}
            (Err(error), Err(refused)) => assert_refused(&error, refused),
            (killed, expected) => panic!("kill {id}: {killed:?}, oracle {expected:?}"),
        }
        assert_eq!(self.group(id).is_dying(), self.oracle.is_dead(id));
    }

    fn kill_subtree(&mut self, id: Id) {
        match (self.group(id).kill_subtree(), self.oracle.kill_subtree(id)) {
            (Ok(killed), Ok(expected)) => {
                assert_eq!(killed.len(), expected);
                assert_eq!(killed.last().map(Killed::path), Some(self.oracle.path(id)));
            }
            (Err(error), Err(refused)) => assert_refused(&error, refused),
            (killed, expected) => panic!("kill_subtree {id}: {killed:?}, oracle {expected:?}"),
        }
        assert_eq!(self.group(id).is_dying(), self.oracle.is_dead(id));
    }

    // ---- charges -----------------------------------------------------------------------------

    fn charge(&mut self, id: Id, resource: usize, n: u64) {
        let charged = self.group(id).try_charge(self.meters.resources[resource], n);
        match (charged, self.oracle.charge(id, resource, n)) {
            (Ok(charge), Ok(())) => {
                assert_eq!((charge.amount(), charge.group()), (n, self.group(id)));
                self.charges.push((id, resource, charge));
            }
            (Err(error), Err(limited)) => self.assert_limited(&error, id, resource, n, limited),
            (charged, expected) => panic!("charge {n} to {id}: {charged:?}, oracle {expected:?}"),
        }
        self.compare_usages();
    }

    fn resize(&mut self, charge: u16, amount: u64) {
        if self.charges.is_empty() {
            return;
        }
        let index = usize::from(charge) % self.charges.len();
        let (id, resource, ref mut charge) = self.charges[index];
        let before = charge.amount();
        let resized = charge.resize(amount);
        let more = amount.saturating_sub(before);
        let expected = match more {
            0 => {
                self.oracle.uncharge(id, resource, before - amount);
                Ok(())
            }
            more => self.oracle.charge(id, resource, more),
        };
        let after = if expected.is_ok() { amount } else { before };
        assert_eq!(charge.amount(), after);
        match (resized, expected) {
            (Ok(()), Ok(())) => {}
            (Err(error), Err(limited)) => self.assert_limited(&error, id, resource, more, limited),
            (resized, expected) => panic!("resize in {id}: {resized:?}, oracle {expected:?}"),
        }
        self.compare_usages();
    }

    fn drop_charge(&mut self, charge: u16) {
        if !self.charges.is_empty() {
            let index = usize::from(charge) % self.charges.len();
            let (id, resource, charge) = self.charges.swap_remove(index);
            self.oracle.uncharge(id, resource, charge.amount());
            drop(charge);
            self.compare_usages();
        }
    }

    fn assert_limited(&self, error: &LimitError, id: Id, resource: usize, n: u64, want: Limited) {
        let path = |id| self.oracle.path(id);
        assert_eq!(error.group().path(), path(id));
        assert_eq!(error.limiting().path(), path(want.limiting));
        let said = (error.requested(), error.current(), error.limit());
        assert_eq!(said, (n, want.current, want.limit));
        let holders = error.holders();
        let holders: Vec<(String, u64)> =
            holders.iter().map(|(group, held)| (group.path().to_owned(), *held)).collect();
        assert_eq!(holders, self.oracle.holders(want.limiting, resource));
        let text = error.to_string();
        for named in holders.iter().map(|(path, _)| path.as_str()).chain([path(want.limiting)]) {
            assert!(text.contains(named), "{text:?} does not name {named}");
        }
    }

    // ---- comparisons -------------------------------------------------------------------------

    fn compare_usages(&self) {
        self.held().into_iter().for_each(|id| self.compare_usage(id));
    }

    fn compare_usage(&self, id: Id) {
        for (resource, key) in self.meters.resources.iter().enumerate() {
            let usage = held(self.group(id).usage(*key));
            assert_eq!(usage, self.oracle.held(id, resource), "{}", self.oracle.path(id));
        }
    }

    /// A read without a flush is within its bound, and a counter never falls.
    fn compare_read(&mut self, id: Id) {
        for (counter, key) in self.meters.counters.iter().enumerate() {
            let reading = self.group(id).read(*key);
            let truth = self.oracle.counter(id, counter);
            let seen = &mut self.seen[id][counter];
            assert!(truth.abs_diff(reading.value) <= reading.bound, "{truth} in {reading:?}");
            assert!(reading.value >= *seen, "fell from {seen} to {reading:?}");
            *seen = reading.value;
        }
        let reading = self.group(id).read(self.meters.gauge);
        let truth = self.oracle.gauge(id);
        assert!(truth.abs_diff(reading.value) <= reading.bound, "{truth} in {reading:?}");
    }

    /// What may be off by `error` is off by no more.
    fn compare_read_within(&self, id: Id, error: u64) {
        for (counter, key) in self.meters.counters.iter().enumerate() {
            let reading = self.group(id).read_within(*key, Tolerance::new().error(error));
            let off = self.oracle.counter(id, counter).abs_diff(reading.value);
            assert!(off <= error && off <= reading.bound, "{off} off: {reading:?}");
        }
    }

    /// After a flush of a part: it and all below are exact, the others within their bounds.
    fn compare_part(&mut self, top: Id) {
        for id in self.held() {
            let mut up = std::iter::successors(Some(id), |&id| self.oracle.parent(id));
            if up.any(|above| above == top) {
                self.compare_cached(id);
            } else {
                self.compare_read(id);
            }
        }
    }

    /// A flush visits nothing that did not change, and lets go of groups that nobody holds.
    fn flush(&mut self) {
        // Once in each set.
        let most = self.oracle.created() * self.meters.sets.len();
        assert!(self.tree.flush().groups <= most);
        let again = self.tree.flush();
        assert_eq!((again.groups, again.lines, again.joined), (0, 0, false), "nothing changed");
        assert_eq!(self.tree.len(), self.existing().len(), "groups that exist");
        self.held().into_iter().for_each(|id| self.compare_cached(id));
    }

    /// The live groups, and the killed ones that a handle or a charge keeps, with their ancestors.
    fn existing(&self) -> BTreeSet<Id> {
        let charged = self.charges.iter().map(|(id, _, _)| *id);
        let kept = self.held().into_iter().chain(charged).chain(self.oracle.live());
        kept.flat_map(|id| std::iter::successors(Some(id), |&id| self.oracle.parent(id))).collect()
    }

    /// Every kind of read is exact just after a flush.
    fn compare_sum(&self, id: Id) {
        for (counter, key) in self.meters.counters.iter().enumerate() {
            assert_eq!(self.group(id).sum(*key), self.oracle.counter(id, counter), "{id}");
        }
        assert_eq!(self.group(id).sum(self.meters.gauge), self.oracle.gauge(id), "{id}");
        self.compare_cached(id);
    }

    /// What the last flush left is exact while nothing was updated since.
    fn compare_cached(&self, id: Id) {
        let group = self.group(id);
        for (counter, key) in self.meters.counters.iter().enumerate() {
            assert_eq!(group.read(*key).value, self.oracle.counter(id, counter), "{id}");
        }
        assert_eq!(group.read(self.meters.gauge).value, self.oracle.gauge(id), "{id}");
        let histogram = group.histogram(self.meters.histogram);
        assert_histogram(&histogram, &self.oracle.recorded(id));
        self.compare_usage(id);
    }

    fn compare_visits(&self, id: Id) {
        let found = self.visits.sum(self.group(id), |seen| *seen.total);
        assert_eq!(found.expect("no callback panics"), self.oracle.visited(id), "{id}");
    }

    fn compare_snapshot(&self) {
        let snapshot = self.tree.snapshot();
        let groups = snapshot.groups();
        let live = self.oracle.live();
        let paths: Vec<&str> = groups.iter().map(GroupValues::path).collect();
        let expected: Vec<&str> = live.iter().map(|&id| self.oracle.path(id)).collect();
        assert_eq!(paths, expected);
        for (values, &id) in groups.iter().zip(&live) {
            for (counter, key) in self.meters.counters.iter().enumerate() {
                assert_eq!(values.counter(*key), self.oracle.counter(id, counter), "{id}");
            }
            assert_eq!(values.gauge(self.meters.gauge), self.oracle.gauge(id), "{id}");
            let histogram = values.histogram(self.meters.histogram);
            assert_histogram(&histogram, &self.oracle.recorded(id));
            for (resource, key) in self.meters.resources.iter().enumerate().take(RESOURCES) {
                assert_eq!(held(values.usage(*key)), self.oracle.held(id, resource), "{id}");
            }
            let parent = values.parent().map(|index| groups[index].path());
            assert_eq!(parent, self.oracle.parent(id).map(|parent| self.oracle.path(parent)));
        }
    }

    /// Drops the tree: what is held keeps counting, and gives back without harm.
    fn finish(mut self) {
        let held = self.held();
        for &id in &held {
            self.group(id).add(self.meters.counters[0], 1);
            self.oracle.add(id, 0, 1);
        }
        let Twin { tree, .. } = &self;
        let root = tree.root().clone();
        self.handles[0] = Some(root);
        self.tree = Tree::new(self.meters.schema.clone()).expect("a tree");
        for &id in &held {
            self.compare_sum(id);
        }
        while !self.charges.is_empty() {
            self.drop_charge(0);
        }
        for id in held {
            assert!((0..RESOURCES).all(|r| self.oracle.held(id, r).current == 0));
        }
    }
}

fn held(usage: Usage) -> Held {
    let Usage { current, peak, limit, refused, .. } = usage;
    Held { current, peak, limit, refused }
}

fn assert_refused(error: &Error, refused: Refused) {
    let said = match refused {
        Refused::Name => error.is_invalid_name(),
        Refused::Exists => error.is_exists(),
        Refused::Dead => error.is_dead(),
        Refused::Busy => error.is_busy(),
        Refused::Root => error.to_string().contains("root"),
    };
    assert!(said, "{error:?} for {refused:?}");
}

/// Buckets by their published bounds, without the arithmetic that finds a value's bucket.
fn assert_histogram(histogram: &HistogramSnapshot, recorded: &[u64]) {
    let buckets = histogram.buckets();
    let mut counts = vec![0; buckets.len()];
    for &value in recorded {
        let inside = |&index: &usize| buckets.upper(index).is_none_or(|upper| value < upper);
        counts[(0..buckets.len()).find(inside).expect("the last is open")] += 1;
    }
    assert_eq!(histogram.counts(), counts);
    assert_eq!(histogram.sum(), recorded.iter().sum::<u64>());
    assert_eq!(histogram.count(), recorded.len() as u64);
}
