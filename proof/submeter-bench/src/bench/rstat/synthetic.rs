//! The synthetic workload: one thread flushes the whole tree repeatedly, the others update random
//! leaves.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use super::clock::Clock;
use super::designs::{Design, Shape};
use super::run::{Flushes, Run};
use super::team;
use super::times::Times;
use crate::bench::record::Reading;
use crate::bench::threads::Preemptions;
use crossbeam_utils::CachePadded;

/// Metrics per group.
pub(super) const METRICS: usize = 16;
/// The time between the end of a flush and the start of the next.
const PAUSE: Duration = Duration::from_micros(10);
/// How long a sample runs: a few hundred flushes.
const SAMPLE: Duration = Duration::from_millis(10);
/// Updates per thread and flush under the equal load: about as many as the slowest designs allow.
const PER_FLUSH: u64 = 128;
/// Updates between two checks for the end.
const BATCH: u64 = 64;

/// The load of updates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Load {
    /// As fast as possible: a design with faster updates has more to flush.
    Free,
    /// A fixed number per flush, and no further ones until the next flush begins.
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

/// A design, and the number of updates that it received.
pub(super) struct Synthetic<D> {
    design: D,
    shape: Shape,
    clock: Clock,
    updates: u64,
    /// Whether the design keeps totals.
    counts: bool,
}

impl<D: Design> Synthetic<D> {
    /// Makes a workload without updates; `counts` says whether the design keeps totals that can be
    /// checked.
    ///
    /// # Errors
    /// Those of the design.
    pub(super) fn new(counts: bool) -> io::Result<Synthetic<D>> {
        let shape = Shape::tens(METRICS);
        Ok(Synthetic { design: D::new(&shape)?, shape, clock: Clock::new(), updates: 0, counts })
    }

    /// Measures: the first of `cpus` flushes, the others update.
    ///
    /// # Errors
    /// When a thread cannot be pinned, or the totals are wrong.
    pub(super) fn sample(&mut self, cpus: &[usize], load: Load) -> io::Result<Vec<Reading>> {
        let free = (load == Load::Free).then(|| self.run::<false>(cpus, load)).transpose()?;
        let stamped = self.run::<true>(cpus, load)?;
        self.check()?;
        Ok(Run::figures(free.as_ref(), &stamped))
    }

    fn run<const STAMPED: bool>(&mut self, cpus: &[usize], load: Load) -> io::Result<Run> {
        let updaters = cpus.len() - 1;
        let shared = Shared {
            ended: AtomicBool::new(false),
            allowed: CachePadded::new(AtomicU64::new(if load == Load::Free {
                u64::MAX
            } else {
                0
            })),
            used_up: CachePadded::new(AtomicU64::new(0)),
        };
        let (design, shape, clock) = (&self.design, &self.shape, &self.clock);
        let runs = team::together(
            cpus,
            |index| (index > 0).then(|| design.register()).transpose(),
            |index, slot| match slot {
                None => Run::of_flushes(flusher(design, clock, &shared, load, updaters as u64)),
                Some(slot) => updater::<D, STAMPED>(design, slot, shape, clock, &shared, index),
            },
        )?;
        let run = runs.into_iter().reduce(|all, run| all.merge(&run));
        let run = run.expect("there is a flusher");
        self.updates += run.updates;
        Ok(run)
    }

    /// Checks that every update is in the root's totals.
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

/// The state that the flusher and the updaters share.
struct Shared {
    ended: AtomicBool,
    /// The number of updates that each thread may have made so far.
    allowed: CachePadded<AtomicU64>,
    /// How often a thread used up its updates.
    used_up: CachePadded<AtomicU64>,
}

impl Shared {
    fn has_ended(&self) -> bool {
        // Relaxed: hands over nothing; the threads are joined.
        self.ended.load(Ordering::Relaxed)
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
    let mut rounds = 0;
    let mut allow = || {
        if load == Load::Equal {
            // Relaxed: a number that hands over nothing else.
            shared.allowed.fetch_add(PER_FLUSH, Ordering::Relaxed);
            rounds += updaters;
        }
        rounds
    };
    let used_up = |rounds| {
        // Relaxed: as above.
        while shared.used_up.load(Ordering::Relaxed) < rounds {
            std::hint::spin_loop();
        }
    };
    // The first flush must have something to flush, too.
    used_up(allow());
    let begin = clock.ticks();
    while u128::from(clock.since_ns(begin)) < SAMPLE.as_nanos() {
        let rounds = allow();
        found.flush(design, clock, 0, &mut scratch);
        clock.spin_until(clock.ticks(), PAUSE);
        used_up(rounds);
    }
    // Relaxed: see `has_ended`.
    shared.ended.store(true, Ordering::Relaxed);
    found
}

fn updater<D: Design, const STAMPED: bool>(
    design: &D,
    slot: D::Slot,
    shape: &Shape,
    clock: &Clock,
    shared: &Shared,
    seed: usize,
) -> Run {
    let preemptions = Preemptions::count();
    let (mut random, mut waits, mut done) = (Leaves::new(shape, seed), Times::new(), 0);
    let from = clock.ticks();
    // At least once: if other work preempts this thread, the run may be over before it begins.
    loop {
        // Relaxed: see the flusher.
        let allowed = shared.allowed.load(Ordering::Relaxed);
        let now = BATCH.min(allowed - done);
        for _ in 0..now {
            let (leaf, metric) = random.next();
            if STAMPED {
                let from = clock.ticks();
                design.update(slot, leaf, metric, 1);
                let until = clock.ticks();
                waits.add(clock.between_ns(from, until));
            } else {
                design.update(slot, leaf, metric, 1);
            }
        }
        done += now;
        if now > 0 && done == allowed {
            // Relaxed: see the flusher.
            shared.used_up.fetch_add(1, Ordering::Relaxed);
        }
        if shared.has_ended() {
            break;
        }
    }
    let busy_ns = clock.since_ns(from);
    Run::of_updates(Flushes::new(), waits, done, busy_ns, preemptions.so_far())
}

/// Random leaves and metrics, at the cost of a multiplication.
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

#[cfg(test)]
mod tests {
    use submeter_sys::cpu::affinity;

    use super::*;
    use crate::bench::rstat::designs::{Patch1To2, Submeter, WalkUp};

    fn measured<D: Design>() {
        let cpus = affinity().expect("this process may run somewhere");
        if cpus.len() < 2 {
            println!("skipped: the workload wants two CPUs; allow this process more (taskset)");
            return;
        }
        for load in [Load::Free, Load::Equal] {
            let mut workload = Synthetic::<D>::new(true).expect("address space");
            let readings =
                workload.sample(&cpus[..2], load).expect("measured, and totals are right");
            let sum = |measure| {
                let of = |r: &&Reading| r.has("measure", measure) && r.unit == "count";
                readings.iter().filter(of).map(|r| r.values[0]).sum::<f64>()
            };
            assert!(sum("wait") > 0.0 && sum("flush") > 0.0, "{load:?}: {readings:?}");
            let figure =
                |measure| readings.iter().find(|r| r.has("measure", measure)).map(|r| r.values[0]);
            assert_eq!(figure("rate").is_some(), load == Load::Free, "{load:?}");
            if let (Some(nodes), Load::Equal) = (figure("nodes_per_flush"), load) {
                // The updates allowed before and during the flush, and all ancestors.
                assert!(nodes <= (2 * PER_FLUSH + 111) as f64, "{nodes}");
            }
        }
    }

    #[test]
    fn both_loads_are_measured_and_checked() {
        measured::<Patch1To2>();
        measured::<Submeter>();
        measured::<WalkUp>();
    }

    /// A design that loses some updates, as one with a race might.
    struct Forgetful(WalkUp);

    impl Design for Forgetful {
        type Slot = ();

        fn mark_bytes(_shape: &Shape) -> f64 {
            0.0
        }

        fn new(shape: &Shape) -> io::Result<Forgetful> {
            WalkUp::new(shape).map(Forgetful)
        }

        fn register(&self) -> io::Result<()> {
            Ok(())
        }

        fn update(&self, (): (), group: u32, metric: usize, n: i64) {
            if group != 500 {
                self.0.update((), group, metric, n);
            }
        }

        fn flush(&self, _root: u32, _holds_ns: &mut Vec<u64>) -> u64 {
            0
        }

        fn settle(&self) {}

        fn total(&self, group: u32, metric: usize) -> i64 {
            self.0.total(group, metric)
        }
    }

    #[test]
    fn a_design_that_loses_updates_is_not_measured() {
        let mut workload = Synthetic::<Forgetful>::new(true).expect("no address space is needed");
        workload.design.update((), 500, 0, 1);
        workload.updates += 1;
        let error = workload.check().expect_err("one is lost");
        assert_eq!(error.to_string(), "1 updates make a total of 0");
    }

    #[test]
    fn every_leaf_and_metric_comes_up() {
        let shape = Shape::tens(METRICS);
        let mut leaves = Leaves::new(&shape, 1);
        let mut met = vec![[false; METRICS]; shape.groups()];
        for _ in 0..1_000_000 {
            let (leaf, metric) = leaves.next();
            met[leaf as usize][metric] = true;
        }
        assert!(met[..111].iter().flatten().all(|met| !met), "groups with children are no leaves");
        assert!(met[111..].iter().flatten().all(|met| *met));
    }
}
