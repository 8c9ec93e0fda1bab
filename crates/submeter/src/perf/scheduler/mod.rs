//! Which event groups are on counters.

mod attached;
mod few;
mod index;
mod lines;

use std::fmt;

use super::event::EventGroup;
use super::pmu::{Handle, NotSupported, Pmu};
use super::published::Published;
use crate::group::Group;
use crate::path::DEPTH_MAX;
use attached::Attached;
use lines::{EVERYWHERE, LineId, Lines};

/// Names a group of the tree to a [`Scheduler`]: any number, as long as no two groups share it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GroupKey(pub u64);

impl GroupKey {
    /// Returns the key of a group: no other group of the process ever has it, in whatever tree.
    #[inline]
    #[must_use]
    pub fn of(group: &Group) -> GroupKey {
        GroupKey(group.id())
    }

    /// Fills `chain` with the keys of `group` and of its ancestors, the root last. Allocates nothing, if `chain` has room.
    #[inline]
    pub fn chain_of(group: &Group, chain: &mut Vec<GroupKey>) {
        chain.clear();
        let mut next = Some(group);
        while let Some(group) = next {
            chain.push(GroupKey::of(group));
            next = group.parent();
        }
    }
}

/// Says for whom an event group counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scope {
    /// For whatever the thread does.
    Everywhere,
    /// While the thread is in this group, or in one below it.
    Group(GroupKey),
}

/// Says what an event group does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum State {
    /// It is on no counter: its group is not the thread's, or it waits for its turn.
    Inactive,
    /// It counts.
    Active,
    /// It is pinned and found no counter, or it lost one. Its counts are worthless: they miss something, and nobody
    /// knows what.
    Error,
}

/// What an event group has counted.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counts {
    /// What it does.
    pub state: State,
    /// What each event has counted.
    pub values: Vec<u64>,
    /// How long it could have counted.
    pub enabled_ns: u64,
    /// How long of that it did.
    pub running_ns: u64,
}

impl Counts {
    /// Estimates what event `index` would have counted, had it always been on a counter. `None` if it never was, or is in
    /// error: `<not counted>`, which is not 0.
    #[must_use]
    pub fn scaled(&self, index: usize) -> Option<u64> {
        if self.state == State::Error {
            return None;
        }
        scale(*self.values.get(index)?, self.enabled_ns, self.running_ns)
    }
}

/// What `value` would have been, had it always been counted; `None` if it never was.
pub(super) fn scale(value: u64, enabled_ns: u64, running_ns: u64) -> Option<u64> {
    // A clock may stand still for a moment in which much happens, and that was counted.
    if value > 0 && enabled_ns == running_ns {
        return Some(value);
    }
    let scaled = u128::from(value) * u128::from(enabled_ns);
    let scaled = scaled.checked_div(u128::from(running_ns))?;
    Some(u64::try_from(scaled).unwrap_or(u64::MAX))
}

/// Names an event group that was attached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct EventGroupId {
    slot: u32,
    /// Which of those that had the slot.
    generation: u32,
}

/// Schedules the events of one thread. See [`perf`](crate::perf) for the rules.
///
/// Every call takes the time: of a clock that stands still while the thread does not run, so that *enabled* and
/// *running* are of the thread's own time.
///
/// # Differences from Linux
/// Rotation is asked for, not timed: whoever has a timer calls [`rotate`](Scheduler::rotate). A [`Session`](super::Session)
/// asks at a switch, when perf's interval has passed.
pub struct Scheduler<P> {
    pmu: P,
    slots: Vec<Slot>,
    free: Vec<u32>,
    lines: Lines,
    /// The thread's group and its ancestors, the root first.
    chain: Vec<Link>,
    /// The groups that are being entered, the thread's group first. Kept, so that a switch allocates nothing.
    entering: Vec<GroupKey>,
    /// How many turns there were: see [`turn`](Scheduler::turn).
    turns: u64,
    /// Whether a group is entered that missed a turn.
    late: bool,
}

/// Two lines of the cache: a switch among many groups misses each that it touches.
#[derive(Debug)]
#[repr(align(64))]
struct Slot {
    generation: u32,
    attached: Option<Attached>,
}

/// One group of the current chain.
#[derive(Clone, Copy, Debug)]
struct Link {
    group: GroupKey,
    line: Option<LineId>,
}

/// The groups of a chain, the root included.
const CHAIN_MAX: usize = DEPTH_MAX + 1;

impl<P: Pmu> Scheduler<P> {
    /// Makes a scheduler without events, for a thread that is in no group.
    #[must_use]
    pub fn new(pmu: P) -> Scheduler<P> {
        let mut lines = Lines::new();
        lines.reserve_walk(CHAIN_MAX + 1);
        Scheduler {
            pmu,
            slots: Vec::new(),
            free: Vec::new(),
            lines,
            chain: Vec::with_capacity(CHAIN_MAX),
            entering: Vec::with_capacity(CHAIN_MAX),
            turns: 0,
            late: false,
        }
    }

    /// Attaches an event group. It counts at once if `scope` holds for the thread and there are counters.
    ///
    /// # Errors
    /// When one of its events cannot be counted here: then none is attached.
    pub fn attach(
        &mut self,
        scope: Scope,
        group: &EventGroup,
        now_ns: u64,
    ) -> Result<EventGroupId, NotSupported> {
        self.attach_published(scope, group, None, now_ns)
    }

    /// As [`attach`](Scheduler::attach). What it counts is made known to other threads: by each switch that takes it off,
    /// and by [`publish`](Scheduler::publish).
    pub(super) fn attach_published(
        &mut self,
        scope: Scope,
        group: &EventGroup,
        published: Option<Published>,
        now_ns: u64,
    ) -> Result<EventGroupId, NotSupported> {
        self.pmu.begin(now_ns);
        let handles = self.prepare(group)?;
        let hardware = group.events().iter().any(|event| event.kind().needs_counter());
        let mut attached = Attached::new(scope, group.is_pinned(), hardware, handles);
        attached.published = published;
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot { generation: 0, attached: None });
            (self.slots.len() - 1) as u32
        });
        self.slots[slot as usize].attached = Some(attached);
        let line = self.lines.push(scope, group.is_pinned(), hardware, slot);
        let current = match scope {
            Scope::Everywhere => true,
            Scope::Group(group) => match self.chain.iter_mut().find(|link| link.group == group) {
                Some(link) => {
                    link.line = Some(line);
                    true
                }
                None => false,
            },
        };
        if current {
            self.attached(slot).enable(now_ns);
            self.remove_flexible(now_ns);
            if group.is_pinned() {
                self.place_pinned(slot, now_ns);
            }
            self.place_flexible(0, true, now_ns);
        }
        Ok(EventGroupId { slot, generation: self.slots[slot as usize].generation })
    }

    /// Takes an event group away and returns what it has counted; `None` if it was taken before. Its counters go
    /// to whoever's turn is next.
    pub fn detach(&mut self, id: EventGroupId, now_ns: u64) -> Option<Counts> {
        let slot = self.slots.get_mut(id.slot as usize)?;
        let mut attached = slot.attached.take_if(|_| slot.generation == id.generation)?;
        slot.generation = slot.generation.wrapping_add(1);
        self.pmu.begin(now_ns);
        attached.remove(&mut self.pmu, now_ns);
        attached.disable(now_ns);
        attached.release(&mut self.pmu);
        self.free.push(id.slot);
        if self.lines.take(attached.scope, attached.hardware, id.slot) {
            // The line may be another group's soon.
            let mine = |link: &&mut Link| Scope::Group(link.group) == attached.scope;
            if let Some(link) = self.chain.iter_mut().find(mine) {
                link.line = None;
            }
        }
        Some(attached.counts(&mut self.pmu, now_ns))
    }

    /// Makes the first of `chain` the thread's group; its ancestors follow, the root last. An empty chain is none.
    ///
    /// Nothing happens if that is the group already. Otherwise only events of the groups that are left and entered are touched:
    /// not those of common ancestors, and not those for all, unless a group that is entered has pinned ones.
    ///
    /// # Panics
    /// When the chain has more than 65 groups: a tree has no more levels.
    pub fn switch(&mut self, chain: &[GroupKey], now_ns: u64) {
        if self.chain.last().map(|link| link.group) == chain.first().copied() {
            return;
        }
        assert!(chain.len() <= CHAIN_MAX, "a chain of {} groups: 65 are the most", chain.len());
        let both = self.chain.iter().zip(chain.iter().rev());
        let common = both.take_while(|(link, group)| link.group == **group).count();
        self.entering.clear();
        self.entering.extend_from_slice(&chain[..chain.len() - common]);
        self.change(common, now_ns);
    }

    /// As [`switch`](Scheduler::switch), to a group of the tree that has `root`; any other group is as none. Climbs no
    /// further than to what both groups have in common: their number is the depth at which that can be.
    #[inline]
    pub(super) fn switch_to(&mut self, group: Option<&Group>, root: GroupKey, now_ns: u64) {
        self.entering.clear();
        let (mut common, mut next) = (0, group);
        while let Some(group) = next {
            let (key, depth) = (GroupKey::of(group), group.depth());
            if self.chain.get(depth).is_some_and(|link| link.group == key) {
                common = depth + 1;
                break;
            }
            self.entering.push(key);
            next = group.parent();
        }
        if common == 0 && self.entering.last() != Some(&root) {
            self.entering.clear();
        }
        self.change(common, now_ns);
    }

    /// Leaves all groups but the first `common` of the chain, and enters those of `entering`.
    fn change(&mut self, common: usize, now_ns: u64) {
        self.pmu.begin(now_ns);
        for at in (common..self.chain.len()).rev() {
            self.leave(at, now_ns);
        }
        self.chain.truncate(common);
        let (mut lines, mut last, mut contend) = (0, EVERYWHERE, false);
        while let Some(group) = self.entering.pop() {
            let line = self.lines.find(group);
            self.chain.push(Link { group, line });
            if let Some(line) = line {
                self.late |= self.lines.take_turn(line, self.turns);
                contend |= self.lines.line(line).contends();
                (lines, last) = (lines + 1, line);
            }
        }
        match lines {
            0 => {}
            1 if self.lines.line(last).pinned.is_empty() => self.enter_line(last, now_ns),
            _ if !contend => self.enter_each(common, now_ns),
            _ => self.enter_lines(common, now_ns),
        }
        if std::mem::take(&mut self.late) {
            self.rotate(now_ns);
        }
    }

    /// Lets another flexible event group be first, if any waits for a counter and the first has counted since it came
    /// to its turn. Returns whether any waited.
    ///
    /// Of `k` flexible event groups each is first once in `k` calls, and then counts, if the counters that pinned
    /// ones leave are enough for it. One that is first stays so until it has counted for some time, so that none
    /// is passed over because its group is always left at the wrong moment.
    pub fn rotate(&mut self, now_ns: u64) -> bool {
        self.walk(0, true);
        let mut waiting = false;
        while let Some(slot) = self.lines.next(false) {
            waiting |= self.attached(slot).state == State::Inactive;
        }
        if !waiting {
            return false;
        }
        self.pmu.begin(now_ns);
        self.remove_flexible(now_ns);
        if self.first().is_some_and(|first| first.had_its_turn()) {
            self.send_first_to_end();
        }
        self.place_flexible(0, true, now_ns);
        if self.first().is_some_and(|first| first.state != State::Active) {
            // No turn helps it: there are too few counters.
            self.remove_flexible(now_ns);
            self.send_first_to_end();
            self.place_flexible(0, true, now_ns);
        }
        true
    }

    /// Rotates the events of the current groups, and of any other group when it is next entered.
    ///
    /// To be called as often as perf rotates. [`rotate`](Scheduler::rotate) alone would starve groups that are never
    /// the current ones when it is called: those that are left soon, beside others that are not.
    pub(super) fn turn(&mut self, now_ns: u64) {
        self.turns += 1;
        for link in &self.chain {
            if let Some(line) = link.line {
                self.lines.take_turn(line, self.turns);
            }
        }
        self.rotate(now_ns);
    }

    /// Makes known what the current groups and all groups together have counted until now.
    pub(super) fn publish(&mut self, now_ns: u64) {
        self.pmu.begin(now_ns);
        for line in self.chain.iter().filter_map(|link| link.line).chain([EVERYWHERE]) {
            for place in self.lines.line(line).all() {
                if let Some(attached) = &mut self.slots[place.slot as usize].attached {
                    attached.publish_running(&mut self.pmu, now_ns);
                }
            }
        }
    }

    /// Returns what an event group has counted so far, `None` if it is not attached any more.
    pub fn counts(&mut self, id: EventGroupId, now_ns: u64) -> Option<Counts> {
        let slot = self.slots.get(id.slot as usize)?;
        let attached = slot.attached.as_ref().filter(|_| slot.generation == id.generation)?;
        self.pmu.begin(now_ns);
        Some(attached.counts(&mut self.pmu, now_ns))
    }

    /// Returns how many groups have events.
    #[must_use]
    pub fn groups(&self) -> usize {
        self.lines.groups()
    }

    /// Returns the counters.
    pub fn pmu(&self) -> &P {
        &self.pmu
    }

    /// Returns the counters, to be told something. What is placed must stay so.
    pub fn pmu_mut(&mut self) -> &mut P {
        &mut self.pmu
    }

    fn prepare(&mut self, group: &EventGroup) -> Result<Box<[Handle]>, NotSupported> {
        if let Some(error) = NotSupported::empty(group) {
            return Err(error);
        }
        let mut handles = Vec::with_capacity(group.events().len());
        for event in group.events() {
            match self.pmu.prepare(event) {
                Ok(handle) => handles.push(handle),
                Err(error) => {
                    handles.into_iter().for_each(|handle| self.pmu.release(handle));
                    return Err(error);
                }
            }
        }
        Ok(handles.into_boxed_slice())
    }

    /// Takes the events of the chain's group `at` off their counters.
    #[inline]
    fn leave(&mut self, at: usize, now_ns: u64) {
        let Some(line) = self.chain[at].line else { return };
        for place in self.lines.line(line).all() {
            if let Some(attached) = &mut self.slots[place.slot as usize].attached {
                attached.remove(&mut self.pmu, now_ns);
                attached.disable(now_ns);
                attached.publish();
            }
        }
    }

    /// As [`enter_lines`](Scheduler::enter_lines), where no event wants what another could take from it: then there is
    /// no order to keep among lines.
    #[inline]
    fn enter_each(&mut self, from: usize, now_ns: u64) {
        for at in from..self.chain.len() {
            if let Some(line) = self.chain[at].line {
                self.enter_line(line, now_ns);
            }
        }
    }

    /// Enters the groups of the chain from `from` on.
    #[inline(never)]
    fn enter_lines(&mut self, from: usize, now_ns: u64) {
        let mut pinned = false;
        for at in from..self.chain.len() {
            if let Some(line) = self.chain[at].line {
                pinned |= self.enable(line, now_ns);
            }
        }
        if pinned {
            self.remove_flexible(now_ns);
            self.walk(from, false);
            while let Some(slot) = self.lines.next(true) {
                self.place_pinned(slot, now_ns);
            }
            self.place_flexible(0, true, now_ns);
        } else {
            self.place_flexible(from, false, now_ns);
        }
    }

    /// As [`enter_lines`](Scheduler::enter_lines), where one group only has events, and none is pinned: there is
    /// nothing to merge and nobody to leave.
    #[inline]
    fn enter_line(&mut self, line: LineId, now_ns: u64) {
        let mut full = false;
        for place in &self.lines.line(line).flexible {
            if let Some(attached) = &mut self.slots[place.slot as usize].attached {
                attached.enable(now_ns);
                full |= !attached.place_unless(full, &mut self.pmu, now_ns);
            }
        }
    }

    /// Lets the time run for the events of `line`. Returns whether pinned ones are to be placed.
    fn enable(&mut self, line: LineId, now_ns: u64) -> bool {
        let mut pinned = false;
        for place in self.lines.line(line).all() {
            if let Some(attached) = &mut self.slots[place.slot as usize].attached {
                attached.enable(now_ns);
                pinned |= attached.pinned && attached.state != State::Error;
            }
        }
        pinned
    }

    /// Takes all flexible events off, those for all groups included.
    fn remove_flexible(&mut self, now_ns: u64) {
        let lines = self.chain.iter().filter_map(|link| link.line).chain([EVERYWHERE]);
        for line in lines {
            for place in &self.lines.line(line).flexible {
                if let Some(attached) = &mut self.slots[place.slot as usize].attached {
                    attached.remove(&mut self.pmu, now_ns);
                }
            }
        }
    }

    fn place_pinned(&mut self, slot: u32, now_ns: u64) {
        let Some(attached) = &mut self.slots[slot as usize].attached else { return };
        if attached.state == State::Inactive && !attached.place(&mut self.pmu, now_ns) {
            attached.fail(now_ns);
        }
    }

    /// Places the flexible events of the chain's groups from `from` on, and those for all, in their order. Once one that needs
    /// counters found none, no other such is tried: a small one would keep a large one from its turn for ever.
    fn place_flexible(&mut self, from: usize, everywhere: bool, now_ns: u64) {
        self.walk(from, everywhere);
        let mut full = false;
        while let Some(slot) = self.lines.next(false) {
            if let Some(attached) = &mut self.slots[slot as usize].attached {
                full |= !attached.place_unless(full, &mut self.pmu, now_ns);
            }
        }
    }

    /// Returns the flexible event group of the current ones that is first.
    fn first(&mut self) -> Option<&mut Attached> {
        self.walk(0, true);
        let slot = self.lines.next(false)?;
        Some(self.attached(slot))
    }

    fn send_first_to_end(&mut self) {
        if let Some(first) = self.first() {
            first.end_turn();
        }
        let lines = self.chain.iter().filter_map(|link| link.line);
        self.lines.send_first_to_end(lines.chain([EVERYWHERE]));
    }

    /// Begins a walk over the chain's groups from `from` on, and over what is for all.
    fn walk(&mut self, from: usize, everywhere: bool) {
        let chain = self.chain.iter().skip(from).filter_map(|link| link.line);
        self.lines.walk(chain.chain(everywhere.then_some(EVERYWHERE)));
    }

    fn attached(&mut self, slot: u32) -> &mut Attached {
        let attached = self.slots[slot as usize].attached.as_mut();
        attached.expect("a slot in a line is attached: `detach` takes it from both")
    }
}

impl<P: fmt::Debug> fmt::Debug for Scheduler<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let chain: Vec<_> = self.chain.iter().rev().map(|link| link.group).collect();
        f.debug_struct("Scheduler")
            .field("pmu", &self.pmu)
            .field("chain", &chain)
            .field("groups", &self.lines.groups())
            .finish_non_exhaustive()
    }
}

#[cfg(all(test, target_pointer_width = "64"))]
mod tests {
    use super::*;

    // A test, and no assertion of the program: another compiler may lay them out otherwise, and they work as well.
    #[test]
    fn what_a_switch_touches_of_a_group_is_as_long_as_said() {
        assert_eq!((size_of::<Slot>(), size_of::<lines::Line>()), (128, 64));
    }
}
