//! The pools that are compared.

use std::num::NonZeroUsize;
use std::sync::Arc;

use datafusion::error::Result;
use datafusion::execution::memory_pool::{
    FairSpillPool, GreedyMemoryPool, MemoryPool, PeakRecordingPool, TrackConsumersPool,
};
use datafusion::execution::runtime_env::RuntimeEnv;
use submeter::{Bytes, Quota, Schema, Tree};
use submeter_datafusion::TenantPools;

/// The pool to use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Greedy,
    Fair,
    Tracked,
    Group,
}

/// The tenant that runs a query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tenant {
    Analyst,
    Dashboard,
}

/// One pool for both tenants, or one for each query.
pub(crate) enum Pools {
    Shared(Arc<PeakRecordingPool>, RuntimeEnv),
    Groups { tree: Tree, memory: Quota<Bytes>, analyst: TenantPools, dashboard: TenantPools },
}

impl Kind {
    pub(crate) const ALL: [Kind; 4] = [Kind::Greedy, Kind::Fair, Kind::Tracked, Kind::Group];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Kind::Greedy => "GreedyMemoryPool",
            Kind::Fair => "FairSpillPool",
            Kind::Tracked => "TrackConsumersPool",
            Kind::Group => "GroupPool",
        }
    }

    /// `bytes` are for both tenants; if tenants have limits, three quarters of it are the
    /// analyst's.
    pub(crate) fn make(self, bytes: usize) -> Pools {
        let shared = |pool: Arc<dyn MemoryPool>| {
            Pools::Shared(Arc::new(PeakRecordingPool::new(pool)), RuntimeEnv::default())
        };
        match self {
            Kind::Greedy => shared(Arc::new(GreedyMemoryPool::new(bytes))),
            Kind::Fair => shared(Arc::new(FairSpillPool::new(bytes))),
            Kind::Tracked => {
                let top = NonZeroUsize::new(3).expect("3 is not 0");
                shared(Arc::new(TrackConsumersPool::new(GreedyMemoryPool::new(bytes), top)))
            }
            Kind::Group => groups(bytes as u64),
        }
    }
}

fn groups(bytes: u64) -> Pools {
    let mut schema = Schema::builder();
    let memory = schema.quota::<Bytes>("memory", "Memory reserved by operators");
    let schema = schema.build().expect("a schema of one quota");
    let tree = Tree::new(schema).expect("room for a small tree");
    tree.root().set_limit(memory, Some(bytes));
    let tenant = |name| tree.create(name).expect("a new tree has no such group");
    let (analyst, dashboard) = (tenant("/analyst"), tenant("/dashboard"));
    analyst.set_limit(memory, Some(bytes / 4 * 3));
    let [analyst, dashboard] = [analyst, dashboard].map(|group| TenantPools::new(&group, memory));
    Pools::Groups { tree, memory, analyst, dashboard }
}

impl Pools {
    /// Returns the environment of one query.
    pub(crate) fn query(&self, tenant: Tenant) -> Result<Arc<RuntimeEnv>> {
        match (self, tenant) {
            (Pools::Shared(pool, base), _) => {
                Ok(Arc::new(RuntimeEnv { memory_pool: Arc::clone(pool) as _, ..base.clone() }))
            }
            (Pools::Groups { analyst, .. }, Tenant::Analyst) => analyst.query(),
            (Pools::Groups { dashboard, .. }, Tenant::Dashboard) => dashboard.query(),
        }
    }

    /// Returns the most that was reserved at once.
    pub(crate) fn peak(&self) -> u64 {
        match self {
            Pools::Shared(pool, _) => pool.max_reserved() as u64,
            Pools::Groups { tree, memory, .. } => tree.root().usage(*memory).peak,
        }
    }
}
