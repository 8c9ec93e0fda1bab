//! A tree of groups, done slowly.

use crate::meters::{COUNTERS, RESOURCES};
use crate::visits::Visited;

/// Names a group of an [`Oracle`]: its place in the order of creation, the root being 0.
pub type Id = usize;

/// Models a tree: every group that ever was, with what it did itself and nothing derived.
///
/// A total is asked for by visiting all groups, the killed included; that is what "what it has
/// counted stays in every ancestor" means. Nothing is ever moved, so nothing can get lost.
#[derive(Clone, Debug)]
pub struct Oracle {
    groups: Vec<Node>,
}

#[derive(Clone, Debug)]
struct Node {
    path: String,
    parent: Option<Id>,
    dead: bool,
    counters: [u64; COUNTERS],
    gauge: i64,
    /// Every value that was recorded.
    recorded: Vec<u64>,
    /// The length of every visit.
    visits: Vec<u64>,
    /// What this group's own charges hold.
    charged: [u64; RESOURCES],
    limits: [Option<u64>; RESOURCES],
    peaks: [u64; RESOURCES],
    refusals: [u64; RESOURCES],
}

/// Says why an operation on groups is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// The name cannot be a group's.
    Name,
    /// There is a live child of that name.
    Exists,
    /// The group was killed.
    Dead,
    /// The group has live children.
    Busy,
    /// The root cannot be killed.
    Root,
}

/// Says which limit refuses a charge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limited {
    /// The lowest group whose limit would be exceeded.
    pub limiting: Id,
    /// What is held there.
    pub current: u64,
    /// Its limit.
    pub limit: u64,
}

/// What a group holds of a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Held {
    /// Held now.
    pub current: u64,
    /// The most that was held after any granted charge.
    pub peak: u64,
    /// The limit.
    pub limit: Option<u64>,
    /// Charges that this group's own limit refused.
    pub refused: u64,
}

impl Oracle {
    /// Creates a tree that has only its root.
    #[must_use]
    pub fn new() -> Oracle {
        Oracle { groups: vec![Node::new("/".to_owned(), None)] }
    }

    // ---- groups ------------------------------------------------------------------------------

    /// Returns how many groups were ever created.
    #[must_use]
    pub fn created(&self) -> usize {
        self.groups.len()
    }

    /// Returns the absolute path.
    #[must_use]
    pub fn path(&self, id: Id) -> &str {
        &self.groups[id].path
    }

    /// Returns the parent, or `None` for the root.
    #[must_use]
    pub fn parent(&self, id: Id) -> Option<Id> {
        self.groups[id].parent
    }

    /// Returns whether the group was killed.
    #[must_use]
    pub fn is_dead(&self, id: Id) -> bool {
        self.groups[id].dead
    }

    /// Returns the live group of that path.
    #[must_use]
    pub fn find(&self, path: &str) -> Option<Id> {
        (0..self.created()).find(|&id| !self.is_dead(id) && self.path(id) == path)
    }

    /// Returns the live children in the order of their names.
    #[must_use]
    pub fn children(&self, id: Id) -> Vec<Id> {
        let live = |&child: &Id| self.parent(child) == Some(id) && !self.is_dead(child);
        let mut children: Vec<Id> = (0..self.created()).filter(live).collect();
        children.sort_by_key(|&child| self.path(child));
        children
    }

    /// Returns the live groups, each before its children, siblings in the order of their names.
    #[must_use]
    pub fn live(&self) -> Vec<Id> {
        let mut order = Vec::new();
        let mut stack = vec![0];
        while let Some(id) = stack.pop() {
            order.push(id);
            stack.extend(self.children(id).into_iter().rev());
        }
        order
    }

    /// Creates a child.
    ///
    /// # Errors
    /// As [`submeter::Group::create`]: the first of bad name, dead parent, name taken.
    pub fn create(&mut self, parent: Id, name: &str) -> Result<Id, Refused> {
        let bad = name.is_empty()
            || name.len() > 255
            || [".", ".."].contains(&name)
            || name.contains(|c: char| c == '/' || c.is_control());
        let base = self.path(parent).trim_end_matches('/');
        let path = format!("{base}/{name}");
        if bad {
            Err(Refused::Name)
        } else if self.is_dead(parent) {
            Err(Refused::Dead)
        } else if self.find(&path).is_some() {
            Err(Refused::Exists)
        } else {
            self.groups.push(Node::new(path, Some(parent)));
            Ok(self.created() - 1)
        }
    }

    /// Kills a group.
    ///
    /// # Errors
    /// As [`submeter::Group::kill`]: the root, live children, killed before.
    pub fn kill(&mut self, id: Id) -> Result<(), Refused> {
        if id == 0 {
            Err(Refused::Root)
        } else if !self.children(id).is_empty() {
            Err(Refused::Busy)
        } else if self.is_dead(id) {
            Err(Refused::Dead)
        } else {
            self.groups[id].dead = true;
            Ok(())
        }
    }

    /// Kills a group and everything below it; returns how many those are.
    ///
    /// # Errors
    /// As [`submeter::Group::kill_subtree`]: the root, killed before.
    pub fn kill_subtree(&mut self, id: Id) -> Result<usize, Refused> {
        if id == 0 {
            return Err(Refused::Root);
        }
        if self.is_dead(id) {
            return Err(Refused::Dead);
        }
        let is_below = |&other: &Id| self.up(other).contains(&id) && !self.is_dead(other);
        let killed: Vec<Id> = (0..self.created()).filter(is_below).collect();
        for &id in &killed {
            self.groups[id].dead = true;
        }
        Ok(killed.len())
    }

    // ---- updates -----------------------------------------------------------------------------

    /// Adds to a counter.
    pub fn add(&mut self, id: Id, counter: usize, n: u64) {
        self.groups[id].counters[counter] += n;
    }

    /// Moves the gauge.
    pub fn adjust(&mut self, id: Id, delta: i64) {
        self.groups[id].gauge += delta;
    }

    /// Records a value in the histogram.
    pub fn record(&mut self, id: Id, value: u64) {
        self.groups[id].recorded.push(value);
    }

    /// Notes a visit.
    pub fn visit(&mut self, id: Id, length: u64) {
        self.groups[id].visits.push(length);
    }

    /// Charges the group and its ancestors, or none of them.
    ///
    /// # Errors
    /// When a limit would be exceeded.
    pub fn charge(&mut self, id: Id, resource: usize, n: u64) -> Result<(), Limited> {
        let levels = self.up(id);
        for &level in &levels {
            let current = self.held(level, resource).current;
            let limit = self.groups[level].limits[resource].unwrap_or(u64::MAX);
            if u128::from(current) + u128::from(n) > u128::from(limit) {
                self.groups[level].refusals[resource] += 1;
                return Err(Limited { limiting: level, current, limit });
            }
        }
        self.groups[id].charged[resource] += n;
        for level in levels {
            let current = self.held(level, resource).current;
            let peak = &mut self.groups[level].peaks[resource];
            *peak = current.max(*peak);
        }
        Ok(())
    }

    /// Gives back what was charged.
    pub fn uncharge(&mut self, id: Id, resource: usize, n: u64) {
        self.groups[id].charged[resource] -= n;
    }

    /// Sets or lifts a limit, and returns by how much usage exceeds it.
    pub fn set_limit(&mut self, id: Id, resource: usize, limit: Option<u64>) -> u64 {
        self.groups[id].limits[resource] = limit;
        limit.map_or(0, |limit| self.held(id, resource).current.saturating_sub(limit))
    }

    // ---- reads -------------------------------------------------------------------------------

    /// Returns a counter's total.
    #[must_use]
    pub fn counter(&self, id: Id, counter: usize) -> u64 {
        self.below(id).map(|node| node.counters[counter]).sum()
    }

    /// Returns the gauge's total.
    #[must_use]
    pub fn gauge(&self, id: Id) -> i64 {
        self.below(id).map(|node| node.gauge).sum()
    }

    /// Returns every value recorded by the group and what is below it.
    #[must_use]
    pub fn recorded(&self, id: Id) -> Vec<u64> {
        self.below(id).flat_map(|node| node.recorded.iter().copied()).collect()
    }

    /// Returns what was collected by the group and what is below it.
    #[must_use]
    pub fn visited(&self, id: Id) -> Visited {
        let lengths = || self.below(id).flat_map(|node| node.visits.iter().copied());
        Visited { count: lengths().count() as u64, longest: lengths().max().unwrap_or(0) }
    }

    /// Returns what is held of a resource.
    #[must_use]
    pub fn held(&self, id: Id, resource: usize) -> Held {
        let node = &self.groups[id];
        Held {
            current: self.below(id).map(|node| node.charged[resource]).sum(),
            peak: node.peaks[resource],
            limit: node.limits[resource],
            refused: node.refusals[resource],
        }
    }

    /// Returns the three live children that hold most, largest first, those with nothing left out.
    #[must_use]
    pub fn holders(&self, id: Id, resource: usize) -> Vec<(String, u64)> {
        let mut holders: Vec<(String, u64)> = self
            .children(id)
            .into_iter()
            .map(|child| (self.path(child).to_owned(), self.held(child, resource).current))
            .filter(|(_, held)| *held > 0)
            .collect();
        // Stable: of equals the first in the order of names comes first.
        holders.sort_by_key(|(_, held)| std::cmp::Reverse(*held));
        holders.truncate(3);
        holders
    }

    /// The group and its ancestors, lowest first.
    fn up(&self, id: Id) -> Vec<Id> {
        std::iter::successors(Some(id), |&id| self.parent(id)).collect()
    }

    /// The group and all that are or were below it.
    fn below(&self, id: Id) -> impl Iterator<Item = &Node> {
        let is_below = move |&other: &Id| self.up(other).contains(&id);
        (0..self.created()).filter(is_below).map(|id| &self.groups[id])
    }
}

impl Default for Oracle {
    fn default() -> Self {
        Oracle::new()
    }
}

impl Node {
    fn new(path: String, parent: Option<Id>) -> Node {
        Node {
            path,
            parent,
            dead: false,
            counters: [0; COUNTERS],
            gauge: 0,
            recorded: Vec::new(),
            visits: Vec::new(),
            charged: [0; RESOURCES],
            limits: [None; RESOURCES],
            peaks: [0; RESOURCES],
            refusals: [0; RESOURCES],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_killed_child_stays_in_its_parents_totals_and_frees_its_name() {
        let mut oracle = Oracle::new();
        let first = oracle.create(0, "a").expect("free");
        oracle.add(first, 0, 3);
        oracle.kill(first).expect("no children");
        let second = oracle.create(0, "a").expect("free again");
        oracle.add(second, 0, 4);
        oracle.add(first, 0, 5);
        assert_eq!((oracle.counter(0, 0), oracle.counter(second, 0)), (12, 4));
        assert_eq!(oracle.live(), [0, second]);
    }

    #[test]
    fn a_refused_charge_leaves_no_trace_but_the_refusal() {
        let mut oracle = Oracle::new();
        let parent = oracle.create(0, "p").expect("free");
        let child = oracle.create(parent, "c").expect("free");
        assert_eq!(oracle.set_limit(parent, 0, Some(10)), 0);
        oracle.charge(child, 0, 7).expect("fits");
        let limited = oracle.charge(child, 0, 4).expect_err("11 of 10");
        assert_eq!(limited, Limited { limiting: parent, current: 7, limit: 10 });
        assert_eq!(oracle.held(child, 0).peak, 7);
        assert_eq!(oracle.held(parent, 0).refused, 1);
        assert_eq!(oracle.holders(parent, 0), [("/p/c".to_owned(), 7)]);
        assert_eq!(oracle.set_limit(parent, 0, Some(5)), 2);
    }
}
