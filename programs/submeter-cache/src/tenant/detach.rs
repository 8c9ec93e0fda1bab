//! Removes the tenants of killed groups from every list, so that their items can be dropped.

use std::sync::{Arc, Weak};

use submeter::Group;
use submeter::refs::pin;

use super::{Children, Tenant, Tenants};

impl Tenants {
    /// Detaches the tenant of a killed group, and all below it, and gives their places back.
    /// Returns the topmost first; nothing if the group has no tenant, or another thread has
    /// detached it.
    pub(crate) fn detach(&self, killed: &Group) -> Vec<Arc<Tenant>> {
        let Some(top) = self.parent_of(killed).and_then(|parent| parent.remove(killed)) else {
            return Vec::new();
        };
        let mut detached = Vec::new();
        let mut stack = vec![top];
        while let Some(tenant) = stack.pop() {
            // With the lock on its children: a thread that was creating one has added it, and none
            // creates another, as the group is dead. Removed also because parents and children own
            // each other.
            let children = std::mem::take(&mut *tenant.children.write());
            stack.extend(children.live.into_values());
            stack.extend(children.dying);
            if tenant.leave_place() {
                self.give_place();
            }
            self.index.remove(&self.prefix_of(&tenant), &tenant);
            detached.push(tenant);
        }
        // Once for all of them, as it visits every thread's epoch.
        pin().flush();
        detached
    }

    /// Finds the parent's tenant of a group, alive or not.
    fn parent_of(&self, group: &Group) -> Option<Arc<Tenant>> {
        let mut ancestors = Vec::with_capacity(group.depth());
        let mut level = group.parent();
        while let Some(at) = level.filter(|at| at.depth() > 0) {
            ancestors.push(at);
            level = at.parent();
        }
        let mut tenant = Arc::clone(&self.root);
        for ancestor in ancestors.into_iter().rev() {
            let child = tenant.children.read().of(ancestor).cloned()?;
            tenant = child;
        }
        Some(tenant)
    }

    /// Returns the prefix of a tenant's keys.
    fn prefix_of(&self, tenant: &Tenant) -> Vec<u8> {
        let names = tenant.group.path().bytes().skip(1);
        names.map(|byte| if byte == b'/' { self.delimiter } else { byte }).collect()
    }

    /// Takes back detached tenants that hold items and will not be purged any further, so that
    /// eviction finds them.
    pub(crate) fn adopt(&self, home: &Weak<Tenant>, tenants: impl Iterator<Item = Arc<Tenant>>) {
        let home = home.upgrade();
        for tenant in tenants {
            if tenant.ring.lock().is_empty() {
                continue;
            }
            if let Some(home) = &home {
                let mut children = home.children.write();
                // With the children locked: the deletion of a parent kills it, then locks and takes
                // its children. A child that is added after that would be in no list.
                if !home.group.is_killed() {
                    children.keep_dying(tenant);
                    continue;
                }
            }
            self.root.children.write().keep_dying(tenant);
        }
    }
}

impl Tenant {
    /// Removes the child of a group.
    fn remove(&self, group: &Group) -> Option<Arc<Tenant>> {
        let mut children = self.children.write();
        if children.live.get(group.name()).is_some_and(|child| child.group == *group) {
            return children.live.remove(group.name());
        }
        let at = children.dying.iter().position(|child| child.group == *group)?;
        Some(children.dying.swap_remove(at))
    }
}

impl Children {
    fn of(&self, group: &Group) -> Option<&Arc<Tenant>> {
        let live = self.live.get(group.name()).filter(|child| child.group == *group);
        live.or_else(|| self.dying.iter().find(|child| child.group == *group))
    }
}
