//! Pools compared with a naive count of what was reserved, and whole queries.

#[cfg(feature = "arrow")]
mod buffers;
mod lives;
mod oracle;
mod query;
mod refusals;
mod spilling;

use std::sync::Arc;

use datafusion::execution::memory_pool::{MemoryConsumer, MemoryPool, MemoryReservation};
use submeter::{Bytes, Group, Quota, Schema, Tree};

/// A tree with the quota that pools charge.
struct World {
    tree: Tree,
    memory: Quota<Bytes>,
}

impl World {
    fn new() -> World {
        let mut schema = Schema::builder();
        let memory = schema.quota::<Bytes>("memory", "Memory reserved by operators");
        let schema = schema.build().expect("a schema of one quota");
        World { tree: Tree::new(schema).expect("room for a small tree"), memory }
    }

    fn tenant(&self, path: &str, limit: u64) -> Group {
        let tenant = self.tree.create(path).expect("a new name");
        tenant.set_limit(self.memory, Some(limit));
        tenant
    }

    fn current(&self, group: &Group) -> u64 {
        group.usage(self.memory).current
    }
}

fn spillable(name: &str, pool: &Arc<dyn MemoryPool>) -> MemoryReservation {
    MemoryConsumer::new(name).with_can_spill(true).register(pool)
}

fn fixed(name: &str, pool: &Arc<dyn MemoryPool>) -> MemoryReservation {
    MemoryConsumer::new(name).register(pool)
}
