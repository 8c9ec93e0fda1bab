//! What each operator of a query holds.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use datafusion_execution::memory_pool::{MemoryConsumer, human_readable_size};
use parking_lot::Mutex;
use submeter::Charge;

/// How many operators an error names.
const NAMED_MAX: usize = 3;

/// What a pool holds.
#[derive(Default)]
pub(crate) struct Held {
    /// The sum of all; `None` until something is held.
    pub(crate) charge: Option<Charge>,
    /// By id, those that ever held something: what is registered and idle is not looked at.
    consumers: HashMap<usize, Consumer>,
}

/// An operator, or a part of one.
pub(crate) struct Consumer {
    name: String,
    can_spill: bool,
    pub(crate) held: u64,
    pub(crate) spilling: Spilling,
}

/// How far an operator is that was refused so that it spills. Meanwhile only limits refuse it: what
/// it needs in order to spill must not end its query, such as room to sort what it writes, which
/// DataFusion's aggregates ask for after they have given back what they held.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Spilling {
    No,
    Asked,
    /// It has given something back since, and taken nothing.
    GaveBack,
}

/// What each live pool of a tenant holds, by its group's path: an error names operators of other
/// queries too. Not by `Group::set_data`, where a program may keep a value of its own.
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

    /// Those that hold the most, for a message; empty where nothing is held.
    pub(crate) fn most(&self) -> String {
        let mut most: Vec<&Consumer> = self.consumers.values().filter(|c| c.held > 0).collect();
        most.sort_by_key(|consumer| (std::cmp::Reverse(consumer.held), consumer.name.as_str()));
        let one = |consumer: &&Consumer| {
            let spills = if consumer.can_spill { ", can spill" } else { "" };
            format!("{} {}{spills}", consumer.name, size(consumer.held))
        };
        most.iter().take(NAMED_MAX).map(one).collect::<Vec<_>>().join("; ")
    }

    /// The sum over operators, which is what the charge holds.
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

    /// The operators that hold the most in the group at this path, if it is a query's.
    pub(crate) fn most(&self, path: &str) -> String {
        // Not under the lock of all: each has its own.
        let held = self.0.lock().get(path).and_then(Weak::upgrade);
        held.map(|held| held.lock().most()).unwrap_or_default()
    }
}

/// Writes a size as DataFusion does.
pub(crate) fn size(bytes: u64) -> String {
    human_readable_size(usize::try_from(bytes).unwrap_or(usize::MAX))
}
