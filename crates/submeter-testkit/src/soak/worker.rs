//! One thread of a soak, and its notes.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, RwLockWriteGuard};

use submeter::{Attached, Charge};

use super::tally::{Counts, Difference, Notes};
use super::{Ground, Progress, Seat};
use crate::meters::COUNTERS;
use crate::random::Random;
use crate::visits::{Visited, Visits};

/// Handles that a worker keeps for a while: some outlive their groups.
const KEPT: usize = 256;

/// Charges that a worker holds at once.
const CHARGES_MAX: usize = 1_000;

/// Steps between two looks at what others want to know or say.
const CHUNK: u64 = 512;

pub(super) struct Worker {
    random: Random,
    kept: Vec<Kept>,
    pub(super) charges: Vec<Held>,
    pub(super) notes: Notes,
    pub(super) differences: Vec<Difference>,
    progress: Progress,
    /// The same as of a moment ago, for who watches.
    watched: Arc<Mutex<Progress>>,
}

/// A handle, and one for visits where there was one.
struct Kept {
    seat: Seat,
    attached: Option<Attached<Visits>>,
}

impl Kept {
    fn any(ground: &Ground, random: &mut Random) -> Kept {
        Kept { seat: any_seat(ground, random), attached: None }
    }
}

/// A charge, and on whom.
pub(super) struct Held {
    pub(super) id: u64,
    pub(super) parent: u64,
    pub(super) resource: usize,
    pub(super) charge: Charge,
}

impl Worker {
    pub(super) fn new(ground: &Ground, seed: u64) -> Worker {
        let mut random = Random::new(seed);
        let kept = (0..KEPT).map(|_| Kept::any(ground, &mut random)).collect();
        Worker {
            random,
            kept,
            charges: Vec::new(),
            notes: Notes::new(ground),
            differences: Vec::new(),
            progress: Progress::default(),
            watched: Arc::default(),
        }
    }

    pub(super) fn watched(&self) -> Arc<Mutex<Progress>> {
        Arc::clone(&self.watched)
    }

    pub(super) fn let_go(&mut self) {
        self.kept.clear();
        self.charges.clear();
    }

    pub(super) fn run(&mut self, ground: &Ground, steps_max: u64, stop: &AtomicBool) {
        let mut left = steps_max;
        // Relaxed: only ends the loop.
        while left > 0 && !stop.load(Ordering::Relaxed) {
            let now = left.min(CHUNK);
            (0..now).for_each(|_| self.step(ground));
            left -= now;
            *self.watched.lock().expect("no panic with it locked") = self.progress;
        }
    }

    fn step(&mut self, ground: &Ground) {
        // There steps are few, and the flusher may not come to its turn: the flushes among them are the workers'.
        if cfg!(miri) && self.random.below(20) == 0 {
            return self.flush(ground);
        }
        match self.random.below(4_000) {
            0..4 => self.replace_leaf(ground),
            4 if self.random.below(40) == 0 => self.replace_middles(ground),
            5..7 => self.read(ground),
            7 if self.random.below(5) == 0 => self.flush(ground),
            8..48 => self.charge(ground),
            48..72 => self.uncharge(),
            72..400 => {
                let place = self.random.below(KEPT as u64) as usize;
                self.kept[place] = Kept::any(ground, &mut self.random);
            }
            400..600 => self.visit(ground),
            _ => self.update(ground),
        }
    }

    fn update(&mut self, ground: &Ground) {
        let Kept { seat, .. } = &self.kept[self.random.below(KEPT as u64) as usize];
        let n = self.random.below(200);
        let meters = &ground.meters;
        let counts = self.notes.of(seat);
        match self.random.below(4) {
            which @ 0..2 => {
                seat.group.add(meters.counters[which as usize], n);
                counts.counters[which as usize] += n;
            }
            2 => {
                let delta = 90 - n.cast_signed();
                seat.group.adjust(meters.gauge, delta);
                counts.gauge += delta;
            }
            _ => {
                seat.group.record(meters.histogram, n);
                counts.record(n);
            }
        }
        self.progress.updates += 1;
    }

    fn visit(&mut self, ground: &Ground) {
        let length = self.random.below(1 << 40);
        let kept = &mut self.kept[self.random.below(KEPT as u64) as usize];
        let seat = &kept.seat;
        let attached = kept.attached.get_or_insert_with(|| ground.visits.attach(&seat.group));
        attached.update(|here| here.visit(length));
        self.notes.of(seat).visited.merge(&Visited { count: 1, longest: length });
        self.progress.updates += 1;
    }

    /// An exact read finds at least what this thread counted itself.
    fn read(&mut self, ground: &Ground) {
        let Kept { seat, .. } = &self.kept[self.random.below(KEPT as u64) as usize];
        // Of the dead, there are notes of all together at most.
        let Some(own) = self.notes.alone(seat).copied() else { return };
        let which = self.random.below(COUNTERS as u64) as usize;
        let found = seat.group.sum(ground.meters.counters[which]);
        if found < own.counters[which] {
            self.differences.push(Difference {
                path: seat.group.path().to_owned(),
                metric: "a counter read while others update, at least".to_owned(),
                expected: i128::from(own.counters[which]),
                found: i128::from(found),
            });
        }
        self.progress.flushes += 1;
    }

    /// Everything, or one part: of what is kept some is alive, some dead.
    fn flush(&mut self, ground: &Ground) {
        let Kept { seat, .. } = &self.kept[self.random.below(KEPT as u64) as usize];
        match self.random.below(4) {
            0 => ground.tree.flush(),
            _ => seat.group.flush(),
        };
        self.progress.flushes += 1;
    }

    fn charge(&mut self, ground: &Ground) {
        if self.charges.len() >= CHARGES_MAX {
            return self.uncharge();
        }
        let Kept { seat, .. } = &self.kept[self.random.below(KEPT as u64) as usize];
        let resource = self.random.below(2) as usize;
        match seat.group.try_charge(ground.meters.resources[resource], self.random.below(60)) {
            Ok(charge) => {
                let Seat { id, parent, .. } = *seat;
                self.charges.push(Held { id, parent, resource, charge });
                self.progress.charges += 1;
            }
            Err(_) => self.progress.refused += 1,
        }
    }

    fn uncharge(&mut self) {
        if !self.charges.is_empty() {
            let at = self.random.below(self.charges.len() as u64) as usize;
            drop(self.charges.swap_remove(at));
        }
    }

    /// Kills a leaf and creates another one of its name. Others may hold it, and go on counting.
    fn replace_leaf(&mut self, ground: &Ground) {
        let shape = ground.shape;
        let place = shape.leaves_at() + self.random.below(shape.leaves as u64) as usize;
        // Held, so that nobody kills the parent meanwhile.
        let above = ground.seats[shape.parent(place)].read().expect("no panic with it locked");
        let mut seat = ground.seats[place].write().expect("no panic with it locked");
        seat.group.kill().expect("a live leaf");
        *seat = above.successor(&seat, place);
        self.progress.killed += 1;
    }

    /// Kills a middle with all its leaves, and creates all of them anew; sometimes an eighth of all middles, so that
    /// much is free in between, and a flush gives memory back.
    fn replace_middles(&mut self, ground: &Ground) {
        let shape = ground.shape;
        let many = self.random.below(8) == 0;
        let count = if many { shape.middles.div_ceil(8) } else { 1 };
        let first = self.random.below((shape.middles - count + 1) as u64) as usize;
        let places = (first..first + count).map(|n| shape.middles_at() + n);
        // In the order of places, as everybody who locks several.
        let mut middles: Vec<(usize, RwLockWriteGuard<Seat>)> = places
            .map(|place| (place, ground.seats[place].write().expect("no panic with it locked")))
            .collect();
        let mut leaves: Vec<Vec<(usize, RwLockWriteGuard<Seat>)>> = Vec::new();
        for (place, middle) in &mut middles {
            self.progress.killed += middle.group.kill_subtree().expect("a live group").len() as u64;
            // Nobody looks at the seats before they have new groups; until then nothing keeps the old ones.
            middle.group = ground.tree.root().clone();
            let lock = |leaf: usize| {
                let mut seat = ground.seats[leaf].write().expect("no panic with it locked");
                seat.group = ground.tree.root().clone();
                (leaf, seat)
            };
            leaves.push(shape.leaves_of(*place).map(lock).collect());
        }
        if many {
            ground.tree.flush();
            self.progress.flushes += 1;
        }
        for ((place, middle), leaves) in middles.iter_mut().zip(leaves) {
            let top = ground.seat(shape.parent(*place));
            **middle = top.successor(middle, *place);
            for (leaf, mut seat) in leaves {
                *seat = middle.successor(&seat, leaf);
            }
        }
    }
}

/// A leaf mostly; a middle, a top or the root now and then.
fn any_seat(ground: &Ground, random: &mut Random) -> Seat {
    let shape = ground.shape;
    let place = match random.below(64) {
        0 => random.below(shape.middles_at() as u64),
        1..8 => shape.middles_at() as u64 + random.below(shape.middles as u64),
        _ => shape.leaves_at() as u64 + random.below(shape.leaves as u64),
    };
    ground.seat(place as usize)
}

/// Counts by the id of the parent, of groups that are no more.
pub(super) type Orphans = HashMap<u64, Counts>;
