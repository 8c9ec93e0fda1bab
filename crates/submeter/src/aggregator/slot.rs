//! The part of an aggregator that belongs to one group, and its ownership by the group.

use std::sync::{Arc, Weak};

use once_cell::race::OnceBox;
use parking_lot::RwLock;
use submeter_percpu::DirtySet;

use super::{Aggregate, AggregatorInner};
use crate::stats::flush::node_table::{Birth, NODES_MAX};
use crate::tree::extras::Extras;

/// The state of one group in one aggregator. The group, its [`Attached`](super::Attached) handles
/// and the flush share it.
pub(super) struct GroupSlot<C: Aggregate> {
    pub(super) path: Box<str>,
    pub(super) parent: Option<Arc<GroupSlot<C>>>,
    number: SlotNumber,
    /// By row, allocated by the first update. Without a lock, because a signal handler may
    /// interrupt the allocation: the handler then makes its own, and the loser's is dropped.
    locals: OnceBox<Box<[OnceBox<C::Local>]>>,
    pub(super) total: RwLock<Total<C::Delta>>,
}

/// The total that readers see. Written only by flushes.
#[derive(Default)]
pub(super) struct Total<D> {
    pub(super) value: D,
    /// The message of a callback's panic, if there was one.
    pub(super) broken: Option<Box<str>>,
    /// The number of broken descendants, including released ones.
    pub(super) broken_below: u64,
}

impl<C: Aggregate> GroupSlot<C> {
    /// Returns its number in the aggregator.
    pub(super) fn id(&self) -> u32 {
        self.number.number
    }

    #[inline]
    pub(super) fn row(&self) -> usize {
        self.number.marks.row()
    }

    pub(super) fn rows(&self) -> usize {
        self.number.marks.rows()
    }

    #[inline]
    pub(super) fn mark(&self, row: usize) {
        self.number.marks.mark(row, self.number.bit);
    }

    #[inline]
    pub(super) fn local_or_create(&self, row: usize) -> &C::Local {
        match self.local(row) {
            Some(local) => local,
            None => self.create_local(row),
        }
    }

    #[inline]
    pub(super) fn local(&self, row: usize) -> Option<&C::Local> {
        self.locals.get()?[row].get()
    }

    #[cold]
    fn create_local(&self, row: usize) -> &C::Local {
        let rows = || (0..self.rows()).map(|_| OnceBox::new()).collect::<Box<[_]>>();
        self.locals.get_or_init(|| Box::new(rows()))[row].get_or_init(Box::default)
    }

    /// Marks the total as wrong, and those of its ancestors as incomplete.
    pub(super) fn declare_broken(&self, message: Box<str>) {
        let mut total = self.total.write();
        if total.broken.is_some() {
            return;
        }
        total.broken = Some(message);
        drop(total);
        for above in std::iter::successors(self.parent.as_deref(), |at| at.parent.as_deref()) {
            above.total.write().broken_below += 1;
        }
    }
}

/// A slot's number in an aggregator, and the bit that marks it.
pub(super) struct SlotNumber {
    number: u32,
    marks: Arc<DirtySet>,
    bit: usize,
}

/// The allocator of slot numbers. It reuses freed ones and never moves a mark: when it runs out of
/// marks, it adds a set as large as all previous ones together.
#[derive(Default)]
pub(super) struct SlotNumbers {
    sets: Vec<FirstAndMarks>,
    /// Numbers below this have been handed out at some time.
    end: usize,
    free: Vec<u32>,
}

/// A set of marks, and the first slot that it covers.
pub(super) type FirstAndMarks = (usize, Arc<DirtySet>);

/// The number of marks in the first set: one cache line of bits per row.
const FIRST_SET_LEN: usize = 512;

impl SlotNumbers {
    fn take(&mut self) -> SlotNumber {
        let number = self.free.pop().unwrap_or_else(|| {
            self.end += 1;
            u32::try_from(self.end - 1).unwrap_or(NODES_MAX)
        });
        assert!(number < NODES_MAX, "memory runs out before numbers do");
        let room = self.sets.last().map_or(0, |(first, marks)| first + marks.len());
        if number as usize >= room {
            self.sets.push((room, Arc::new(DirtySet::new(room.max(FIRST_SET_LEN)))));
        }
        // Searched from the end, because half of all slots are in the last set.
        let known = self.sets.iter().rev().find(|(first, _)| *first <= number as usize);
        let (first, marks) = known.expect("the first set starts at 0");
        SlotNumber { number, marks: Arc::clone(marks), bit: number as usize - first }
    }

    pub(super) fn give(&mut self, slots: Vec<u32>) {
        self.free.extend(slots);
    }

    /// Brings a copy of the list of sets up to date.
    pub(super) fn share_sets(&self, copy: &mut Vec<FirstAndMarks>) {
        copy.extend(self.sets[copy.len()..].iter().cloned());
    }
}

/// The group's ownership of a slot. Dropping it reports the group's release to the aggregator.
struct SlotOwner<C: Aggregate> {
    slot: Arc<GroupSlot<C>>,
    aggregator: Weak<AggregatorInner<C>>,
}

impl<C: Aggregate> Drop for SlotOwner<C> {
    fn drop(&mut self) {
        if let Some(aggregator) = self.aggregator.upgrade() {
            // The flush state's own reference keeps the slot until it has been flushed for the last
            // time.
            aggregator.flushes.bury(self.slot.id());
        }
    }
}

/// Finds the slot of a group in an aggregator.
pub(super) fn find<C: Aggregate>(
    extras: &Extras,
    aggregator: &Arc<AggregatorInner<C>>,
) -> Option<Arc<GroupSlot<C>>> {
    extras.owned()?.find(aggregator, slot_of)
}

fn slot_of<C: Aggregate>(owner: &SlotOwner<C>) -> Arc<GroupSlot<C>> {
    Arc::clone(&owner.slot)
}

pub(super) fn find_or_create<C: Aggregate>(
    extras: &Extras,
    aggregator: &Arc<AggregatorInner<C>>,
    path: &str,
    parent: Option<Arc<GroupSlot<C>>>,
) -> Arc<GroupSlot<C>> {
    // Created before the lock is taken, because `default` is the user's code.
    let total = RwLock::default();
    let make = || {
        let slot = Arc::new(GroupSlot {
            path: path.into(),
            parent,
            number: aggregator.numbers.lock().take(),
            locals: OnceBox::new(),
            total,
        });
        // Announced before it can be marked.
        let birth = Birth {
            id: slot.id(),
            parent: slot.parent.as_ref().map(|above| above.id()),
            kept: Arc::clone(&slot),
        };
        aggregator.flushes.announce(birth);
        SlotOwner { slot, aggregator: Arc::downgrade(aggregator) }
    };
    extras.owned_or_init().find_or_insert(aggregator, make, slot_of)
}
