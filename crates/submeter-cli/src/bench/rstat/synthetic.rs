//! The synthetic workload: one thread flushes the whole tree over and over, the others update leaves at random.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use super::clock::Clock;
use super::designs::{Design, Shape};
use super::record::{Reading, Times, Unit};
use super::team;
use crate::bench::threads::{Apart, Preemptions};

/// What is counted of each group.
pub(super) const METRICS: usize = 16;
/// Between the end of a flush and the start of the next.
const PAUSE: Duration = Duration::from_micros(10);
/// How long a sample runs: some hundred flushes.
const SAMPLE: Duration = Duration::from_millis(5);
/// Updates of each thread for each flush, where the load is the same for all: about as many as the slowest
/// designs leave room for.
const PER_FLUSH: u64 = 128;
/// Updates between two looks at whether it is over.
const BATCH: u64 = 64;

/// How much is updated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Load {
    /// As fast as it goes: who updates faster leaves more to flush.
    Free,
    /// So much for each flush, and no more until the next begins.
    Equal,
}

impl Load {
    pub(super) fn name(self) -> &'static str {
        match self {
            Load::Free => "free",
            Load::Equal => "equal",
        }
    }
}

/// A design, and what it was told.
pub(super) struct Synthetic<D> {
    design: D,
    shape: Shape,
    clock: Clock,
    updates: u64,
    /// Whether it keeps totals at all.
    counts: bool,
}

impl<D: Design> Synthetic<D> {
    /// Makes one with nothing counted; `counts` says whether the design keeps totals that can be checked.
    ///
    /// # Errors
    /// As the design.
    pub(super) fn new(counts: bool) -> io::Result<Synthetic<D>> {
        let shape = Shape::tens(METRICS);
        Ok(Synthetic { design: D::new(&shape)?, shape, clock: Clock::new(), updates: 0, counts })
    }

    /// Measures: the first of `cpus` flushes, the others update.
    ///
    /// # Errors
    /// When a thread cannot be pinned, or the totals are wrong.
    pub(super) fn sample(&mut self, cpus: &[usize], load: Load) -> io::Result<Vec<Reading>> {
        let mut readings = Vec::new();
        // Stamps take longer than updates: rates and flushes are measured without, waits with them.
        let free = (load == Load::Free).then(|| self.run::<false>(cpus, load)).transpose()?;
        let stamped = self.run::<true>(cpus, load)?;
        self.check()?;
        let run = free.as_ref().unwrap_or(&stamped);
        run.flusher.tell(&mut readings);
        stamped.waits.tell("wait", Unit::Nanoseconds, &mut readings);
        stamped.waits.tell_tail("wait", &mut readings);
        readings.push(stamped.preemptions());
        if let Some(free) = &free {
            readings.extend(free.rates());
        }
        Ok(readings)
    }

    fn run<const STAMPED: bool>(&mut self, cpus: &[usize], load: Load) -> io::Result<Run> {
        let updaters = cpus.len() - 1;
        let shared = Shared {
            ended: AtomicBool::new(false),
            allowed: Apart(AtomicU64::new(if load == Load::Free { u64::MAX } else { 0 })),
            used_up: Apart(AtomicU64::new(0)),
        };
        let (design, shape, clock) = (&self.design, &self.shape, &self.clock);
        let roles = team::together(
            cpus,
            |index| (index > 0).then(|| design.sit()).transpose(),
            |index, seat| match seat {
                None => Role::Flusher(flusher(design, clock, &shared, load, updaters as u64)),
                Some(seat) => {
                    Role::Updater(updater::<D, STAMPED>(design, seat, shape, clock, &shared, index))
                }
            },
        )?;
        let mut run = Run::new();
        for role in roles {
            match role {
                Role::Flusher(flusher) => run.flusher = flusher,
                Role::Updater(updater) => run.add(updater),
            }
        }
        self.updates += run.updates;
        Ok(run)
    }

    /// Makes sure that every update is in the root's totals.
    fn check(&self) -> io::Result<()> {
        if !self.counts {
            return Ok(());
        }
        self.design.settle();
        let found: i64 = (0..METRICS).map(|metric| self.design.total(0, metric)).sum();
        if found.cast_unsigned() == self.updates {
            return Ok(());
        }
        Err(io::Error::other(format!("{} updates make a total of {found}", self.updates)))
    }
}

/// What flusher and updaters tell each other.
struct Shared {
    ended: AtomicBool,
    /// How many updates each thread may have made.
    allowed: Apart<AtomicU64>,
    /// How often a thread had made all that it may.
    used_up: Apart<AtomicU64>,
}

impl Shared {
    fn has_ended(&self) -> bool {
        // Relaxed: nothing is handed over; the threads are joined.
        self.ended.load(Ordering::Relaxed)
    }
}

enum Role {
    Flusher(Flushes),
    Updater(Updates),
}

/// What the flusher saw.
pub(super) struct Flushes {
    pub(super) holds: Times,
    pub(super) flushes: Times,
    pub(super) nodes: u64,
    pub(super) hold_ns: u64,
    pub(super) flush_ns: u64,
}

impl Flushes {
    pub(super) fn new() -> Flushes {
        let (holds, flushes) = (Times::new(), Times::new());
        Flushes { holds, flushes, nodes: 0, hold_ns: 0, flush_ns: 0 }
    }

    /// Flushes and takes the time.
    pub(super) fn flush<D: Design>(
        &mut self,
        design: &D,
        clock: &Clock,
        group: u32,
        scratch: &mut Vec<u64>,
    ) {
        scratch.clear();
        let from = clock.ticks();
        let nodes = design.flush(group, scratch);
        let took = clock.since_ns(from);
        self.flushes.add(took);
        self.flush_ns += took;
        self.nodes += nodes;
        for &ns in scratch.iter() {
            self.holds.add(ns);
            self.hold_ns += ns;
        }
    }

    /// Adds those of another thread.
    pub(super) fn merge(&mut self, other: &Flushes) {
        self.holds.merge(&other.holds);
        self.flushes.merge(&other.flushes);
        self.nodes += other.nodes;
        self.hold_ns += other.hold_ns;
        self.flush_ns += other.flush_ns;
    }

    /// Appends what there is to say.
    pub(super) fn tell(&self, to: &mut Vec<Reading>) {
        self.holds.tell("hold", Unit::Microseconds, to);
        self.flushes.tell("flush", Unit::Microseconds, to);
        if self.nodes > 0 {
            let nodes = self.nodes as f64;
            let flushes = self.flushes.len().max(1) as f64;
            to.push(Reading::of("nodes_per_flush", "nodes", nodes / flushes));
            to.push(Reading::of("flush_per_node", "ns", self.flush_ns as f64 / nodes));
            if self.holds.len() > 0 {
                to.push(Reading::of("hold_per_node", "ns", self.hold_ns as f64 / nodes));
            }
        }
    }
}

/// What one thread that updated saw.
struct Updates {
    done: u64,
    took_ns: u64,
    waits: Times,
    preemptions: u64,
}

/// What all of them saw.
struct Run {
    flusher: Flushes,
    waits: Times,
    updates: u64,
    /// Of all threads together.
    took_ns: u64,
    per_s: f64,
    preemptions: u64,
}

impl Run {
    fn new() -> Run {
        let (flusher, waits) = (Flushes::new(), Times::new());
        Run { flusher, waits, updates: 0, took_ns: 0, per_s: 0.0, preemptions: 0 }
    }

    fn add(&mut self, updater: Updates) {
        self.waits.merge(&updater.waits);
        self.updates += updater.done;
        self.took_ns += updater.took_ns;
        self.per_s += updater.done as f64 / (updater.took_ns.max(1) as f64 / 1e9);
        self.preemptions += updater.preemptions;
    }

    fn preemptions(&self) -> Reading {
        Reading::of("preemptions", "count", self.preemptions as f64).summed()
    }

    fn rates(&self) -> [Reading; 2] {
        let per_update = self.took_ns as f64 / self.updates.max(1) as f64;
        [
            Reading::of("update", "ns", per_update),
            Reading::of("rate", "updates/s", self.per_s.round()),
        ]
    }
}

fn flusher<D: Design>(
    design: &D,
    clock: &Clock,
    shared: &Shared,
    load: Load,
    updaters: u64,
) -> Flushes {
    let (mut found, mut scratch) = (Flushes::new(), Vec::new());
    let (begin, mut rounds) = (clock.ticks(), 0);
    while u128::from(clock.since_ns(begin)) < SAMPLE.as_nanos() {
        if load == Load::Equal {
            // Relaxed: says how many, and hands over nothing.
            shared.allowed.0.fetch_add(PER_FLUSH, Ordering::Relaxed);
            rounds += 1;
        }
        found.flush(design, clock, 0, &mut scratch);
        clock.spin_until(clock.ticks(), PAUSE);
        // Relaxed: as above.
        while shared.used_up.0.load(Ordering::Relaxed) < rounds * updaters {
            std::hint::spin_loop();
        }
    }
    // Relaxed: see `has_ended`.
    shared.ended.store(true, Ordering::Relaxed);
    found
}

fn updater<D: Design, const STAMPED: bool>(
    design: &D,
    seat: D::Seat,
    shape: &Shape,
    clock: &Clock,
    shared: &Shared,
    seed: usize,
) -> Updates {
    let preemptions = Preemptions::count();
    let (mut random, mut waits, mut done) = (Leaves::new(shape, seed), Times::new(), 0);
    let from = clock.ticks();
    while !shared.has_ended() {
        // Relaxed: see the flusher.
        let allowed = shared.allowed.0.load(Ordering::Relaxed);
        let now = BATCH.min(allowed - done);
        for _ in 0..now {
            let (leaf, metric) = random.next();
            if STAMPED {
                let from = clock.ticks();
                design.update(seat, leaf, metric, 1);
                let until = clock.ticks();
                waits.add(clock.between_ns(from, until));
            } else {
                design.update(seat, leaf, metric, 1);
            }
        }
        done += now;
        if now > 0 && done == allowed {
            // Relaxed: see the flusher.
            shared.used_up.0.fetch_add(1, Ordering::Relaxed);
        }
    }
    Updates { done, took_ns: clock.since_ns(from), waits, preemptions: preemptions.so_far() }
}

/// Leaves and metrics in no order, at the price of a multiplication.
struct Leaves {
    state: u64,
    first: u32,
    count: u64,
}

impl Leaves {
    fn new(shape: &Shape, seed: usize) -> Leaves {
        // Groups without children come last.
        let last_parent = shape.parents.last().copied().unwrap_or(0);
        let first = last_parent + 1;
        Leaves { state: seed as u64, first, count: shape.groups() as u64 - u64::from(first) }
    }

    #[inline]
    fn next(&mut self) -> (u32, usize) {
        // Knuth's MMIX: the upper bits are good enough.
        self.state = self
            .state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        let leaf = ((self.state >> 32) * self.count) >> 32;
        (self.first + leaf as u32, (self.state >> 20) as usize % METRICS)
    }
}
