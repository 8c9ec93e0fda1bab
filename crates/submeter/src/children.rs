//! The live children of one group.

use std::borrow::Borrow;
use std::cmp::Ordering;
use std::collections::BTreeSet;

use submeter_percpu::PercpuOwner;

use crate::group::GroupInner;
use crate::path;

/// What decides the end of each child, by name.
///
/// A set of owners, not a map from names: each child knows its path, and a key of its own would
/// weigh as much again for every group. The price is a pointer to follow for each comparison.
#[derive(Default)]
pub(crate) struct Children {
    set: BTreeSet<Child>,
}

struct Child(PercpuOwner<GroupInner>);

impl Children {
    pub(crate) fn get(&self, name: &str) -> Option<&PercpuOwner<GroupInner>> {
        self.set.get(name).map(|child| &child.0)
    }

    /// Adds a child, in the place of a dying one of its name.
    pub(crate) fn insert(&mut self, owner: PercpuOwner<GroupInner>) {
        self.set.replace(Child(owner));
    }

    pub(crate) fn remove(&mut self, name: &str) -> Option<PercpuOwner<GroupInner>> {
        self.set.take(name).map(|child| child.0)
    }

    /// In the order of their names.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &PercpuOwner<GroupInner>> {
        self.set.iter().map(|child| &child.0)
    }

    /// Empties it.
    pub(crate) fn take(&mut self) -> impl Iterator<Item = PercpuOwner<GroupInner>> {
        std::mem::take(&mut self.set).into_iter().map(|child| child.0)
    }

    pub(crate) fn len(&self) -> usize {
        self.set.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.set.is_empty()
    }
}

impl Child {
    fn name(&self) -> &str {
        path::last(self.0.name())
    }
}

impl Borrow<str> for Child {
    fn borrow(&self) -> &str {
        self.name()
    }
}

impl Ord for Child {
    fn cmp(&self, other: &Child) -> Ordering {
        self.name().cmp(other.name())
    }
}

impl PartialOrd for Child {
    fn partial_cmp(&self, other: &Child) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Child {
    fn eq(&self, other: &Child) -> bool {
        self.name() == other.name()
    }
}

impl Eq for Child {}
