//! Which tenant a key belongs to: the names before its last delimiter, from the root down.
//!
//! *Finding* goes through the [`Index`]: from the bytes before the last delimiter straight to the
//! tenant, under an epoch guard and without a lock. *Making* walks the names from the root, with a
//! lock a level, and enters what it made in the index. *Deleting* kills first, then takes tenants out
//! of every list; finding ends in a [live check](Group::try_clone_live), so that what is still listed by
//! then is not handed out either.

mod detach;
mod index;
mod resolver;

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use ahash::RandomState;
use parking_lot::{Mutex, RwLock};
use submeter::{Bytes, Error, Group, Resource};

use crate::config::{Config, ConfigError};
use crate::store::{Hint, Ring};

use index::Index;
pub(crate) use resolver::{Account, Resolver};

/// The child that is accounted what has no tenant of its own.
pub(crate) const OTHER: &str = "other";

/// A group with what the cache keeps beside it.
pub(crate) struct Tenant {
    pub(crate) group: Group,
    pub(crate) parent: Option<Arc<Tenant>>,
    /// The items that this tenant itself holds.
    pub(crate) ring: Mutex<Ring>,
    /// Where room was last made below this tenant.
    pub(crate) hint: Mutex<Hint>,
    children: RwLock<Children>,
    /// Whether it takes one of the places that `tenants_max` gives. Written with the lock on its siblings.
    counted: AtomicBool,
}

#[derive(Default)]
struct Children {
    live: HashMap<Box<str>, Arc<Tenant>, RandomState>,
    /// Tenants whose group was killed, for as long as they hold items: those must stay evictable.
    dying: Vec<Arc<Tenant>>,
}

impl Children {
    /// Keeps a killed tenant while it holds items, and forgets those that hold none any more.
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
            hint: Mutex::default(),
            children: RwLock::default(),
        })
    }

    /// Copies the list of children, those included that are dying but hold items.
    pub(crate) fn children(&self) -> Vec<Arc<Tenant>> {
        let children = self.children.read();
        children.live.values().chain(&children.dying).cloned().collect()
    }

    /// Gives up its place, if it has one, for the caller to use or give back.
    fn leave_place(&self) -> bool {
        // Relaxed: written with the lock on its siblings held, see the field.
        self.counted.swap(false, Ordering::Relaxed)
    }

    fn live_child(&self, name: &str) -> Option<Arc<Tenant>> {
        self.children.read().live.get(name).filter(|child| !child.group.is_dying()).cloned()
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
    /// How many there are, the root and those called [`OTHER`] aside.
    places: AtomicUsize,
    memory: Resource<Bytes>,
    /// The limits that the configuration names, by path: a tenant that comes back has its own again.
    limits: HashMap<String, u64>,
}

/// A tenant for as long as a request needs it.
pub(crate) struct Lease {
    tenant: Arc<Tenant>,
    /// What a deletion waits for. The tenant has a handle too, but that one is taken from it when it
    /// goes; this one was taken while the group was alive, as one step with the look whether it is.
    _hold: Group,
}

/// Where a walk ended.
enum Walk {
    /// At the tenant that the names say.
    Own(Arc<Tenant>),
    /// At one that takes its place.
    Instead(Arc<Tenant>),
}

/// Why a child could not be had.
enum Refused {
    /// It cannot or may not exist: its parent's `other` takes its place.
    Overflow,
    /// Its parent was killed: the way from the root must be walked again.
    Dead,
}

/// How often a walk starts again when groups are killed under it, before the root is charged.
const WALKS_MAX: usize = 8;

impl Tenants {
    pub(crate) fn new(config: &Config, root: Group, memory: Resource<Bytes>) -> Tenants {
        Tenants {
            root: Tenant::new(root, None, false),
            index: Index::new(config.tenants_max),
            delimiter: config.delimiter,
            depth_max: config.depth_max,
            tenants_max: config.tenants_max,
            places: AtomicUsize::new(0),
            memory,
            limits: config.tenant_limits.iter().cloned().collect(),
        }
    }

    /// How many groups a tree needs: each tenant may have a child `other`, the root too, and as many
    /// again may be dying while their names were taken anew.
    pub(crate) fn groups_max(tenants_max: usize) -> usize {
        4 * (tenants_max + 1)
    }

    /// Creates the tenant of a path that the configuration names, with the limit it names.
    pub(crate) fn preset(&self, path: &str) -> Result<(), ConfigError> {
        let refuse = |why: &dyn fmt::Display| ConfigError(format!("tenant {path:?}: {why}"));
        let mut group = self.root.group.clone();
        for name in path.trim_start_matches('/').split('/') {
            group = group.child_or_create(name).map_err(|e: Error| refuse(&e))?;
        }
        let mut tenant = Arc::clone(&self.root);
        for name in path.trim_start_matches('/').split('/') {
            tenant = self.child(&tenant, name.as_bytes()).map_err(|_| {
                refuse(&format_args!("more tenants than tenants_max {}", self.tenants_max))
            })?;
        }
        Ok(())
    }

    /// Leases the tenant of a prefix whose hash is given, creating what is missing.
    fn lease(&self, hash: u64, prefix: &[u8]) -> Lease {
        for _ in 0..WALKS_MAX {
            if let Some(lease) = self.index.find(hash, prefix) {
                return lease;
            }
            let tenant = match self.walk(prefix) {
                Walk::Own(tenant) => {
                    self.index.insert(hash, prefix, &tenant);
                    tenant
                }
                // Not entered: clients can make up more of such prefixes than there may be tenants.
                Walk::Instead(tenant) => tenant,
            };
            if let Some(hold) = tenant.group.try_clone_live() {
                return Lease { tenant, _hold: hold };
            }
        }
        self.lease_root()
    }

    fn lease_root(&self) -> Lease {
        // Lives as long as its tree.
        Lease { tenant: Arc::clone(&self.root), _hold: self.root.group.clone() }
    }

    /// What of `key` decides its tenant, or nothing for the root's own keys: the names of a tenant
    /// within `depth_max`, or those down to `depth_max` with the delimiter that follows.
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

    /// Walks from the root to the tenant of a prefix, creating what is missing.
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
                        // The tree is full to the last group: the parent itself, never nobody.
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
        if let Some(child) = known.filter(|child| !child.group.is_dying()) {
            return Ok(Arc::clone(child));
        }
        // A name that comes back after a kill takes over the place it had.
        let inherited = known.is_some_and(|before| before.leave_place());
        let counted = inherited || (name != OTHER && self.take_place());
        if !counted && name != OTHER {
            return Err(Refused::Overflow);
        }
        let group = parent.group.child_or_create(name).map_err(|error| {
            if counted {
                self.give_place();
            }
            if error.is_dead() { Refused::Dead } else { Refused::Overflow }
        })?;
        if !self.limits.is_empty()
            && let Some(limit) = self.limits.get(group.path())
        {
            group.set_limit(self.memory, Some(*limit));
        }
        let child = Tenant::new(group, Some(parent), counted);
        if let Some(before) = children.live.insert(name.into(), Arc::clone(&child)) {
            children.keep_dying(before);
        }
        Ok(child)
    }

    /// Takes one of the places of tenants that are free.
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
        // Tenants own their children and items, and both own their tenant: without this the cycles
        // would leak.
        self.index.clear();
        let mut stack = vec![Arc::clone(&self.root)];
        while let Some(tenant) = stack.pop() {
            tenant.ring.lock().clear();
            *tenant.hint.lock() = Hint::default();
            let children = std::mem::take(&mut *tenant.children.write());
            stack.extend(children.live.into_values());
            stack.extend(children.dying);
        }
    }
}

#[cfg(test)]
mod tests;
