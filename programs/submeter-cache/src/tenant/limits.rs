//! The limits of tenants, which may change while they are served.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use submeter::refs::pin;
use submeter::{Error, Group, Tree};

use super::{Tenant, Tenants};
use crate::config::ConfigError;
use crate::limits::TenantLimits;

impl Tenants {
    /// Replaces all limits, or none of them.
    pub(crate) fn set_limits(
        &self,
        limits: &[(String, TenantLimits)],
        tree: &Tree,
    ) -> Result<(), ConfigError> {
        for (path, _) in limits {
            self.preset(path)?;
        }
        let limits: HashMap<_, _> = limits.iter().cloned().collect();
        // Held until all are set: a tenant that is created meanwhile takes its limits after this.
        let mut known = self.limits.write();
        let before = std::mem::replace(&mut *known, limits);
        let has_rates = self.rates || known.values().any(|limits| limits.requests.is_some());
        // Relaxed: whoever misses it is a request that came before.
        self.has_rates.store(has_rates, Ordering::Relaxed);
        let gone = before.keys().filter(|path| !known.contains_key(*path));
        for path in known.keys().chain(gone) {
            if let Some(group) = tree.get(path) {
                known.get(path).copied().unwrap_or_default().set(&group, &self.metrics);
            }
        }
        Ok(())
    }

    /// Gives a tenant that was created its limits.
    pub(super) fn limit(&self, group: &Group) {
        if let Some(limits) = self.limits.read().get(group.path()) {
            limits.set(group, &self.metrics);
        }
    }

    /// Finds a tenant of a group's path.
    pub(crate) fn by_path(&self, path: &str) -> Option<Arc<Tenant>> {
        let mut names = path.split('/').filter(|name| !name.is_empty());
        let child = |tenant: Arc<Tenant>, name| Tenant::of(&tenant.group.child(name)?);
        names.try_fold(Arc::clone(&self.root), child)
    }

    /// Returns whether any tenant may make only so many requests per time.
    #[inline]
    pub(crate) fn has_rates(&self) -> bool {
        // Relaxed: see `set_limits`.
        self.has_rates.load(Ordering::Relaxed)
    }

    /// Creates a tenant that has limits, so that it is seen before its first request.
    fn preset(&self, path: &str) -> Result<(), ConfigError> {
        let refuse =
            |why: &dyn fmt::Display| ConfigError::new(format!("tenant {path:?}: {why}")).of(path);
        if path == "/" {
            return Ok(());
        }
        let mut group = self.root.group.clone();
        for name in path.trim_start_matches('/').split('/') {
            group = group.get_or_create_child(name).map_err(|e: Error| refuse(&e))?;
        }
        let mut tenant = Arc::clone(&self.root);
        for name in path.trim_start_matches('/').split('/') {
            let prefix = self.prefix_of(&tenant, name);
            tenant = self.child(&tenant, &prefix, &pin()).map_err(|_| {
                refuse(&format_args!("more tenants than tenants_max {}", self.tenants_max))
            })?;
        }
        Ok(())
    }
}
