//! What a collector keeps of one group, and how a group keeps it.

use std::any::Any;
use std::sync::{Arc, Weak};

use once_cell::race::OnceBox;
use parking_lot::{Mutex, RwLock};
use submeter_percpu::MarkSet;

use super::{Collect, Inner};

/// Everything of one group in one collector. The group, what is attached to it and the flusher share it.
pub(super) struct Seat<C: Collect> {
    pub(super) path: Box<str>,
    pub(super) parent: Option<Arc<Seat<C>>>,
    pub(super) depth: usize,
    pub(super) slot: Slot,
    /// By row, allocated with the first update. A race and no lock: a signal handler that comes in between makes
    /// its own, and the loser's is dropped.
    locals: OnceBox<Box<[OnceBox<C::Local>]>>,
    pub(super) total: RwLock<Total<C::Delta>>,
}

/// What readers see. Written by the flusher.
#[derive(Default)]
pub(super) struct Total<D> {
    pub(super) value: D,
    /// What a callback panicked with, if one did.
    pub(super) broken: Option<Box<str>>,
    /// Descendants that are broken, those included that are gone.
    pub(super) broken_below: u64,
}

impl<C: Collect> Seat<C> {
    #[inline]
    pub(super) fn row(&self) -> usize {
        self.slot.marks.row()
    }

    pub(super) fn rows(&self) -> usize {
        self.slot.marks.rows()
    }

    #[inline]
    pub(super) fn mark(&self, row: usize) {
        self.slot.marks.mark(row, self.slot.bit);
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

    /// Declares the total wrong, and its ancestors' incomplete.
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

/// A number among those of a collector, and the bit that marks it.
pub(super) struct Slot {
    pub(super) number: u32,
    marks: Arc<MarkSet>,
    bit: usize,
}

/// Hands out slots. Reuses what was freed, and never moves a mark: sets of marks are added, each as large as all
/// before it together.
#[derive(Default)]
pub(super) struct Slots {
    sets: Vec<FirstAndMarks>,
    /// Slots below this were handed out at some time.
    end: usize,
    free: Vec<u32>,
}

/// A set of marks, and the first slot that it is for.
pub(super) type FirstAndMarks = (usize, Arc<MarkSet>);

/// The marks of the first set: one cache line of bits a row.
const FIRST_SET_LEN: usize = 512;

impl Slots {
    fn take(&mut self) -> Slot {
        let number = self.free.pop().unwrap_or_else(|| {
            self.end += 1;
            u32::try_from(self.end - 1).expect("memory runs out before numbers do")
        });
        let room = self.sets.last().map_or(0, |(first, marks)| first + marks.len());
        if number as usize >= room {
            self.sets.push((room, Arc::new(MarkSet::new(room.max(FIRST_SET_LEN)))));
        }
        // From the end: half of all slots are in the last set.
        let known = self.sets.iter().rev().find(|(first, _)| *first <= number as usize);
        let (first, marks) = known.expect("the first set starts at 0");
        Slot { number, marks: Arc::clone(marks), bit: number as usize - first }
    }

    pub(super) fn give(&mut self, slots: Vec<u32>) {
        self.free.extend(slots);
    }

    /// Appends to a copy of the list of sets what it lacks.
    pub(super) fn share_sets(&self, copy: &mut Vec<FirstAndMarks>) {
        copy.extend(self.sets[copy.len()..].iter().cloned());
    }
}

/// The seats of one group, one for each collector that it, or a descendant, was attached to.
///
/// One pointer while there is none, as in most groups.
#[derive(Default)]
pub(crate) struct Seats {
    list: OnceBox<Mutex<Vec<Entry>>>,
}

struct Entry {
    /// The collector, as a number: its address, which stays its own for as long as `liveness` lives.
    collector: usize,
    /// Dead when the collector is.
    liveness: Weak<dyn Any + Send + Sync>,
    /// A `Tenancy<C>`.
    tenancy: Arc<dyn Any + Send + Sync>,
}

/// Ends with the group, and tells the collector.
struct Tenancy<C: Collect> {
    seat: Arc<Seat<C>>,
    collector: Weak<Inner<C>>,
}

impl<C: Collect> Drop for Tenancy<C> {
    fn drop(&mut self) {
        if let Some(collector) = self.collector.upgrade() {
            // The flusher's own reference keeps the seat until it has asked it a last time.
            collector.deaths.lock().push(self.seat.slot.number);
        }
    }
}

impl Seats {
    pub(super) fn find<C: Collect>(&self, collector: &Arc<Inner<C>>) -> Option<Arc<Seat<C>>> {
        find(&self.list.get()?.lock(), collector)
    }

    pub(super) fn find_or_create<C: Collect>(
        &self,
        collector: &Arc<Inner<C>>,
        path: &str,
        parent: Option<Arc<Seat<C>>>,
    ) -> Arc<Seat<C>> {
        // Made before the lock is taken: it is the user's code.
        let total = RwLock::default();
        let mut list = self.list.get_or_init(Box::default).lock();
        // Somebody else may have come first.
        if let Some(seat) = find(&list, collector) {
            return seat;
        }
        // Seats of collectors that are gone go now: nothing else would ever look here.
        let gone = list.extract_if(.., |entry| entry.liveness.strong_count() == 0).collect();
        let seat = Arc::new(Seat {
            path: path.into(),
            depth: parent.as_ref().map_or(0, |parent| parent.depth + 1),
            parent,
            slot: collector.slots.lock().take(),
            locals: OnceBox::new(),
            total,
        });
        // Before anybody can mark it.
        collector.births.lock().push(Arc::clone(&seat));
        let liveness = Arc::downgrade(collector);
        list.push(Entry {
            collector: address(collector),
            tenancy: Arc::new(Tenancy { seat: Arc::clone(&seat), collector: liveness.clone() }),
            liveness,
        });
        drop(list);
        // Without the lock: the user's `drop` may come here again.
        drop::<Vec<Entry>>(gone);
        seat
    }
}

fn find<C: Collect>(list: &[Entry], collector: &Arc<Inner<C>>) -> Option<Arc<Seat<C>>> {
    let entry = list.iter().find(|entry| entry.collector == address(collector))?;
    entry.tenancy.downcast_ref::<Tenancy<C>>().map(|tenancy| Arc::clone(&tenancy.seat))
}

fn address<C: Collect>(collector: &Arc<Inner<C>>) -> usize {
    Arc::as_ptr(collector).addr()
}
