//! Tenants whose group was killed.

use std::collections::HashSet;
use std::iter::successors;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use submeter::Group;

use super::Tenant;

/// The tenants that have left the index because their group was killed. They may hold items, which
/// must stay evictable.
///
/// There is one list for all of them, which is nearly always empty, rather than one per parent: a
/// parent may be deleted too, and nothing would visit what is put into its list after that. Weak,
/// since items keep their tenant; so does a request that may still store some.
#[derive(Default)]
pub(super) struct Dying {
    list: Mutex<Vec<Weak<Tenant>>>,
}

impl Dying {
    /// Adds a tenant. Must be done before the tenant leaves the index, so that it is found in one
    /// or the other.
    pub(super) fn add(&self, tenant: &Arc<Tenant>) {
        let mut list = self.list.lock();
        // Without evictions nothing else removes the entries of released groups. Only a full list
        // is cleaned, which then has room for as many again: on average each entry is visited a few
        // times.
        if list.len() == list.capacity() {
            list.retain(|tenant| tenant.strong_count() > 0);
            let alive = list.len();
            list.reserve(alive.max(8));
        }
        list.push(Arc::downgrade(tenant));
    }

    /// Adds to `children` the dying tenants that a search below `parent` has to find there: its
    /// own, and those of killed tenants below it, which may be in no list. Descendants of an added
    /// one are left out: their use is part of its own. Returns how many it visited.
    pub(super) fn add_children(&self, parent: &Group, children: &mut Vec<Group>) -> usize {
        let mut list = self.list.lock();
        let looked_at = list.len();
        let mut found = Vec::new();
        let killed_above = |group: &Group| {
            let parents = successors(group.parent().cloned(), |group| group.parent().cloned());
            parents.take_while(|group| group != parent && group.is_killed())
        };
        list.retain(|tenant| {
            let Some(tenant) = tenant.upgrade() else { return false };
            let mut above = successors(tenant.group.parent(), |group| group.parent());
            if above.find(|&group| group == parent || !group.is_killed()) == Some(parent) {
                found.push(tenant.group.clone());
            }
            true
        });
        drop(list);
        let all: HashSet<Group> = found.iter().cloned().collect();
        children
            .extend(found.into_iter().filter(|it| !killed_above(it).any(|at| all.contains(&at))));
        looked_at
    }

    /// Returns how many are listed, including those that are gone.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.list.lock().len()
    }

    /// Removes and returns those that `which` accepts.
    pub(super) fn take(&self, which: impl Fn(&Tenant) -> bool) -> Vec<Arc<Tenant>> {
        let mut taken = Vec::new();
        self.list.lock().retain(|tenant| {
            let Some(tenant) = tenant.upgrade() else { return false };
            let accepted = which(&tenant);
            if accepted {
                taken.push(tenant);
            }
            !accepted
        });
        taken
    }
}
