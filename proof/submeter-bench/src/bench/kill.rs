//! The `kill` table: how long a kill of per-CPU reference counts takes, one or a thousand at once.
//!
//! Next to the barrier that it is made of. Idle, no other thread of this process runs; hammered,
//! one on each other CPU takes and puts references on the very counts that are killed.

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
use crate::row::{Param, Row};

/// Kills of one sample: few, as all of it is in vain when one thread was off its CPU.
const KILLS: usize = 10;
/// References of one batch.
const BATCH: usize = 1000;
/// 2,000 kills a cell: twenty are beyond the 99th percentile. More only make the file larger.
const ROUNDS_MAX: usize = 2000 / KILLS;
/// The quantiles that have a row.
const QUANTILES: [(&str, f64); 2] = [("p50", 0.5), ("p99", 0.99)];
/// How long the hammering is given before a kill, so that the barrier meets it at full speed.
const HEAT: Duration = Duration::from_micros(30);

/// Says what to measure.
///
/// # Errors
/// When the CPUs of this process cannot be asked for.
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
        notes.push("no figures under a load: this process may use one CPU only".to_owned());
    }
    let group = |(load, cpus): (&'static str, Vec<usize>)| {
        variants.iter().map(|&(variant, act)| cell(load, &cpus, variant, act)).collect()
    };
    Ok(Plan {
        table: "kill",
        groups: loads.into_iter().map(group).collect(),
        mixed: false,
        rounds_max: ROUNDS_MAX,
        notes,
        absent: Vec::new(),
    })
}

/// Returns what one reference of a hammered batch costs, against a kill of one alone.
pub(crate) fn per_reference(rows: &[Row]) -> Option<String> {
    let params = [("load", Param::word("hammered")), ("quantile", Param::word("p50"))].into();
    let value = |variant| {
        rows.iter().find(|row| row.variant == variant && row.params == params).map(|row| row.value)
    };
    let (one, batch) = (value("kill")?, value("kill_many_1000")? / BATCH as f64);
    Some(format!(
        "hammered, one reference of 1,000 killed together takes {:.1} ns: {:.4}× a kill of one alone",
        batch * 1e3,
        batch / one
    ))
}

/// What is timed.
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

/// Acts on the first of `cpus` while the others hammer; returns microseconds, and whether a thread
/// was off its CPU.
fn sample(cpus: &[usize], act: Act) -> io::Result<(Vec<f64>, bool)> {
    let (target, start) = (Target::new(cpus.len() - 1)?, Barrier::new(cpus.len()));
    thread::scope(|scope| {
        let (target, start) = (&target, &start);
        let hammer = |&cpu: &usize| {
            scope.spawn(move || {
                let pinned = set_affinity(&[cpu]);
                start.wait();
                // The killer waits for hammers; one that cannot come ends the sample.
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

/// What is killed next, and hammered meanwhile.
struct Target {
    counts: Mutex<Arc<Vec<PercpuRef>>>,
    /// Goes up with each new vector in `counts`, after it.
    generation: AtomicU64,
    /// How many threads hammer.
    hammers: u64,
    /// Goes up with each new vector that a hammer took up.
    taken: AtomicU64,
    /// Hammered between a kill and the next counts; never killed before the end.
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

    /// Times `KILLS` of `act`, each on counts of its own; returns also whether it was disturbed.
    fn act(&self, act: Act) -> io::Result<(Vec<f64>, bool)> {
        let references = match act {
            // A live one to hammer, so that the barrier meets the same threads.
            Act::Barrier => 1,
            Act::Kill(references) => references,
        };
        let mut values = Vec::with_capacity(KILLS);
        // Kept to the end: a hammer that drops the last pointer would do so while the next is
        // killed.
        let mut used = Vec::with_capacity(KILLS);
        let preemptions = Preemptions::count();
        for _ in 0..KILLS {
            let counts = (0..references).map(|_| PercpuRef::new(|| ()));
            let counts = Arc::new(counts.collect::<io::Result<Vec<_>>>()?);
            self.show(&counts);
            // Used, so that idle as well there is something in the words that are summed.
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

    /// Puts up what is killed next, and waits until all hammer it.
    fn show(&self, counts: &Arc<Vec<PercpuRef>>) {
        *self.counts.lock() = Arc::clone(counts);
        // Relaxed: says that it is worth taking the lock, which hands over the counts.
        let shown = self.generation.fetch_add(1, Ordering::Relaxed) + 1;
        // Relaxed: tells that threads run; there is nothing to see of what they did.
        while self.taken.load(Ordering::Relaxed) < shown * self.hammers && !self.has_ended() {
            std::hint::spin_loop();
        }
        let from = Instant::now();
        while from.elapsed() < HEAT {
            std::hint::spin_loop();
        }
    }

    /// Takes and puts references until the end; returns whether it was disturbed.
    fn hammer(&self) -> bool {
        let preemptions = Preemptions::count();
        // Kept for the same reason as by the killer: dropping counts is not hammering.
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
            // Until they are killed or, where only the barrier is measured, until the next are
            // there.
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
        // Relaxed: nothing is handed over; the threads are joined.
        self.ended.store(true, Ordering::Relaxed);
    }

    fn has_ended(&self) -> bool {
        // Relaxed: as above.
        self.ended.load(Ordering::Relaxed)
    }
}

/// Takes a reference and puts it, as a request does that holds its tenant; false after the kill.
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
    use crate::row::Name;

    #[test]
    fn idle_and_hammered_each_act_gives_its_times() {
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

    #[test]
    fn one_of_a_batch_is_a_thousandth() {
        let row = |variant, value| Row {
            table: "kill".into(),
            params: [("load", Param::word("hammered")), ("quantile", Param::word("p50"))].into(),
            variant: Name::from(variant),
            value,
            unit: "us".into(),
            samples: vec![value],
        };
        let rows = [row("membarrier", 20.0), row("kill", 25.0), row("kill_many_1000", 50.0)];
        let text = per_reference(&rows).expect("both are there");
        assert!(text.contains("50.0 ns: 0.0020×"), "{text}");
        assert_eq!(per_reference(&rows[..2]), None);
    }
}
