//! The updater's side of an aggregator.

use std::fmt;
use std::sync::Arc;

use super::Aggregate;
use super::slot::GroupSlot;
use crate::tree::group::Group;

/// A handle to one group in one aggregator: attach once, keep the handle, update through it.
/// Cloning costs a handle to the group and a reference count.
///
/// It keeps the group alive, as a [`Group`] does: a killed group is released only after it is
/// dropped.
pub struct Attached<C: Aggregate> {
    group: Group,
    slot: Arc<GroupSlot<C>>,
}

impl<C: Aggregate> Attached<C> {
    pub(super) fn new(group: Group, slot: Arc<GroupSlot<C>>) -> Attached<C> {
        Attached { group, slot }
    }

    /// Runs `update` on the group's `Local` of the running CPU, and marks the group for the next
    /// flush.
    ///
    /// Takes no lock and makes no system call. The group's first update on a CPU allocates, unless
    /// the group was [prepared](Attached::prepare). If `update` panics, its changes up to that
    /// point count.
    ///
    /// Safe in a signal handler if `update` is safe there and nothing has to be allocated.
    ///
    /// # Ordering
    /// A flush that begins after this has returned sees what `update` stored, whatever the ordering
    /// of its stores.
    #[inline]
    pub fn update<R>(&self, update: impl FnOnce(&C::Local) -> R) -> R {
        let row = self.slot.row();
        let _marks = MarkOnDrop { slot: &self.slot, row };
        update(self.slot.local_or_create(row))
    }

    /// Allocates the group's `Local` of every CPU, so that no update has to.
    pub fn prepare(&self) {
        for row in 0..self.slot.rows() {
            self.slot.local_or_create(row);
        }
    }

    /// Returns the group.
    #[must_use]
    pub fn group(&self) -> &Group {
        &self.group
    }
}

/// A guard that marks the group even if the closure panics, so that its changes up to that point do
/// not wait for the next update.
struct MarkOnDrop<'a, C: Aggregate> {
    slot: &'a GroupSlot<C>,
    row: usize,
}

impl<C: Aggregate> Drop for MarkOnDrop<'_, C> {
    #[inline]
    fn drop(&mut self) {
        self.slot.mark(self.row);
    }
}

impl<C: Aggregate> Clone for Attached<C> {
    fn clone(&self) -> Self {
        Attached { group: self.group.clone(), slot: Arc::clone(&self.slot) }
    }
}

impl<C: Aggregate> fmt::Debug for Attached<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Attached({})", self.group.path())
    }
}
