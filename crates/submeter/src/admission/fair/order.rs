//! Where each node is in the virtual time of the level above, and which nodes exist.

use std::iter::{once, successors};

use super::{FRACTION_BITS, Fair, Node, OWN, ROOT, TURN_FIRST, TURN_PARTS, WEIGHT_USUAL};
#[cfg(test)]
use crate::admission::parts::Outcome;
use crate::admission::parts::{Average, Kept, Recent};
use crate::tree::group::Group;

/// A position in the virtual time of the level above. All its costs are in parts.
#[derive(Default)]
pub(super) struct Place {
    /// While it is new, the virtual time at its arrival: its real position is one turn behind that.
    pub(super) at: i128,
    /// Whether it is a newcomer that the line has given no turn yet.
    is_new: bool,
    /// The set in which it is queued as ready, and its key there without the last part, the child.
    queued: Option<(usize, i128, u64)>,
    /// How much is in flight there; for a node, also below it.
    pub(super) in_flight: u32,
    /// What everything in flight counts for until its end.
    expected: i128,
    /// By how much its usage is ahead of the cost of its places, negative if behind. It has been
    /// moved on by the larger one.
    lead: i128,
    /// Up to where the time in its places was counted.
    held: i128,
}

impl Place {
    /// Counts the cost of its places up to `held`. Returns how much of it was charged.
    fn count_held(&mut self, held: i128, weight: u32) -> i128 {
        let more = i128::from(self.in_flight) * (held - self.held);
        self.held = held;
        self.pay(more, weight)
    }

    /// Counts `more` cost of places. Returns how much of it was charged.
    fn pay(&mut self, more: i128, weight: u32) -> i128 {
        let before = self.lead.min(0);
        self.lead -= more;
        self.move_on(before - self.lead.min(0), weight)
    }

    /// Counts usage at the end of some work. Returns how much of it was charged.
    fn count_used(&mut self, used: i128, weight: u32) -> i128 {
        let before = self.lead.max(0);
        self.lead += used;
        let cost = self.lead.max(0) - before;
        self.lead = self.lead.clamp(-self.expected, self.expected);
        self.move_on(cost, weight)
    }

    fn move_on(&mut self, cost: i128, weight: u32) -> i128 {
        self.at += cost / i128::from(weight);
        cost
    }

    /// Moves it to where it is if its work in flight counts for `expected`, at another weight. It
    /// takes the difference of two divisions, so that remainders do not add up.
    fn expect(&mut self, expected: i128, weights: [u32; 2]) {
        self.at -= self.expected / i128::from(weights[0]);
        self.expected = expected;
        self.at += expected / i128::from(weights[1]);
    }

    /// Returns its position if a turn takes `debit`.
    fn behind(&self, debit: i128) -> i128 {
        if self.is_new { self.at + debit } else { self.at }
    }

    /// Gives a newcomer its first turn at `now`, the time of its level. By then that is where it
    /// is, unless turns take less than when the time got there: where it is would be a credit over
    /// the newcomer that had its turn then, for as many turns as the difference is worth.
    pub(super) fn have_turn(&mut self, now: i128) {
        if std::mem::take(&mut self.is_new) {
            self.at = now;
        }
    }

    /// Starts it at `now`, the time of its level, unless it has taken part until now.
    fn begin(&mut self, now: i128) {
        if self.queued.is_none() && self.in_flight == 0 {
            self.at = self.at.max(now);
        }
    }

    fn count_in_flight(&mut self, change: impl Fn(u32) -> u32, expected: i128, weight: u32) {
        self.in_flight = change(self.in_flight);
        self.expect(self.expected + expected, [weight; 2]);
    }
}

impl Node {
    /// Whether something in it or below can be admitted, apart from its own limit.
    pub(super) fn has_ready(&self) -> bool {
        self.ready.iter().any(|children| !children.is_empty())
    }

    fn count_held(&mut self, held: i128) {
        if self.is_timed {
            self.place.count_held(held, self.weight());
        }
    }
}

impl Fair {
    /// Returns a group's node, and creates it and those above it if missing.
    pub(super) fn node(
        &mut self,
        group: &Group,
        watch: &mut dyn FnMut(&Group) -> Option<u64>,
    ) -> usize {
        if let Some(&at) = self.places.get(&group.id()) {
            return at;
        }
        // The recursion is no deeper than groups are.
        let up = group.parent().map_or(ROOT, |parent| self.node(parent, watch));
        let kept = watch(group).map(|ticket| Kept { group: group.clone(), ticket });
        let is_new = !self.known_below(up).is_some_and(|known| known.has(group.id()));
        let place = Place { at: self.nodes[up].now, is_new, ..Place::default() };
        let node = Node { id: group.id(), up, kept, place, ..Node::default() };
        self.nodes[up].below += 1;
        let at = self.free.pop().unwrap_or(self.nodes.len());
        if at == self.nodes.len() {
            self.nodes.push(node);
        } else {
            self.nodes[at] = node;
        }
        self.places.insert(group.id(), at);
        at
    }

    /// Returns which groups below a node are no newcomers, of those that have no node.
    fn known_below(&self, at: usize) -> Option<&Recent> {
        if at == ROOT {
            return Some(&self.recent);
        }
        self.known_below(self.nodes[at].up)?.below(self.nodes[at].id)
    }

    /// Returns a node and those above it, up to the root node.
    pub(super) fn path(&self, at: usize) -> impl Iterator<Item = usize> + '_ {
        successors(Some(at), |&at| (at != ROOT).then(|| self.nodes[at].up))
    }

    /// Returns an average of a node or, where nothing has ended yet, of the nearest node above.
    fn nearest(&self, at: usize, of: fn(&Node) -> Option<Average>) -> Option<i128> {
        self.path(at).find_map(|at| of(&self.nodes[at])).map(|average| average.0)
    }

    /// Returns the cost of a node's work, as far as known.
    pub(in crate::admission) fn cost(&self, at: usize) -> u64 {
        let cost = self.nearest(at, |node| node.average).map_or(1, |parts| parts >> FRACTION_BITS);
        u64::try_from(cost).unwrap_or(u64::MAX)
    }

    /// Returns how far a newcomer below a node starts behind: one turn of its siblings. Otherwise
    /// groups made for one request each would forever go before those that have had a turn.
    ///
    /// The debit follows what a turn is known to take while the newcomer waits. With the value
    /// known at its arrival, it could wait for millions of turns, each of which costs a millionth
    /// of those before.
    pub(in crate::admission) fn debit(&self, up: usize) -> i128 {
        self.nearest(up, |node| node.turn).unwrap_or(TURN_FIRST)
    }

    pub(super) fn on_path(&mut self, mut at: usize, mut change: impl FnMut(&mut Node)) {
        loop {
            change(&mut self.nodes[at]);
            if at == ROOT {
                return;
            }
            at = self.nodes[at].up;
        }
    }

    /// Prepares for a charge of work that the line did not admit: if a group has wanted nothing for
    /// a while, the position where it was left is no credit.
    pub(super) fn begin(&mut self, mut at: usize) {
        let now = self.nodes[at].now;
        self.nodes[at].own.begin(now);
        while at != ROOT {
            let up = self.nodes[at].up;
            let now = self.nodes[up].now;
            self.nodes[at].place.begin(now);
            at = up;
        }
    }

    /// Charges a node and all above it for usage.
    pub(super) fn charge(&mut self, at: usize, cost: u64) {
        self.count_held(at);
        let cost = i128::from(cost) << FRACTION_BITS;
        let node = &mut self.nodes[at];
        node.untaken.used += node.own.count_used(cost, WEIGHT_USUAL);
        self.on_path(at, |node| _ = node.place.count_used(cost, node.weight()));
    }

    /// Charges a node for a place since the fast path was closed, for work that is not counted as
    /// in flight.
    pub(super) fn charge_place(&mut self, at: usize) {
        self.count_held(at);
        let held = self.held - self.closed_at;
        let node = &mut self.nodes[at];
        node.untaken.held += node.own.pay(held, WEIGHT_USUAL);
        self.on_path(at, |node| _ = node.place.pay(held, node.weight()));
    }

    /// Changes the number in flight in a node; the change counts for `expected` until its end.
    pub(super) fn count_in_flight(
        &mut self,
        at: usize,
        change: impl Fn(u32) -> u32,
        expected: i128,
    ) {
        self.count_held(at);
        let expected = expected << FRACTION_BITS;
        self.nodes[at].own.count_in_flight(&change, expected, WEIGHT_USUAL);
        self.on_path(at, |node| node.place.count_in_flight(&change, expected, node.weight()));
    }

    /// Brings a node and all above it up to date.
    fn count_held(&mut self, at: usize) {
        self.count_held_by(at, OWN);
        let held = self.held;
        self.on_path(at, |node| node.count_held(held));
    }

    fn count_held_by(&mut self, up: usize, child: usize) {
        let held = self.held;
        if child != OWN {
            self.nodes[child].count_held(held);
        } else if self.nodes[up].is_timed {
            let node = &mut self.nodes[up];
            node.untaken.held += node.own.count_held(held, WEIGHT_USUAL);
        }
    }

    /// Changes a node's weight, also for what has not ended. That was divided by the old weight,
    /// and its end would correct it by the new one: a credit, or a debt, of any size.
    pub(super) fn set_weight(&mut self, at: usize, weight: Option<u32>) {
        let held = self.held;
        let node = &mut self.nodes[at];
        node.count_held(held);
        let before = node.weight();
        node.weight = weight;
        node.place.expect(node.place.expected, [before, node.weight()]);
    }

    /// Returns the child of a node that goes next, and its position.
    ///
    /// It is the first by the positions last seen; all others are there or farther. If it has moved
    /// by less than a part of a turn since, it goes anyway. Otherwise its position is brought up to
    /// date, and the one that is first then is looked at. So each look but the last is paid for by
    /// a part of a turn that has passed. To find the one that is ahead by a hair was rejected:
    /// where all move on continuously, each end would look at all of them.
    pub(super) fn first(&mut self, at: usize) -> (i128, usize) {
        let debit = self.debit(at);
        loop {
            let [known, new] = &self.nodes[at].ready;
            let new = new.first().map(|&(seen, turn, child)| (seen + debit, turn, child));
            let first = known.first().copied().into_iter().chain(new).min();
            let (seen, _, child) = first.expect("it is ready");
            #[cfg(test)]
            {
                self.looks += 1;
            }
            self.count_held_by(at, child);
            let place = self.place(at, child).behind(debit);
            if place - seen <= self.tolerance(at) {
                return (place, child);
            }
            self.sync(at, child, true);
        }
    }

    /// Returns how much farther than another the child that goes next may be.
    pub(in crate::admission) fn tolerance(&self, up: usize) -> i128 {
        self.debit(up) / TURN_PARTS
    }

    /// Puts a node, and all above it, where it belongs after a change.
    pub(super) fn settle(&mut self, mut at: usize) {
        loop {
            let has_own = !self.nodes[at].waiters.is_empty();
            self.sync(at, OWN, has_own);
            if at == ROOT {
                self.rest(at);
                return;
            }
            let node = &self.nodes[at];
            let (is_ready, up) = (node.has_ready() && node.has_room(), node.up);
            self.sync(up, at, is_ready);
            self.rest(at);
            at = up;
        }
    }

    /// Adds a child to the ready children of a node, moves it there, or removes it.
    fn sync(&mut self, up: usize, child: usize, is_ready: bool) {
        self.count_held_by(up, child);
        let turn = self.next_turn;
        let now = self.nodes[up].now;
        let place = self.place(up, child);
        let (before, among) = (place.queued, usize::from(place.is_new));
        match before {
            None if is_ready => place.at = place.at.max(now),
            Some((of, at, _)) if is_ready && (of, at) == (among, place.at) => return,
            None => return,
            Some(_) => {}
        }
        place.queued = is_ready.then_some((among, place.at, turn));
        let queued = place.queued;
        let ready = &mut self.nodes[up].ready;
        if let Some((among, at, turn)) = before {
            ready[among].remove(&(at, turn, child));
        }
        if let Some((among, at, turn)) = queued {
            ready[among].insert((at, turn, child));
            self.next_turn += 1;
        }
    }

    fn place(&mut self, up: usize, child: usize) -> &mut Place {
        if child == OWN { &mut self.nodes[up].own } else { &mut self.nodes[child].place }
    }

    /// Ends the past of a node's level if nothing waits or is in flight there; then removes the
    /// node, or lets it rest until the time above has reached its position.
    pub(super) fn rest(&mut self, at: usize) {
        let Node { up, rests_at, .. } = self.nodes[at];
        if let Some(place) = rests_at {
            self.nodes[up].resting.remove(&(place, at));
            self.nodes[at].rests_at = None;
        }
        let node = &mut self.nodes[at];
        if !node.is_idle() {
            return;
        }
        (node.place.lead, node.own.lead) = (0, 0);
        let farthest = node.resting.last().map_or(node.now, |&(place, _)| place);
        node.now = node.now.max(node.own.at).max(farthest);
        self.rouse(at);
        if at == ROOT {
            return;
        }
        let place = self.nodes[at].place.at;
        // A killed group has no next turn.
        if place > self.nodes[up].now && self.nodes[at].kept.is_some() {
            self.nodes[up].resting.insert((place, at));
            self.nodes[at].rests_at = Some(place);
        } else if self.nodes[at].is_bare() {
            self.remove(at);
        }
    }

    /// Removes the resting children whose position the time of a node has reached.
    pub(super) fn rouse(&mut self, up: usize) {
        while let Some(&(place, at)) = self.nodes[up].resting.first()
            && place <= self.nodes[up].now
        {
            self.nodes[up].resting.pop_first();
            self.nodes[at].rests_at = None;
            if self.nodes[at].is_bare() {
                self.remove(at);
            }
        }
    }

    pub(super) fn remove(&mut self, at: usize) {
        let node = std::mem::take(&mut self.nodes[at]);
        self.nodes[node.up].below -= 1;
        self.places.remove(&node.id);
        // A killed group does not come again.
        if node.kept.is_some() && !node.place.is_new {
            let above = self.path(node.up).filter(|&at| at != ROOT).map(|at| self.nodes[at].id);
            let mut path: Vec<_> = once(node.id).chain(above).collect();
            path.reverse();
            self.recent.add(&path);
        }
        self.effects.let_go.extend(node.kept);
        self.free.push(at);
        if self.places.is_empty() {
            // A crowd that is gone leaves no memory behind, apart from the ids of those that are
            // not newcomers. Where nothing waits for a moment now and then, a tenant that returns
            // would otherwise be behind each time, as the heavy one mostly is there again first.
            self.nodes.truncate(ROOT + 1);
            self.nodes.shrink_to_fit();
            self.free = Vec::new();
        }
    }

    #[cfg(test)]
    pub(in crate::admission) fn knows(&self, group: &Group) -> bool {
        self.places.contains_key(&group.id())
    }

    /// Returns the node of a group, or the root node.
    #[cfg(test)]
    pub(in crate::admission) fn at(&self, group: Option<&Group>) -> usize {
        group.map_or(ROOT, |group| self.places[&group.id()])
    }

    /// Returns what a waiter counts for that was admitted and has not asked yet.
    #[cfg(test)]
    pub(in crate::admission) fn granted(&self, number: u64) -> Option<u64> {
        match self.outcomes.get(&number)? {
            Outcome::Granted(expected) => Some(*expected),
            Outcome::Failed(_) => None,
        }
    }

    #[cfg(test)]
    pub(in crate::admission) fn has_outcomes(&self) -> bool {
        !self.outcomes.is_empty()
    }

    #[cfg(test)]
    pub(in crate::admission) fn nodes(&self) -> usize {
        self.places.len()
    }
}
