//! The levels of a thread: the groups that its guards are in. Guards may end in any order.
//!
//! A level is one stay in a group. The guard that switched to the group starts it. This guard, and
//! guards that entered the same group again while the level was the topmost, keep it alive. Levels
//! form a doubly linked list of slots, so that a level whose guards end before those above it is
//! unlinked at once, with its handle: a thread keeps only what its live guards need, whatever came
//! before.
//!
//! Rejected: handles in the guards, each with its predecessor. A guard cannot reach its successor,
//! which would keep a group that no guard is in any longer; and notes of guards that ended early
//! would add up where each guard is created before the last one ends.

/// The index of a level's slot, which is reused once all guards of the level are gone.
type Slot = u32;

/// The level of no group, which is always below all others.
const BASE: Slot = 0;

/// A guard: the slot of its level, and its number there, starting at 1. Later guards have higher
/// numbers. For a level it is the last guard, with the number 0 if it has none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place(u64);

const NUMBER_BITS: u32 = 6;
const NUMBER: u64 = (1 << NUMBER_BITS) - 1;
/// Marks the guard that began its level, so that it never compares equal to a level's last guard:
/// when the other guards end, only a number changes.
const FIRST: u64 = 1 << 63;

impl Place {
    /// The base level.
    pub(super) const BASE: Place = Place(0);
    /// A guard without effect.
    pub(super) const NOWHERE: Place = Place(u64::MAX);

    #[inline(always)]
    fn slot(self) -> Slot {
        (self.0 >> NUMBER_BITS) as Slot
    }

    #[inline(always)]
    fn number(self) -> u64 {
        self.0 & NUMBER
    }

    /// Returns the guard after this one in its level, if numbers are left.
    #[inline(always)]
    pub(super) fn next(self) -> Option<Place> {
        let next = Place(self.0 + 1);
        (next.number() != 0).then_some(next)
    }

    /// Returns the guard before this one, which must not be the first.
    #[inline(always)]
    pub(super) fn previous(self) -> Place {
        Place(self.0 - 1)
    }

    /// Marks it as the guard that began its level.
    #[inline(always)]
    pub(super) fn as_first(self) -> Place {
        Place(self.0 | FIRST)
    }

    /// Removes that mark, because levels store their guards without it.
    #[inline(always)]
    pub(super) fn in_level(self) -> Place {
        Place(self.0 & !FIRST)
    }

    pub(super) fn is_of(self, level: Place) -> bool {
        self.slot() == level.slot()
    }
}

/// The live guards of a level: all up to the last one, except those that ended early.
#[derive(Clone, Copy, Debug)]
pub(super) struct Guards {
    /// The last live guard.
    pub(super) last: Place,
    /// A bit for each guard before it that ended early.
    pub(super) holes: u64,
}

impl Guards {
    pub(super) const BASE: Guards = Guards { last: Place::BASE, holes: 0 };

    /// Ends one of the guards. Returns the others, if any.
    pub(super) fn without(self, guard: Place) -> Option<Guards> {
        let ended = self.holes | 1 << guard.number();
        let mut last = self.last;
        // Guards that ended early, right before the last one, are forgotten with it.
        while ended >> last.number() & 1 == 1 {
            last = last.previous();
        }
        let holes = ended & ((1 << last.number()) - 1);
        (last.number() > 0).then_some(Guards { last, holes })
    }

    /// Returns how many are alive.
    pub(super) fn len(self) -> u64 {
        self.last.number() - u64::from(self.holes.count_ones())
    }
}

#[derive(Debug)]
struct Level<T> {
    /// `None` for the base, and for a free slot.
    group: Option<T>,
    /// Not valid while the level is the topmost.
    guards: Guards,
    /// Not valid while the level is the topmost.
    above: Slot,
    /// For a free slot, the next free one, or `BASE`.
    below: Slot,
}

/// All levels of a thread.
#[derive(Debug)]
pub(super) struct Levels<T> {
    slots: Slots<T>,
    free: Slot,
}

/// Levels that need no allocation: threads rarely nest deeper, and a switch that does not allocate
/// may run inside an allocator or a signal handler.
const NEAR: usize = 8;

#[derive(Debug)]
struct Slots<T> {
    near: [Level<T>; NEAR],
    /// The slots from `NEAR` on, as many as were ever needed.
    far: Vec<Level<T>>,
}

impl<T> Slots<T> {
    #[inline(always)]
    fn at(&mut self, slot: Slot) -> &mut Level<T> {
        match self.near.get_mut(slot as usize) {
            Some(level) => level,
            None => far_at(&mut self.far, slot),
        }
    }

    #[inline(always)]
    fn get(&self, slot: Slot) -> &Level<T> {
        match self.near.get(slot as usize) {
            Some(level) => level,
            None => far_get(&self.far, slot),
        }
    }

    /// Adds a slot and returns it.
    fn grow(&mut self) -> Slot {
        let slot = Slot::try_from(NEAR + self.far.len()).expect("more guards than fit in memory");
        self.far.push(Level::free(BASE));
        slot
    }
}

#[cold]
#[inline(never)]
fn far_at<T>(far: &mut [Level<T>], slot: Slot) -> &mut Level<T> {
    &mut far[slot as usize - NEAR]
}

#[cold]
#[inline(never)]
fn far_get<T>(far: &[Level<T>], slot: Slot) -> &Level<T> {
    &far[slot as usize - NEAR]
}

impl<T> Level<T> {
    const fn free(next: Slot) -> Level<T> {
        Level { group: None, guards: Guards::BASE, above: BASE, below: next }
    }
}

/// The result of ending the topmost level.
#[derive(Debug)]
pub(super) struct Ended<'a, T> {
    /// The group of the level that ended.
    pub(super) last: Option<T>,
    /// The guards of the new topmost level.
    pub(super) guards: Guards,
    pub(super) group: Option<&'a T>,
}

impl<T> Levels<T> {
    pub(super) const fn new() -> Levels<T> {
        let near = [
            Level::free(BASE),
            Level::free(2),
            Level::free(3),
            Level::free(4),
            Level::free(5),
            Level::free(6),
            Level::free(7),
            Level::free(BASE),
        ];
        Levels { slots: Slots { near, far: Vec::new() }, free: 1 }
    }

    /// Returns the group of a level, given one of its guards.
    #[inline(always)]
    pub(super) fn group(&self, level: Place) -> Option<&T> {
        self.slots.get(level.slot()).group.as_ref()
    }

    /// Replaces the group of a level.
    #[inline(always)]
    pub(super) fn replace(&mut self, level: Place, group: T) -> Option<T> {
        self.slots.at(level.slot()).group.replace(group)
    }

    /// Starts a level above the topmost, whose guards are passed. Returns its first guard and lends
    /// its group. Allocates only when there are more levels than `NEAR`, and more than ever before.
    #[inline(always)]
    pub(super) fn begin(&mut self, top: Guards, group: T) -> (Place, Option<&T>) {
        if self.free == BASE {
            self.grow();
        }
        let slot = self.free;
        let below = self.slots.at(top.last.slot());
        below.above = slot;
        below.guards = top;
        let level = self.slots.at(slot);
        self.free = std::mem::replace(&mut level.below, top.last.slot());
        // The old value is `None`, but a drop would have to check that.
        std::mem::forget(level.group.replace(group));
        (Place(u64::from(slot) << NUMBER_BITS | 1), level.group.as_ref())
    }

    #[cold]
    #[inline(never)]
    fn grow(&mut self) {
        self.free = self.slots.grow();
    }

    /// Ends the topmost level.
    #[inline(always)]
    pub(super) fn end(&mut self, top: Place) -> Ended<'_, T> {
        let level = self.slots.at(top.slot());
        let free = std::mem::replace(&mut self.free, top.slot());
        let (last, slot) = (level.group.take(), std::mem::replace(&mut level.below, free));
        let below = self.slots.get(slot);
        Ended { last, guards: below.guards, group: below.group.as_ref() }
    }

    /// Ends a guard of a level that is not the topmost. Returns the level's handle if this was its
    /// last guard.
    pub(super) fn end_early(&mut self, guard: Place) -> Option<T> {
        let level = self.slots.at(guard.slot());
        if let Some(guards) = level.guards.without(guard) {
            level.guards = guards;
            return None;
        }
        let (above, below, group) = (level.above, level.below, level.group.take());
        level.below = std::mem::replace(&mut self.free, guard.slot());
        self.slots.at(above).below = below;
        self.slots.at(below).above = above;
        group
    }

    /// Returns how many guards are alive below the topmost level.
    pub(super) fn guards_below(&self, top: Place) -> u64 {
        let below = |slot: Slot| Some(self.slots.get(slot).below).filter(|&slot| slot != BASE);
        let slots = std::iter::successors(below(top.slot()), |&slot| below(slot));
        slots.map(|slot| self.slots.get(slot).guards.len()).sum()
    }
}
