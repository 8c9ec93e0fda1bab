//! A tree of groups, charged level by level: an oracle for long runs.

use std::collections::BTreeMap;

use submeter::Buckets;

use crate::meters::{COUNTERS, RESOURCES};
use crate::oracle::{Held, Id, Limited, Refused};
use crate::visits::Visited;

/// Models a tree as a ledger: each update is written into the group and every ancestor at once.
///
/// [`Oracle`](crate::Oracle) derives every total from all that ever happened, which is plainer and
/// takes time in proportion to it. Here a million operations cost a walk to the root each, and a
/// group that nobody holds is forgotten. A test runs both side by side.
#[derive(Clone, Debug)]
pub struct Ledger {
    /// By id, which are given out in the order of creation.
    groups: BTreeMap<Id, Entry>,
    created: usize,
    /// Groups that can be found.
    live: usize,
    buckets: Buckets,
}

/// What is known of one group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The absolute path.
    pub path: String,
    /// `None` for the topmost.
    pub parent: Option<Id>,
    /// Live children by name.
    pub children: BTreeMap<String, Id>,
    /// Whether it was killed.
    pub dead: bool,
    /// Own and all that is or was below, as is everything that follows.
    pub totals: Totals,
    /// What is held of each resource.
    pub held: [Held; RESOURCES],
    /// What was collected.
    pub visited: Visited,
    /// Handles, charges and children, dead or alive; the tree itself counts as one while it lives.
    holders: usize,
}

/// The metrics that only grow or move, and are exact after a flush.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Totals {
    /// Of each counter.
    pub counters: [u64; COUNTERS],
    /// Of the gauge.
    pub gauge: i64,
    /// Values in each bucket.
    pub buckets: Vec<u64>,
    /// Sum of the values.
    pub recorded: u64,
}

impl Ledger {
    /// Starts with a group at `path`, whose id is 0.
    #[must_use]
    pub fn new(path: &str, buckets: Buckets) -> Ledger {
        let mut ledger = Ledger { groups: BTreeMap::new(), created: 0, live: 0, buckets };
        ledger.insert(path.to_owned(), None);
        ledger
    }

    fn insert(&mut self, path: String, parent: Option<Id>) -> Id {
        let id = self.created;
        let counts = vec![0; self.buckets.len()];
        let totals = Totals { counters: [0; COUNTERS], gauge: 0, buckets: counts, recorded: 0 };
        let held = [Held { current: 0, peak: 0, limit: None, refused: 0 }; RESOURCES];
        let entry = Entry {
            path,
            parent,
            children: BTreeMap::new(),
            dead: false,
            totals,
            held,
            visited: Visited::default(),
            holders: 1,
        };
        self.groups.insert(id, entry);
        self.created += 1;
        self.live += 1;
        id
    }

    // ---- groups ------------------------------------------------------------------------------

    /// Returns a group that exists.
    ///
    /// # Panics
    /// When there is none of that id.
    #[must_use]
    pub fn get(&self, id: Id) -> &Entry {
        &self.groups[&id]
    }

    /// Returns whether the group lives or is held.
    #[must_use]
    pub fn exists(&self, id: Id) -> bool {
        self.groups.contains_key(&id)
    }

    /// Returns how many groups live or are held.
    #[must_use]
    pub fn existing(&self) -> usize {
        self.groups.len()
    }

    /// Returns how many groups live.
    #[must_use]
    pub fn live_len(&self) -> usize {
        self.live
    }

    /// Returns how many groups were ever created.
    #[must_use]
    pub fn created(&self) -> usize {
        self.created
    }

    /// Returns the live groups, each before its children, siblings in the order of their names.
    #[must_use]
    pub fn live(&self) -> Vec<Id> {
        self.live_below(0)
    }

    /// Returns a group and the live ones below it, in the same order.
    #[must_use]
    pub fn live_below(&self, id: Id) -> Vec<Id> {
        let mut order = Vec::new();
        let mut stack = vec![id];
        while let Some(id) = stack.pop() {
            order.push(id);
            stack.extend(self.get(id).children.values().rev());
        }
        order
    }

    /// Creates a child.
    ///
    /// # Errors
    /// As [`submeter::Group::create`]: the first of bad name, dead parent, name taken.
    pub fn create(&mut self, parent: Id, name: &str) -> Result<Id, Refused> {
        let entry = self.get(parent);
        let is_bad = |c: char| c == '/' || c.is_control();
        if name.is_empty()
            || name.len() > 255
            || name.contains(is_bad)
            || [".", ".."].contains(&name)
        {
            return Err(Refused::Name);
        }
        if entry.dead {
            return Err(Refused::Dead);
        }
        if entry.children.contains_key(name) {
            return Err(Refused::Exists);
        }
        let path = format!("{}/{name}", entry.path.trim_end_matches('/'));
        let id = self.insert(path, Some(parent));
        self.at(parent).children.insert(name.to_owned(), id);
        self.at(parent).holders += 1;
        Ok(id)
    }

    /// Kills a group.
    ///
    /// # Errors
    /// As [`submeter::Group::kill`]: the topmost, live children, killed before.
    pub fn kill(&mut self, id: Id) -> Result<(), Refused> {
        match self.get(id) {
            Entry { parent: None, .. } => Err(Refused::Root),
            Entry { children, .. } if !children.is_empty() => Err(Refused::Busy),
            Entry { dead: true, .. } => Err(Refused::Dead),
            _ => {
                self.bury(id);
                Ok(())
            }
        }
    }

    /// Kills a group and all below it, and returns them: children before their parents.
    ///
    /// # Errors
    /// As [`submeter::Group::kill_subtree`]: the topmost, killed before.
    pub fn kill_subtree(&mut self, id: Id) -> Result<Vec<Id>, Refused> {
        if self.get(id).parent.is_none() {
            return Err(Refused::Root);
        }
        if self.get(id).dead {
            return Err(Refused::Dead);
        }
        let mut killed = self.live_below(id);
        killed.reverse();
        for &at in &killed {
            self.bury(at);
        }
        Ok(killed)
    }

    fn bury(&mut self, id: Id) {
        let entry = self.at(id);
        entry.dead = true;
        let name = entry.path.rsplit('/').next().unwrap_or("").to_owned();
        let parent = entry.parent.expect("the topmost stays");
        self.at(parent).children.remove(&name);
        self.live -= 1;
        self.release(id);
    }

    /// Notes one more handle or charge.
    pub fn hold(&mut self, id: Id) {
        self.at(id).holders += 1;
    }

    /// Notes one less; forgets what nobody holds any more. Its totals are in its ancestors'.
    pub fn release(&mut self, id: Id) {
        let mut at = Some(id);
        while let Some(id) = at {
            let entry = self.at(id);
            entry.holders -= 1;
            if entry.holders > 0 {
                return;
            }
            at = self.groups.remove(&id).and_then(|entry| entry.parent);
        }
    }

    // ---- updates -----------------------------------------------------------------------------

    /// Adds to a counter.
    pub fn add(&mut self, id: Id, counter: usize, n: u64) {
        self.upward(id, |entry| entry.totals.counters[counter] += n);
    }

    /// Moves the gauge.
    pub fn adjust(&mut self, id: Id, delta: i64) {
        self.upward(id, |entry| entry.totals.gauge += delta);
    }

    /// Records a value in the histogram, `n` times.
    pub fn record(&mut self, id: Id, value: u64, n: u64) {
        // By the published bounds, without the arithmetic that finds a value's bucket.
        let buckets = self.buckets;
        let inside = |&index: &usize| buckets.upper(index).is_none_or(|upper| value < upper);
        let bucket = (0..buckets.len()).find(inside).expect("the last is open");
        self.upward(id, |entry| {
            entry.totals.buckets[bucket] += n;
            entry.totals.recorded += value * n;
        });
    }

    /// Notes a visit.
    pub fn visit(&mut self, id: Id, length: u64) {
        self.upward(id, |entry| entry.visited.merge(&Visited { count: 1, longest: length }));
    }

    /// Charges the group and its ancestors, or none of them.
    ///
    /// # Errors
    /// When a limit would be exceeded.
    pub fn charge(&mut self, id: Id, resource: usize, n: u64) -> Result<(), Limited> {
        let mut at = Some(id);
        while let Some(level) = at {
            let entry = self.at(level);
            let held = &mut entry.held[resource];
            let limit = held.limit.unwrap_or(u64::MAX);
            if u128::from(held.current) + u128::from(n) > u128::from(limit) {
                held.refused += 1;
                return Err(Limited { limiting: level, current: held.current, limit });
            }
            at = entry.parent;
        }
        self.upward(id, |entry| {
            let held = &mut entry.held[resource];
            held.current += n;
            held.peak = held.peak.max(held.current);
        });
        Ok(())
    }

    /// Gives back what was charged.
    pub fn uncharge(&mut self, id: Id, resource: usize, n: u64) {
        self.upward(id, |entry| entry.held[resource].current -= n);
    }

    /// Sets or lifts a limit, and returns by how much usage exceeds it.
    pub fn set_limit(&mut self, id: Id, resource: usize, limit: Option<u64>) -> u64 {
        let held = &mut self.at(id).held[resource];
        held.limit = limit;
        limit.map_or(0, |limit| held.current.saturating_sub(limit))
    }

    /// Returns the three live children that hold most, largest first, those with nothing left out.
    #[must_use]
    pub fn holders(&self, id: Id, resource: usize) -> Vec<(String, u64)> {
        let children = self.get(id).children.values().map(|&child| self.get(child));
        let mut holders: Vec<(String, u64)> = children
            .map(|child| (child.path.clone(), child.held[resource].current))
            .filter(|(_, held)| *held > 0)
            .collect();
        // Stable: of equals the first in the order of names comes first.
        holders.sort_by_key(|(_, held)| std::cmp::Reverse(*held));
        holders.truncate(3);
        holders
    }

    fn at(&mut self, id: Id) -> &mut Entry {
        self.groups.get_mut(&id).expect("a group that exists")
    }

    fn upward(&mut self, id: Id, mut change: impl FnMut(&mut Entry)) {
        let mut at = Some(id);
        while let Some(id) = at {
            let entry = self.at(id);
            change(entry);
            at = entry.parent;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{BUCKETS, Oracle, Random};

    /// The ledger forgets and remembers sums; the oracle does neither. They must agree all the same.
    #[test]
    fn a_ledger_agrees_with_the_oracle_that_derives_everything() {
        let steps = if cfg!(miri) { 60 } else { 3_000 };
        for seed in 0..if cfg!(miri) { 1 } else { 4 } {
            let (mut ledger, mut oracle) = (Ledger::new("/", BUCKETS), Oracle::new());
            let mut random = Random::new(seed);
            for _ in 0..steps {
                let id = random.below(oracle.created() as u64) as Id;
                // Nobody holds handles here: only the living can be named in both.
                if oracle.is_dead(id) {
                    continue;
                }
                let n = random.below(40);
                let which = random.below(2) as usize;
                match random.below(10) {
                    0 => {
                        let name = ["a", "b", "", "c/d"][random.below(4) as usize];
                        assert_eq!(ledger.create(id, name), oracle.create(id, name));
                    }
                    1 => assert_eq!(ledger.kill(id), oracle.kill(id)),
                    2 => {
                        ledger.add(id, which, n);
                        oracle.add(id, which, n);
                    }
                    3 => {
                        ledger.adjust(id, -n.cast_signed());
                        oracle.adjust(id, -n.cast_signed());
                    }
                    4 => {
                        ledger.record(id, n, 1);
                        oracle.record(id, n);
                    }
                    5 => {
                        let limit = (n > 5).then_some(n * 8);
                        let excess = ledger.set_limit(id, which, limit);
                        assert_eq!(excess, oracle.set_limit(id, which, limit));
                    }
                    6 => {
                        let charged = ledger.charge(id, which, n);
                        assert_eq!(charged, oracle.charge(id, which, n));
                        if charged.is_ok() && n > 20 {
                            ledger.uncharge(id, which, n);
                            oracle.uncharge(id, which, n);
                        }
                    }
                    7 => {
                        ledger.visit(id, n);
                        oracle.visit(id, n);
                    }
                    8 if n == 0 => {
                        let killed = ledger.kill_subtree(id).map(|killed| killed.len());
                        assert_eq!(killed, oracle.kill_subtree(id));
                    }
                    _ => agree(&ledger, &oracle, id),
                }
            }
            assert_eq!(ledger.live(), oracle.live());
            oracle.live().into_iter().for_each(|id| agree(&ledger, &oracle, id));
        }
    }

    fn agree(ledger: &Ledger, oracle: &Oracle, id: Id) {
        let entry = ledger.get(id);
        assert_eq!(entry.path, oracle.path(id));
        for counter in 0..COUNTERS {
            assert_eq!(entry.totals.counters[counter], oracle.counter(id, counter));
        }
        assert_eq!(entry.totals.gauge, oracle.gauge(id));
        assert_eq!(entry.visited, oracle.visited(id));
        let recorded = oracle.recorded(id);
        assert_eq!(entry.totals.recorded, recorded.iter().sum::<u64>());
        assert_eq!(entry.totals.buckets.iter().sum::<u64>(), recorded.len() as u64);
        for resource in 0..RESOURCES {
            assert_eq!(entry.held[resource], oracle.held(id, resource));
            assert_eq!(ledger.holders(id, resource), oracle.holders(id, resource));
        }
    }

    #[test]
    fn what_nobody_holds_is_forgotten_with_its_parents() {
        let mut ledger = Ledger::new("/", BUCKETS);
        let a = ledger.create(0, "a").expect("free");
        let b = ledger.create(a, "b").expect("free");
        ledger.hold(b);
        assert_eq!(ledger.kill_subtree(a), Ok(vec![b, a]));
        assert_eq!((ledger.existing(), ledger.live_len()), (3, 1));
        ledger.add(b, 0, 7);
        ledger.release(b);
        assert!(!ledger.exists(a) && !ledger.exists(b));
        assert_eq!((ledger.existing(), ledger.get(0).totals.counters[0]), (1, 7));
    }
}
