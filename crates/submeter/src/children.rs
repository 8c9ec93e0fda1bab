//! The live children of one group.

use std::hash::{BuildHasher, RandomState};
use std::sync::LazyLock;

use hashbrown::HashTable;
use submeter_percpu::PercpuOwner;

use crate::path;

/// What decides the end of each child, by name.
///
/// A table of owners, not a map from names: each child knows its path, and a key of its own would
/// weigh as much again for every group. Not a sorted set either: it follows a pointer for each
/// comparison, ten of them among a thousand children, where here one is followed. Callers that want
/// an order sort.
///
/// Most groups have none, and carry a pointer for it.
pub(crate) struct Children<T> {
    table: Option<Box<HashTable<Child<T>>>>,
}

/// An owner, and its name's hash: a table that grows asks for the hashes of all, and they would be
/// far apart.
struct Child<T> {
    hash: u64,
    owner: PercpuOwner<T>,
}

// Derived, it would ask the same of `T`.
impl<T> Default for Children<T> {
    fn default() -> Self {
        Children { table: None }
    }
}

impl<T> Children<T> {
    #[inline]
    pub(crate) fn get(&self, name: &str) -> Option<&PercpuOwner<T>> {
        let hash = hash(name);
        let child = self.table.as_ref()?.find(hash, |child| child.is(hash, name))?;
        Some(&child.owner)
    }

    /// Adds a child, in the place of a dying one of its name.
    pub(crate) fn insert(&mut self, owner: PercpuOwner<T>) {
        let hash = hash(last(&owner));
        let table = self.table.get_or_insert_default();
        match table.find_mut(hash, |child| child.is(hash, last(&owner))) {
            Some(child) => child.owner = owner,
            None => _ = table.insert_unique(hash, Child { hash, owner }, |child| child.hash),
        }
    }

    pub(crate) fn remove(&mut self, name: &str) -> Option<PercpuOwner<T>> {
        let hash = hash(name);
        let entry = self.table.as_mut()?.find_entry(hash, |child| child.is(hash, name)).ok()?;
        Some(entry.remove().0.owner)
    }

    /// In no order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &PercpuOwner<T>> {
        self.table.iter().flat_map(|table| table.iter()).map(|child| &child.owner)
    }

    /// Empties it, in no order.
    pub(crate) fn take(&mut self) -> impl Iterator<Item = PercpuOwner<T>> {
        self.table.take().into_iter().flat_map(|table| *table).map(|child| child.owner)
    }

    pub(crate) fn len(&self) -> usize {
        self.table.as_ref().map_or(0, |table| table.len())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl<T> Child<T> {
    #[inline]
    fn is(&self, hash: u64, name: &str) -> bool {
        self.hash == hash && last(&self.owner) == name
    }
}

#[inline]
fn last<T>(owner: &PercpuOwner<T>) -> &str {
    path::last(owner.name())
}

/// Names may come from outside, so it must stay secret which of them collide. One seed for the
/// process: one for each group would weigh as much as its pointer to the table, twice.
#[inline]
fn hash(name: &str) -> u64 {
    static SEED: LazyLock<RandomState> = LazyLock::new(RandomState::new);
    SEED.hash_one(name)
}
