//! The state that the threads of a soak share: the tree, and the group at each place.

use std::iter;
use std::sync::{RwLock, RwLockWriteGuard};
use std::time::Duration;

use submeter::{Aggregator, Flusher, Group, Tree};

use crate::op::picked;
use crate::schema::TestSchema;
use crate::visits::Visits;

/// The limit of a top group's first quota: so low that some charges are refused.
const LIMIT: u64 = 3_000;

/// The shared tree.
pub(super) struct SharedTree {
    pub(super) schema: TestSchema,
    pub(super) tree: Tree,
    pub(super) visits: Aggregator<Visits>,
    pub(super) shape: Shape,
    /// By place. Locked for a clone, or while the group there is killed and replaced; a middle
    /// group's lock is taken before those of its leaves.
    places: Vec<RwLock<Occupant>>,
}

/// The group at a place, while it is alive.
#[derive(Clone)]
pub(super) struct Occupant {
    /// The place in the low half, the number of previous groups there in the high half.
    pub(super) id: u64,
    /// The ID of the parent in which it was created.
    pub(super) parent: u64,
    pub(super) group: Group,
}

/// The number of groups of each kind. Places are numbered in this order: the root, the top groups,
/// the middle groups, the leaves.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    tops: usize,
    pub(super) middles: usize,
    pub(super) leaves: usize,
}

impl Shape {
    fn of(groups: usize) -> Shape {
        let middles = (groups / 100).max(1);
        let tops = middles.min(10);
        assert!(groups > 1 + tops + middles, "{groups} groups: give at least 4");
        Shape { tops, middles, leaves: groups - 1 - tops - middles }
    }

    pub(super) fn groups(self) -> usize {
        1 + self.tops + self.middles + self.leaves
    }

    /// The first place of the middle groups.
    pub(super) fn middles_at(self) -> usize {
        1 + self.tops
    }

    /// The first place of the leaves.
    pub(super) fn leaves_at(self) -> usize {
        1 + self.tops + self.middles
    }

    /// The parent's place; the root's is the root.
    pub(super) fn parent(self, place: usize) -> usize {
        if place >= self.leaves_at() {
            self.middles_at() + (place - self.leaves_at()) % self.middles
        } else if place >= self.middles_at() {
            1 + (place - self.middles_at()) % self.tops
        } else {
            0
        }
    }

    /// The places of the children of the root, a top group or a middle group.
    fn children(self, place: usize) -> impl Iterator<Item = usize> {
        let (first, end, step) = match place {
            0 => (1, self.middles_at(), 1),
            top if top < self.middles_at() => {
                (self.middles_at() + top - 1, self.leaves_at(), self.tops)
            }
            middle => (self.leaves_at() + middle - self.middles_at(), self.groups(), self.middles),
        };
        (first..end).step_by(step)
    }

    /// The place that a walk from the root along these turns reaches.
    pub(super) fn descend(self, turns: &[u32]) -> usize {
        turns.iter().fold(0, |place, &turn| {
            let mut children = self.children(place);
            match children.size_hint().0 {
                0 => place,
                len => children.nth(picked(turn, len)).expect("below the length"),
            }
        })
    }
}

/// The place of the group with an ID.
pub(super) fn place_of(id: u64) -> usize {
    (id & u64::from(u32::MAX)) as usize
}

impl Occupant {
    /// Creates the successor of `last` below this group: a new group with the same name.
    fn successor(&self, last: &Occupant) -> Occupant {
        let name = place_of(last.id).to_string();
        Occupant {
            id: last.id + (1 << 32),
            parent: self.id,
            group: self.group.create_child(&name).expect("the name is free again"),
        }
    }
}

impl SharedTree {
    pub(super) fn new(groups: usize) -> SharedTree {
        let (schema, shape) = (TestSchema::split(), Shape::of(groups));
        let tree = Tree::new(schema.schema.clone()).expect("a tree");
        let mut places: Vec<RwLock<Occupant>> = Vec::with_capacity(groups);
        places.push(RwLock::new(Occupant { id: 0, parent: 0, group: tree.root().clone() }));
        for place in 1..groups {
            let parent = shape.parent(place);
            let above = places[parent].get_mut().expect("no panic so far").group.clone();
            let group = above.create_child(&place.to_string()).expect("a free name and room");
            if parent == 0 {
                group.set_limit(schema.quotas[0], Some(LIMIT));
            }
            places.push(RwLock::new(Occupant { id: place as u64, parent: parent as u64, group }));
        }
        SharedTree { schema, visits: tree.aggregator("visits", Visits), tree, shape, places }
    }

    /// Builds a flusher that leaves updates some CPU time even on a small machine.
    pub(super) fn flusher(&self) -> Flusher {
        let visits = self.visits.clone();
        let flusher = self.tree.flusher().period(Duration::from_millis(1)).also(move || {
            visits.flush().expect("not from a callback");
        });
        flusher.start().expect("a thread")
    }

    /// The group at a place.
    pub(super) fn at(&self, place: usize) -> Occupant {
        self.places[place].read().expect("no panic with it locked").clone()
    }

    /// The groups at all places.
    pub(super) fn occupants(&self) -> Vec<Occupant> {
        (0..self.places.len()).map(|place| self.at(place)).collect()
    }

    fn lock(&self, place: usize) -> RwLockWriteGuard<'_, Occupant> {
        self.places[place].write().expect("no panic with it locked")
    }

    /// Kills a leaf and creates a new one with its name; other threads may still hold the killed
    /// one and count in it. Returns how many were killed.
    pub(super) fn replace_leaf(&self, place: usize) -> usize {
        // Held, so that no other thread kills the parent.
        let above = self.places[self.shape.parent(place)].read().expect("no panic with it locked");
        let mut leaf = self.lock(place);
        leaf.group.kill().expect("a live leaf");
        *leaf = above.successor(&leaf);
        1
    }

    /// Kills `count` middle groups from `first` on with all their leaves, calls `between`, and
    /// creates all of them again. Returns how many were killed.
    pub(super) fn replace_middles(
        &self,
        first: usize,
        count: usize,
        between: impl FnOnce(),
    ) -> usize {
        let mut killed = 0;
        let places = (first..first + count).map(|n| self.shape.middles_at() + n);
        // In the order of places, like every thread that locks several.
        let mut middles: Vec<_> = places.map(|place| (place, self.lock(place))).collect();
        let mut leaves = Vec::new();
        for (place, middle) in &mut middles {
            killed += middle.group.kill_subtree().expect("a live group").len();
            // No thread sees these places before they have new groups; until then, nothing here
            // holds the old ones.
            middle.group = self.tree.root().clone();
            let lock = |leaf: usize| {
                let mut leaf = self.lock(leaf);
                leaf.group = self.tree.root().clone();
                leaf
            };
            leaves.push(self.shape.children(*place).map(lock).collect::<Vec<_>>());
        }
        between();
        for ((place, middle), leaves) in iter::zip(&mut middles, leaves) {
            let top = self.at(self.shape.parent(*place));
            **middle = top.successor(middle);
            for mut leaf in leaves {
                *leaf = middle.successor(&leaf);
            }
        }
        killed
    }
}
