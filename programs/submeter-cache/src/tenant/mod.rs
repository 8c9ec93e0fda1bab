//! The tenants, and which of them a key belongs to: the names before its last delimiter, from the
//! root down.
//!
//! *Finding* goes through the [`Index`]: from the bytes before the last delimiter straight to the
//! tenant, under an epoch guard and without a lock. *Creating* walks the names from the root, with
//! one lock per level, and adds the new tenant to the index. *Deleting* kills first, then removes
//! tenants from every list; finding ends in a [look at that](Group::is_killed), so that a killed
//! tenant that is still listed is not returned after the kill.

mod detach;
mod index;
mod limits;
mod resolver;

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use ahash::RandomState;
use parking_lot::{Mutex, RwLock};
use submeter::Group;
use submeter::refs::Guard;

use crate::config::Config;
use crate::item::{self, Ring};
use crate::limits::TenantLimits;
use crate::metrics::Metrics;

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
    children: RwLock<Children>,
    /// Whether it counts towards `tenants_max`. Written with the lock on its siblings.
    counted: AtomicBool,
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

#[derive(Default)]
struct Children {
    live: HashMap<Box<str>, Arc<Tenant>, RandomState>,
    /// Tenants whose group was killed, while they hold items, which must stay evictable.
    dying: Vec<Arc<Tenant>>,
}

impl Children {
    /// Adds a killed tenant, and forgets those that hold no items any more.
    fn keep_dying(&mut self, tenant: Arc<Tenant>) {
        self.dying.retain(|dying| !dying.ring.lock().is_empty());
        self.dying.push(tenant);
    }
}

impl Tenant {
    fn new(group: Group, parent: Option<&Arc<Tenant>>, counted: bool) -> Arc<Tenant> {
        Arc::new(Tenant {
            group,
            counted: AtomicBool::new(counted),
            parent: parent.cloned(),
            ring: Mutex::default(),
            hints: Default::default(),
            children: RwLock::default(),
        })
    }

    /// Copies the list of children, including dying ones that hold items.
    pub(crate) fn children(&self) -> Vec<Arc<Tenant>> {
        let children = self.children.read();
        children.live.values().chain(&children.dying).cloned().collect()
    }

    /// Gives up its place, if it has one; the caller uses it or gives it back.
    fn leave_place(&self) -> bool {
        // Relaxed: written with the lock on its siblings held, see the field.
        self.counted.swap(false, Ordering::Relaxed)
    }

    fn live_child(&self, name: &str) -> Option<Arc<Tenant>> {
        self.children.read().live.get(name).filter(|child| !child.group.is_killed()).cloned()
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
    /// The limits, by path: a tenant that is created again gets its limits again. Locked after a
    /// list of children.
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

/// The end of a walk.
enum Walk {
    /// At the tenant of these names.
    Own(Arc<Tenant>),
    /// At a tenant that takes its place.
    Instead(Arc<Tenant>),
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
    /// Without limits.
    pub(crate) fn new(config: &Config, root: Group, metrics: &Metrics) -> Tenants {
        Tenants {
            root: Tenant::new(root, None, false),
            index: Index::new(config.tenants_max),
            delimiter: config.delimiter,
            depth_max: config.depth_max,
            tenants_max: config.tenants_max,
            places: AtomicUsize::new(0),
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
            let tenant = match self.walk(prefix) {
                Walk::Own(tenant) => {
                    self.index.insert(hash, prefix, &tenant);
                    continue;
                }
                // Not in the index: clients can invent more such prefixes than there may be
                // tenants.
                Walk::Instead(tenant) => tenant,
            };
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

    /// Walks from the root to the tenant of a prefix, and creates what is missing.
    fn walk(&self, prefix: &[u8]) -> Walk {
        'walk: for _ in 0..WALKS_MAX {
            let mut tenant = Arc::clone(&self.root);
            let names = prefix.split(|&byte| byte == self.delimiter);
            for (depth, name) in names.enumerate() {
                let refused = if depth == self.depth_max {
                    Refused::Overflow
                } else {
                    match self.child(&tenant, name) {
                        Ok(child) => {
                            tenant = child;
                            continue;
                        }
                        Err(refused) => refused,
                    }
                };
                if matches!(refused, Refused::Overflow) {
                    match self.child(&tenant, OTHER.as_bytes()) {
                        Ok(other) => return Walk::Instead(other),
                        // The tree is full: the parent itself is charged.
                        Err(Refused::Overflow) => return Walk::Instead(tenant),
                        Err(Refused::Dead) => {}
                    }
                }
                continue 'walk;
            }
            return Walk::Own(tenant);
        }
        Walk::Instead(Arc::clone(&self.root))
    }

    fn child(&self, parent: &Arc<Tenant>, name: &[u8]) -> Result<Arc<Tenant>, Refused> {
        let name = std::str::from_utf8(name).map_err(|_| Refused::Overflow)?;
        if let Some(child) = parent.live_child(name) {
            return Ok(child);
        }
        let mut children = parent.children.write();
        let known = children.live.get(name);
        if let Some(child) = known.filter(|child| !child.group.is_killed()) {
            return Ok(Arc::clone(child));
        }
        // A name that returns after a kill takes over its place.
        let inherited = known.is_some_and(|before| before.leave_place());
        let counted = inherited || (name != OTHER && self.take_place());
        if !counted && name != OTHER {
            return Err(Refused::Overflow);
        }
        let group = parent.group.get_or_create_child(name).map_err(|error| {
            if counted {
                self.give_place();
            }
            if error.is_killed() { Refused::Dead } else { Refused::Overflow }
        })?;
        self.limit(&group);
        let child = Tenant::new(group, Some(parent), counted);
        if let Some(before) = children.live.insert(name.into(), Arc::clone(&child)) {
            children.keep_dying(before);
        }
        Ok(child)
    }

    /// Takes a free place for a tenant.
    fn take_place(&self) -> bool {
        // Relaxed: only the number itself is shared; the group is published by the lock on its
        // siblings.
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
        // Tenants own their children and items, which own their tenant: the cycles would leak.
        self.index.clear();
        let mut stack = vec![Arc::clone(&self.root)];
        while let Some(tenant) = stack.pop() {
            tenant.ring.lock().clear();
            tenant.hints.iter().for_each(|hint| *hint.lock() = Hint::default());
            let children = std::mem::take(&mut *tenant.children.write());
            stack.extend(children.live.into_values());
            stack.extend(children.dying);
        }
    }
}

#[cfg(test)]
mod tests;
