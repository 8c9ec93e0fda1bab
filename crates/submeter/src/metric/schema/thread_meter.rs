//! Counts that threads keep anyway, as an allocator does, and the counters that they are charged
//! to.

use std::any::TypeId;
use std::fmt;

use super::{Counter, Key};
use crate::metric::unit::Unit;

/// Number of counts that a [`ThreadMeter`] has.
pub const THREAD_COUNTS: usize = 4;

/// Something that itself counts what each thread does, cheaper than any update: an allocator that
/// knows how much each thread allocated, or a library that counts its operations.
///
/// A schema names the counters with [`thread_count`](crate::SchemaBuilder::thread_count), and each
/// switch charges the group that a thread leaves for what the thread has gained since the last
/// switch. So the code that counts need not know about groups, and pays nothing for them.
pub trait ThreadMeter: Sync + 'static {
    /// Returns what the calling thread has counted since it began; a count wraps around at 2^64,
    /// and one that is not used stays 0.
    ///
    /// It is called in the middle of a switch, where entering a group has no effect: it should take
    /// no more than a few loads. A panic propagates to the caller of the switch; the group is not
    /// charged then, and the next switch charges everything.
    fn counts(&self) -> [u64; THREAD_COUNTS];
}

/// The counters of a schema's meter, indexed like its counts.
#[derive(Clone, Copy)]
pub(crate) struct Metering {
    meter: &'static dyn ThreadMeter,
    /// The identity of the meter, because a zero-sized meter has no address of its own.
    kind: TypeId,
    counters: [Option<(Key, u64)>; THREAD_COUNTS],
}

impl Metering {
    pub(crate) fn new<M: ThreadMeter>(meter: &'static M) -> Metering {
        Metering { meter, kind: TypeId::of::<M>(), counters: [None; THREAD_COUNTS] }
    }

    /// Returns whether the counters belong to a meter of type `M`.
    pub(crate) fn is_of<M: ThreadMeter>(&self) -> bool {
        self.kind == TypeId::of::<M>()
    }

    /// Names the counter of a place; returns whether it had none.
    pub(crate) fn name<U: Unit>(&mut self, place: usize, counter: Counter<U>) -> bool {
        let Some(slot) = self.counters.get_mut(place) else { return false };
        slot.replace((counter.key, U::KIND.batch_mask())).is_none()
    }

    /// Returns whether a place has this counter.
    pub(crate) fn has<U: Unit>(&self, place: usize, counter: Counter<U>) -> bool {
        self.counters.get(place).copied().flatten().is_some_and(|(key, _)| key == counter.key)
    }

    /// Returns what the calling thread has counted.
    #[inline]
    pub(crate) fn counts(&self) -> [u64; THREAD_COUNTS] {
        self.meter.counts()
    }

    /// Returns the counters, with their batch masks, in the order of the counts.
    #[inline]
    pub(crate) fn counters(&self) -> &[Option<(Key, u64)>; THREAD_COUNTS] {
        &self.counters
    }
}

impl fmt::Debug for Metering {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metering").field("counters", &self.counters).finish_non_exhaustive()
    }
}
