//! The tenants, and which of them a key belongs to: the names before its last delimiter, from the
//! root down.
//!
//! The groups are the tree. A tenant is what the cache keeps for a group, and its group's
//! [data](Group::data) leads to it, so a group's children lead to their tenants. Groups do not tell
//! which killed ones still hold items: see [`Dying`].
//!
//! *Finding* goes through the [`Index`]: from the bytes before the last delimiter straight to the
//! tenant, under an epoch guard and without a lock. *Creating* walks the names from the root, and
//! adds what is missing to the index, with a part of that locked. *Deleting* kills first, then
//! takes tenants out of the index; finding ends in a [look at that](Group::is_killed), so that a
//! killed tenant that is still listed is not returned after the kill.

mod detach;
mod dying;
mod index;
mod limits;
mod resolver;

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::{Mutex, RwLock};
use submeter::Group;
use submeter::refs::Guard;

use crate::config::Config;
use crate::item::{self, Ring};
use crate::limits::TenantLimits;
use crate::metrics::Metrics;

use dying::Dying;
use index::Index;
use resolver::Found;
pub(crate) use resolver::{Account, Resolver};

/// The child that is charged for keys without a tenant of their own.
pub(crate) const OTHER: &str = "other";

/// A group with its items.
pub(crate) struct Tenant {
    pub(crate) group: Group,
    pub(crate) parent: Option<Arc<Tenant>>,
    /// The items that this tenant itself holds.
    pub(crate) ring: Mutex<Ring<Tenant>>,
    /// Where eviction last found items below this tenant: what spares `low`, and what only `min`.
    pub(crate) hints: [Mutex<Hint>; 2],
}

/// An item of a tenant. Items and rings know nothing of tenants, which need them.
pub(crate) type Item = item::Item<Tenant>;

/// What was found of the holders below a tenant, so that not every eviction visits all its
/// children.
#[derive(Debug, Default)]
pub(crate) struct Hint {
    /// The address of the tenant from which the search went down: below another one other parts
    /// are protected.
    pub(crate) top: usize,
    /// The largest holder, and how much of what it holds is protected.
    pub(crate) holder: Weak<Tenant>,
    pub(crate) holder_spared: u64,
    /// How many hold more than is protected of them.
    pub(crate) holders: u64,
    /// How much is protected of what all hold.
    pub(crate) spared: u64,
    /// For how many more evictions this is taken for true.
    pub(crate) left: usize,
}

impl Tenant {
    /// Makes the tenant of a group; `None` if a program has set data of its own there.
    fn new(group: Group, parent: Option<&Arc<Tenant>>) -> Option<Arc<Tenant>> {
        let tenant = Arc::new(Tenant {
            group,
            parent: parent.cloned(),
            ring: Mutex::default(),
            hints: Default::default(),
        });
        // Weak: the tenant has a handle to the group, and both would keep each other.
        tenant.group.set_data(Arc::downgrade(&tenant)).ok()?;
        Some(tenant)
    }

    /// Finds the tenant of a group, if there is one.
    pub(crate) fn of(group: &Group) -> Option<Arc<Tenant>> {
        group.data::<Weak<Tenant>>()?.upgrade()
    }
}

impl fmt::Debug for Tenant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tenant({})", self.group.path())
    }
}

/// All tenants.
pub(crate) struct Tenants {
    root: Arc<Tenant>,
    index: Index,
    delimiter: u8,
    depth_max: usize,
    tenants_max: usize,
    /// How many there are, without the root and those called [`OTHER`].
    places: AtomicUsize,
    dying: Dying,
    /// The part of the index that is looked at next for those that were killed.
    swept: AtomicUsize,
    /// The limits, by path: a tenant that is created again gets its limits again. Locked after a
    /// part of the index.
    limits: RwLock<HashMap<String, TenantLimits>>,
    /// Whether any of them is a rate, so that requests need not look for one.
    has_rates: AtomicBool,
    /// Whether there may be others.
    rates: bool,
    metrics: Metrics,
}

/// A tenant that no list keeps for as long as a request needs it.
struct Lease {
    tenant: Arc<Tenant>,
    /// What a deletion waits for. The tenant has a handle too, but loses it when it is deleted;
    /// this one was cloned while the group was alive, in one step with the check.
    _hold: Group,
}

/// The reason why there is no child.
enum Refused {
    /// It cannot or may not exist: its parent's `other` stands in.
    Overflow,
    /// Its parent was killed: the walk must start again at the root.
    Dead,
}

/// How often a walk starts again when groups are killed under it, before the root is charged.
const WALKS_MAX: usize = 8;

impl Tenants {
    /// Without limits. The root is of a new tree.
    pub(crate) fn new(config: &Config, root: Group, metrics: &Metrics) -> Tenants {
        Tenants {
            root: Tenant::new(root, None).expect("nobody knows this group yet"),
            index: Index::new(config.tenants_max),
            delimiter: config.delimiter,
            depth_max: config.depth_max,
            tenants_max: config.tenants_max,
            places: AtomicUsize::new(0),
            dying: Dying::default(),
            swept: AtomicUsize::new(0),
            limits: RwLock::default(),
            has_rates: AtomicBool::new(false),
            rates: config.rates,
            metrics: metrics.clone(),
        }
    }

    /// Returns how many groups a tree needs: each tenant and the root may have a child `other`, and
    /// as many again may be dying while tenants of the same names exist.
    pub(crate) fn groups_max(tenants_max: usize) -> usize {
        4 * (tenants_max + 1)
    }

    /// Finds the tenant of a prefix with this hash, and creates what is missing.
    fn find<'g>(&'g self, hash: u64, prefix: &[u8], guard: &'g Guard) -> Found<'g> {
        for _ in 0..WALKS_MAX {
            if let Some(tenant) = self.index.find(hash, prefix, guard) {
                return Found::Listed(tenant);
            }
            // Not listed under this prefix: clients can invent more such prefixes than there may be
            // tenants.
            let Some(tenant) = self.walk(prefix, guard) else { continue };
            if let Some(hold) = tenant.group.try_clone_live() {
                return Found::Instead(Lease { tenant, _hold: hold });
            }
        }
        // Lives as long as its tree.
        Found::Listed(&self.root)
    }

    /// Returns the part of `key` that decides its tenant, or nothing for the root's own keys: the
    /// names of a tenant within `depth_max`, or those down to `depth_max` with the delimiter that
    /// follows.
    fn prefix<'k>(&self, key: &'k [u8]) -> Option<&'k [u8]> {
        let mut end = None;
        let delimiters = memchr::memchr_iter(self.delimiter, key);
        for (index, at) in delimiters.take(self.depth_max + 1).enumerate() {
            if index == self.depth_max {
                return end.map(|end: usize| &key[..=end]);
            }
            end = Some(at);
        }
        end.map(|end| &key[..end])
    }

    /// Walks from the root to the tenant of a prefix, and creates what is missing. Returns who
    /// takes its place, or nothing if the index has it now.
    fn walk(&self, prefix: &[u8], guard: &Guard) -> Option<Arc<Tenant>> {
        'walk: for _ in 0..WALKS_MAX {
            let mut tenant = Arc::clone(&self.root);
            let ends = memchr::memchr_iter(self.delimiter, prefix).chain([prefix.len()]);
            for (depth, end) in ends.enumerate() {
                let refused = if depth == self.depth_max {
                    Refused::Overflow
                } else {
                    match self.child(&tenant, &prefix[..end], guard) {
                        Ok(child) => {
                            tenant = child;
                            continue;
                        }
                        Err(refused) => refused,
                    }
                };
                if matches!(refused, Refused::Overflow) {
                    match self.child(&tenant, &self.prefix_of(&tenant, OTHER), guard) {
                        Ok(other) => return Some(other),
                        // The tree is full: the parent itself is charged.
                        Err(Refused::Overflow) => return Some(tenant),
                        Err(Refused::Dead) => {}
                    }
                }
                continue 'walk;
            }
            return None;
        }
        Some(Arc::clone(&self.root))
    }

    /// Finds the child of a prefix, whose last name it has, or creates it.
    fn child(
        &self,
        parent: &Arc<Tenant>,
        prefix: &[u8],
        guard: &Guard,
    ) -> Result<Arc<Tenant>, Refused> {
        let hash = self.index.hash(prefix);
        if let Some(child) = self.index.find(hash, prefix, guard) {
            return Ok(Arc::clone(child));
        }
        let name = prefix.rsplit(|&byte| byte == self.delimiter).next().unwrap_or_default();
        let name = std::str::from_utf8(name).map_err(|_| Refused::Overflow)?;
        self.index.find_or_insert(hash, prefix, |killed| {
            // A name that returns after a kill takes over its place.
            let counted = killed.is_none() && name != OTHER;
            if counted && !self.take_place() {
                return Err(Refused::Overflow);
            }
            let child = self.create(parent, name);
            match (&child, killed) {
                (Ok(_), Some(killed)) => self.dying.add(killed),
                (Err(_), _) if counted => self.give_place(),
                _ => {}
            }
            child
        })
    }

    fn create(&self, parent: &Arc<Tenant>, name: &str) -> Result<Arc<Tenant>, Refused> {
        let group = parent
            .group
            .get_or_create_child(name)
            .map_err(|error| if error.is_killed() { Refused::Dead } else { Refused::Overflow })?;
        self.limit(&group);
        Tenant::new(group, Some(parent)).ok_or(Refused::Overflow)
    }

    /// Returns the prefix of the keys of a tenant's child.
    fn prefix_of(&self, parent: &Tenant, name: &str) -> Vec<u8> {
        let names = parent.group.path().split('/').skip(1).chain([name]);
        let names: Vec<_> = names.filter(|name| !name.is_empty()).collect();
        names.join(&char::from(self.delimiter).to_string()).into_bytes()
    }

    /// Takes a free place for a tenant.
    fn take_place(&self) -> bool {
        // Relaxed: only the number itself is shared; the group is published by the index.
        self.places
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| {
                (n < self.tenants_max).then_some(n + 1)
            })
            .is_ok()
    }

    fn give_place(&self) {
        // Relaxed: a number on its own, see `take_place`.
        self.places.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Drop for Tenants {
    fn drop(&mut self) {
        // Tenants own their items, whose ring owns the tenant: the cycles would leak.
        let listed = self.index.clear().into_iter().chain([Arc::clone(&self.root)]);
        for tenant in listed.chain(self.dying.take(|_| true)) {
            tenant.ring.lock().clear();
        }
    }
}

#[cfg(test)]
mod tests;
