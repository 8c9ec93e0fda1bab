//! A tree of groups, modelled in the obviously correct way.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::iter;

use submeter::LimitMode;

use crate::schema::{Held, QUOTAS, Totals};

/// The ID of a group in an [`Oracle`]: its number in the order of creation; the top group is 0.
pub type Id = usize;

/// A model of a tree that writes each update into the group and every ancestor at once.
///
/// Each operation costs a walk to the root, and a group without holders is forgotten. A model that
/// recorded every operation and derived each total from the record would be only slightly simpler,
/// and could not keep up with a long run.
#[derive(Clone, Debug)]
pub struct Oracle {
    /// By ID; IDs are assigned in the order of creation.
    groups: BTreeMap<Id, Entry>,
    created: usize,
    /// The number of groups that can be found.
    live: usize,
}

/// The state of one group in an oracle.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The absolute path.
    pub path: String,
    /// `None` for the top group.
    pub parent: Option<Id>,
    /// Live children by name.
    pub children: BTreeMap<String, Id>,
    /// Whether it was killed.
    pub dead: bool,
    /// Totals of the group and of its present and former descendants.
    pub totals: Totals,
    /// What the group itself counted.
    pub own: Totals,
    /// What groups below that have ended left of the gauge.
    pub left: i64,
    /// Usage of each quota, including descendants.
    pub held: [Held; QUOTAS],
    /// The number of handles, charges and children, alive or killed; the tree itself counts as one
    /// while the group is alive.
    holders: usize,
}

/// The reason why an operation on groups is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// The name is invalid.
    Name,
    /// A live child has the same name.
    Exists,
    /// The group was killed.
    Dead,
    /// The group has live children.
    Busy,
    /// The root cannot be killed.
    Root,
}

/// The limit that refuses a charge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limited {
    /// The lowest group whose limit would be exceeded.
    pub limiting: Id,
    /// Its usage.
    pub current: u64,
    /// Its limit.
    pub limit: u64,
}

impl Oracle {
    /// Creates an oracle with one group at `path`, whose ID is 0.
    #[must_use]
    pub fn new(path: &str) -> Oracle {
        let mut oracle = Oracle { groups: BTreeMap::new(), created: 0, live: 0 };
        oracle.insert(path.to_owned(), None);
        oracle
    }

    fn insert(&mut self, path: String, parent: Option<Id>) -> Id {
        let id = self.created;
        let entry = Entry {
            path,
            parent,
            children: BTreeMap::new(),
            dead: false,
            totals: Totals::default(),
            own: Totals::default(),
            left: 0,
            held: [Held::default(); QUOTAS],
            holders: 1,
        };
        self.groups.insert(id, entry);
        self.created += 1;
        self.live += 1;
        id
    }

    // ---- groups ------------------------------------------------------------------------------

    /// Returns an existing group.
    ///
    /// # Panics
    /// When no group has that ID.
    #[must_use]
    pub fn get(&self, id: Id) -> &Entry {
        &self.groups[&id]
    }

    /// Returns whether the group is alive or held.
    #[must_use]
    pub fn exists(&self, id: Id) -> bool {
        self.groups.contains_key(&id)
    }

    /// Returns how many groups are alive or held.
    #[must_use]
    pub fn existing(&self) -> usize {
        self.groups.len()
    }

    /// Returns how many groups are alive.
    #[must_use]
    pub fn live_len(&self) -> usize {
        self.live
    }

    /// Returns how many groups were ever created.
    #[must_use]
    pub fn created(&self) -> usize {
        self.created
    }

    /// Returns a group and its ancestors, lowest first.
    pub fn upward(&self, id: Id) -> impl Iterator<Item = Id> + '_ {
        iter::successors(Some(id), |&id| self.get(id).parent)
    }

    /// Returns a group and its live descendants, parents before children, siblings in order of
    /// name.
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

    /// Returns the live group at an absolute path.
    #[must_use]
    pub fn find(&self, path: &str) -> Option<Id> {
        let below = path.strip_prefix(self.get(0).path.trim_end_matches('/'))?;
        below.split('/').filter(|name| !name.is_empty()).try_fold(0, |id, name| {
            let children = &self.get(id).children;
            children.get(name).copied()
        })
    }

    /// Returns the paths of the live children in order of name.
    #[must_use]
    pub fn children(&self, id: Id) -> Vec<&str> {
        self.get(id).children.values().map(|&child| &*self.get(child).path).collect()
    }

    /// Creates a child.
    ///
    /// # Errors
    /// As for [`submeter::Group::create_child`]: the first that applies of invalid name, killed
    /// parent, name taken.
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
        self.hold(parent);
        Ok(id)
    }

    /// Kills a group.
    ///
    /// # Errors
    /// As for [`submeter::Group::kill`]: the top group, a group with live children, or one that was
    /// killed before.
    pub fn kill(&mut self, id: Id) -> Result<(), Refused> {
        match self.get(id) {
            Entry { parent: None, .. } => Err(Refused::Root),
            Entry { children, .. } if !children.is_empty() => Err(Refused::Busy),
            Entry { dead: true, .. } => Err(Refused::Dead),
            _ => {
                self.mark_killed(id);
                Ok(())
            }
        }
    }

    /// Kills a group and its descendants.
    ///
    /// # Errors
    /// As for [`submeter::Group::kill_subtree`]: the top group, or a group that was killed before.
    pub fn kill_subtree(&mut self, id: Id) -> Result<(), Refused> {
        match self.get(id) {
            Entry { parent: None, .. } => Err(Refused::Root),
            Entry { dead: true, .. } => Err(Refused::Dead),
            _ => {
                self.live_below(id).into_iter().rev().for_each(|id| self.mark_killed(id));
                Ok(())
            }
        }
    }

    fn mark_killed(&mut self, id: Id) {
        let entry = self.at(id);
        entry.dead = true;
        let name = entry.path.rsplit('/').next().unwrap_or("").to_owned();
        let parent = entry.parent.expect("the top group stays");
        self.at(parent).children.remove(&name);
        self.live -= 1;
        self.release(id);
    }

    /// Adds a holder: a handle or a charge.
    pub fn hold(&mut self, id: Id) {
        self.at(id).holders += 1;
    }

    /// Removes a holder, and forgets a group without holders. Its ancestors' totals include its
    /// own, and what is left of its gauge is its parent's.
    pub fn release(&mut self, id: Id) {
        let (mut at, mut left) = (Some(id), 0);
        while let Some(id) = at {
            let entry = self.at(id);
            entry.left += left;
            entry.holders -= 1;
            if entry.holders > 0 {
                return;
            }
            let entry = self.groups.remove(&id).expect("just found");
            left = entry.left + entry.own.sums.gauge;
            at = entry.parent;
        }
    }

    // ---- updates -----------------------------------------------------------------------------

    /// Changes the totals of a group and of its ancestors.
    pub fn update(&mut self, id: Id, mut change: impl FnMut(&mut Totals)) {
        change(&mut self.at(id).own);
        self.each_upward(id, |entry| change(&mut entry.totals));
    }

    /// Charges the group and its ancestors, or none of them.
    ///
    /// # Errors
    /// When a limit would be exceeded that is not soft.
    pub fn charge(&mut self, id: Id, quota: usize, n: u64) -> Result<(), Limited> {
        let refusing = self.upward(id).find_map(|limiting| {
            let held = self.get(limiting).held[quota];
            let overflows = held.current.checked_add(n).is_none();
            let exceeds =
                overflows || (held.mode != LimitMode::Soft && held.current + n > held.max());
            exceeds.then_some(Limited { limiting, current: held.current, limit: held.max() })
        });
        if let Some(limited) = refusing {
            self.at(limited.limiting).held[quota].refused += 1;
            return Err(limited);
        }
        self.charge_forced(id, quota, n);
        Ok(())
    }

    /// Charges the group and its ancestors, whatever their limits.
    pub fn charge_forced(&mut self, id: Id, quota: usize, n: u64) {
        self.each_upward(id, |entry| {
            let held = &mut entry.held[quota];
            held.current += n;
            held.overdrafts += u64::from(held.current > held.max());
            held.peak = held.peak.max(held.current);
            held.peak_low = held.peak;
        });
    }

    /// Releases a charge.
    pub fn uncharge(&mut self, id: Id, quota: usize, n: u64) {
        self.each_upward(id, |entry| entry.held[quota].current -= n);
    }

    /// Sets or removes a limit, and returns by how much usage exceeds it.
    pub fn set_limit(&mut self, id: Id, quota: usize, limit: Option<u64>) -> u64 {
        let held = &mut self.at(id).held[quota];
        held.limit = limit;
        limit.map_or(0, |limit| held.current.saturating_sub(limit))
    }

    /// Says what a limit does with a charge that exceeds it.
    pub fn set_limit_mode(&mut self, id: Id, quota: usize, mode: LimitMode) {
        self.at(id).held[quota].mode = mode;
    }

    /// Claims usage to be protected, by `min` and by `low`.
    pub fn set_claims(&mut self, id: Id, quota: usize, claims: [Option<u64>; 2]) {
        self.at(id).held[quota].claims = claims;
    }

    /// Returns how much of a group's usage `min` (0) or `low` (1) protects below an ancestor.
    ///
    /// # Panics
    /// When `below` is neither the group nor an ancestor.
    #[must_use]
    pub fn protection(&self, id: Id, quota: usize, which: usize, below: Id) -> u64 {
        if id == below {
            return 0;
        }
        let parent = self.get(id).parent.expect("it is below another");
        let used = |id| u128::from(self.get(id).held[quota].current);
        let claimed = |id| {
            let Entry { dead, held, .. } = self.get(id);
            let claim = held[quota].claims[which].filter(|_| !dead);
            used(id).min(claim.unwrap_or(0).into())
        };
        let of_siblings: u128 = self.get(parent).children.values().map(|&id| claimed(id)).sum();
        let has = u128::from(self.protection(parent, quota, which, below));
        let part = match has.checked_sub(of_siblings) {
            _ if parent == below || claimed(id) == used(id) && has >= of_siblings => claimed(id),
            None => claimed(id) * has / of_siblings,
            Some(left) => {
                let unclaimed = used(parent) - of_siblings;
                claimed(id) + left * (used(id) - claimed(id)) / unclaimed
            }
        };
        part.try_into().expect("no more than is used")
    }

    /// Returns the up to three live children with the largest usage, largest first, without those
    /// that hold nothing.
    #[must_use]
    pub fn holders(&self, id: Id, quota: usize) -> Vec<(String, u64)> {
        let children = self.get(id).children.values().map(|&child| self.get(child));
        let mut holders: Vec<(String, u64)> = children
            .map(|child| (child.path.clone(), child.held[quota].current))
            .filter(|(_, held)| *held > 0)
            .collect();
        // A stable sort: children with equal usage stay in order of name.
        holders.sort_by_key(|(_, held)| Reverse(*held));
        holders.truncate(3);
        holders
    }

    fn at(&mut self, id: Id) -> &mut Entry {
        self.groups.get_mut(&id).expect("a group that exists")
    }

    fn each_upward(&mut self, id: Id, mut change: impl FnMut(&mut Entry)) {
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

    fn count(oracle: &mut Oracle, id: Id, n: u64) {
        oracle.update(id, |totals| totals.sums.counters[0] += n);
    }

    /// A killed child stays in its parent's totals, and frees its name.
    #[test]
    fn a_killed_child_stays_in_totals_above() {
        let mut oracle = Oracle::new("/");
        let first = oracle.create(0, "a").expect("free");
        oracle.hold(first);
        count(&mut oracle, first, 3);
        oracle.kill(first).expect("no children");
        let second = oracle.create(0, "a").expect("free again");
        count(&mut oracle, second, 4);
        count(&mut oracle, first, 5);
        let total = |id| oracle.get(id).totals.sums.counters[0];
        assert_eq!((total(0), total(second)), (12, 4));
        assert_eq!(oracle.live_below(0), [0, second]);
        assert_eq!(oracle.find("/a"), Some(second));
    }

    /// A refused charge changes only the count of refusals.
    #[test]
    fn a_refused_charge_changes_only_refusals() {
        let mut oracle = Oracle::new("/");
        let parent = oracle.create(0, "p").expect("free");
        let child = oracle.create(parent, "c").expect("free");
        assert_eq!(oracle.set_limit(parent, 0, Some(10)), 0);
        oracle.charge(child, 0, 7).expect("fits");
        let limited = oracle.charge(child, 0, 4).expect_err("11 of 10");
        assert_eq!(limited, Limited { limiting: parent, current: 7, limit: 10 });
        assert_eq!(oracle.get(child).held[0].peak, 7);
        assert_eq!(oracle.get(parent).held[0].refused, 1);
        assert_eq!(oracle.holders(parent, 0), [("/p/c".to_owned(), 7)]);
        assert_eq!(oracle.set_limit(parent, 0, Some(5)), 2);
    }

    /// A group without holders is forgotten with its parents.
    #[test]
    fn a_group_without_holders_goes_with_parents() {
        let mut oracle = Oracle::new("/");
        let a = oracle.create(0, "a").expect("free");
        let b = oracle.create(a, "b").expect("free");
        oracle.hold(b);
        assert_eq!(oracle.live_below(a), [a, b]);
        assert_eq!(oracle.kill_subtree(a), Ok(()));
        assert_eq!((oracle.existing(), oracle.live_len()), (3, 1));
        count(&mut oracle, b, 7);
        oracle.release(b);
        assert!(!oracle.exists(a) && !oracle.exists(b));
        assert_eq!((oracle.existing(), oracle.get(0).totals.sums.counters[0]), (1, 7));
    }
}
