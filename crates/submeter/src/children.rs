//! The live children of one group.

use std::hash::{BuildHasher, RandomState};
use std::sync::LazyLock;

use hashbrown::HashTable;
use submeter_percpu::PercpuOwner;

use crate::path;

/// The owners of a group's children, by name.
///
/// It is a table of owners, not a map from names: each child knows its path, and a separate key
/// would take as much memory again for every group. It is not a sorted set either: that would
/// follow a pointer for each comparison, ten of them among a thousand children, where this follows
/// one. Callers that need an order sort.
///
/// Most groups have no children, and pay one pointer for the table.
pub(crate) struct Children<T> {
    table: Option<Box<HashTable<Child<T>>>>,
}

/// An owner and its name's hash. A growing table needs the hashes of all children, whose names are
/// far apart in memory.
struct Child<T> {
    hash: u64,
    owner: PercpuOwner<T>,
}

/// Room for so many is kept: children come and go.
const ROOM_MIN: usize = 64;

// Not derived, because that would require the same of `T`.
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

    /// Adds a child; it replaces a killed one with the same name.
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
        let table = self.table.as_mut()?;
        let entry = table.find_entry(hash, |child| child.is(hash, name)).ok()?;
        let owner = entry.remove().0.owner;
        // A table never shrinks by itself. By half, so that each child pays for a few.
        if table.capacity() > ROOM_MIN && table.len() < table.capacity() / 4 {
            table.shrink_to(table.capacity() / 2, |child| child.hash);
        }
        Some(owner)
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

/// Names may come from untrusted sources, so collisions must be unpredictable. One seed serves the
/// whole process: a seed per group would take twice as much memory as its pointer to the table.
#[inline]
fn hash(name: &str) -> u64 {
    static SEED: LazyLock<RandomState> = LazyLock::new(RandomState::new);
    SEED.hash_one(name)
}
