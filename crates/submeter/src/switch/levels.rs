//! The levels of a thread: the groups that its guards are in, in whatever order those end.
//!
//! A level is one stay in a group: begun by the guard that switched to it, kept alive by this guard
//! and by those that entered the same group again while it was the topmost. Levels are a doubly
//! linked list of slots, so that one whose guards end before those above it is unlinked at once,
//! with its handle: what a thread keeps follows the guards that are alive, whatever has been.
//!
//! Rejected: handles in the guards, each with its predecessor. A guard cannot reach its successor,
//! which would keep a group that no guard is in any more; and notes of guards that ended early
//! would add up where each is made before the last one ends.

/// Where a level is kept. Reused once all its guards are gone.
type Slot = u32;

/// Of no group, below all others, and always there.
const BASE: Slot = 0;

/// A guard: its level's slot, and its number in the level, from 1 on. Later guards have higher
/// numbers. Of a level: its last guard, and of one that has none, the number 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place(u64);

const NUMBER_BITS: u32 = 6;
const NUMBER: u64 = (1 << NUMBER_BITS) - 1;
/// Marks what the guard holds that began its level, so that it is no level's last guard by
/// comparison: when the others end, nothing but a number changes.
const FIRST: u64 = 1 << 63;

impl Place {
    /// The base level's.
    pub(super) const BASE: Place = Place(0);
    /// Of a guard without effect.
    pub(super) const NOWHERE: Place = Place(u64::MAX);

    #[inline(always)]
    fn slot(self) -> Slot {
        (self.0 >> NUMBER_BITS) as Slot
    }

    #[inline(always)]
    fn number(self) -> u64 {
        self.0 & NUMBER
    }

    /// Returns the guard after this one in its level, if that has numbers left.
    #[inline(always)]
    pub(super) fn next(self) -> Option<Place> {
        let next = Place(self.0 + 1);
        (next.number() != 0).then_some(next)
    }

    /// Returns the guard before this one, which is not the first.
    #[inline(always)]
    pub(super) fn previous(self) -> Place {
        Place(self.0 - 1)
    }

    /// What the guard holds that begins a level, by what the level has.
    #[inline(always)]
    pub(super) fn as_first(self) -> Place {
        Place(self.0 | FIRST)
    }

    /// What the level has of a guard, by what that holds.
    #[inline(always)]
    pub(super) fn in_level(self) -> Place {
        Place(self.0 & !FIRST)
    }

    pub(super) fn is_of(self, level: Place) -> bool {
        self.slot() == level.slot()
    }
}

/// The guards of a level that are alive: all up to the last one, but for those that ended before
/// it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Guards {
    /// Not ended early itself.
    pub(super) last: Place,
    /// Guards before it that ended early, a bit for each.
    pub(super) holes: u64,
}

impl Guards {
    pub(super) const BASE: Guards = Guards { last: Place::BASE, holes: 0 };

    /// Ends one of the guards. Returns what is left, if any is.
    pub(super) fn without(self, guard: Place) -> Option<Guards> {
        let ended = self.holes | 1 << guard.number();
        let mut last = self.last;
        // The guards that ended before the last one do so with it.
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
    /// `None` of the base, and of one that is free.
    group: Option<T>,
    /// Of no meaning while it is the topmost.
    guards: Guards,
    /// As `guards`.
    above: Slot,
    /// Of a free one: the next that is free, or `BASE`.
    below: Slot,
}

/// All levels of a thread.
#[derive(Debug)]
pub(super) struct Levels<T> {
    slots: Slots<T>,
    free: Slot,
}

/// Levels in place of a pointer to them: threads seldom nest deeper, and a switch that allocates
/// nothing may be in a handler or an allocator.
const NEAR: usize = 8;

#[derive(Debug)]
struct Slots<T> {
    near: [Level<T>; NEAR],
    /// From slot `NEAR` on. Grows to the most levels that there ever were.
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

    /// Makes a slot; returns it.
    fn grow(&mut self) -> Slot {
        let slot = Slot::try_from(NEAR + self.far.len()).expect("as many guards have no room");
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

/// What follows the end of the topmost level.
#[derive(Debug)]
pub(super) struct Ended<'a, T> {
    /// The group of the one that ended.
    pub(super) last: Option<T>,
    /// Of the topmost one now.
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

    /// Returns the group of a level, by a guard of it.
    #[inline(always)]
    pub(super) fn group(&self, level: Place) -> Option<&T> {
        self.slots.get(level.slot()).group.as_ref()
    }

    /// Puts another group in the place of a level's.
    #[inline(always)]
    pub(super) fn replace(&mut self, level: Place, group: T) -> Option<T> {
        self.slots.at(level.slot()).group.replace(group)
    }

    /// Begins a level above the topmost, of which these are the guards; returns its first guard and
    /// lends its group. Allocates where levels are more than a few, and more than there ever were.
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
        // What is there is `None`, which a drop would have to find out.
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

    /// Ends a guard of a level that is not the topmost. Returns the level's handle if it was the
    /// last.
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
