//! One thread of a soak, and its notes.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use fastrand::Rng;
use submeter::Charge;

use super::notes::Notes;
use super::shared_tree::{Occupant, SharedTree};
use crate::op::{Op, Source, picked};
use crate::schema::COUNTERS;
use crate::update::{Handle, Update};

/// Handles that a worker keeps for some time, so that some are still held after a kill.
const KEPT: usize = 256;

/// Charges that a worker holds at once.
const CHARGES_MAX: usize = 1_000;

/// Steps between two reports to the watching thread.
const CHUNK: u64 = 512;

/// The progress of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Adds, gauge adjustments, records and visits, each counted once.
    pub updates: u64,
    /// Groups killed, each of which was replaced by a new one.
    pub killed: u64,
    /// Charges granted.
    pub charges: u64,
    /// Charges refused by a limit.
    pub refused: u64,
    /// Flushes, including those of exact reads.
    pub flushes: u64,
}

impl Progress {
    pub(super) fn plus(self, other: Progress) -> Progress {
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

/// A difference between the tree and the threads' notes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// The group.
    pub path: String,
    /// The metric.
    pub metric: String,
    /// The value according to the notes.
    pub expected: i128,
    /// The value in the tree.
    pub found: i128,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Difference { path, metric, expected, found } = self;
        write!(f, "{path}: {metric}: noted {expected}, found {found} ({:+})", found - expected)
    }
}

/// A thread's handles, charges and notes.
pub(super) struct Worker {
    rng: Rng,
    kept: Vec<Kept>,
    pub(super) charges: Vec<WorkerCharge>,
    pub(super) notes: Notes,
    pub(super) differences: Vec<Difference>,
    progress: Progress,
    /// A recent copy of the progress, for the watching thread.
    watched: Arc<Mutex<Progress>>,
}

/// A handle, and the identity of its group.
struct Kept {
    occupant: Occupant,
    handle: Handle,
}

impl Kept {
    fn at(shared: &SharedTree, place: usize) -> Kept {
        let occupant = shared.at(place);
        Kept { handle: Handle::new(occupant.group.clone()), occupant }
    }
}

/// A charge, and the identity of its group.
pub(super) struct WorkerCharge {
    /// The IDs of the group and of its parent.
    pub(super) ids: [u64; 2],
    pub(super) quota: usize,
    pub(super) charge: Charge,
}

impl Worker {
    pub(super) fn new(shared: &SharedTree, seed: u64) -> Worker {
        let mut rng = Rng::with_seed(seed);
        let kept = (0..KEPT).map(|_| Kept::at(shared, rng.usize(..shared.shape.groups())));
        Worker {
            kept: kept.collect(),
            rng,
            charges: Vec::new(),
            notes: Notes::new(shared),
            differences: Vec::new(),
            progress: Progress::default(),
            watched: Arc::default(),
        }
    }

    pub(super) fn watched(&self) -> Arc<Mutex<Progress>> {
        Arc::clone(&self.watched)
    }

    pub(super) fn drop_all(&mut self) {
        self.kept.clear();
        self.charges.clear();
    }

    pub(super) fn run(&mut self, shared: &SharedTree, steps_max: u64, stop: &AtomicBool) {
        let mut left = steps_max;
        // Relaxed: only ends the loop.
        while left > 0 && !stop.load(Ordering::Relaxed) {
            let now = left.min(CHUNK);
            (0..now).for_each(|_| self.step(shared));
            left -= now;
            *self.watched.lock().expect("no panic with it locked") = self.progress;
        }
    }

    fn step(&mut self, shared: &SharedTree) {
        // Under Miri there are few steps, and the flusher may not get a turn, so workers flush as
        // well.
        let op = if cfg!(miri) && self.rng.u8(..20) == 0 {
            Op::FlushBelow { at: self.rng.u32(..) }
        } else {
            Op::random(Source::Threads, &mut self.rng)
        };
        match op {
            Op::Update { at, update } => self.update(shared, at, update),
            Op::Descend { turns } => {
                let any = self.rng.usize(..KEPT);
                self.kept[any] = Kept::at(shared, shared.shape.descend(&turns));
            }
            Op::Charge { at, quota, n } => self.charge(shared, at, quota, n),
            Op::DropCharge { charge } => self.drop_charge(charge),
            Op::Kill { at } => {
                let leaf = shared.shape.leaves_at() + picked(at, shared.shape.leaves);
                self.progress.killed += shared.replace_leaf(leaf) as u64;
            }
            Op::KillSubtree { at } => self.replace_middles(shared, at),
            Op::Sum { at } => self.sum(shared, at),
            Op::Flush => {
                shared.tree.flush();
                self.progress.flushes += 1;
            }
            Op::FlushBelow { at } => {
                // Some kept handles are of live groups, others of killed ones.
                self.kept[picked(at, KEPT)].occupant.group.flush();
                self.progress.flushes += 1;
            }
            other => unreachable!("threads do not draw {other:?}"),
        }
    }

    fn update(&mut self, shared: &SharedTree, at: u32, update: Update) {
        let Kept { occupant, handle } = &mut self.kept[picked(at, KEPT)];
        update.apply(handle, &shared.schema, &shared.visits);
        update.count_in(self.notes.of(occupant));
        self.progress.updates += 1;
    }

    /// Checks that an exact read finds at least what this thread itself counted.
    fn sum(&mut self, shared: &SharedTree, at: u32) {
        let Kept { occupant, .. } = &self.kept[picked(at, KEPT)];
        // The notes of killed groups are not kept apart.
        let Some(own) = self.notes.alone(occupant).copied() else { return };
        let which = self.rng.usize(..COUNTERS);
        let found = occupant.group.sum(shared.schema.counters[which]);
        let own = own.sums.counters[which];
        if found < own {
            self.differences.push(Difference {
                path: occupant.group.path().to_owned(),
                metric: "a counter read while others update, at least".to_owned(),
                expected: i128::from(own),
                found: i128::from(found),
            });
        }
        self.progress.flushes += 1;
    }

    fn charge(&mut self, shared: &SharedTree, at: u32, quota: usize, n: u64) {
        if self.charges.len() >= CHARGES_MAX {
            return self.drop_charge(at);
        }
        let Kept { occupant, .. } = &self.kept[picked(at, KEPT)];
        match occupant.group.try_charge(shared.schema.quotas[quota], n) {
            Ok(charge) => {
                let ids = [occupant.id, occupant.parent];
                self.charges.push(WorkerCharge { ids, quota, charge });
                self.progress.charges += 1;
            }
            Err(_) => self.progress.refused += 1,
        }
    }

    fn drop_charge(&mut self, charge: u32) {
        if !self.charges.is_empty() {
            drop(self.charges.swap_remove(picked(charge, self.charges.len())));
        }
    }

    /// Replaces a middle group with all its leaves; sometimes an eighth of all middle groups, so
    /// that much is free in between and a flush returns memory to the system.
    fn replace_middles(&mut self, shared: &SharedTree, at: u32) {
        let middles = shared.shape.middles;
        let many = self.rng.u8(..8) == 0;
        let count = if many { middles.div_ceil(8) } else { 1 };
        let first = picked(at, middles - count + 1);
        let killed = shared.replace_middles(first, count, || {
            if many {
                shared.tree.flush();
            }
        });
        self.progress.flushes += u64::from(many);
        self.progress.killed += killed as u64;
    }
}
