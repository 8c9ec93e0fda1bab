//! The `rcuref` table: pairs of a get and a put on one count that never drops to zero.
//!
//! Every variant counts references of one object that all CPUs share, and never the last one: the
//! price of being counted, not of being freed. Variants take turns inside a round, and each round
//! starts with another one, so that what else the machine does hits all of them alike.

use std::io;
use std::sync::atomic::{AtomicU32, Ordering, fence};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::{Duration, Instant};

use submeter::percpu::rcuref::{RcuRef, pin};
use submeter_sys::cpu::{affinity, set_affinity};

/// One measured cell.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    /// The table's name.
    pub(crate) table: &'static str,
    /// What distinguishes the cell from others of its variant, by name.
    pub(crate) params: [(&'static str, &'static str); 1],
    /// What was measured.
    pub(crate) variant: &'static str,
    /// The median of the samples.
    pub(crate) value: f64,
    /// The unit of value and samples.
    pub(crate) unit: &'static str,
    /// One figure a round, in the order of measurement.
    pub(crate) samples: Vec<f64>,
}

/// How long one sample runs; long against a clock read, short against a scheduler's slice.
const SAMPLE: Duration = Duration::from_millis(3);
/// Pairs between two looks at the clock.
const BATCH: u32 = 512;
/// How often a disturbed sample is taken before it has to do.
const TRIES: u32 = 8;
const ROUNDS_MIN: usize = 5;

/// Measures the table within about `budget`.
///
/// # Errors
/// When the CPUs of this process cannot be asked for, or threads not be pinned to them.
pub(crate) fn rows(budget: Duration) -> io::Result<Vec<Row>> {
    let cpus = affinity()?;
    let variants = variants();
    let settings = [("1", &cpus[..1]), ("all", &cpus[..])];
    let mut samples = vec![Vec::new(); settings.len() * variants.len()];
    let deadline = Instant::now() + budget;
    let mut round = 0;
    // The first round warms up: caches, the clock, the branch predictor, the CPU's frequency.
    while round <= ROUNDS_MIN || Instant::now() < deadline {
        for (setting, (_, cpus)) in settings.iter().enumerate() {
            for turn in 0..variants.len() {
                let variant = (turn + round) % variants.len();
                let rate = sample(cpus, &*variants[variant].1)?;
                if round > 0 {
                    samples[setting * variants.len() + variant].push(rate);
                }
            }
        }
        round += 1;
    }
    let cells = settings.iter().flat_map(|&(cpus, _)| variants.iter().map(move |v| (cpus, v.0)));
    Ok(cells
        .zip(samples)
        .map(|((cpus, variant), samples)| Row {
            table: "rcuref",
            params: [("cpus", cpus)],
            variant,
            value: median(&samples),
            unit: "pairs/s",
            samples,
        })
        .collect())
}

/// Does so many pairs on its shared object.
type Pairs = Box<dyn Fn(u32) + Sync>;

/// Keeps the counted object off the lines of everything else; 128 bytes, as adjacent lines are
/// fetched in pairs.
#[repr(align(128))]
struct Apart<T>(T);

/// Returns the variants with their loops.
///
/// No `black_box`: no compiler merges or drops atomic operations, and the store that it makes
/// would wait in front of each locked instruction and even out the differences.
fn variants() -> [(&'static str, Pairs); 6] {
    let rcuref = Apart(RcuRef::new());
    let refcount = Apart(AtomicU32::new(1));
    let plain = Apart(AtomicU32::new(1));
    let arc = Arc::new(Apart(0_u8));
    let strong = Arc::new(Apart(0_u8));
    let weak = Arc::downgrade(&strong);
    let triomphe = triomphe::Arc::new(Apart(0_u8));
    [
        (
            "rcuref",
            Box::new(move |pairs| {
                // One guard for the batch, as a request has one for all its lookups.
                let guard = pin();
                for _ in 0..pairs {
                    assert!(rcuref.0.get());
                    assert!(!rcuref.0.put(&guard));
                }
            }),
        ),
        (
            "inc_not_zero",
            Box::new(move |pairs| {
                for _ in 0..pairs {
                    assert!(inc_not_zero(&refcount.0));
                    assert!(!dec_and_test(&refcount.0));
                }
            }),
        ),
        (
            "weak_upgrade",
            Box::new(move |pairs| {
                // Names the strong one, or the closure would not keep it.
                let _strong = &strong;
                for _ in 0..pairs {
                    assert!(weak.upgrade().is_some());
                }
            }),
        ),
        (
            "arc",
            Box::new(move |pairs| {
                for _ in 0..pairs {
                    drop(Arc::clone(&arc));
                }
            }),
        ),
        (
            "triomphe",
            Box::new(move |pairs| {
                for _ in 0..pairs {
                    drop(triomphe::Arc::clone(&triomphe));
                }
            }),
        ),
        (
            "plain_atomic",
            Box::new(move |pairs| {
                for _ in 0..pairs {
                    let count = &plain.0;
                    // Relaxed, Release: as a count's, with nothing checked and nothing freed.
                    count.fetch_add(1, Ordering::Relaxed);
                    count.fetch_sub(1, Ordering::Release);
                }
            }),
        ),
    ]
}

/// Takes a reference unless there is none: the loop that a count without a grace period needs.
#[inline]
fn inc_not_zero(count: &AtomicU32) -> bool {
    // Relaxed: the exchange below decides; a reference is only used by who holds the pointer.
    let mut now = count.load(Ordering::Relaxed);
    while now != 0 {
        // Relaxed: as above, on success and on failure.
        match count.compare_exchange_weak(now, now + 1, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => return true,
            Err(other) => now = other,
        }
    }
    false
}

/// Drops a reference; true for the last one.
#[inline]
fn dec_and_test(count: &AtomicU32) -> bool {
    // Release: pairs with the Acquire fence of the last one, so that it sees all holders' writes.
    let last = count.fetch_sub(1, Ordering::Release) == 1;
    if last {
        // Acquire: as above.
        fence(Ordering::Acquire);
    }
    last
}

/// Runs `pairs` on each of `cpus` at once; returns pairs a second of all together.
///
/// A sample during which a thread was off its CPU is taken again: the others would have had the
/// line to themselves, which flatters whatever was measured just then.
fn sample(cpus: &[usize], pairs: &(dyn Fn(u32) + Sync)) -> io::Result<f64> {
    let mut tries = TRIES;
    loop {
        let runs = run(cpus, pairs)?;
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
    pairs: u64,
    /// The longest time between two looks at the clock.
    longest: Duration,
}

impl Run {
    fn of(pairs: &(dyn Fn(u32) + Sync)) -> Run {
        let from = Instant::now();
        let mut run = Run { from, until: from, pairs: 0, longest: Duration::ZERO };
        while run.until - from < SAMPLE {
            pairs(BATCH);
            run.pairs += u64::from(BATCH);
            let now = Instant::now();
            run.longest = run.longest.max(now - run.until);
            run.until = now;
        }
        run
    }

    fn rate(&self) -> f64 {
        self.pairs as f64 / (self.until - self.from).as_secs_f64()
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

fn run(cpus: &[usize], pairs: &(dyn Fn(u32) + Sync)) -> io::Result<Vec<Run>> {
    let start = Barrier::new(cpus.len());
    thread::scope(|scope| {
        let workers: Vec<_> = cpus
            .iter()
            .map(|&cpu| {
                let start = &start;
                scope.spawn(move || {
                    let pinned = set_affinity(&[cpu]);
                    start.wait();
                    pinned.map(|()| Run::of(pairs))
                })
            })
            .collect();
        workers.into_iter().map(|worker| worker.join().expect("a worker panicked")).collect()
    })
}

fn median(samples: &[f64]) -> f64 {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    // Whole paths, no imports: a bench that includes this file sees the module but not its tests.

    #[test]
    fn every_cell_is_measured_once_with_its_samples() {
        let rows = super::rows(std::time::Duration::ZERO).expect("this process may run somewhere");
        let cells: Vec<_> = rows.iter().map(|row| (row.params[0].1, row.variant)).collect();
        assert_eq!(cells.len(), 12);
        assert_eq!(cells.iter().filter(|cell| cell.0 == "1").count(), 6);
        for row in &rows {
            assert_eq!(
                (row.table, row.unit, row.samples.len()),
                ("rcuref", "pairs/s", super::ROUNDS_MIN)
            );
            assert!(row.samples.iter().all(|&rate| rate > 0.0), "{row:?}");
            assert!(row.samples.contains(&row.value));
        }
    }

    #[test]
    fn inc_not_zero_does_what_its_name_says() {
        let count = std::sync::atomic::AtomicU32::new(1);
        assert!(
            super::inc_not_zero(&count)
                && !super::dec_and_test(&count)
                && super::dec_and_test(&count)
        );
        assert!(!super::inc_not_zero(&count));
    }
}
