//! The limits of tenants, which may change while they are served.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use submeter::refs::pin;
use submeter::{Error, Group, Tree};

use super::places::Place;
use super::{Tenant, Tenants};
use crate::config::ConfigError;
use crate::limits::{self, TenantLimits};
use crate::users::{self, ByName};

impl Tenants {
    /// Replaces all limits, or none of them.
    pub(crate) fn set_limits(
        &self,
        limits: &[(String, TenantLimits)],
        tree: &Tree,
    ) -> Result<(), ConfigError> {
        let users = self.users.lock();
        let paths =
            || limits.iter().map(|(path, _)| &**path).chain(users.iter().map(|path| &**path));
        // Before any group is created: a refused change leaves nothing behind.
        self.places.named(self.with_kept(paths())).map_err(|count| self.too_many(count))?;
        for (path, _) in limits {
            self.check(path)?;
        }
        self.name(paths())?;
        limits.iter().map(|(path, _)| path).chain(&self.kept).for_each(|path| self.preset(path));
        let limits: HashMap<_, _> = limits.iter().cloned().collect();
        // Held until all are set: a tenant that is created in the meantime takes its limits after
        // this.
        let mut known = self.limits.write();
        let before = std::mem::replace(&mut *known, limits);
        let has_rate = |limits: &TenantLimits| limits.rate.or(limits.cpu).is_some();
        let has_rates = self.rates || known.values().any(has_rate);
        // Relaxed: a request that misses it came before.
        self.has_rates.store(has_rates, Ordering::Relaxed);
        let gone = before.keys().filter(|path| !known.contains_key(*path));
        // Before the look: a tenant created after it must not find a rate that was not given to it,
        // and one that has found a rate is in the tree.
        gone.clone().for_each(|path| _ = self.rate_states.lock().remove(&**path));
        for path in known.keys().chain(gone) {
            if let Some(group) = tree.get(path) {
                let [now, before] = [&*known, &before].map(|of| of.get(path).copied());
                let before = before.unwrap_or_default();
                limits::replace(now.unwrap_or_default(), before, &group, &self.metrics);
                if known.contains_key(path) {
                    self.keep_rates(&group);
                }
            }
        }
        Ok(())
    }

    /// Reserves places for the tenants of users, in place of those of earlier users, and creates
    /// the tenants. Does nothing if there are not enough places: see `check_users`.
    pub(crate) fn set_users(&self, users: &ByName) {
        let paths = self.paths_of(users);
        let mut users = self.users.lock();
        let limits: Vec<String> = self.limits.read().keys().cloned().collect();
        if self.name(limits.iter().chain(&paths).map(|path| &**path)).is_ok() {
            paths.iter().for_each(|path| self.preset(path));
            *users = paths;
        }
    }

    /// Returns whether the tenants of users would all have a place.
    pub(crate) fn check_users(&self, users: &ByName) -> Result<(), ConfigError> {
        let paths = self.paths_of(users);
        let limits = self.limits.read();
        let named = limits.keys().chain(&paths).map(|path| &**path);
        self.places.named(self.with_kept(named)).map_err(|count| self.too_many(count))?;
        Ok(())
    }

    fn paths_of(&self, users: &ByName) -> Vec<String> {
        let path = |prefix: &[u8]| {
            let names =
                prefix.split(|byte| *byte == self.delimiter).filter(|name| !name.is_empty());
            names.flat_map(|name| ["/".into(), String::from_utf8_lossy(name)]).collect()
        };
        users::prefixes(users).map(path).collect()
    }

    /// Names the tenants that always have a place, whether they live or not. Must not be called by
    /// two threads at once.
    fn name<'p>(&'p self, paths: impl Iterator<Item = &'p str>) -> Result<(), ConfigError> {
        let named = self.places.name(self.with_kept(paths));
        let [new, gone] = named.map_err(|count| self.too_many(count))?;
        for path in new {
            self.index.with(&self.key_prefix(&path), |tenant| {
                let mut place = tenant.place.lock();
                if let Place::Of(_) = *place {
                    self.places.give(std::mem::replace(&mut *place, Place::Kept));
                }
                self.keep_rates(&tenant.group);
            });
        }
        for path in gone {
            self.index.with(&self.key_prefix(&path), |tenant| {
                let mut place = tenant.place.lock();
                if *place == Place::Kept {
                    *place = self.places.take_anyway(&path);
                }
            });
            self.rate_states.lock().remove(&path);
        }
        Ok(())
    }

    fn with_kept<'p>(
        &'p self,
        paths: impl Iterator<Item = &'p str>,
    ) -> impl Iterator<Item = &'p str> {
        paths.chain(self.kept.iter().map(|path| &**path))
    }

    fn too_many(&self, count: usize) -> ConfigError {
        let max = self.tenants_max;
        ConfigError::new(format!(
            "{count} tenants have limits or users, more than tenants_max {max}: raise it"
        ))
    }

    /// Gives a newly created tenant its limits.
    pub(super) fn limit(&self, group: &Group) {
        if let Some(limits) = self.limits.read().get(group.path()) {
            limits::replace(*limits, TenantLimits::default(), group, &self.metrics);
        }
    }

    /// Makes the group of a named tenant continue the rates of its predecessor.
    pub(super) fn keep_rates(&self, group: &Group) {
        let mut states = self.rate_states.lock();
        let is_shared = states.get(group.path()).is_some_and(|state| group.share_rates(state));
        if !is_shared {
            states.insert(group.path().into(), group.rate_state());
        }
    }

    /// Finds the tenant of a group's path.
    pub(crate) fn by_path(&self, path: &str) -> Option<Arc<Tenant>> {
        let child = |tenant: Arc<Tenant>, name| Tenant::of(&tenant.group.child(name)?);
        names(path).try_fold(Arc::clone(&self.root), child)
    }

    /// Returns whether any tenant has a rate or a CPU limit.
    #[inline]
    pub(crate) fn has_rates(&self) -> bool {
        // Relaxed: see `set_limits`.
        self.has_rates.load(Ordering::Relaxed)
    }

    /// Refuses a tenant that cannot exist.
    fn check(&self, path: &str) -> Result<(), ConfigError> {
        let mut group = self.root.group.clone();
        for name in names(path) {
            group = group.get_or_create_child(name).map_err(|error: Error| {
                ConfigError::new(format!("tenant {path:?}: {error}")).of(path)
            })?;
        }
        Ok(())
    }

    /// Creates a named tenant, so that it is visible before its first request. Does nothing if the
    /// tree is full; the tenant is then created by its first request that finds room.
    fn preset(&self, path: &str) {
        let mut tenant = Arc::clone(&self.root);
        for name in names(path) {
            let prefix = self.prefix_of(&tenant, name);
            let Ok(child) = self.child(&tenant, &prefix, name, &pin()) else { return };
            tenant = child;
        }
    }

    /// Returns the prefix of a tenant's keys.
    pub(super) fn key_prefix(&self, path: &str) -> Vec<u8> {
        let delimiter = char::from(self.delimiter).to_string();
        names(path).collect::<Vec<_>>().join(&delimiter).into_bytes()
    }
}

/// Returns the names of a path; the root has none.
fn names(path: &str) -> impl Iterator<Item = &str> {
    path.split('/').filter(|name| !name.is_empty())
}
