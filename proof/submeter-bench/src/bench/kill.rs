//! The `kill` table: how long it takes to kill per-CPU reference counts, one or a thousand at once.
//!
//! The barrier that dominates a kill is measured beside it. Under the load `idle` no other thread
//! of this process runs; under `hammered` a thread on each other CPU takes and drops references to
//! the very counts that are killed.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use submeter::refs::PercpuRef;
use submeter_sys::cpu::{affinity, set_affinity};
use submeter_sys::membarrier;

use super::record::Reading;
use super::runner::{Cell, Plan, Sample};
use super::threads::Preemptions;
use crate::row::Param;

/// Kills per sample: few, because a sample is discarded if one thread was preempted.
const KILLS: usize = 10;
/// Counts in one batch.
const BATCH: usize = 1000;
/// 2,000 kills per cell: twenty lie beyond the 99th percentile. More would only enlarge the file.
const ROUNDS_MAX: usize = 2000 / KILLS;
/// The quantiles that have a row.
const QUANTILES: [(&str, f64); 2] = [("p50", 0.5), ("p99", 0.99)];
/// How long the other threads hammer before a kill, so that the barrier meets them at full speed.
const HEAT: Duration = Duration::from_micros(30);

/// Returns the table's plan.
///
/// # Errors
/// When the CPUs of this process cannot be determined.
pub(crate) fn plan() -> io::Result<Plan> {
    let cpus = affinity()?;
    let mut notes = Vec::new();
    let mut variants = VARIANTS.to_vec();
    if let Err(error) = membarrier::register_rseq() {
        notes.push(format!("no figures for membarrier: {error}"));
        variants.retain(|(_, act)| !matches!(act, Act::Barrier));
    }
    let mut loads = vec![("idle", cpus[..1].to_vec())];
    if cpus.len() > 1 {
        loads.push(("hammered", cpus));
    } else {
        notes.push("no figures under load: this process may use only one CPU".to_owned());
    }
    let group = |(load, cpus): (&'static str, Vec<usize>)| {
        variants.iter().map(|&(variant, act)| cell(load, &cpus, variant, act)).collect()
    };
    Ok(Plan {
        rounds_max: ROUNDS_MAX,
        notes,
        ..Plan::new("kill", loads.into_iter().map(group).collect())
    })
}

/// The operation that is timed.
#[derive(Clone, Copy)]
enum Act {
    Barrier,
    Kill(usize),
}

const VARIANTS: [(&str, Act); 3] =
    [("membarrier", Act::Barrier), ("kill", Act::Kill(1)), ("kill_many_1000", Act::Kill(BATCH))];

fn cell(load: &'static str, cpus: &[usize], variant: &'static str, act: Act) -> Cell {
    let cpus = cpus.to_vec();
    let params = [("load", Param::word(load))].into();
    Cell::new(params, variant, move || {
        let (times_us, disturbed) = sample(&cpus, act)?;
        let quantile = |(name, part)| {
            Reading::of("us", times_us.clone()).with("quantile", name).quantile(part)
        };
        let readings = QUANTILES.map(quantile).to_vec();
        Ok(Sample { readings, disturbed, notes: Vec::new() })
    })
}

/// Runs `act` on the first of `cpus` while the others hammer; returns microseconds, and whether a
/// thread was preempted.
fn sample(cpus: &[usize], act: Act) -> io::Result<(Vec<f64>, bool)> {
    let (target, start) = (Target::new(cpus.len() - 1)?, Barrier::new(cpus.len()));
    thread::scope(|scope| {
        let (target, start) = (&target, &start);
        let hammer = |&cpu: &usize| {
            scope.spawn(move || {
                let pinned = set_affinity(&[cpu]);
                start.wait();
                // The killer waits for the hammers; one that cannot be pinned ends the sample.
                pinned.map(|()| target.hammer()).inspect_err(|_| target.stop())
            })
        };
        let hammers: Vec<_> = cpus[1..].iter().map(hammer).collect();
        let killer = scope.spawn(move || {
            let pinned = set_affinity(&[cpus[0]]);
            start.wait();
            let times = pinned.and_then(|()| target.act(act));
            target.stop();
            times
        });
        let sample = killer.join().expect("the killer panicked");
        let calm = hammers.into_iter().map(|hammer| hammer.join().expect("a hammer panicked"));
        let disturbed: Vec<bool> = calm.collect::<io::Result<_>>()?;
        let (times_us, killer) = sample?;
        Ok((times_us, killer || disturbed.contains(&true)))
    })
}

/// The counts that are killed next, which the other threads hammer until then.
struct Target {
    counts: Mutex<Arc<Vec<PercpuRef>>>,
    /// Incremented after each new vector in `counts`.
    generation: AtomicU64,
    /// The number of hammering threads.
    hammers: u64,
    /// Incremented when a hammer starts on a new vector.
    taken: AtomicU64,
    /// Hammered between a kill and the next counts; killed only at the end.
    spare: PercpuRef,
    ended: AtomicBool,
}

impl Target {
    fn new(hammers: usize) -> io::Result<Target> {
        Ok(Target {
            counts: Mutex::new(Arc::new(Vec::new())),
            generation: AtomicU64::new(0),
            hammers: hammers as u64,
            taken: AtomicU64::new(0),
            spare: PercpuRef::new(|| ())?,
            ended: AtomicBool::new(false),
        })
    }

    /// Times `act` `KILLS` times, each on new counts; also returns whether it was disturbed.
    fn act(&self, act: Act) -> io::Result<(Vec<f64>, bool)> {
        let references = match act {
            // A live count to hammer, so that the barrier meets the same threads.
            Act::Barrier => 1,
            Act::Kill(references) => references,
        };
        let mut values = Vec::with_capacity(KILLS);
        // Kept to the end: otherwise a hammer might drop the last pointer while the next counts are
        // killed.
        let mut used = Vec::with_capacity(KILLS);
        let preemptions = Preemptions::count();
        for _ in 0..KILLS {
            let counts = (0..references).map(|_| PercpuRef::new(|| ()));
            let counts = Arc::new(counts.collect::<io::Result<Vec<_>>>()?);
            self.show(&counts);
            // Used once, so that the summed words are not empty under the load idle either.
            assert!(counts.iter().all(pair), "alive until now");
            let from = Instant::now();
            match act {
                Act::Barrier => membarrier::rseq_barrier()?,
                Act::Kill(1) => assert!(counts[0].kill(), "alive until now"),
                Act::Kill(_) => assert_eq!(PercpuRef::kill_many(&*counts), references),
            }
            let took = from.elapsed();
            values.push(took.as_nanos() as f64 / 1e3);
            used.push(counts);
        }
        Ok((values, preemptions.any()))
    }

    /// Publishes the counts that are killed next, and waits until all threads hammer them.
    fn show(&self, counts: &Arc<Vec<PercpuRef>>) {
        *self.counts.lock() = Arc::clone(counts);
        // Relaxed: a hint that the lock is worth taking; the lock hands over the counts.
        let shown = self.generation.fetch_add(1, Ordering::Relaxed) + 1;
        // Relaxed: shows only that threads run; nothing that they wrote is read.
        while self.taken.load(Ordering::Relaxed) < shown * self.hammers && !self.has_ended() {
            std::hint::spin_loop();
        }
        let from = Instant::now();
        while from.elapsed() < HEAT {
            std::hint::spin_loop();
        }
    }

    /// Takes and drops references until the end; returns whether it was disturbed.
    fn hammer(&self) -> bool {
        let preemptions = Preemptions::count();
        // Kept for the same reason as in `act`: dropping counts is not hammering.
        let mut used = Vec::with_capacity(KILLS);
        let mut seen = 0;
        while !self.has_ended() {
            let generation = self.shown();
            if generation == seen {
                for _ in 0..64 {
                    pair(&self.spare);
                }
                continue;
            }
            seen = generation;
            let counts = Arc::clone(&self.counts.lock());
            // Relaxed: see `show`.
            self.taken.fetch_add(1, Ordering::Relaxed);
            // Until the counts are killed or, if only the barrier is measured, until the next ones
            // appear.
            while counts.iter().all(pair) && self.shown() == seen && !self.has_ended() {}
            used.push(counts);
        }
        preemptions.any()
    }

    fn shown(&self) -> u64 {
        // Relaxed: see `show`.
        self.generation.load(Ordering::Relaxed)
    }

    fn stop(&self) {
        // Relaxed: hands over nothing; the threads are joined.
        self.ended.store(true, Ordering::Relaxed);
    }

    fn has_ended(&self) -> bool {
        // Relaxed: as above.
        self.ended.load(Ordering::Relaxed)
    }
}

/// Takes a reference and drops it, as a request that holds its tenant does; false after the kill.
fn pair(count: &PercpuRef) -> bool {
    let live = count.tryget_live();
    if live {
        count.put();
    }
    live
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_act_is_timed_idle_and_hammered() {
        let cpus = affinity().expect("this process may run somewhere");
        membarrier::register_rseq().expect("supported");
        for cpus in [&cpus[..1], &cpus[..]] {
            for (variant, act) in VARIANTS {
                let (values, _) = sample(cpus, act).expect("measured");
                assert_eq!(values.len(), KILLS, "{variant}");
                assert!(values.iter().all(|&us| us > 0.0), "{variant}: {values:?}");
            }
        }
    }
}
