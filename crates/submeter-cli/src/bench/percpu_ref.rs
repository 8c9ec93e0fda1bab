//! The tables `percpu_ref` and `kill`: what counting costs around a copy, and what the end costs.
//!
//! The first is the test program of the kernel's own proposal: take a reference, copy some bytes,
//! put it, on one CPU and on all, all on one count. Variants take turns inside a round, and each
//! round starts with another one, so that what else the machine does hits all of them alike.

use std::hint::black_box;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::{Duration, Instant};

use submeter::percpu::percpu_ref::Options;
use submeter::percpu::{Area, PercpuRef};
use submeter_sys::cpu::{affinity, set_affinity};
use submeter_sys::{Rung, membarrier};

/// One measured cell.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    /// The table's name.
    pub(crate) table: &'static str,
    /// What distinguishes the cell from others of its variant, by name.
    pub(crate) params: Vec<(&'static str, String)>,
    /// What was measured.
    pub(crate) variant: &'static str,
    /// The median of the samples, or another quantile where a param says so.
    pub(crate) value: f64,
    /// The unit of value and samples.
    pub(crate) unit: &'static str,
    /// The raw figures, in the order of measurement.
    pub(crate) samples: Vec<f64>,
}

/// The bytes that the kernel's test copies.
const COPY_BYTES: [usize; 6] = [0, 32, 64, 128, 256, 512];
/// How long one sample runs; long against a clock read, short against a scheduler's slice.
const SAMPLE: Duration = Duration::from_millis(2);
/// Loops between two looks at the clock.
const BATCH: u32 = 512;
/// How often a disturbed sample is taken before it has to do.
const TRIES: u32 = 8;
const ROUNDS_MIN: usize = 5;
const VARIANTS: usize = 5;
/// References killed behind one barrier.
const KILLED_TOGETHER: usize = 1000;

/// Measures both tables within about `budget`.
///
/// # Errors
/// When the CPUs of this process cannot be asked for, threads not be pinned to them, or counts not be made.
pub(crate) fn rows(budget: Duration) -> io::Result<Vec<Row>> {
    let mut rows = counting(budget * 3 / 4)?;
    rows.extend(killing(budget / 4)?);
    Ok(rows)
}

/// Does so many loops around copies of so many bytes.
type Loops = Box<dyn Fn(u32, &mut Copier) + Sync>;

/// Measures the table `percpu_ref`.
fn counting(budget: Duration) -> io::Result<Vec<Row>> {
    let cpus = affinity()?;
    let nothing = variants::<true>()?;
    let some = variants::<false>()?;
    let settings = [("1", &cpus[..1]), ("all", &cpus[..])];
    let cells: Vec<_> = COPY_BYTES
        .iter()
        .flat_map(|&bytes| settings.map(|(name, cpus)| (bytes, name, cpus)))
        .collect();
    let mut samples = vec![Vec::new(); cells.len() * VARIANTS];
    let deadline = Instant::now() + budget;
    let mut round = 0;
    // The first round warms up: caches, the clock, the branch predictor, the CPU's frequency.
    while round <= ROUNDS_MIN || Instant::now() < deadline {
        for (cell, &(bytes, _, cpus)) in cells.iter().enumerate() {
            let variants = if bytes == 0 { &nothing } else { &some };
            for turn in 0..VARIANTS {
                let variant = (turn + round) % VARIANTS;
                let rate = sample(cpus, bytes, &*variants[variant].1)?;
                if round > 0 {
                    samples[cell * VARIANTS + variant].push(rate);
                }
            }
        }
        round += 1;
    }
    let names = cells.iter().flat_map(|cell| some.iter().map(move |variant| (cell, variant.0)));
    Ok(names
        .zip(samples)
        .map(|(((bytes, cpus, _), variant), samples)| Row {
            table: "percpu_ref",
            params: vec![("copy_bytes", bytes.to_string()), ("cpus", (*cpus).to_owned())],
            variant,
            value: quantile(&samples, 0.5),
            unit: "loops/s",
            samples,
        })
        .collect())
}

/// Keeps the counted object off the lines of everything else; 128 bytes, as adjacent lines are fetched in pairs.
#[repr(align(128))]
struct Apart<T>(T);

/// A buffer of the thread's own, as the kernel's test has one per CPU.
struct Copier {
    from: Apart<[u8; 512]>,
    to: Apart<[u8; 512]>,
    bytes: usize,
}

impl Copier {
    /// Copies, unless `NOTHING`: known when compiled, as every other instruction would count there.
    #[inline(always)]
    fn copy<const NOTHING: bool>(&mut self) {
        if !NOTHING {
            self.to.0[..self.bytes].copy_from_slice(&self.from.0[..self.bytes]);
            black_box(&mut self.to);
        }
    }
}

/// Returns the variants with their loops.
fn variants<const NOTHING: bool>() -> io::Result<[(&'static str, Loops); VARIANTS]> {
    let atomic = Apart(AtomicU32::new(1));
    let arc = Arc::new(Apart(0_u8));
    let fallback = Area::with_rung(Rung::LockedByCpu, |_| 0)?;
    let fallback = Apart(PercpuRef::with(Options::new().area(&fallback), || ())?);
    let percpu = Apart(PercpuRef::new(|| ())?);
    Ok([
        (
            "atomic",
            Box::new(move |loops, copier| {
                let count = &atomic.0;
                for _ in 0..loops {
                    // Relaxed: the cheapest there is; nothing is freed.
                    count.fetch_add(1, Ordering::Relaxed);
                    copier.copy::<NOTHING>();
                    // Release: as a count's, with nothing checked.
                    count.fetch_sub(1, Ordering::Release);
                }
            }),
        ),
        (
            "percpu_ref",
            Box::new(move |loops, copier| get_and_put::<NOTHING>(&percpu.0, loops, copier)),
        ),
        (
            "percpu_ref_fallback",
            Box::new(move |loops, copier| get_and_put::<NOTHING>(&fallback.0, loops, copier)),
        ),
        (
            "arc",
            Box::new(move |loops, copier| {
                for _ in 0..loops {
                    let clone = Arc::clone(&arc);
                    copier.copy::<NOTHING>();
                    drop(clone);
                }
            }),
        ),
        (
            "none",
            Box::new(|loops, copier| {
                for _ in 0..loops {
                    // Keeps the loop where there is nothing to copy.
                    black_box(&mut copier.bytes);
                    copier.copy::<NOTHING>();
                }
            }),
        ),
    ])
}

fn get_and_put<const NOTHING: bool>(count: &PercpuRef, loops: u32, copier: &mut Copier) {
    for _ in 0..loops {
        count.get();
        copier.copy::<NOTHING>();
        count.put();
    }
}

/// Runs on each of `cpus` at once; returns loops a second of all together.
///
/// A sample during which a thread was off its CPU is taken again: the others would have had the
/// line to themselves, which flatters whatever was measured just then.
fn sample(
    cpus: &[usize],
    bytes: usize,
    loops: &(dyn Fn(u32, &mut Copier) + Sync),
) -> io::Result<f64> {
    let mut tries = TRIES;
    loop {
        let runs = run(cpus, bytes, loops)?;
        tries -= 1;
        if tries == 0 || together(&runs) {
            return Ok(runs.iter().map(Run::rate).sum());
        }
    }
}

/// What one thread did in one sample.
struct Run {
    from: Instant,
    until: Instant,
    loops: u64,
    /// The longest time between two looks at the clock.
    longest: Duration,
}

impl Run {
    fn of(bytes: usize, loops: &(dyn Fn(u32, &mut Copier) + Sync)) -> Run {
        let mut copier = Copier { from: Apart([7; 512]), to: Apart([0; 512]), bytes };
        let from = Instant::now();
        let mut run = Run { from, until: from, loops: 0, longest: Duration::ZERO };
        while run.until - from < SAMPLE {
            loops(BATCH, &mut copier);
            run.loops += u64::from(BATCH);
            let now = Instant::now();
            run.longest = run.longest.max(now - run.until);
            run.until = now;
        }
        run
    }

    fn rate(&self) -> f64 {
        self.loops as f64 / (self.until - self.from).as_secs_f64()
    }
}

/// Tells whether all ran all the time, but for a tenth.
fn together(runs: &[Run]) -> bool {
    let tolerated = SAMPLE / 10;
    let first = runs.iter().map(|run| run.from).min();
    let last = runs.iter().map(|run| run.from).max();
    let apart = first.zip(last).map_or(Duration::ZERO, |(first, last)| last - first);
    apart <= tolerated && runs.iter().all(|run| run.longest <= tolerated)
}

fn run(
    cpus: &[usize],
    bytes: usize,
    loops: &(dyn Fn(u32, &mut Copier) + Sync),
) -> io::Result<Vec<Run>> {
    let start = Barrier::new(cpus.len());
    thread::scope(|scope| {
        let workers: Vec<_> = cpus
            .iter()
            .map(|&cpu| {
                let start = &start;
                scope.spawn(move || {
                    let pinned = set_affinity(&[cpu]);
                    start.wait();
                    pinned.map(|()| Run::of(bytes, loops))
                })
            })
            .collect();
        workers.into_iter().map(|worker| worker.join().expect("a worker panicked")).collect()
    })
}

/// Latencies by variant and references killed at once, in microseconds for each reference.
#[derive(Default)]
struct Latencies {
    kill: Vec<f64>,
    batch: Vec<f64>,
    membarrier: Vec<f64>,
}

/// Measures the table `kill`: with the other CPUs idle, and with each of them getting and putting.
fn killing(budget: Duration) -> io::Result<Vec<Row>> {
    let cpus = affinity()?;
    let mut rows = Vec::new();
    for (load, hammered) in [("idle", &cpus[..0]), ("hammered", &cpus[1..])] {
        let (count, stop) = (PercpuRef::new(|| ())?, AtomicBool::new(false));
        let (count, stop) = (&count, &stop);
        let beats: Vec<Apart<AtomicU32>> =
            hammered.iter().map(|_| Apart(AtomicU32::new(0))).collect();
        let latencies = thread::scope(|scope| {
            for (&cpu, beat) in hammered.iter().zip(&beats) {
                scope.spawn(move || {
                    // Unpinned where refused: it hammers from wherever it is.
                    let _ = set_affinity(&[cpu]);
                    // Relaxed: only ends the loop.
                    while !stop.load(Ordering::Relaxed) {
                        (0..BATCH).for_each(|_| {
                            count.get();
                            count.put();
                        });
                        // Relaxed: says that it runs, nothing else.
                        beat.0.fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
            let killer = scope.spawn(|| {
                set_affinity(&cpus[..1])?;
                latencies(budget / 2, &beats)
            });
            let latencies = killer.join().expect("a killer panicked");
            // Relaxed: as above.
            stop.store(true, Ordering::Relaxed);
            latencies
        })?;
        let cells = [
            ("percpu_ref", 1, latencies.kill),
            ("percpu_ref", KILLED_TOGETHER, latencies.batch),
            ("membarrier", 1, latencies.membarrier),
        ];
        for (variant, refs, samples) in cells.into_iter().filter(|cell| !cell.2.is_empty()) {
            for (name, at) in [("p50", 0.5), ("p99", 0.99)] {
                rows.push(Row {
                    table: "kill",
                    params: vec![
                        ("load", load.to_owned()),
                        ("refs", refs.to_string()),
                        ("quantile", name.to_owned()),
                    ],
                    variant,
                    value: quantile(&samples, at),
                    unit: "us/ref",
                    samples: samples.clone(),
                });
            }
        }
    }
    Ok(rows)
}

fn latencies(budget: Duration, beats: &[Apart<AtomicU32>]) -> io::Result<Latencies> {
    let (mut latencies, deadline) = (Latencies::default(), Instant::now() + budget);
    let mut round = 0;
    while round <= ROUNDS_MIN || Instant::now() < deadline {
        let counts = used_counts(KILLED_TOGETHER)?;
        await_beats(beats);
        let batch = time(|| PercpuRef::kill_many(&counts));
        let mut singles = Vec::new();
        for count in used_counts(20)? {
            // Where there are no sequences, a kill needs no barrier and there is none to compare.
            await_beats(beats);
            let barrier = Area::common()?.rseq().map(|_| time(membarrier::rseq_barrier));
            await_beats(beats);
            singles.push((barrier, time(|| count.kill())));
        }
        // The first round warms up.
        if round > 0 {
            latencies.batch.push(batch / KILLED_TOGETHER as f64);
            latencies.kill.extend(singles.iter().map(|single| single.1));
            latencies.membarrier.extend(singles.iter().filter_map(|single| single.0));
        }
        round += 1;
    }
    Ok(latencies)
}

/// Waits until every hammering thread is seen to run: on a shared machine it often does not, and then
/// the CPU is idle for all that a barrier has to do.
fn await_beats(beats: &[Apart<AtomicU32>]) {
    for beat in beats {
        // Relaxed: as where it is written.
        let before = beat.0.load(Ordering::Relaxed);
        // Relaxed: as above.
        while beat.0.load(Ordering::Relaxed) == before {
            std::hint::spin_loop();
        }
    }
}

/// Makes counts that were used, so that a kill finds something to sum.
fn used_counts(n: usize) -> io::Result<Vec<PercpuRef>> {
    let counts: Vec<PercpuRef> = (0..n).map(|_| PercpuRef::new(|| ())).collect::<Result<_, _>>()?;
    for count in &counts {
        count.get_many(3);
        count.put_many(3);
    }
    Ok(counts)
}

/// Returns how many microseconds `work` takes.
fn time<R>(work: impl FnOnce() -> R) -> f64 {
    let from = Instant::now();
    black_box(work());
    from.elapsed().as_secs_f64() * 1e6
}

fn quantile(samples: &[f64], at: f64) -> f64 {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    let place = (sorted.len() as f64 * at) as usize;
    sorted.get(place.min(sorted.len().saturating_sub(1))).copied().unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    // Whole paths, no imports: a bench that includes this file sees the module but not its tests.

    #[test]
    fn every_cell_is_measured_once_with_its_samples() {
        let rows =
            super::counting(std::time::Duration::ZERO).expect("this process may run somewhere");
        assert_eq!(rows.len(), 6 * 2 * 5);
        let cells: std::collections::HashSet<_> =
            rows.iter().map(|row| (row.params.clone(), row.variant)).collect();
        assert_eq!(cells.len(), rows.len());
        for row in &rows {
            assert_eq!((row.table, row.samples.len()), ("percpu_ref", super::ROUNDS_MIN));
            assert!(row.samples.iter().all(|&rate| rate > 0.0), "{row:?}");
            assert!(row.samples.contains(&row.value));
        }
    }

    #[test]
    fn kills_are_measured_idle_and_hammered_single_and_batched() {
        let rows =
            super::killing(std::time::Duration::ZERO).expect("this process may run somewhere");
        let has = |load: &str, refs: &str| {
            let quantiles = rows.iter().filter(|row| {
                row.variant == "percpu_ref" && row.params[0].1 == load && row.params[1].1 == refs
            });
            quantiles.count() == 2
        };
        for load in ["idle", "hammered"] {
            assert!(has(load, "1") && has(load, "1000"), "{load}");
        }
        assert!(rows.iter().all(|row| row.value > 0.0 && !row.samples.is_empty()));
    }

    #[test]
    fn a_quantile_is_one_of_the_samples() {
        let samples = [5.0, 1.0, 4.0, 2.0, 3.0];
        assert_eq!((super::quantile(&samples, 0.5), super::quantile(&samples, 0.99)), (3.0, 5.0));
        assert!(super::quantile(&[], 0.5).is_nan());
    }
}
