//! Takes the tenants of killed groups out of the index, so that their items can be dropped.

use std::iter::successors;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use submeter::Group;
use submeter::refs::pin;

use super::index::SHARD_TENANTS;
use super::{Refused, Tenant, Tenants};

/// Number of empty parts of the index that are skipped in one go, at the cost of a load each.
const EMPTY_MAX: usize = 64;

impl Tenants {
    /// Detaches the tenant of a killed group and those below it, and gives their places back.
    /// Returns the tenants that may hold items; none if the group has no tenant, or another thread
    /// has detached it.
    ///
    /// Visits all tenants: the program may have killed a lower one earlier, which keeps its
    /// ancestors.
    pub(crate) fn detach(&self, killed: &Group) -> Vec<Arc<Tenant>> {
        self.sweep_all();
        // Once for all of them, because it visits every thread's epoch.
        pin().flush();
        self.dying.take(|tenant| {
            successors(Some(&tenant.group), |group| group.parent()).any(|group| group == killed)
        })
    }

    /// Takes back detached tenants that will not be purged any further, so that eviction finds
    /// them.
    pub(crate) fn adopt(&self, tenants: impl Iterator<Item = Arc<Tenant>>) {
        tenants.for_each(|tenant| self.dying.add(&tenant));
    }

    /// Makes tenants of groups that the program has created, and kills those without a place.
    pub(crate) fn adopt_groups(&self) {
        // Level by level: if everything below one tenant were visited first, it could take the
        // others' places.
        let mut level = vec![Arc::clone(&self.root)];
        while !level.is_empty() {
            let mut next = Vec::new();
            for parent in level {
                for group in parent.group.children() {
                    let prefix = self.prefix_of(&parent, group.name());
                    match self.child(&parent, &prefix, group.name(), &pin()) {
                        Ok(tenant) => next.push(tenant),
                        // Refused only if another thread came first.
                        Err(Refused::NoPlace) => _ = group.kill_subtree(),
                        // Or it has data of the program's: it is no tenant, but not ours to kill.
                        Err(_) => {}
                    }
                }
            }
            level = next;
        }
    }

    /// Returns the groups of the tenants below another, including dying ones, and how many it
    /// visited. It returns groups, not tenants: of thousands, a search wants to know what they use,
    /// and then one tenant.
    pub(crate) fn children(&self, parent: &Group) -> (Vec<Group>, usize) {
        let mut children = parent.children_unsorted();
        let living = children.len();
        let dying = self.dying.add_children(parent, &mut children);
        (children, living + dying)
    }

    /// Removes killed tenants from some parts of the index, different parts at each call: when the
    /// program kills a group of the tree itself, the cache is not notified. Visits an eighth of
    /// `tenants`, the number that the caller visits, and at least one part: with few tenants the
    /// killed ones are found soon, and with many the cost stays low.
    pub(crate) fn sweep_some(&self, tenants: usize) {
        let parts = self.index.shards();
        let mut left = 1 + tenants / 8 / SHARD_TENANTS;
        // Relaxed, as the store below: any part will do, even the same one for two threads.
        let mut next = self.swept.load(Ordering::Relaxed);
        for _ in 0..EMPTY_MAX + left {
            next = (next + 1) % parts;
            if self.index.is_empty(next) {
                continue;
            }
            self.sweep(next);
            left -= 1;
            if left == 0 {
                break;
            }
        }
        // Relaxed: see above.
        self.swept.store(next, Ordering::Relaxed);
    }

    /// The same as [`sweep_some`](Tenants::sweep_some), for all parts.
    pub(crate) fn sweep_all(&self) {
        (0..self.index.shards()).for_each(|shard| _ = self.sweep(shard));
    }

    /// Removes killed tenants from a part of the index, and returns how many places became free.
    pub(super) fn sweep(&self, shard: usize) -> usize {
        let mut places = 0;
        self.index.remove_killed(shard, |tenant| {
            self.dying.add(tenant);
            places += usize::from(self.give_place(tenant));
        });
        places
    }
}
