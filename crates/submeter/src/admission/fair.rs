//! Who goes next: start-time fair queueing over a tree of groups.
//!
//! Each group whose work waits or is in flight has a **node**. Its parent's node keeps, in
//! **virtual time**, how far each child has got: what it used, divided by its weight. The child
//! that has got least far goes next, at each level from the root down. The virtual time of a level
//! is the position of the last child that went. A group that returns starts there, if the line has
//! given it a turn before: time in which it wanted nothing earns it no credit. A newcomer starts
//! one turn behind, so that groups made for one request each do not keep those that have had a turn
//! from their next one. It is behind by a turn, at whatever cost a turn has while it waits, not by
//! a fixed amount. Work that waits in a group itself contends with the group's children, as one
//! child of the usual weight.
//!
//! The cost of work is known when it ends. Until then it counts for what work of its group cost on
//! average, or of the nearest group above in which some has ended, so that a group cannot take all
//! places before its first work ends; the end replaces this estimate by the real cost. A new weight
//! applies to work in flight as well. CPU time is known of a group, not of single work: its usage
//! and the cost of its places are divided among its ends, without a remainder.
//!
//! Where CPU time is the cost, a group has two costs: the CPU time it used, and an eighth of what
//! it could have used in its places. It moves on by the larger one. So work that sleeps in its
//! places pays for them meanwhile, and work that runs for an eighth of the time or more pays for
//! CPU time alone. When work ends, the lead of one cost over the other is limited to what the group
//! has in flight: a group that slept earns no credit for the CPU.
//!
//! Time in places passes without an event, for all groups at once. A position in the order is
//! brought up to date when its group changes, or is about to go next. Positions only ever move
//! back, so the first of the ready groups is farther than another by no more than it has moved
//! since it was last seen. A sixteenth of a turn is near enough.
//!
//! A level at which nothing waits or is in flight has no past: its virtual time moves on to the
//! position of the farthest child, and nodes without any state left are removed. So there are never
//! more nodes than groups that took part since, and groups with a weight or a limit of their own.
//!
//! Lag-based queueing (EEVDF) was rejected: a lag requires the size of each request in advance.
//! Deficit round robin visits all tenants in each round, most of which wait for nothing. A larger
//! share for the time in places was rejected: preempted work would pay for being preempted.
//! With half, on two CPUs that ten other threads wanted, weights of 1 and 3 shared as 37 to 63.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::iter::once;
use std::task::Waker;
use std::time::{Duration, Instant};

use foldhash::fast::RandomState;
use submeter_percpu::LimitMode;
use submeter_percpu::slots::Line;

use super::error::Why;
use super::parts::{Asked, Average, Bounds, Effects, Kept, Outcome, Pace, Recent, Untaken, Used};
use crate::tree::group::Group;
use order::Place;

mod order;
mod settings;

/// The weight of groups that were given none, as in Linux.
pub(super) const WEIGHT_USUAL: u32 = 100;

/// The node above the roots of all trees.
const ROOT: usize = 0;

/// As a child of a node: what waits in the node's group itself.
const OWN: usize = usize::MAX;

/// Fractional bits of virtual time, below one unit of cost at weight 1.
const FRACTION_BITS: u32 = 20;

/// How long a place must be held to cost as much as using it would, where each place has a CPU.
pub(super) const HELD_PER_USED: i128 = 8;

/// The longest time between two events that counts. If nothing joins, polls or leaves for longer,
/// the process may have been stopped as a whole, and then no place kept anything from a CPU. Work
/// that sleeps for longer while nothing else happens pays for this much.
const GAP_MAX: Duration = Duration::from_secs(10);

/// How far a turn gets before any has ended: cost 1 at the usual weight.
const TURN_FIRST: i128 = (1 << FRACTION_BITS) / WEIGHT_USUAL as i128;

/// The parts of a turn. The next group may have moved by one part since it was last seen.
pub(super) const TURN_PARTS: i128 = 16;

/// The queue, and everything that decides its order. An empty queue has one node.
pub(super) struct Fair {
    bounds: Bounds,
    /// How many pieces of work the CPUs can run at once.
    cpus: u32,
    now: Instant,
    /// What holding a place has cost until now, in parts.
    held: i128,
    /// `held` when the fast path was closed. Work that entered before is not counted here.
    closed_at: i128,
    /// Nodes without a group are free, except the first.
    nodes: Vec<Node>,
    free: Vec<usize>,
    places: HashMap<u64, usize, RandomState>,
    recent: Recent,
    next_number: u64,
    next_turn: u64,
    /// How many nodes have a limit.
    limited: usize,
    /// In how many groups something waits.
    queues: usize,
    deadlines: BTreeSet<(Instant, u64, usize)>,
    /// The outcomes of waits, until the waiters ask for them.
    outcomes: HashMap<u64, Outcome, RandomState>,
    pace: Pace,
    effects: Effects,
    /// How many nodes `first` has looked at.
    #[cfg(test)]
    pub(super) looks: u64,
}

struct Waiter {
    waker: Waker,
    deadline: Option<Instant>,
}

#[derive(Default)]
struct Node {
    id: u64,
    up: usize,
    kept: Option<Kept>,
    weight: Option<u32>,
    limit: Option<u32>,
    mode: LimitMode,
    /// Work that was admitted beyond a soft limit.
    overdrafts: u64,
    /// Whether CPU time is what its work costs.
    is_timed: bool,
    /// In the group and below.
    waiting: usize,
    /// The children in which something waits, by how much.
    longest: BTreeSet<(usize, usize)>,
    /// How many nodes have this one as `up`.
    below: usize,
    /// Its position among its siblings, and that of the group's own waiters among its children.
    place: Place,
    own: Place,
    now: i128,
    /// The children of which something can be admitted, by position and then by turn. First those
    /// that have had a turn, then the new ones, which are all behind by the same distance.
    ready: [BTreeSet<(i128, u64, usize)>; 2],
    /// The children in which nothing waits or is in flight, and that are ahead of the time here.
    resting: BTreeSet<(i128, usize)>,
    rests_at: Option<i128>,
    /// Waiters of the group itself, by number.
    waiters: BTreeMap<u64, Waiter>,
    untaken: Untaken,
    /// Average cost of work in it and below, once some has ended.
    average: Option<Average>,
    /// How far one of its children gets in a turn on average, once one has ended.
    turn: Option<Average>,
    /// The CPU time up to which the group was charged.
    seen: u64,
}

impl Node {
    fn is_idle(&self) -> bool {
        self.waiting == 0 && self.place.in_flight == 0
    }

    /// Whether nothing but its position need be remembered.
    fn is_bare(&self) -> bool {
        let is_set =
            self.weight.is_some() || self.limit.is_some() || self.mode != LimitMode::Enforced;
        self.is_idle() && self.below == 0 && !is_set
    }

    /// Whether work of its own waits, or is in flight and was admitted by the line.
    fn takes_part(&self) -> bool {
        !self.waiters.is_empty() || self.own.in_flight > 0
    }

    fn weight(&self) -> u32 {
        self.weight.unwrap_or(WEIGHT_USUAL)
    }
}

impl Fair {
    pub(super) fn new(bounds: Bounds, cpus: u32) -> Fair {
        Fair {
            bounds,
            cpus,
            now: Instant::now(),
            held: 0,
            closed_at: 0,
            nodes: vec![Node::default()],
            free: Vec::new(),
            places: HashMap::default(),
            recent: Recent::default(),
            next_number: 0,
            next_turn: 0,
            limited: 0,
            queues: 0,
            deadlines: BTreeSet::new(),
            outcomes: HashMap::default(),
            pace: Pace::default(),
            effects: Effects::default(),
            #[cfg(test)]
            looks: 0,
        }
    }

    pub(super) fn take_effects(&mut self) -> Effects {
        std::mem::take(&mut self.effects)
    }

    /// Moves the clock to `now`, with so many `places` in all until then; ends the waits whose time
    /// is over.
    pub(super) fn tick(&mut self, now: Instant, places: u32) {
        let time = now.saturating_duration_since(self.now).min(GAP_MAX).as_nanos().cast_signed();
        self.now = self.now.max(now);
        // As many as can run. If there are more places than that, each counts for its part of them.
        let parallel = i128::from(places.min(self.cpus));
        let places = i128::from(places.max(1));
        self.held += (time << FRACTION_BITS) * parallel / (places * HELD_PER_USED);
        self.expire();
    }

    // ---- those that wait ---------------------------------------------------------------------

    /// Adds a waiter to `group`, whose CPU time is `used` if that is what its work costs. With
    /// `has_place`, a place is free and remains so. Returns the waiter's number.
    pub(super) fn join(
        &mut self,
        group: &Group,
        waker: Waker,
        deadline: Option<Instant>,
        used: Option<u64>,
        has_place: bool,
        watch: &mut dyn FnMut(&Group) -> Option<u64>,
    ) -> Result<u64, Why> {
        let at = self.node(group, watch);
        self.on_path(at, |node| node.is_timed = used.is_some());
        let joined = self.try_join(at, waker, deadline, used, has_place);
        self.settle(at);
        joined
    }

    fn try_join(
        &mut self,
        at: usize,
        waker: Waker,
        deadline: Option<Instant>,
        used: Option<u64>,
        has_place: bool,
    ) -> Result<u64, Why> {
        let refusal = if self.nodes[at].kept.is_none() {
            Some(Why::Killed)
        } else if has_place && self.would_enter(at) {
            // It will not wait, so no bound on waiters applies.
            None
        } else if deadline.is_some_and(|deadline| deadline <= self.now) {
            Some(Why::Late)
        } else if self.nodes[at].waiters.len() >= self.bounds.by_group {
            Some(Why::FullForGroup)
        } else if self.nodes[ROOT].waiting >= self.bounds.all && !self.make_room(at) {
            Some(Why::Full)
        } else {
            None
        };
        if let Some(why) = refusal {
            self.effects.dropped.push(waker);
            return Err(why);
        }
        let number = self.next_number;
        self.next_number += 1;
        self.note_close();
        let node = &mut self.nodes[at];
        if !node.takes_part() {
            // What it used before is not part of this contention.
            node.seen = node.seen.max(used.unwrap_or(0));
        }
        node.waiters.insert(number, Waiter { waker, deadline });
        self.count_waiting(at, 1);
        if let Some(deadline) = deadline {
            self.deadlines.insert((deadline, number, at));
        }
        Ok(number)
    }

    /// Must be called before a change that may close the fast path.
    fn note_close(&mut self) {
        if !self.is_needed() {
            self.closed_at = self.held;
        }
    }

    /// Returns whether work that joins here takes the free place: no limit prevents it, and nothing
    /// else is ready, or it would have the place already.
    fn would_enter(&self, at: usize) -> bool {
        debug_assert!(!self.is_ready(), "a waiter beside a free place");
        self.path(at).all(|at| self.nodes[at].has_room())
    }

    /// Makes room for a waiter of a node's group: at the first level at which another branch has
    /// more waiters than its own will have, the latest waiter of the longest queue there is
    /// evicted. So a tenant that fills the queue takes no places from others, by however many
    /// groups of its own it does so.
    fn make_room(&mut self, at: usize) -> bool {
        let mut own: Vec<_> = once(OWN).chain(self.path(at)).collect();
        let mut up = own.pop().expect("the root node");
        while let Some(branch) = own.pop() {
            let Some(&(most, longest)) = self.nodes[up].longest.last() else { return false };
            let length = match branch {
                OWN => self.nodes[up].waiters.len(),
                _ => self.nodes[branch].waiting,
            };
            if most > length + 1 {
                self.evict(up, longest);
                return true;
            }
            up = branch;
        }
        false
    }

    /// Evicts the latest waiter of the longest queue in a child of a node.
    fn evict(&mut self, mut at: usize, mut child: usize) {
        while child != OWN {
            at = child;
            child = self.nodes[at].longest.last().expect("something waits in it").1;
        }
        let latest = *self.nodes[at].waiters.keys().next_back().expect("its own wait");
        self.fail(at, latest, Why::Displaced);
    }

    /// Takes the outcome of a wait, whose deadline is `deadline` from now on. If it still waits,
    /// `waker` replaces the one before, which is dropped after the lock is released.
    pub(super) fn ask(
        &mut self,
        group: &Group,
        number: u64,
        waker: Waker,
        deadline: Option<Instant>,
    ) -> Asked {
        let at = self.places.get(&group.id()).copied();
        if let Some(at) = at {
            self.set_deadline(at, number, deadline);
        }
        let outcome = self.outcomes.remove(&number);
        // If it was late its node may be gone, or be another group's, without that number.
        let waiter = at.and_then(|at| self.nodes.get_mut(at)?.waiters.get_mut(&number));
        let (asked, old) = match (outcome, waiter) {
            (Some(outcome), _) => (Asked::Done(outcome), waker),
            (None, Some(waiter)) => (Asked::Waits, std::mem::replace(&mut waiter.waker, waker)),
            (None, None) => (Asked::Unknown, waker),
        };
        self.effects.dropped.push(old);
        asked
    }

    fn set_deadline(&mut self, at: usize, number: u64, deadline: Option<Instant>) {
        let Some(waiter) = self.nodes[at].waiters.get_mut(&number) else { return };
        if waiter.deadline == deadline {
            return;
        }
        if let Some(before) = std::mem::replace(&mut waiter.deadline, deadline) {
            self.deadlines.remove(&(before, number, at));
        }
        self.deadlines.extend(deadline.map(|deadline| (deadline, number, at)));
        self.expire();
    }

    pub(super) fn take_outcome(&mut self, number: u64) -> Option<Outcome> {
        self.outcomes.remove(&number)
    }

    /// Ends a wait. If it had been granted, returns its expected cost, and its place is free again.
    pub(super) fn cancel(&mut self, group: &Group, number: u64) -> Option<u64> {
        let at = self.places.get(&group.id()).copied();
        match self.outcomes.remove(&number) {
            Some(Outcome::Granted(expected)) => {
                if let Some(at) = at {
                    self.leave(at, expected);
                }
                return Some(expected);
            }
            Some(Outcome::Failed(_)) => {}
            None => {
                if let Some(at) = at
                    && let Some(waiter) = self.unlink(at, number)
                {
                    self.effects.dropped.push(waiter.waker);
                    self.settle(at);
                }
            }
        }
        None
    }

    /// Ends the waits whose deadline has passed.
    pub(super) fn expire(&mut self) {
        while let Some(&(deadline, number, at)) = self.deadlines.first()
            && deadline <= self.now
        {
            self.fail(at, number, Why::Late);
        }
    }

    /// Ends all waits in a group that was killed, and releases the group.
    pub(super) fn kill(&mut self, id: u64) {
        let Some(&at) = self.places.get(&id) else { return };
        while let Some((&number, _)) = self.nodes[at].waiters.first_key_value() {
            self.fail(at, number, Why::Killed);
            if self.places.get(&id) != Some(&at) {
                return;
            }
        }
        self.set_limit(at, None);
        self.set_weight(at, None);
        self.nodes[at].mode = LimitMode::Enforced;
        self.effects.let_go.extend(self.nodes[at].kept.take());
        self.settle(at);
    }

    fn fail(&mut self, at: usize, number: u64, why: Why) {
        let Some(waiter) = self.unlink(at, number) else { return };
        self.outcomes.insert(number, Outcome::Failed(why));
        self.effects.woken.push(waiter.waker);
        self.settle(at);
    }

    /// Removes a waiter; `settle` must follow.
    fn unlink(&mut self, at: usize, number: u64) -> Option<Waiter> {
        let waiter = self.nodes[at].waiters.remove(&number)?;
        self.count_waiting(at, -1);
        if let Some(deadline) = waiter.deadline {
            self.deadlines.remove(&(deadline, number, at));
        }
        Some(waiter)
    }

    /// Counts a waiter that a node's group has gained or lost, there and above.
    fn count_waiting(&mut self, mut at: usize, by: isize) {
        let (mut child, mut after) = (OWN, self.nodes[at].waiters.len());
        let mut before = after.wrapping_add_signed(-by);
        self.queues = self.queues + usize::from(after > 0) - usize::from(before > 0);
        loop {
            let node = &mut self.nodes[at];
            node.longest.remove(&(before, child));
            if after > 0 {
                node.longest.insert((after, child));
            }
            before = node.waiting;
            after = before.wrapping_add_signed(by);
            node.waiting = after;
            if at == ROOT {
                return;
            }
            (child, at) = (at, node.up);
        }
    }

    // ---- those that are in flight ------------------------------------------------------------

    /// Counts the end of work that [`admit`](Line::admit) admitted.
    pub(super) fn complete(&mut self, group: &Group, expected: u64, used: Used) {
        self.pace.ended(self.now, self.nodes[ROOT].waiting > 0);
        let Some(&at) = self.places.get(&group.id()) else { return };
        self.count_end(at, used);
        self.leave(at, expected);
    }

    fn count_end(&mut self, at: usize, used: Used) {
        let node = &mut self.nodes[at];
        let (cost, among) = match used {
            // Work that used nothing yet has still had its turn. Not below what was seen: ends read
            // it before they take the lock.
            Used::CpuTime(used) => {
                let seen = node.seen.max(used);
                let more = seen - std::mem::replace(&mut node.seen, seen);
                (more + 1, node.own.in_flight)
            }
            Used::Cost(cost) => (cost.max(1), 1),
        };
        self.charge(at, cost);
        // Not the usual cost above: if that is more, the first end would take everything.
        let usual = self.nodes[at].average.map_or(0, |average| average.0);
        let (cost, mut weight) = (self.nodes[at].untaken.take(among, usual), WEIGHT_USUAL);
        self.on_path(at, |node| {
            let turn = cost / i128::from(weight);
            let twice = |of: Average| of.with_at_most_twice(turn);
            node.average = Some(node.average.map_or(Average::of(cost), |of| of.with(cost)));
            node.turn = Some(node.turn.map_or(Average::of(turn), twice));
            weight = node.weight();
        });
    }

    /// Counts the end of work that was admitted while nothing waited: what it used, and its place
    /// since others wait, if its group takes part by then. If not, nothing tells how much of its
    /// CPU time belongs to this contention.
    pub(super) fn complete_other(&mut self, group: &Group, used: Used) {
        self.pace.ended(self.now, self.nodes[ROOT].waiting > 0);
        let Some(&at) = self.places.get(&group.id()) else { return };
        let is_timed = matches!(used, Used::CpuTime(_));
        if is_timed && !self.nodes[at].takes_part() {
            return;
        }
        self.begin(at);
        // Like every other end.
        self.count_in_flight(at, |in_flight| in_flight + 1, 0);
        if is_timed {
            // Another may have closed the fast path for a moment to look for a place. Then nothing
            // waits, and nothing has waited since an earlier close.
            self.note_close();
            self.charge_place(at);
        }
        self.count_end(at, used);
        self.leave(at, 0);
    }

    fn leave(&mut self, at: usize, expected: u64) {
        self.count_in_flight(at, |in_flight| in_flight - 1, -i128::from(expected));
        self.settle(at);
    }

    // ---- answers, and the end ----------------------------------------------------------------

    pub(super) fn waiting(&self) -> usize {
        self.nodes[ROOT].waiting
    }

    /// Estimates when another try is more likely to succeed.
    pub(super) fn retry_after(&self, why: Why) -> Option<Duration> {
        let before = match why {
            Why::Killed | Why::Abandoned => return None,
            // One of each group is admitted before the next one of this group.
            Why::FullForGroup | Why::Displaced => self.queues,
            Why::Full | Why::Late => self.waiting() + 1,
        };
        let after = self.pace.interval?.saturating_mul(u32::try_from(before).unwrap_or(u32::MAX));
        Some(after)
    }

    /// In a child of a fork: forgets the parent's waiters, whose wakers may belong to a runtime
    /// that does not exist here, and subscribes to kills again.
    pub(super) fn forget_waiting(&mut self, watch: &mut dyn FnMut(&Group) -> Option<u64>) {
        for at in 0..self.nodes.len() {
            // The last one may remove nodes.
            while let Some(node) = self.nodes.get(at)
                && let Some((&number, _)) = node.waiters.first_key_value()
            {
                std::mem::forget(self.unlink(at, number));
                self.settle(at);
            }
        }
        let mut killed = Vec::new();
        for node in &mut self.nodes {
            if let Some(kept) = &mut node.kept {
                match watch(&kept.group) {
                    Some(ticket) => kept.ticket = ticket,
                    None => killed.push(node.id),
                }
            }
        }
        killed.into_iter().for_each(|id| self.kill(id));
    }

    /// Takes all kept groups, for the end.
    pub(super) fn take_kept(&mut self) -> Vec<Kept> {
        self.nodes.iter_mut().filter_map(|node| node.kept.take()).collect()
    }
}

impl Line for Fair {
    fn is_ready(&self) -> bool {
        self.nodes[ROOT].has_ready()
    }

    fn is_needed(&self) -> bool {
        self.waiting() > 0 || self.limited > 0
    }

    fn admit(&mut self) {
        let mut at = ROOT;
        loop {
            let (place, child) = self.first(at);
            let now = self.nodes[at].now.max(place);
            self.nodes[at].now = now;
            self.rouse(at);
            if child == OWN {
                break;
            }
            self.nodes[child].place.have_turn(now);
            at = child;
        }
        let (&number, _) = self.nodes[at].waiters.first_key_value().expect("its own are ready");
        let waiter = self.unlink(at, number).expect("the first");
        let expected = self.cost(at);
        self.on_path(at, |node| node.overdrafts += u64::from(node.is_full()));
        self.count_in_flight(at, |in_flight| in_flight + 1, i128::from(expected));
        self.outcomes.insert(number, Outcome::Granted(expected));
        self.effects.woken.push(waiter.waker);
        self.settle(at);
    }
}
