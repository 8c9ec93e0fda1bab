//! Decides which event groups are on counters.

mod attached;
mod queues;
#[cfg(test)]
mod tests;

use std::fmt;

use crate::event::EventGroup;
use crate::pmu::{Handle, NotSupportedError, Pmu};
use crate::published::Published;
use attached::AttachedEvents;
use queues::{EVERYWHERE, EventQueues, QueueId};

/// The key of a group of the tree in a [`Scheduler`]: any number, as long as no two groups share
/// it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GroupKey(pub u64);

/// The groups that an event group counts for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scope {
    /// Everything that the thread does.
    Everywhere,
    /// The time while the thread is in this group or a descendant.
    Group(GroupKey),
}

/// The state of an event group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum State {
    /// It is not on counters: its group is not the thread's, or it waits for its turn.
    Inactive,
    /// It counts.
    Active,
    /// It is pinned and found no counter, or it lost one. Its counts are unusable, because an
    /// unknown amount is missing.
    Error,
}

/// The counts of an event group.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counts {
    /// Its state.
    pub state: State,
    /// The count of each event.
    pub values: Vec<u64>,
    /// How long it could have counted.
    pub enabled_ns: u64,
    /// How long of that time it did count.
    pub running_ns: u64,
}

impl Counts {
    /// Estimates what event `index` would have counted if it had always been on a counter. `None`
    /// if it never was, or is in error: that is `<not counted>`, not 0.
    #[must_use]
    pub fn scaled(&self, index: usize) -> Option<u64> {
        if self.state == State::Error {
            return None;
        }
        scale(*self.values.get(index)?, self.enabled_ns, self.running_ns)
    }
}

/// Returns what `value` would have been if it had always been counted; `None` if it never was.
#[must_use]
pub fn scale(value: u64, enabled_ns: u64, running_ns: u64) -> Option<u64> {
    // A coarse clock may show no time for an interval in which events were counted.
    if value > 0 && enabled_ns == running_ns {
        return Some(value);
    }
    let scaled = u128::from(value) * u128::from(enabled_ns);
    let scaled = scaled.checked_div(u128::from(running_ns))?;
    Some(u64::try_from(scaled).unwrap_or(u64::MAX))
}

/// The key of an attached event group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct EventGroupId {
    slot: u32,
    /// Tells the successive event groups in the slot apart.
    generation: u32,
}

/// A scheduler of one thread's events. The [crate](crate) has the rules.
///
/// Every call takes the time of a clock that stands still while the thread does not run, so that
/// *enabled* and *running* are in the thread's own time.
///
/// # Examples
/// ```
/// use submeter_events::{GroupKey, Scheduler, Scope, SimulatedPmu, parse};
///
/// let mut events = Scheduler::new(SimulatedPmu::new(2));
/// let [cycles] = &parse("{cycles,instructions}")?[..] else { panic!("one event group") };
/// let web = GroupKey(1);
/// let id = events.attach(Scope::Group(web), cycles, 0)?;
///
/// events.switch(&[web], 10);
/// events.pmu_mut().count(cycles.events()[0].kind(), 500);
/// events.switch(&[], 30);
/// let counts = events.counts(id, 30).expect("attached");
/// assert_eq!((counts.values[0], counts.running_ns), (500, 20));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Differences from Linux
/// There is no timer: a caller that has one calls [`rotate`](Scheduler::rotate). A
/// session of `submeter` does so at a switch once perf's interval has passed.
pub struct Scheduler<P> {
    pmu: P,
    slots: Vec<EventSlot>,
    free: Vec<u32>,
    queues: EventQueues,
    /// The thread's group and its ancestors, the root first.
    chain: Vec<Link>,
    /// The groups that are being entered, the thread's group first. Kept, so that a switch
    /// allocates nothing.
    entering: Vec<GroupKey>,
    /// The number of turns so far: see [`turn`](Scheduler::turn).
    turns: u64,
    /// Whether a group being entered has missed a turn.
    late: bool,
}

/// Two cache lines: a switch among many groups misses on each line that it touches.
#[derive(Debug)]
#[repr(align(64))]
struct EventSlot {
    generation: u32,
    attached: Option<AttachedEvents>,
}

/// One group of the current chain.
#[derive(Clone, Copy, Debug)]
struct Link {
    group: GroupKey,
    queue: Option<QueueId>,
}

/// Maximum number of groups in a chain, including the root: a tree of `submeter` has 64 levels
/// below it.
const CHAIN_MAX: usize = 65;

impl<P: Pmu> Scheduler<P> {
    /// Creates a scheduler without events, for a thread that is in no group.
    #[must_use]
    pub fn new(pmu: P) -> Scheduler<P> {
        let mut queues = EventQueues::new();
        queues.reserve_walk(CHAIN_MAX + 1);
        Scheduler {
            pmu,
            slots: Vec::new(),
            free: Vec::new(),
            queues,
            chain: Vec::with_capacity(CHAIN_MAX),
            entering: Vec::with_capacity(CHAIN_MAX),
            turns: 0,
            late: false,
        }
    }

    /// Attaches an event group. It counts at once if the thread is in `scope` and there are
    /// counters.
    ///
    /// # Errors
    /// When one of its events cannot be counted here; then nothing is attached.
    pub fn attach(
        &mut self,
        scope: Scope,
        group: &EventGroup,
        now_ns: u64,
    ) -> Result<EventGroupId, NotSupportedError> {
        self.attach_published(scope, group, None, now_ns)
    }

    /// Like [`attach`](Scheduler::attach), but its counts are published for other threads by each
    /// switch that takes it off, and by [`publish`](Scheduler::publish).
    pub fn attach_published(
        &mut self,
        scope: Scope,
        group: &EventGroup,
        published: Option<Published>,
        now_ns: u64,
    ) -> Result<EventGroupId, NotSupportedError> {
        self.pmu.begin(now_ns);
        let handles = self.prepare(group)?;
        let hardware = group.events().iter().any(|event| event.kind().needs_counter());
        let mut attached = AttachedEvents::new(scope, group.is_pinned(), hardware, handles);
        attached.published = published;
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(EventSlot { generation: 0, attached: None });
            (self.slots.len() - 1) as u32
        });
        self.slots[slot as usize].attached = Some(attached);
        let queue = self.queues.push(scope, group.is_pinned(), hardware, slot);
        let current = match scope {
            Scope::Everywhere => true,
            Scope::Group(group) => match self.chain.iter_mut().find(|link| link.group == group) {
                Some(link) => {
                    link.queue = Some(queue);
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

    /// Detaches an event group and returns its counts; `None` if it was detached before. Its
    /// counters go to the event groups whose turn is next.
    pub fn detach(&mut self, id: EventGroupId, now_ns: u64) -> Option<Counts> {
        let slot = self.slots.get_mut(id.slot as usize)?;
        let mut attached = slot.attached.take_if(|_| slot.generation == id.generation)?;
        slot.generation = slot.generation.wrapping_add(1);
        self.pmu.begin(now_ns);
        attached.remove(&mut self.pmu, now_ns);
        attached.disable(now_ns);
        attached.release(&mut self.pmu);
        self.free.push(id.slot);
        if self.queues.take(attached.scope, attached.hardware, id.slot) {
            // The queue may soon be reused for another group.
            let mine = |link: &&mut Link| Scope::Group(link.group) == attached.scope;
            if let Some(link) = self.chain.iter_mut().find(mine) {
                link.queue = None;
            }
        }
        Some(attached.counts(&mut self.pmu, now_ns))
    }

    /// Makes the first of `chain` the thread's group; the rest are its ancestors, the root last.
    /// With an empty chain the thread is in no group.
    ///
    /// Does nothing if that is already the group. Otherwise touches only events of the groups that
    /// are left and entered: not those of common ancestors, and not those for all groups, unless an
    /// entered group has pinned ones.
    ///
    /// # Panics
    /// When the chain has more than 65 groups, which is more than a tree has levels.
    pub fn switch(&mut self, chain: &[GroupKey], now_ns: u64) {
        if self.chain.last().map(|link| link.group) == chain.first().copied() {
            return;
        }
        assert!(
            chain.len() <= CHAIN_MAX,
            "a chain of {} groups: at most 65 are allowed",
            chain.len()
        );
        let both = self.chain.iter().zip(chain.iter().rev());
        let common = both.take_while(|(link, group)| link.group == **group).count();
        self.entering.clear();
        self.entering.extend_from_slice(&chain[..chain.len() - common]);
        self.change(common, now_ns);
    }

    /// Like [`switch`](Scheduler::switch), along a `path` from the thread's group up, each group
    /// with its depth. A path that does not end in `root` counts as none. It is followed only up to
    /// the first common ancestor, which is found by comparing groups of equal depth.
    ///
    /// # Panics
    /// When the path has more than 65 groups.
    #[inline]
    pub fn switch_along(
        &mut self,
        path: impl Iterator<Item = (GroupKey, usize)>,
        root: GroupKey,
        now_ns: u64,
    ) {
        self.entering.clear();
        let mut common = 0;
        for (key, depth) in path {
            if self.chain.get(depth).is_some_and(|link| link.group == key) {
                common = depth + 1;
                break;
            }
            self.entering.push(key);
        }
        assert!(self.entering.len() <= CHAIN_MAX, "a path of more than 65 groups");
        if common == 0 && self.entering.last() != Some(&root) {
            self.entering.clear();
        }
        self.change(common, now_ns);
    }

    /// Leaves all groups except the first `common` of the chain, and enters those of `entering`.
    fn change(&mut self, common: usize, now_ns: u64) {
        self.pmu.begin(now_ns);
        for at in (common..self.chain.len()).rev() {
            self.leave(at, now_ns);
        }
        self.chain.truncate(common);
        let (mut queues, mut last, mut contend) = (0, EVERYWHERE, false);
        while let Some(group) = self.entering.pop() {
            let queue = self.queues.find(group);
            self.chain.push(Link { group, queue });
            if let Some(queue) = queue {
                self.late |= self.queues.take_turn(queue, self.turns);
                contend |= self.queues.queue(queue).contends();
                (queues, last) = (queues + 1, queue);
            }
        }
        match queues {
            0 => {}
            1 if self.queues.queue(last).pinned.is_empty() => self.enter_queue(last, now_ns),
            _ if !contend => self.enter_each(common, now_ns),
            _ => self.enter_queues(common, now_ns),
        }
        if std::mem::take(&mut self.late) {
            self.rotate(now_ns);
        }
        debug_assert!(self.counts_for_the_chain_alone(), "a group that was left is still counted");
    }

    /// Returns whether everything on counters belongs to the chain's groups, or to all groups.
    fn counts_for_the_chain_alone(&self) -> bool {
        let current = |scope| match scope {
            Scope::Group(key) => self.chain.iter().any(|link| link.group == key),
            Scope::Everywhere => true,
        };
        let attached = self.slots.iter().filter_map(|slot| slot.attached.as_ref());
        attached.filter(|events| events.state == State::Active).all(|events| current(events.scope))
    }

    /// Makes another flexible event group the first one, if any waits for a counter and the current
    /// first one has counted during its turn. Returns whether any waited.
    ///
    /// Each of `k` flexible event groups is first once in `k` calls, and then counts if the
    /// counters left over by pinned ones suffice for it. The first one keeps its turn until it has
    /// counted for some time, so that none is skipped because its group is always left at the wrong
    /// moment.
    pub fn rotate(&mut self, now_ns: u64) -> bool {
        self.walk(0, true);
        let mut waiting = false;
        while let Some(slot) = self.queues.next(false) {
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
            // A turn does not help it, because there are too few counters.
            self.remove_flexible(now_ns);
            self.send_first_to_end();
            self.place_flexible(0, true, now_ns);
        }
        true
    }

    /// Rotates the events of the current groups, and of any other group when it is next entered.
    ///
    /// Should be called as often as perf rotates. [`rotate`](Scheduler::rotate) alone would starve
    /// groups that are never current when it is called, such as those that are always left quickly.
    pub fn turn(&mut self, now_ns: u64) {
        self.turns += 1;
        for link in &self.chain {
            if let Some(queue) = link.queue {
                self.queues.take_turn(queue, self.turns);
            }
        }
        self.rotate(now_ns);
    }

    /// Publishes the counts so far of the current groups, and of events for all groups.
    pub fn publish(&mut self, now_ns: u64) {
        self.pmu.begin(now_ns);
        for queue in self.chain.iter().filter_map(|link| link.queue).chain([EVERYWHERE]) {
            for place in self.queues.queue(queue).all() {
                if let Some(attached) = &mut self.slots[place.slot as usize].attached {
                    attached.publish_running(&mut self.pmu, now_ns);
                }
            }
        }
    }

    /// Returns the counts of an event group so far; `None` if it is no longer attached.
    pub fn counts(&mut self, id: EventGroupId, now_ns: u64) -> Option<Counts> {
        let slot = self.slots.get(id.slot as usize)?;
        let attached = slot.attached.as_ref().filter(|_| slot.generation == id.generation)?;
        self.pmu.begin(now_ns);
        Some(attached.counts(&mut self.pmu, now_ns))
    }

    /// Returns how many groups have events.
    #[must_use]
    pub fn groups(&self) -> usize {
        self.queues.groups()
    }

    /// Returns the counters.
    pub fn pmu(&self) -> &P {
        &self.pmu
    }

    /// Borrows the counters for configuration. Placed events must stay placed.
    pub fn pmu_mut(&mut self) -> &mut P {
        &mut self.pmu
    }

    fn prepare(&mut self, group: &EventGroup) -> Result<Box<[Handle]>, NotSupportedError> {
        if let Some(error) = NotSupportedError::empty(group) {
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
        let Some(queue) = self.chain[at].queue else { return };
        for place in self.queues.queue(queue).all() {
            if let Some(attached) = &mut self.slots[place.slot as usize].attached {
                attached.remove(&mut self.pmu, now_ns);
                attached.disable(now_ns);
                attached.publish();
            }
        }
    }

    /// Like [`enter_queues`](Scheduler::enter_queues), for events that do not compete for counters,
    /// so that the order among queues does not matter.
    #[inline]
    fn enter_each(&mut self, from: usize, now_ns: u64) {
        for at in from..self.chain.len() {
            if let Some(queue) = self.chain[at].queue {
                self.enter_queue(queue, now_ns);
            }
        }
    }

    /// Enters the groups of the chain from `from` on.
    #[inline(never)]
    fn enter_queues(&mut self, from: usize, now_ns: u64) {
        let mut pinned = false;
        for at in from..self.chain.len() {
            if let Some(queue) = self.chain[at].queue {
                pinned |= self.enable(queue, now_ns);
            }
        }
        if pinned {
            self.remove_flexible(now_ns);
            self.walk(from, false);
            while let Some(slot) = self.queues.next(true) {
                self.place_pinned(slot, now_ns);
            }
            self.place_flexible(0, true, now_ns);
        } else {
            self.place_flexible(from, false, now_ns);
        }
    }

    /// Like [`enter_queues`](Scheduler::enter_queues), if only one group has events and none is
    /// pinned: there is nothing to merge and nothing to take off.
    #[inline]
    fn enter_queue(&mut self, queue: QueueId, now_ns: u64) {
        let mut full = false;
        for place in &self.queues.queue(queue).flexible {
            if let Some(attached) = &mut self.slots[place.slot as usize].attached {
                attached.enable(now_ns);
                full |= !attached.place_unless(full, &mut self.pmu, now_ns);
            }
        }
    }

    /// Starts the enabled time of the events of `queue`. Returns whether pinned ones are to be
    /// placed.
    fn enable(&mut self, queue: QueueId, now_ns: u64) -> bool {
        let mut pinned = false;
        for place in self.queues.queue(queue).all() {
            if let Some(attached) = &mut self.slots[place.slot as usize].attached {
                attached.enable(now_ns);
                pinned |= attached.pinned && attached.state != State::Error;
            }
        }
        pinned
    }

    /// Takes all flexible events off their counters, including those for all groups.
    fn remove_flexible(&mut self, now_ns: u64) {
        let queues = self.chain.iter().filter_map(|link| link.queue).chain([EVERYWHERE]);
        for queue in queues {
            for place in &self.queues.queue(queue).flexible {
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

    /// Places the flexible events of the chain's groups from `from` on, and those for all groups,
    /// in order. Once an event group that needs counters has found none, no other such group is
    /// tried: small ones would starve a large one.
    fn place_flexible(&mut self, from: usize, everywhere: bool, now_ns: u64) {
        self.walk(from, everywhere);
        let mut full = false;
        while let Some(slot) = self.queues.next(false) {
            if let Some(attached) = &mut self.slots[slot as usize].attached {
                full |= !attached.place_unless(full, &mut self.pmu, now_ns);
            }
        }
    }

    /// Returns the first flexible event group among the current ones.
    fn first(&mut self) -> Option<&mut AttachedEvents> {
        self.walk(0, true);
        let slot = self.queues.next(false)?;
        Some(self.attached(slot))
    }

    fn send_first_to_end(&mut self) {
        if let Some(first) = self.first() {
            first.end_turn();
        }
        let queues = self.chain.iter().filter_map(|link| link.queue);
        self.queues.send_first_to_end(queues.chain([EVERYWHERE]));
    }

    /// Begins a walk over the queues of the chain's groups from `from` on, and over that for all
    /// groups.
    fn walk(&mut self, from: usize, everywhere: bool) {
        let chain = self.chain.iter().skip(from).filter_map(|link| link.queue);
        self.queues.walk(chain.chain(everywhere.then_some(EVERYWHERE)));
    }

    fn attached(&mut self, slot: u32) -> &mut AttachedEvents {
        let attached = self.slots[slot as usize].attached.as_mut();
        attached.expect("a slot in a queue is attached: `detach` takes it from both")
    }
}

impl<P: fmt::Debug> fmt::Debug for Scheduler<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let chain: Vec<_> = self.chain.iter().rev().map(|link| link.group).collect();
        f.debug_struct("Scheduler")
            .field("pmu", &self.pmu)
            .field("chain", &chain)
            .field("groups", &self.queues.groups())
            .finish_non_exhaustive()
    }
}
