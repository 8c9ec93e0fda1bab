//! The queues: each group's event groups in the order of their turns.
//!
//! A switch walks the queues of the groups of two chains. To treat several queues as one, it
//! repeatedly takes the lowest number from the front of all of them: numbers grow with each
//! attachment and each turn, so that every queue is sorted.

use super::{GroupKey, Scope};
use crate::index::{GroupIndex, NONE};

/// The index of a queue. The first queue is that of the events for all groups.
pub(super) type QueueId = u32;

/// The queue of events for all groups, which belongs to no group.
pub(super) const EVERYWHERE: QueueId = NONE;

/// One event group in its queue.
#[derive(Clone, Copy, Debug)]
pub(super) struct QueuePlace {
    pub(super) order: u64,
    /// Its slot in the scheduler.
    pub(super) slot: u32,
}

/// The event groups of one group: one cache line.
#[derive(Debug, Default)]
#[repr(align(64))]
pub(super) struct EventQueue {
    // Not ring buffers: a switch walks them, and they rotate only when events take turns.
    pub(super) pinned: Vec<QueuePlace>,
    pub(super) flexible: Vec<QueuePlace>,
    /// Number of event groups that need counters, which may be scarce.
    needy: u32,
    /// The last of the scheduler's turns in which it took part.
    turn: u64,
}

impl EventQueue {
    /// Returns whether the order of its event groups among those of other queues matters.
    #[inline]
    pub(super) fn contends(&self) -> bool {
        self.needy > 0 || !self.pinned.is_empty()
    }

    #[inline]
    pub(super) fn of(&self, pinned: bool) -> &[QueuePlace] {
        if pinned { &self.pinned } else { &self.flexible }
    }

    /// Returns both kinds, pinned ones first.
    #[inline]
    pub(super) fn all(&self) -> impl Iterator<Item = QueuePlace> {
        self.pinned.iter().chain(&self.flexible).copied()
    }
}

/// The initial capacity of a queue: most groups have no more event groups, so queues lie densely in
/// memory.
const FEW: usize = 4;

/// A position in the walk over several queues.
#[derive(Clone, Copy, Debug)]
struct Cursor {
    queue: QueueId,
    next: usize,
}

#[derive(Debug)]
pub(super) struct EventQueues {
    queues: Vec<EventQueue>,
    free: Vec<QueueId>,
    /// The queues of the groups that have events.
    by_group: GroupIndex,
    next_order: u64,
    /// The current walk; kept so that no walk allocates.
    cursors: Vec<Cursor>,
}

impl EventQueues {
    pub(super) fn new() -> EventQueues {
        EventQueues {
            queues: vec![EventQueue::default()],
            free: Vec::new(),
            by_group: GroupIndex::new(),
            next_order: 0,
            cursors: Vec::new(),
        }
    }

    #[inline]
    pub(super) fn find(&self, group: GroupKey) -> Option<QueueId> {
        self.by_group.find(group)
    }

    #[inline]
    pub(super) fn queue(&self, queue: QueueId) -> &EventQueue {
        &self.queues[queue as usize]
    }

    /// Returns how many groups have events.
    pub(super) fn groups(&self) -> usize {
        self.by_group.groups()
    }

    /// Makes room for a walk over `queues` queues.
    pub(super) fn reserve_walk(&mut self, queues: usize) {
        self.cursors.clear();
        self.cursors.reserve(queues);
    }

    /// Puts `slot` at the end of its queue, which is created if necessary.
    pub(super) fn push(&mut self, scope: Scope, pinned: bool, needy: bool, slot: u32) -> QueueId {
        let queue = match scope {
            Scope::Everywhere => EVERYWHERE,
            Scope::Group(group) => self.find(group).unwrap_or_else(|| {
                let queue = self.free.pop().unwrap_or_else(|| {
                    self.queues.push(EventQueue::default());
                    (self.queues.len() - 1) as QueueId
                });
                self.by_group.insert(group, queue);
                queue
            }),
        };
        let place = QueuePlace { order: self.order(), slot };
        let to = &mut self.queues[queue as usize];
        to.needy += u32::from(needy);
        let to = if pinned { &mut to.pinned } else { &mut to.flexible };
        if to.len() < FEW {
            to.reserve_exact(1);
        }
        to.push(place);
        queue
    }

    /// Takes `slot`, which was pushed with the same `scope` and `needy`, out of its queue. Returns
    /// whether it was the queue's last, in which case the queue is removed.
    pub(super) fn take(&mut self, scope: Scope, needy: bool, slot: u32) -> bool {
        let queue = match scope {
            Scope::Everywhere => Some(EVERYWHERE),
            Scope::Group(group) => self.find(group),
        };
        let Some(queue) = queue else { return false };
        let EventQueue { pinned, flexible, needy: count, .. } = &mut self.queues[queue as usize];
        *count -= u32::from(needy);
        pinned.retain(|place| place.slot != slot);
        flexible.retain(|place| place.slot != slot);
        let emptied = pinned.is_empty() && flexible.is_empty() && queue != EVERYWHERE;
        if let (true, Scope::Group(group)) = (emptied, scope) {
            self.by_group.remove(group);
            self.free.push(queue);
        }
        emptied
    }

    /// Moves the flexible event group that is first in all of `queues` to the end.
    pub(super) fn send_first_to_end(&mut self, queues: impl Iterator<Item = QueueId>) {
        let first = |queue: &QueueId| Some(self.queue(*queue).flexible.first()?.order);
        let with_first = queues.filter_map(|queue| Some((first(&queue)?, queue)));
        let Some((_, queue)) = with_first.min() else { return };
        let order = self.order();
        let queue = &mut self.queues[queue as usize].flexible;
        queue.rotate_left(1);
        if let Some(place) = queue.last_mut() {
            place.order = order;
        }
    }

    /// Notes that `queue` takes part in `turn`; returns whether this is new.
    #[inline]
    pub(super) fn take_turn(&mut self, queue: QueueId, turn: u64) -> bool {
        std::mem::replace(&mut self.queues[queue as usize].turn, turn) != turn
    }

    /// Begins a walk over `queues` in the order of the places, for [`next`](EventQueues::next).
    pub(super) fn walk(&mut self, queues: impl Iterator<Item = QueueId>) {
        self.cursors.clear();
        self.cursors.extend(queues.map(|queue| Cursor { queue, next: 0 }));
    }

    /// Returns the next place of the walk.
    #[inline]
    pub(super) fn next(&mut self, pinned: bool) -> Option<u32> {
        let EventQueues { queues, cursors, .. } = self;
        let at =
            |cursor: &Cursor| queues[cursor.queue as usize].of(pinned).get(cursor.next).copied();
        let with_place = cursors.iter_mut().filter_map(|cursor| Some((at(cursor)?, cursor)));
        let (place, cursor) = with_place.min_by_key(|(place, _)| place.order)?;
        cursor.next += 1;
        Some(place.slot)
    }

    fn order(&mut self) -> u64 {
        self.next_order += 1;
        self.next_order
    }
}
