//! Which tenant a key belongs to: the names before its last delimiter, from the root down.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use ahash::RandomState;
use hashbrown::HashTable;
use parking_lot::{Mutex, RwLock};
use submeter::{Error, Group};

use crate::config::{Config, ConfigError};
use crate::store::{Hint, Ring};

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
}

#[derive(Default)]
struct Children {
    live: HashMap<Box<str>, Arc<Tenant>, RandomState>,
    /// Tenants whose group was killed, for as long as they hold items: those must stay evictable.
    dying: Vec<Arc<Tenant>>,
}

impl Tenant {
    fn new(group: Group, parent: Option<&Arc<Tenant>>) -> Arc<Tenant> {
        Arc::new(Tenant {
            group,
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
    delimiter: u8,
    depth_max: usize,
    tenants_max: usize,
    /// How many were created, the root and those called [`OTHER`] aside.
    created: AtomicUsize,
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
    pub(crate) fn new(config: &Config, root: Group) -> Tenants {
        Tenants {
            root: Tenant::new(root, None),
            delimiter: config.delimiter,
            depth_max: config.depth_max,
            tenants_max: config.tenants_max,
            created: AtomicUsize::new(0),
        }
    }

    /// How many groups a tree needs: each tenant may have a child `other`, the root too, and as many
    /// again may be dying while their names were taken anew.
    pub(crate) fn groups_max(tenants_max: usize) -> usize {
        4 * (tenants_max + 1)
    }

    /// Creates the tenant of a path that the configuration names.
    pub(crate) fn preset(&self, path: &str) -> Result<Group, ConfigError> {
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
        Ok(tenant.group.clone())
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
    fn walk(&self, prefix: &[u8]) -> Arc<Tenant> {
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
                        Ok(other) => return other,
                        // The tree is full to the last group: the parent itself, never nobody.
                        Err(Refused::Overflow) => return tenant,
                        Err(Refused::Dead) => {}
                    }
                }
                continue 'walk;
            }
            return tenant;
        }
        Arc::clone(&self.root)
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
        // A name that comes back after a kill was counted when it was new.
        let counts = name != OTHER && known.is_none();
        if counts && !self.count_one() {
            return Err(Refused::Overflow);
        }
        let group = parent.group.child_or_create(name).map_err(|error| {
            if counts {
                // Relaxed: a number on its own, see `count_one`.
                self.created.fetch_sub(1, Ordering::Relaxed);
            }
            if error.is_dead() { Refused::Dead } else { Refused::Overflow }
        })?;
        let child = Tenant::new(group, Some(parent));
        if let Some(before) = children.live.insert(name.into(), Arc::clone(&child)) {
            children.dying.retain(|dying| !dying.ring.lock().is_empty());
            children.dying.push(before);
        }
        Ok(child)
    }

    /// Takes one of the tenants that may yet be created.
    fn count_one(&self) -> bool {
        // Relaxed: only the number itself is shared; the group is published by the lock on its
        // siblings.
        self.created
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| {
                (n < self.tenants_max).then_some(n + 1)
            })
            .is_ok()
    }
}

impl Drop for Tenants {
    fn drop(&mut self) {
        // Tenants own their children and items, and both own their tenant: without this the cycles
        // would leak.
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

/// Resolves the keys of one connection, remembering where they led.
///
/// One a connection rather than one a thread: a connection's keys are mostly of few tenants, and no
/// lock is needed. What it hands out is an index, so that neither finding a tenant nor turning to
/// another touches a count that other threads touch too.
pub(crate) struct Resolver {
    /// The root first.
    known: Vec<Known>,
    /// Indices into `known` by prefix.
    table: HashTable<u32>,
    hasher: RandomState,
    last: Account,
}

struct Known {
    prefix: Box<[u8]>,
    tenant: Arc<Tenant>,
}

/// Names a tenant to the [`Resolver`] that handed it out, until that forgets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Account(u32);

impl Account {
    pub(crate) const ROOT: Account = Account(0);

    pub(crate) fn index(self) -> usize {
        self.0 as usize
    }
}

/// The most tenants that a connection remembers. Beyond it everything is forgotten: cheaper than
/// choosing, and a connection with so many tenants pays the walk only now and then.
const KNOWN_MAX: usize = 256;

impl Resolver {
    pub(crate) fn new(tenants: &Tenants) -> Resolver {
        let root = Known { prefix: Box::default(), tenant: Arc::clone(&tenants.root) };
        Resolver {
            known: vec![root],
            table: HashTable::new(),
            hasher: RandomState::new(),
            last: Account::ROOT,
        }
    }

    /// Finds the account of the tenant of `key`.
    #[inline]
    pub(crate) fn resolve(&mut self, tenants: &Tenants, key: &[u8]) -> Account {
        let Some(prefix) = tenants.prefix(key) else { return Account::ROOT };
        let last = &self.known[self.last.index()];
        // The root has no prefix, so it is never mistaken for the tenant of an empty one.
        let same = self.last != Account::ROOT && *last.prefix == *prefix;
        if !same || last.tenant.group.is_dying() {
            self.last = self.find(tenants, prefix);
        }
        self.last
    }

    fn find(&mut self, tenants: &Tenants, prefix: &[u8]) -> Account {
        let hash = self.hasher.hash_one(prefix);
        let known = &self.known;
        let found = self.table.find_mut(hash, |&index| *known[index as usize].prefix == *prefix);
        let new = Account(u32::try_from(self.known.len()).unwrap_or(u32::MAX));
        match found {
            Some(&mut index) if !known[index as usize].tenant.group.is_dying() => {
                return Account(index);
            }
            // The account of a killed tenant stays as it is: something may yet be booked on it.
            Some(index) => *index = new.0,
            None => {
                let hasher = &self.hasher;
                self.table.insert_unique(hash, new.0, |&index| {
                    // The newest is not in `known` yet, but it is not what is being moved.
                    hasher.hash_one(&*known[index as usize].prefix)
                });
            }
        }
        self.known.push(Known { prefix: prefix.into(), tenant: tenants.walk(prefix) });
        new
    }

    #[inline]
    pub(crate) fn tenant(&self, account: Account) -> &Arc<Tenant> {
        &self.known[account.index()].tenant
    }

    /// Whether it is time to [`forget`](Resolver::forget).
    #[inline]
    pub(crate) fn is_full(&self) -> bool {
        self.known.len() > KNOWN_MAX
    }

    /// Forgets all but the root. Accounts are void after this.
    pub(crate) fn forget(&mut self) {
        self.known.truncate(1);
        self.table = HashTable::new();
        self.last = Account::ROOT;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Cache, Config};

    fn path(cache: &Cache, resolver: &mut Resolver, key: &[u8]) -> String {
        if resolver.is_full() {
            resolver.forget();
        }
        let account = resolver.resolve(cache.tenants(), key);
        resolver.tenant(account).group.path().to_owned()
    }

    fn cache(config: Config) -> Cache {
        Cache::new(config).expect("the configuration is sound")
    }

    #[test]
    fn the_names_before_the_last_delimiter_are_the_path() {
        let cache = cache(Config::default());
        let mut resolver = Resolver::new(cache.tenants());
        for (key, expected) in [
            (&b"k"[..], "/"),
            (b"acme:k", "/acme"),
            (b"acme:web:k", "/acme/web"),
            (b"acme:web:", "/acme/web"),
            (b"acme:k", "/acme"),
            (b"a:b:c:d:k", "/a/b/c/d"),
        ] {
            assert_eq!(path(&cache, &mut resolver, key), expected, "{key:?}");
        }
    }

    #[test]
    fn what_is_too_deep_goes_to_other_of_the_deepest() {
        let cache = cache(Config { depth_max: 2, ..Config::default() });
        let mut resolver = Resolver::new(cache.tenants());
        assert_eq!(path(&cache, &mut resolver, b"a:b:k"), "/a/b");
        assert_eq!(path(&cache, &mut resolver, b"a:b:c:k"), "/a/b/other");
        assert_eq!(path(&cache, &mut resolver, b"a:b:c:d:e:k"), "/a/b/other");
        assert_eq!(path(&cache, &mut resolver, b"a:b:k"), "/a/b");
    }

    #[test]
    fn what_is_too_many_goes_to_other_of_the_parent() {
        let cache = cache(Config { tenants_max: 3, ..Config::default() });
        let mut resolver = Resolver::new(cache.tenants());
        assert_eq!(path(&cache, &mut resolver, b"a:b:k"), "/a/b");
        assert_eq!(path(&cache, &mut resolver, b"c:k"), "/c");
        assert_eq!(path(&cache, &mut resolver, b"d:k"), "/other");
        assert_eq!(path(&cache, &mut resolver, b"d:e:k"), "/other");
        assert_eq!(path(&cache, &mut resolver, b"a:x:k"), "/a/other");
        assert_eq!(path(&cache, &mut resolver, b"a:b:k"), "/a/b");
    }

    #[test]
    fn names_that_no_group_can_have_go_to_other() {
        let cache = cache(Config::default());
        let mut resolver = Resolver::new(cache.tenants());
        for (key, expected) in [
            (&b":k"[..], "/other"),
            (b"a::k", "/a/other"),
            (b"a:..:k", "/a/other"),
            (b"a:b/c:k", "/a/other"),
            (b"a:\x01:k", "/a/other"),
            (b"\xff\xfe:k", "/other"),
            (b".:a:b:k", "/other"),
        ] {
            assert_eq!(path(&cache, &mut resolver, key), expected, "{key:?}");
        }
    }

    #[test]
    fn a_killed_tenant_is_created_anew_and_not_counted_twice() {
        let cache = cache(Config { tenants_max: 1, ..Config::default() });
        let mut resolver = Resolver::new(cache.tenants());
        let first = resolver.resolve(cache.tenants(), b"a:k");
        let first = resolver.tenant(first).group.clone();
        first.kill().expect("it has no children");
        let second = resolver.resolve(cache.tenants(), b"a:k");
        let second = resolver.tenant(second).group.clone();
        assert_eq!(second.path(), "/a");
        assert_ne!(first, second);
        assert!(!second.is_dying());
    }

    #[test]
    fn more_tenants_than_are_remembered_are_still_told_apart() {
        let cache = cache(Config::default());
        let mut resolver = Resolver::new(cache.tenants());
        for round in 0..2 {
            for n in 0..2 * KNOWN_MAX {
                let expected = format!("/t{n}");
                let key = format!("t{n}:k");
                assert_eq!(path(&cache, &mut resolver, key.as_bytes()), expected, "round {round}");
            }
        }
    }
}
