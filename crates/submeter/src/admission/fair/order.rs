//! Where each node is in the virtual time of the level above, and which nodes there are.

use super::{FRACTION_BITS, Fair, Node, OWN, Place, ROOT, WEIGHT_USUAL};
use crate::admission::parts::Kept;
use crate::tree::group::Group;

/// Returns what a cost takes of the virtual time.
fn taken(cost: i128, weight: u32) -> i128 {
    (cost << FRACTION_BITS) / i128::from(weight)
}

impl Node {
    /// Puts the node where it is if what is in flight counts for `expected`, at this weight. The
    /// difference of two divisions, so that no remainders add up.
    fn count_in_flight(&mut self, expected: i128, weight: Option<u32>) {
        self.place.at -= taken(self.expected, self.weight());
        (self.expected, self.weight) = (expected, weight);
        self.place.at += taken(self.expected, self.weight());
    }
}

impl Fair {
    /// Returns a group's node, which is made with those above it if there is none.
    pub(super) fn node(
        &mut self,
        group: &Group,
        watch: &mut dyn FnMut(&Group) -> Option<u64>,
    ) -> usize {
        if let Some(&at) = self.places.get(&group.id()) {
            return at;
        }
        // No deeper than groups are.
        let up = group.parent().map_or(ROOT, |parent| self.node(parent, watch));
        let kept = watch(group).map(|ticket| Kept { group: group.clone(), ticket });
        // Behind one turn of those that are there: of groups that come anew for each request, each
        // would otherwise be before those that have had a turn, for ever.
        let place = Place { at: self.nodes[up].now + self.debit(), queued: None };
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

    /// Returns what a turn takes of the virtual time, on average and at the usual weight.
    pub(in crate::admission) fn debit(&self) -> i128 {
        taken(self.average.cost(), WEIGHT_USUAL)
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

    /// Moves a node's own work on by what it cost, and the node and all above it.
    pub(super) fn charge(&mut self, at: usize, cost: i128) {
        self.nodes[at].own.at += taken(cost, WEIGHT_USUAL);
        self.on_path(at, |node| node.place.at += taken(cost, node.weight()));
    }

    /// Has what is in flight in a node count for `change` more, until that is known.
    pub(super) fn expect(&mut self, at: usize, change: i128) {
        self.nodes[at].own.at += taken(change, WEIGHT_USUAL);
        self.on_path(at, |node| node.count_in_flight(node.expected + change, node.weight));
    }

    /// Changes what a node weighs: for what has not ended too. It was divided by the weight before,
    /// and its end would correct it by another: a credit, or a debt, of any size.
    pub(super) fn set_weight(&mut self, at: usize, weight: Option<u32>) {
        let node = &mut self.nodes[at];
        node.count_in_flight(node.expected, weight);
    }

    /// Puts a node, and all above it, where it belongs after a change of it.
    pub(super) fn settle(&mut self, mut at: usize) {
        loop {
            let has_own = !self.nodes[at].waiters.is_empty();
            self.sync(at, OWN, has_own);
            if at == ROOT {
                self.rest(at);
                return;
            }
            let Node { ref ready, in_flight, limit, up, .. } = self.nodes[at];
            let is_ready = !ready.is_empty() && limit.is_none_or(|limit| in_flight < limit);
            self.sync(up, at, is_ready);
            self.rest(at);
            at = up;
        }
    }

    /// Has a child of a node be among those that are ready, or not.
    pub(super) fn sync(&mut self, up: usize, child: usize, is_ready: bool) {
        let turn = self.next_turn;
        let now = self.nodes[up].now;
        let place = self.place(up, child);
        let before = place.queued;
        match before {
            None if is_ready => place.at = place.at.max(now),
            Some((at, _)) if is_ready && at == place.at => return,
            None => return,
            Some(_) => {}
        }
        place.queued = is_ready.then_some((place.at, turn));
        let queued = place.queued;
        let ready = &mut self.nodes[up].ready;
        if let Some((at, turn)) = before {
            ready.remove(&(at, turn, child));
        }
        if let Some((at, turn)) = queued {
            ready.insert((at, turn, child));
            self.next_turn += 1;
        }
    }

    pub(super) fn place(&mut self, up: usize, child: usize) -> &mut Place {
        if child == OWN { &mut self.nodes[up].own } else { &mut self.nodes[child].place }
    }

    /// Ends what a node's level has of a past if nothing waits there nor is in flight; and then
    /// removes it, or lets it rest until the time above has come to where it is.
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
        let farthest = node.resting.last().map_or(node.now, |&(place, _)| place);
        node.now = node.now.max(node.own.at).max(farthest);
        self.rouse(at);
        if at == ROOT {
            return;
        }
        let place = self.nodes[at].place.at;
        // One that was killed has no next turn.
        if place > self.nodes[up].now && self.nodes[at].kept.is_some() {
            self.nodes[up].resting.insert((place, at));
            self.nodes[at].rests_at = Some(place);
        } else if self.nodes[at].is_bare() {
            self.remove(at);
        }
    }

    /// Removes the children that rest and that the time of a node has come to.
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
        self.effects.let_go.extend(node.kept);
        self.free.push(at);
        if self.places.is_empty() {
            // As at first: a crowd that is gone leaves no memory behind.
            self.nodes.truncate(ROOT + 1);
            self.nodes.shrink_to_fit();
            self.free = Vec::new();
        }
    }

    #[cfg(test)]
    pub(in crate::admission) fn knows(&self, group: &Group) -> bool {
        self.places.contains_key(&group.id())
    }

    #[cfg(test)]
    pub(in crate::admission) fn nodes(&self) -> usize {
        self.places.len()
    }
}
