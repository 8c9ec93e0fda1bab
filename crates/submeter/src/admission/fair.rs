//! Who goes next: start-time fair queueing over a tree of groups.
//!
//! Each group with work that waits or is in flight has a **node**. Its parent's node keeps, in
//! **virtual time**, how far each child has got: what it used, divided by its weight. The one that
//! has got least far goes next, at each level from the root down; the virtual time of a level is
//! that of the last one that did. Whoever comes anew begins one turn after that time: it has no
//! credit for when it wanted nothing, and groups that are made for one request each do not keep
//! those from their turns that have had one. It is behind by a turn, whatever that comes to cost
//! while it waits, and not by an amount. What waits in a group itself contends with the group's
//! children, as one child of the usual weight.
//!
//! What work costs is known when it ends. Until then it counts for what work of its group cost on
//! average, or of the next one above of which some has ended, so that a group cannot have all
//! places before the first one ends; the end puts what it cost in the place of that. A group that
//! is weighed anew is so for what is in flight as well. CPU time is known of a group and not of
//! its work: what it used and what its places cost are divided among its ends, without a rest.
//!
//! Where CPU time is the cost, a group has two: what it used of the CPU, and an eighth of what it
//! could have used in its places. It is moved on by the one that is ahead. So work that sleeps in
//! its places pays for them while it does, and work that runs for an eighth of the time or more
//! pays for CPU time alone. By how much the one may be ahead when work ends is bounded by what its
//! group has in flight: what a group slept through is no credit for the CPU.
//!
//! Time in places goes on without an event, for all groups at once. A place in the order is brought
//! up to date when its group changes, or is about to go next. It only ever moves back, so
//! the first of those that are ready is farther than another by no more than it has moved since it
//! was seen. A sixteenth of a turn is near enough.
//!
//! A level at which nothing waits nor is in flight has no past: its virtual time moves on to that
//! of the farthest child, and nodes that nothing is left of are removed. So there are never more
//! than groups that took part since, and those that have a weight or a limit of their own.
//!
//! Lag-based queueing (EEVDF) was rejected: a lag needs to know beforehand how much is asked for.
//! Deficit round robin visits all tenants for each round, of which most wait for nothing. A
//! larger part of the time in places was rejected: work that is preempted would pay for being so.
//! With half, on two CPUs that ten other threads wanted, weights of 1 and 3 shared as 37 to 63.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::iter::successors;
use std::task::Waker;
use std::time::{Duration, Instant};

use foldhash::fast::RandomState;
use submeter_percpu::slots::Line;

use super::error::Why;
use super::parts::{Asked, Average, Bounds, Effects, Kept, Outcome};
use super::parts::{Pace, Setting, State, Untaken, Used};
use crate::tree::group::Group;
use order::Place;

mod order;

/// What every group weighs that was given no weight, as in Linux.
pub(super) const WEIGHT_USUAL: u32 = 100;

/// The place above the roots of all trees.
const ROOT: usize = 0;

/// Among the children of a node: what waits in the node's group itself.
const OWN: usize = usize::MAX;

/// Bits of virtual time below what a unit of cost takes at weight 1.
const FRACTION_BITS: u32 = 20;

/// How long a place must be held to cost as much as its use would, where each has a CPU.
pub(super) const HELD_PER_USED: i128 = 8;

/// The most that counts of the time between two events. If nobody comes, asks or leaves for longer,
/// the process may have been stopped as a whole, and then no place kept anybody from a CPU. Work
/// that sleeps for longer while nothing else happens pays for this much.
const GAP_MAX: Duration = Duration::from_secs(10);

/// How far a turn gets before any has ended: cost 1 at the usual weight.
const TURN_FIRST: i128 = (1 << FRACTION_BITS) / WEIGHT_USUAL as i128;

/// Into how many parts a turn is divided. The next may have moved by one since it was seen last.
pub(super) const TURN_PARTS: i128 = 16;

/// All that waits, and what it is decided by. Empty, it has one node.
pub(super) struct Fair {
    bounds: Bounds,
    /// How many pieces of work the CPUs can run at once.
    cpus: u32,
    now: Instant,
    /// What having a place has cost until now, in parts.
    held: i128,
    /// What it was when the way was closed. Work that entered before is in no count here.
    closed_at: i128,
    /// Nodes without a group are free, but for the first.
    nodes: Vec<Node>,
    free: Vec<usize>,
    places: HashMap<u64, usize, RandomState>,
    next_number: u64,
    next_turn: u64,
    /// How many nodes have a limit.
    limited: usize,
    /// The nodes in whose groups something waits, by how much.
    lengths: BTreeSet<(usize, usize)>,
    deadlines: BTreeSet<(Instant, u64, usize)>,
    /// What has become of those that waited, until they ask.
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
    /// Whether CPU time is what its work costs.
    is_timed: bool,
    /// In the group and below.
    waiting: usize,
    /// How many nodes have this one as `up`.
    below: usize,
    /// Where it is among its siblings, and what waits in the group itself among its children.
    place: Place,
    own: Place,
    now: i128,
    /// The children of which something can go in, by where they are, and then by turn: those that
    /// have had one, and those that are new, which are all behind by the same.
    ready: [BTreeSet<(i128, u64, usize)>; 2],
    /// The children of which nothing waits nor is in flight, and that are ahead of the time here.
    resting: BTreeSet<(i128, usize)>,
    rests_at: Option<i128>,
    /// Those of the group itself, by number.
    waiters: BTreeMap<u64, Waiter>,
    untaken: Untaken,
    /// What work in it and below costs on average, once some has ended.
    average: Option<Average>,
    /// How far one of its children gets in a turn on average, once one has ended.
    turn: Option<Average>,
    /// Up to which CPU time the group was charged.
    seen: u64,
}

impl Node {
    fn is_idle(&self) -> bool {
        self.waiting == 0 && self.place.in_flight == 0
    }

    /// Whether nothing is to be remembered of it but where it is.
    fn is_bare(&self) -> bool {
        self.is_idle() && self.below == 0 && self.weight.is_none() && self.limit.is_none()
    }

    /// Whether work of its own waits, or is in flight that came by the line.
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
            next_number: 0,
            next_turn: 0,
            limited: 0,
            lengths: BTreeSet::new(),
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

    /// Has all that follows happen at `now`, with so many `places` in all until then; ends the
    /// waits of those whose time is over.
    pub(super) fn tick(&mut self, now: Instant, places: u32) {
        let time = now.saturating_duration_since(self.now).min(GAP_MAX).as_nanos().cast_signed();
        self.now = self.now.max(now);
        // As many as can run; with more places than that, each is good for its part of them.
        let parallel = i128::from(places.min(self.cpus));
        let places = i128::from(places.max(1));
        self.held += (time << FRACTION_BITS) * parallel / (places * HELD_PER_USED);
        self.expire();
    }

    // ---- those that wait ---------------------------------------------------------------------

    /// Has one more wait in `group`, whose CPU time is `used` if that is what its work costs; there
    /// may be a place that is free, and remains so. Returns its number.
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
        let length = self.nodes[at].waiters.len();
        let refusal = if self.nodes[at].kept.is_none() {
            Some(Why::Killed)
        } else if has_place && self.would_enter(at) {
            // It will not wait, so that no bound on those that do is its.
            None
        } else if deadline.is_some_and(|deadline| deadline <= self.now) {
            Some(Why::Late)
        } else if length >= self.bounds.by_group {
            Some(Why::FullForGroup)
        } else if self.nodes[ROOT].waiting >= self.bounds.all && !self.make_room(length) {
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
            // What it used before is not of this contention.
            node.seen = node.seen.max(used.unwrap_or(0));
        }
        node.waiters.insert(number, Waiter { waker, deadline });
        self.resize(at, length);
        self.on_path(at, |node| node.waiting += 1);
        if let Some(deadline) = deadline {
            self.deadlines.insert((deadline, number, at));
        }
        Ok(number)
    }

    /// Call it before a change that may close the way.
    fn note_close(&mut self) {
        if !self.is_needed() {
            self.closed_at = self.held;
        }
    }

    /// Returns whether one that joins here takes the place that is free: no limit keeps it from it.
    /// Nobody else is ready, who would have it by now.
    fn would_enter(&self, at: usize) -> bool {
        debug_assert!(!self.is_ready(), "somebody waits beside a free place");
        let below = |at: &usize| (*at != ROOT).then(|| self.nodes[*at].up);
        let mut path = successors(Some(at), below).map(|at| &self.nodes[at]);
        path.all(|node| node.limit.is_none_or(|most| node.place.in_flight < most))
    }

    /// Throws out the latest of the group with most, if that has more than the one with `length`
    /// will. So one that fills the queue takes no place of others.
    fn make_room(&mut self, length: usize) -> bool {
        let Some(&(longest, at)) = self.lengths.last() else { return false };
        if longest <= length + 1 {
            return false;
        }
        let latest = *self.nodes[at].waiters.keys().next_back().expect("as many as its length");
        self.fail(at, latest, Why::Displaced);
        true
    }

    /// Takes what has become of one that waits, until `deadline` from now on. If it still does,
    /// `waker` is woken from now on, and the one before is dropped without the lock.
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
        // If it was late its node may be gone, or another group's that has no such number.
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

    /// Has one wait no longer. Returns what it would have cost if it was let in, in which case its
    /// place is free again.
    pub(super) fn cancel(&mut self, group: &Group, number: u64) -> Option<u64> {
        let at = self.places.get(&group.id()).copied();
        match self.outcomes.remove(&number) {
            Some(Outcome::Granted(expected)) => {
                if let Some(at) = at {
                    self.forget_place(at);
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

    /// Ends the waits of those whose time is over.
    pub(super) fn expire(&mut self) {
        while let Some(&(deadline, number, at)) = self.deadlines.first()
            && deadline <= self.now
        {
            self.fail(at, number, Why::Late);
        }
    }

    /// Ends all waits in a group that was killed, and lets go of it.
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
        self.effects.let_go.extend(self.nodes[at].kept.take());
        self.settle(at);
    }

    fn fail(&mut self, at: usize, number: u64, why: Why) {
        let Some(waiter) = self.unlink(at, number) else { return };
        self.outcomes.insert(number, Outcome::Failed(why));
        self.effects.woken.push(waiter.waker);
        self.settle(at);
    }

    /// Takes a waiter out; to be followed by `settle`.
    fn unlink(&mut self, at: usize, number: u64) -> Option<Waiter> {
        let length = self.nodes[at].waiters.len();
        let waiter = self.nodes[at].waiters.remove(&number)?;
        self.resize(at, length);
        self.on_path(at, |node| node.waiting -= 1);
        if let Some(deadline) = waiter.deadline {
            self.deadlines.remove(&(deadline, number, at));
        }
        Some(waiter)
    }

    /// Notes that as many wait in a node's group as there are now, and no longer `before`.
    fn resize(&mut self, at: usize, before: usize) {
        self.lengths.remove(&(before, at));
        let length = self.nodes[at].waiters.len();
        if length > 0 {
            self.lengths.insert((length, at));
        }
    }

    // ---- those that are in flight ------------------------------------------------------------

    /// Counts the end of work that was let in by [`admit`](Line::admit).
    pub(super) fn complete(&mut self, group: &Group, expected: u64, used: Used) {
        self.pace.ended(self.now, self.nodes[ROOT].waiting > 0);
        let Some(&at) = self.places.get(&group.id()) else { return };
        self.count_end(at, used);
        self.leave(at, expected);
    }

    fn count_end(&mut self, at: usize, used: Used) {
        let node = &mut self.nodes[at];
        let (cost, among) = match used {
            // Work that used nothing yet still has had its turn.
            // No earlier than what was seen: ends look before they take the lock.
            Used::CpuTime(used) => {
                let seen = node.seen.max(used);
                let more = seen - std::mem::replace(&mut node.seen, seen);
                (more + 1, node.own.in_flight)
            }
            Used::Cost(cost) => (cost.max(1), 1),
        };
        self.charge(at, cost);
        // Not what is usual above: where that is more, the first end would take all.
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

    /// Counts the end of work that was let in while nobody waited: what it used, and its place
    /// since others wait, if its group takes part by now. If it does not, nothing says how much of
    /// its CPU time is of this contention; it begins a turn behind when it comes again.
    pub(super) fn complete_other(&mut self, group: &Group, used: Used) {
        self.pace.ended(self.now, self.nodes[ROOT].waiting > 0);
        let Some(&at) = self.places.get(&group.id()) else { return };
        let is_timed = matches!(used, Used::CpuTime(_));
        if is_timed && !self.nodes[at].takes_part() {
            return;
        }
        self.begin(at);
        // As all others that end.
        self.count_in_flight(at, |in_flight| in_flight + 1, 0);
        if is_timed {
            // It may have come by the lock as one looked for a place, for whom the way was closed
            // for that moment. Then nobody waits, and nobody has since an earlier close.
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

    // ---- weights and limits ------------------------------------------------------------------

    /// Changes what a group weighs, or how many may be in flight in it and below.
    pub(super) fn configure(
        &mut self,
        group: &Group,
        setting: Setting,
        watch: &mut dyn FnMut(&Group) -> Option<u64>,
    ) {
        let at = self.node(group, watch);
        // Nothing would end it in a group that is gone.
        if self.nodes[at].kept.is_some() {
            match setting {
                Setting::Weight(weight) => self.set_weight(at, weight),
                Setting::Limit(limit) => self.set_limit(at, limit),
            }
        }
        self.settle(at);
    }

    fn set_limit(&mut self, at: usize, limit: Option<u32>) {
        self.note_close();
        let before = std::mem::replace(&mut self.nodes[at].limit, limit);
        self.limited -= usize::from(before.is_some());
        self.limited += usize::from(limit.is_some());
    }

    /// Returns a group's weight and limit, and how many wait in it and below.
    pub(super) fn state(&self, group: &Group) -> State {
        let node = self.places.get(&group.id()).map(|&at| &self.nodes[at]);
        node.map_or_else(State::default, |node| State {
            weight: node.weight,
            limit: node.limit,
            waiting: node.waiting,
        })
    }

    pub(super) fn waiting(&self) -> usize {
        self.nodes[ROOT].waiting
    }

    /// Estimates when another try may have more luck.
    pub(super) fn retry_after(&self, why: Why) -> Option<Duration> {
        let before = match why {
            Why::Killed | Why::Abandoned => return None,
            // One of each group goes in before the next one of this.
            Why::FullForGroup | Why::Displaced => self.lengths.len(),
            Why::Full | Why::Late => self.waiting() + 1,
        };
        let after = self.pace.interval?.saturating_mul(u32::try_from(before).unwrap_or(u32::MAX));
        Some(after)
    }

    /// In a child of a fork: forgets those that waited in the parent, whose wakers may be of a
    /// runtime that is not here, and has kills told anew.
    pub(super) fn forget_waiting(&mut self, watch: &mut dyn FnMut(&Group) -> Option<u64>) {
        while let Some(&(_, at)) = self.lengths.last() {
            let (&number, _) = self.nodes[at].waiters.first_key_value().expect("it has a length");
            std::mem::forget(self.unlink(at, number));
            self.settle(at);
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

    /// All groups that are kept, for the end.
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
            let node = &mut self.nodes[at];
            node.now = node.now.max(place);
            self.rouse(at);
            if child == OWN {
                break;
            }
            let debit = self.debit(at);
            self.nodes[child].place.settle_debit(debit);
            at = child;
        }
        let (&number, _) = self.nodes[at].waiters.first_key_value().expect("its own are ready");
        let waiter = self.unlink(at, number).expect("the first");
        let expected = self.cost(at);
        self.count_in_flight(at, |in_flight| in_flight + 1, i128::from(expected));
        self.outcomes.insert(number, Outcome::Granted(expected));
        self.effects.woken.push(waiter.waker);
        self.settle(at);
    }
}
