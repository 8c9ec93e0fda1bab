//! The updater's side of a collector.

use std::fmt;
use std::sync::Arc;

use super::Collect;
use super::seat::Seat;
use crate::group::Group;

/// Handles one group of one collector: attach once, keep it, update through it. Cloning costs a handle to
/// the group and a reference count.
///
/// It keeps the group, as a [`Group`] does: a group that was killed is released when it is dropped.
pub struct Attached<C: Collect> {
    group: Group,
    seat: Arc<Seat<C>>,
}

impl<C: Collect> Attached<C> {
    pub(super) fn new(group: Group, seat: Arc<Seat<C>>) -> Attached<C> {
        Attached { group, seat }
    }

    /// Runs `update` on what the group keeps on the running CPU, and marks it for the next flush.
    ///
    /// Takes no lock and makes no system call; allocates when the group is updated on this CPU for the first
    /// time, unless it was [prepared](Attached::prepare). If `update` panics, what it did until then counts.
    ///
    /// Safe in a signal handler if `update` is, and nothing has to be allocated.
    ///
    /// # Ordering
    /// A flush that begins after this has returned sees what `update` stored, whatever the ordering of its stores.
    #[inline]
    pub fn update<R>(&self, update: impl FnOnce(&C::Local) -> R) -> R {
        let row = self.seat.row();
        let _marks = MarkOnDrop { seat: &self.seat, row };
        update(self.seat.local_or_create(row))
    }

    /// Allocates what the group keeps on every CPU, so that no update has to.
    pub fn prepare(&self) {
        for row in 0..self.seat.rows() {
            self.seat.local_or_create(row);
        }
    }

    /// Returns the group.
    #[must_use]
    pub fn group(&self) -> &Group {
        &self.group
    }
}

/// Marks even when the closure panics: what it did until then is not to wait for the next update.
struct MarkOnDrop<'a, C: Collect> {
    seat: &'a Seat<C>,
    row: usize,
}

impl<C: Collect> Drop for MarkOnDrop<'_, C> {
    #[inline]
    fn drop(&mut self) {
        self.seat.mark(self.row);
    }
}

impl<C: Collect> Clone for Attached<C> {
    fn clone(&self) -> Self {
        Attached { group: self.group.clone(), seat: Arc::clone(&self.seat) }
    }
}

impl<C: Collect> fmt::Debug for Attached<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Attached({})", self.group.path())
    }
}
