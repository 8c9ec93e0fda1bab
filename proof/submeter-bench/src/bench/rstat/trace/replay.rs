//! The replay: a thread for each CPU of the recording makes that CPU's updates and flushes in
//! order.
//!
//! No thread waits for the recorded times. Flushes keep their position: a flush begins when all
//! threads have made every update that was recorded before it, and no update that was recorded
//! after its beginning is made before it has begun. It runs on the thread of the CPU that it was
//! recorded on, concurrently with the updates of the others. The recorded end of a flush says
//! nothing about the measured design, so the replay does not wait for it.

use std::io;
use std::path::Path;
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crossbeam_utils::CachePadded;
use submeter_sys::cpu::affinity;

use super::{Trace, Update};
use crate::bench::record::Reading;
use crate::bench::rstat::clock::Clock;
use crate::bench::rstat::designs::{
    Before, Control, Design, DoublyLinked, Patch1, Patch1To2, Patch1To3, Submeter, WalkUp,
};
use crate::bench::rstat::run::{Flushes, Run};
use crate::bench::rstat::times::Times;
use crate::bench::rstat::{team, variants};
use crate::bench::runner::{Cell, Measure, Sample};
use crate::bench::threads::Preemptions;
use crate::row::{Param, Params};

/// Makes a cell for each design.
pub(in crate::bench::rstat) fn cells(cpus: &[usize], trace: &Rc<Trace>) -> Vec<Cell> {
    let params = Params::from([("workload", Param::word("trace"))]);
    super::super::cells(&params, variants!(measure, cpus, trace))
}

/// Replays a trace on submeter and writes `group,metric,total`, including descendants, for every
/// group and metric that the recording names.
///
/// # Errors
/// One line that names the file and what to do.
pub(crate) fn write_totals(trace: &Trace, path: &Path) -> Result<(), String> {
    let name = path.display();
    let refused = |e: &dyn std::fmt::Display| {
        format!("cannot write {name}: {e}; name another file with --totals")
    };
    let mut file = csv::Writer::from_path(path).map_err(|e| refused(&e))?;
    let replayed = || -> io::Result<Submeter> {
        let design = Submeter::new(&trace.shape)?;
        run::<_, false>(&design, trace, &affinity()?, &Clock::new())?;
        design.settle();
        Ok(design)
    };
    let design = replayed().map_err(|e| format!("cannot replay the trace: {e}"))?;
    file.write_record(["group", "metric", "total"]).map_err(|e| refused(&e))?;
    for (group, path) in trace.shape.paths[..trace.groups].iter().enumerate() {
        for (metric, name) in trace.metrics.iter().enumerate() {
            let total = design.total(group as u32, metric).to_string();
            file.write_record([path.as_str(), name, &total]).map_err(|e| refused(&e))?;
        }
    }
    file.flush().map_err(|e| refused(&e))
}

fn measure<D: Design>(counts: bool, cpus: &[usize], trace: &Rc<Trace>) -> Measure {
    let (cpus, trace, mut replay) = (cpus.to_vec(), Rc::clone(trace), None);
    Box::new(move || {
        if replay.is_none() {
            replay = Some(Replay::<D>::new(counts, &trace)?);
        }
        replay.as_mut().expect("made above").sample(&trace, &cpus).map(Sample::kept)
    })
}

/// A design, and the number of replays on it.
struct Replay<D> {
    design: D,
    clock: Clock,
    /// The totals of one replay; empty if the design keeps none.
    expected: Vec<i64>,
    replays: i64,
}

impl<D: Design> Replay<D> {
    fn new(counts: bool, trace: &Trace) -> io::Result<Replay<D>> {
        let expected = if counts { count(trace) } else { Vec::new() };
        Ok(Replay { design: D::new(&trace.shape)?, clock: Clock::new(), expected, replays: 0 })
    }

    fn sample(&mut self, trace: &Trace, cpus: &[usize]) -> io::Result<Vec<Reading>> {
        let fast = run::<_, false>(&self.design, trace, cpus, &self.clock)?;
        let stamped = run::<_, true>(&self.design, trace, cpus, &self.clock)?;
        self.replays += 2;
        self.check(trace)?;
        Ok(Run::figures(Some(&fast), &stamped))
    }

    /// Checks that every group has the totals that the updates add up to.
    fn check(&self, trace: &Trace) -> io::Result<()> {
        self.design.settle();
        let metrics = trace.shape.metrics;
        for (index, one) in self.expected.iter().enumerate() {
            let (group, metric) = (index / metrics, index % metrics);
            let expected = one.wrapping_mul(self.replays);
            let found = self.design.total(group as u32, metric);
            if found != expected {
                let (path, name) = (&trace.shape.paths[group], &trace.metrics[metric]);
                return Err(io::Error::other(format!(
                    "{path} has {found} of {name} where the trace adds up to {expected}"
                )));
            }
        }
        Ok(())
    }
}

/// Counts one replay without any design: totals including descendants, by group and metric.
fn count(trace: &Trace) -> Vec<i64> {
    let metrics = trace.shape.metrics;
    let mut totals = vec![0_i64; trace.shape.groups() * metrics];
    for update in trace.updates.iter().flatten() {
        for at in trace.shape.upward(update.group.into()) {
            totals[at as usize * metrics + usize::from(update.metric)] += i64::from(update.value);
        }
    }
    totals
}

/// The progress of a replay's threads.
struct Progress {
    /// How often a thread has made everything that precedes a flush.
    arrived: CachePadded<AtomicUsize>,
    /// How many flushes have begun.
    begun: CachePadded<AtomicUsize>,
}

fn run<D: Design, const STAMPED: bool>(
    design: &D,
    trace: &Trace,
    cpus: &[usize],
    clock: &Clock,
) -> io::Result<Run> {
    let threads = trace.updates.len();
    // If the recording has more CPUs, threads share the existing ones.
    let cpus: Vec<usize> = cpus.iter().copied().cycle().take(threads).collect();
    let (arrived, begun) =
        (CachePadded::new(AtomicUsize::new(0)), CachePadded::new(AtomicUsize::new(0)));
    let progress = Progress { arrived, begun };
    let replay = |index, slot| {
        let thread = Thread { design, trace, clock, progress: &progress, index, slot };
        thread.replay::<STAMPED>()
    };
    let runs = team::together(&cpus, |_| design.register(), replay)?;
    let all = runs.into_iter().reduce(|all, run| all.merge(&run));
    all.ok_or_else(|| io::Error::other("the recording has no updates and no flushes"))
}

/// One thread of a replay.
struct Thread<'a, D: Design> {
    design: &'a D,
    trace: &'a Trace,
    clock: &'a Clock,
    progress: &'a Progress,
    /// Which of the recording's CPUs it is.
    index: usize,
    slot: D::Slot,
}

impl<D: Design> Thread<'_, D> {
    fn replay<const STAMPED: bool>(&self) -> Run {
        let preemptions = Preemptions::count();
        let (mut flushes, mut waits, mut scratch) = (Flushes::new(), Times::new(), Vec::new());
        let updates = &self.trace.updates[self.index];
        let (mut at, mut elsewhere_ns) = (0, 0);
        let from = self.clock.ticks();
        for (number, flush) in self.trace.flushes.iter().enumerate() {
            self.update::<STAMPED>(&updates[at..flush.after[self.index]], &mut waits);
            at = flush.after[self.index];
            let since = self.clock.ticks();
            if self.take_turn(number, flush.by) {
                flushes.flush(self.design, self.clock, flush.group, &mut scratch);
            }
            elsewhere_ns += self.clock.since_ns(since);
        }
        self.update::<STAMPED>(&updates[at..], &mut waits);
        let busy_ns = self.clock.since_ns(from).saturating_sub(elsewhere_ns);
        let (updates, preemptions) = (updates.len() as u64, preemptions.so_far());
        Run::of_updates(flushes, waits, updates, busy_ns, preemptions)
    }

    fn update<const STAMPED: bool>(&self, updates: &[Update], waits: &mut Times) {
        for &Update { group, metric, value } in updates {
            let (group, metric, value) = (group.into(), metric.into(), value.into());
            if STAMPED {
                let from = self.clock.ticks();
                self.design.update(self.slot, group, metric, value);
                let until = self.clock.ticks();
                waits.add(self.clock.between_ns(from, until));
            } else {
                self.design.update(self.slot, group, metric, value);
            }
        }
    }

    /// Waits for the position of a flush; returns whether this thread makes it.
    fn take_turn(&self, number: usize, by: usize) -> bool {
        let Progress { arrived, begun } = self.progress;
        // Release: pairs with the Acquire below, so that the flush sees the updates recorded before
        // it.
        arrived.fetch_add(1, Ordering::Release);
        if by == self.index {
            let all = (number + 1) * self.trace.updates.len();
            // Acquire: pairs with the Release above.
            wait(|| arrived.load(Ordering::Acquire) >= all);
            // Relaxed: a signal that hands over nothing.
            begun.store(number + 1, Ordering::Relaxed);
            return true;
        }
        // Relaxed: as above.
        wait(|| begun.load(Ordering::Relaxed) > number);
        false
    }
}

/// Spins, and yields after a while, because the other thread may need the CPU.
fn wait(mut over: impl FnMut() -> bool) {
    for _ in 0..10_000 {
        if over() {
            return;
        }
        std::hint::spin_loop();
    }
    while !over() {
        std::thread::yield_now();
    }
}
