//! The updater's side of an aggregator.

use std::fmt;
use std::sync::Arc;

use super::Aggregate;
use super::slot::GroupSlot;
use crate::group::Group;

/// A handle to one group of one aggregator: attach once, keep it, update through it. Cloning costs
/// a handle to the group and a reference count.
///
/// It keeps the group, as a [`Group`] does: a group that was killed is released when it is dropped.
pub struct Attached<C: Aggregate> {
    group: Group,
    slot: Arc<GroupSlot<C>>,
}

impl<C: Aggregate> Attached<C> {
    pub(super) fn new(group: Group, slot: Arc<GroupSlot<C>>) -> Attached<C> {
        Attached { group, slot }
    }

    /// Runs `update` on what the group keeps on the running CPU, and marks it for the next flush.
    ///
    /// Takes no lock and makes no system call; allocates when the group is updated on this CPU for
    /// the first time, unless it was [prepared](Attached::prepare). If `update` panics, what it did
    /// until then counts.
    ///
    /// Safe in a signal handler if `update` is, and nothing has to be allocated.
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

    /// Allocates what the group keeps on every CPU, so that no update has to.
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

/// Marks even when the closure panics: what it did until then is not to wait for the next update.
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
