//! Updates, flushes, kills and creations on a large tree for as long as wanted, and the count of it all.

use std::fmt;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, RwLock};
use std::thread;
use std::time::Duration;

use submeter::{Collector, Flusher, Group, Tree};

use crate::meters::Meters;
use crate::visits::Visits;

mod tally;
mod worker;

pub use tally::Difference;
use worker::Worker;

/// Runs threads that update, flush, kill and create on one tree, and compares every metric of every group
/// with what the threads noted for themselves.
///
/// No thread's notes are seen by another while it runs, and none of them knows how submeter counts:
/// what they have in common with it is the numbers alone.
///
/// # Examples
/// ```
/// use std::sync::atomic::AtomicBool;
/// use submeter_testkit::Soak;
///
/// let mut soak = Soak::new(60, 2, 1);
/// soak.round(500, &AtomicBool::new(false), |_| ());
/// assert!(soak.compare().differences.is_empty());
/// ```
pub struct Soak {
    ground: Ground,
    workers: Vec<Worker>,
    /// Those of the flushers of past rounds.
    flushes: u64,
}

/// What the threads share: the tree, and who sits where in it.
struct Ground {
    meters: Meters,
    tree: Tree,
    visits: Collector<Visits>,
    shape: Shape,
    /// By place. Locked for a clone, or while who sits there is killed and replaced; a middle's before its
    /// leaves'.
    seats: Vec<RwLock<Seat>>,
}

/// One group, as long as it lives.
#[derive(Clone)]
struct Seat {
    /// The place in the low half, how many sat there before in the high half.
    id: u64,
    /// The id of the parent that it was created in.
    parent: u64,
    group: Group,
}

/// How many groups there are of each kind. Places count through them in this order: the root, the tops,
/// the middles, the leaves.
#[derive(Clone, Copy, Debug)]
struct Shape {
    tops: usize,
    middles: usize,
    leaves: usize,
}

/// Says how far a run has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Adds, moves, records and visits, each counted once.
    pub updates: u64,
    /// Groups killed; as many were created in their places.
    pub killed: u64,
    /// Charges granted.
    pub charges: u64,
    /// Charges refused by a limit.
    pub refused: u64,
    /// Flushes, those of exact reads included.
    pub flushes: u64,
}

/// Says what a comparison found.
#[derive(Clone, Debug, Default)]
pub struct Comparison {
    /// Groups compared.
    pub groups: usize,
    /// Values compared.
    pub values: u64,
    /// The first few differences.
    pub differences: Vec<Difference>,
}

impl Progress {
    fn plus(self, other: Progress) -> Progress {
        Progress {
            updates: self.updates + other.updates,
            killed: self.killed + other.killed,
            charges: self.charges + other.charges,
            refused: self.refused + other.refused,
            flushes: self.flushes + other.flushes,
        }
    }
}

impl fmt::Display for Progress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Progress { updates, killed, charges, refused, flushes } = self;
        write!(
            f,
            "{updates} updates, {killed} groups killed and replaced, {charges} charges granted and \
             {refused} refused, {flushes} flushes"
        )
    }
}

/// What a top may hold of the first resource: so little that some charges are refused.
const LIMIT: u64 = 3_000;

impl Shape {
    fn of(groups: usize) -> Shape {
        let middles = (groups / 100).max(1);
        let tops = middles.min(10);
        assert!(groups > 1 + tops + middles, "{groups} groups: give at least 4");
        Shape { tops, middles, leaves: groups - 1 - tops - middles }
    }

    fn groups(self) -> usize {
        1 + self.tops + self.middles + self.leaves
    }

    /// The first place of the middles.
    fn middles_at(self) -> usize {
        1 + self.tops
    }

    /// The first place of the leaves.
    fn leaves_at(self) -> usize {
        1 + self.tops + self.middles
    }

    /// The place above. The root's is its own.
    fn parent(self, place: usize) -> usize {
        if place >= self.leaves_at() {
            self.middles_at() + (place - self.leaves_at()) % self.middles
        } else if place >= self.middles_at() {
            1 + (place - self.middles_at()) % self.tops
        } else {
            0
        }
    }

    /// The places below a middle.
    fn leaves_of(self, middle: usize) -> impl Iterator<Item = usize> {
        let first = self.leaves_at() + (middle - self.middles_at());
        (first..self.groups()).step_by(self.middles)
    }
}

fn place_of(id: u64) -> usize {
    (id & u64::from(u32::MAX)) as usize
}

impl Seat {
    /// Who comes after `seat`, below this one: a new group by the same name.
    fn successor(&self, seat: &Seat, place: usize) -> Seat {
        Seat {
            id: seat.id + (1 << 32),
            parent: self.id,
            group: self.group.create(&place.to_string()).expect("the name is free again"),
        }
    }
}

impl Ground {
    fn new(groups: usize) -> Ground {
        let (meters, shape) = (Meters::split(), Shape::of(groups));
        let tree = Tree::new(meters.schema.clone()).expect("a tree");
        let mut seats: Vec<RwLock<Seat>> = Vec::with_capacity(groups);
        seats.push(RwLock::new(Seat { id: 0, parent: 0, group: tree.root().clone() }));
        for place in 1..groups {
            let parent = shape.parent(place);
            let above = seats[parent].get_mut().expect("no panic so far").group.clone();
            let group = above.create(&place.to_string()).expect("a free name and room");
            if parent == 0 {
                group.set_limit(meters.resources[0], Some(LIMIT));
            }
            seats.push(RwLock::new(Seat { id: place as u64, parent: parent as u64, group }));
        }
        Ground { meters, visits: tree.collector("visits", Visits), tree, shape, seats }
    }

    /// Flushes as fast as leaves something of a small machine to updates.
    fn flusher(&self) -> Flusher {
        let visits = self.visits.clone();
        let flusher = self.tree.flusher().period(Duration::from_millis(1)).also(move || {
            visits.flush().expect("not from a callback");
        });
        flusher.start().expect("a thread")
    }

    fn seat(&self, place: usize) -> Seat {
        self.seats[place].read().expect("no panic with it locked").clone()
    }
}

impl Soak {
    /// Creates a tree of `groups` groups, and `threads` workers with their notes.
    ///
    /// # Panics
    /// When there are fewer than 4 groups, or no thread.
    #[must_use]
    pub fn new(groups: usize, threads: usize, seed: u64) -> Soak {
        assert!(threads > 0, "no threads: give at least 1");
        let ground = Ground::new(groups);
        let workers = (0..threads as u64).map(|n| Worker::new(&ground, seed ^ n << 32)).collect();
        Soak { ground, workers, flushes: 0 }
    }

    /// Lets every worker take `steps_max` steps, or stops them as soon as `stop` is true. Meanwhile
    /// the tree's own flusher runs, and this thread calls `watch` a few times a second.
    pub fn round(&mut self, steps_max: u64, stop: &AtomicBool, mut watch: impl FnMut(Progress)) {
        let Soak { ground, workers, flushes } = self;
        let watched: Vec<_> = workers.iter().map(Worker::watched).collect();
        let flusher = ground.flusher();
        thread::scope(|scope| {
            let ground = &*ground;
            let running: Vec<_> = workers
                .iter_mut()
                .map(|worker| scope.spawn(move || worker.run(ground, steps_max, stop)))
                .collect();
            while !running.iter().all(thread::ScopedJoinHandle::is_finished) {
                watch(sum(*flushes + flusher.flushes(), &watched));
                thread::sleep(Duration::from_millis(if cfg!(miri) { 1 } else { 50 }));
            }
            running.into_iter().for_each(|worker| worker.join().expect("no panic"));
        });
        assert_eq!(flusher.panics(), 0, "flushes that panicked");
        *flushes += flusher.flushes();
    }

    /// Returns what was done so far.
    #[must_use]
    pub fn progress(&self) -> Progress {
        let watched: Vec<_> = self.workers.iter().map(Worker::watched).collect();
        sum(self.flushes, &watched)
    }

    /// Flushes, then compares every metric of every group with the threads' notes.
    pub fn compare(&mut self) -> Comparison {
        tally::compare(&self.ground, &mut self.workers)
    }

    /// Lets go of every handle and charge that the workers hold: then the tree holds its groups alone.
    /// Returns how many exist after a flush, the dying included.
    pub fn settle(&mut self) -> usize {
        self.workers.iter_mut().for_each(Worker::let_go);
        // The first carries what the last handles counted up and lets go of their words.
        self.ground.tree.flush();
        self.ground.tree.flush();
        self.ground.tree.len()
    }
}

fn sum(flushes: u64, workers: &[Arc<Mutex<Progress>>]) -> Progress {
    let own = Progress { flushes, ..Progress::default() };
    workers
        .iter()
        .fold(own, |sum, worker| sum.plus(*worker.lock().expect("no panic with it locked")))
}
