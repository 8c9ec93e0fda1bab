//! The memory held by each operator of a query.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use datafusion_execution::memory_pool::{MemoryConsumer, human_readable_size};
use parking_lot::Mutex;
use submeter::Charge;

/// How many operators an error names.
const NAMED_MAX: usize = 3;

/// The memory held by a pool.
#[derive(Default)]
pub(crate) struct Held {
    /// The sum over all operators; `None` until something is held.
    pub(crate) charge: Option<Charge>,
    /// Consumers that ever held something, by id: those registered and idle are not looked at.
    consumers: HashMap<usize, Consumer>,
}

/// An operator, or a part of one.
pub(crate) struct Consumer {
    name: String,
    can_spill: bool,
    pub(crate) held: u64,
    pub(crate) spilling: Spilling,
}

/// The state of an operator that was refused so that it spills. Until it has spilled, only limits
/// refuse it: a refusal of what it needs in order to spill must not end its query. One example is
/// room to sort what it writes, which DataFusion's aggregates request after they have given back
/// what they held.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Spilling {
    No,
    Asked,
    /// It has since given something back, and taken nothing.
    GaveBack,
}

/// The memory held by each live pool of a tenant, by its group's path: an error also names
/// operators of other queries. Not in the groups' data, which is the program's.
#[derive(Default)]
pub(crate) struct Queries(Mutex<HashMap<String, Weak<Mutex<Held>>>>);

impl Held {
    pub(crate) fn amount(&self) -> u64 {
        self.charge.as_ref().map_or(0, Charge::amount)
    }

    pub(crate) fn consumer(&mut self, consumer: &MemoryConsumer) -> &mut Consumer {
        self.consumers.entry(consumer.id()).or_insert_with(|| Consumer {
            name: consumer.name().to_owned(),
            can_spill: consumer.can_spill(),
            held: 0,
            spilling: Spilling::No,
        })
    }

    pub(crate) fn forget(&mut self, consumer: &MemoryConsumer) {
        self.consumers.remove(&consumer.id());
    }

    /// Names the operators that hold the most, for a message; empty if nothing is held.
    pub(crate) fn most(&self) -> String {
        let mut most: Vec<&Consumer> = self.consumers.values().filter(|c| c.held > 0).collect();
        most.sort_by_key(|consumer| (std::cmp::Reverse(consumer.held), consumer.name.as_str()));
        let one = |consumer: &&Consumer| {
            let spills = if consumer.can_spill { ", can spill" } else { "" };
            format!("{} {}{spills}", consumer.name, size(consumer.held))
        };
        most.iter().take(NAMED_MAX).map(one).collect::<Vec<_>>().join("; ")
    }

    /// Returns the sum over operators, which equals the charge.
    #[cfg(test)]
    pub(crate) fn sum(&self) -> u64 {
        self.consumers.values().map(|consumer| consumer.held).sum()
    }

    #[cfg(test)]
    pub(crate) fn known(&self) -> usize {
        self.consumers.len()
    }
}

impl Queries {
    pub(crate) fn insert(&self, path: &str, held: &Arc<Mutex<Held>>) {
        self.0.lock().insert(path.to_owned(), Arc::downgrade(held));
    }

    pub(crate) fn remove(&self, path: &str) {
        self.0.lock().remove(path);
    }

    /// Names the operators that hold the most in the group at this path, if it is a query's.
    pub(crate) fn most(&self, path: &str) -> String {
        // Not under the lock of the map: each pool has its own.
        let held = self.0.lock().get(path).and_then(Weak::upgrade);
        held.map(|held| held.lock().most()).unwrap_or_default()
    }
}

/// Writes a size in DataFusion's format.
pub(crate) fn size(bytes: u64) -> String {
    human_readable_size(usize::try_from(bytes).unwrap_or(usize::MAX))
}
