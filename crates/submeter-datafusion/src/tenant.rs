//! The queries of a tenant.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use datafusion_common::{DataFusionError, Result};
use datafusion_execution::runtime_env::RuntimeEnv;
use submeter::{Bytes, Group, Quota};

use crate::consumers::Queries;
use crate::pool::GroupPool;

/// Makes the environments of a tenant's queries, each with a group of its own.
///
/// # Examples
/// ```
/// use datafusion_execution::memory_pool::MemoryConsumer;
/// use submeter::{Bytes, Schema, Tree};
/// use submeter_datafusion::{GroupPool, TenantPools};
///
/// let mut schema = Schema::builder();
/// let memory = schema.quota::<Bytes>("memory", "Memory reserved by operators");
/// let tree = Tree::new(schema.build()?)?;
/// let acme = TenantPools::new(&tree.create("/acme")?, memory);
///
/// let runtime = acme.query()?; // for a SessionContext
/// let query = GroupPool::of(&runtime).expect("made here").group().clone();
/// query.set_limit(memory, Some(1 << 30));
/// let sort = MemoryConsumer::new("ExternalSorter").with_can_spill(true);
/// let sort = sort.register(&runtime.memory_pool);
/// sort.try_grow(1 << 20)?;
/// assert_eq!(query.parent().map(|acme| acme.usage(memory).current), Some(1 << 20));
///
/// drop((sort, runtime)); // the query's end, however it came
/// assert!(query.is_killed());
/// assert_eq!(query.usage(memory).peak_low, 1 << 20);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct TenantPools {
    tenant: Group,
    quota: Quota<Bytes>,
    base: RuntimeEnv,
    queries: Arc<Queries>,
}

impl TenantPools {
    /// Creates a factory of pools below this group. The environments share a new disk manager,
    /// caches and a registry of object stores.
    ///
    /// # Panics
    /// When the quota belongs to another tree's schema.
    #[must_use]
    pub fn new(tenant: &Group, quota: Quota<Bytes>) -> TenantPools {
        let _checked = tenant.usage(quota);
        let (tenant, base) = (tenant.clone(), RuntimeEnv::default());
        TenantPools { tenant, quota, base, queries: Arc::default() }
    }

    /// Makes the environments share everything except the pool with this one.
    #[must_use]
    pub fn runtime(mut self, base: &RuntimeEnv) -> TenantPools {
        self.base = base.clone();
        self
    }

    /// Creates an environment whose pool charges a new group, `query-1`, `query-2` and so on.
    ///
    /// The query ends when nothing refers to its pool any longer: its context, plan and streams,
    /// and their reservations. Then its group is killed, and its name is free. Costs as much as
    /// creating and killing a group, some tens of microseconds.
    ///
    /// # Errors
    /// When the tenant was killed, or the tree is full.
    pub fn query(&self) -> Result<Arc<RuntimeEnv>> {
        /// Global to the process, so that names never repeat within a tenant, whichever factory
        /// made them.
        static QUERIES: AtomicU64 = AtomicU64::new(1);
        // Relaxed: only a number.
        self.query_named(&format!("query-{}", QUERIES.fetch_add(1, Ordering::Relaxed)))
    }

    /// Creates an environment as [`query`](TenantPools::query) does, with this name for the group.
    ///
    /// # Errors
    /// When the tenant already has a group of that name or was killed, the name is not legal for a
    /// group, or the tree is full.
    pub fn query_named(&self, name: &str) -> Result<Arc<RuntimeEnv>> {
        let group = self.tenant.create_child(name);
        let group = group.map_err(|error| DataFusionError::External(Box::new(error)))?;
        let pool = GroupPool::of_query(group, self.quota, Arc::clone(&self.queries));
        Ok(Arc::new(RuntimeEnv { memory_pool: Arc::new(pool), ..self.base.clone() }))
    }
}

impl std::fmt::Debug for Queries {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Queries")
    }
}
