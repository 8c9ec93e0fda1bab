//! Flat or tree, for more CPUs than this machine has.
//!
//! What no simulation has is the price of a line that many CPUs write. So that is measured on two
//! CPUs: how long one line needs for each locked add when both write it (more CPUs are not
//! cheaper). A counter on which `n` CPUs add at full speed is then as slow as its busiest line is
//! busy. Each design gets the smallest batch that keeps that from slowing adds down by more than a
//! tenth; then reads and compares are measured, on one thread that plays all CPUs in turn.

use std::cmp::Ordering::Equal;
use std::hint::black_box;
use std::io;
use std::sync::atomic::{AtomicI64, AtomicU32, Ordering};
use std::time::Instant;

use fastrand::Rng;
use submeter_percpu::{Area, PercpuCounter};
use submeter_sys::cpu;

use crate::sample::{Thing, best};

const CPUS: [usize; 9] = [1, 2, 4, 8, 16, 32, 64, 128, 256];
/// Adds in a sample.
const ADDS: u32 = 10_000;
/// Adds of a line in a sample, each thread: few enough that both threads run all the while.
const HAMMERED: u32 = 1_000;
/// Adds, in tens of batches, between two looks at the error.
const LOOKS: usize = 200;
/// Children of a node in the tree.
const FAN: f64 = 4.0;

pub(crate) fn run() -> io::Result<()> {
    let plain = plain_ns()?;
    let line = busy_line_ns();
    println!(
        "\nan add that overflows nothing: {plain:.2} ns; a line written by two CPUs: {line:.1} ns an add"
    );
    println!(
        "\n| CPUs | design | batch | width | error, mean | error, worst | decided | compare ns | add ns |"
    );
    println!("|---|---|---|---|---|---|---|---|---|");
    for cpus in CPUS {
        let area = Area::simulated(cpus)?;
        // The busiest line gets one carry in a batch from each CPU that writes it.
        let batch = |writers: f64| ((writers * line / (0.1 * plain)) as u64).next_power_of_two();
        let flat = PercpuCounter::with_batch(&area, batch(cpus as f64))?;
        row(cpus, "flat", batch(cpus as f64), &flat);
        let tree = PercpuCounter::with_tree(&area, batch(FAN.min(cpus as f64)))?;
        row(cpus, "tree", batch(FAN.min(cpus as f64)), &tree);
    }
    Ok(())
}

/// The cost of an add by itself, on the backend in use.
fn plain_ns() -> io::Result<f64> {
    let counter = PercpuCounter::with_batch(Area::common()?, 1 << 40)?;
    let work = Box::new(|| (0..ADDS).for_each(|_| counter.add(black_box(1))));
    Ok(best(&mut [Thing { name: "plain", count: ADDS, work }])[0])
}

/// How long a line needs for each locked add while two CPUs write it: the median of samples in
/// which they did.
fn busy_line_ns() -> f64 {
    let (line, turn) = (AtomicI64::new(0), AtomicU32::new(0));
    let allowed = cpu::affinity().unwrap_or_default();
    let hammer = |place: usize| {
        if let Some(&cpu) = allowed.get(place) {
            // Refused: the threads then run where they may.
            let _ = cpu::set_affinity(&[cpu]);
        }
        let mut samples = Vec::new();
        for round in 1..=200 {
            // SeqCst: whatever it costs, it is not measured. A meeting of threads that spin: both
            // run when they leave.
            turn.fetch_add(1, Ordering::SeqCst);
            // SeqCst: as above.
            while turn.load(Ordering::SeqCst) < 2 * round {
                std::hint::spin_loop();
            }
            let began = Instant::now();
            for _ in 0..HAMMERED {
                // Relaxed: only the cost matters.
                black_box(line.fetch_add(1, Ordering::Relaxed));
            }
            samples.push(began.elapsed().as_nanos() as f64 / f64::from(2 * HAMMERED));
        }
        samples.sort_by(f64::total_cmp);
        samples[samples.len() / 2]
    };
    std::thread::scope(|scope| {
        let other = scope.spawn(|| hammer(1));
        let here = scope.spawn(|| hammer(0)).join().expect("no panic");
        here.max(other.join().expect("no panic"))
    })
}

fn row(cpus: usize, design: &str, batch: u64, counter: &PercpuCounter) {
    let mut rng = Rng::with_seed(1);
    let (mut sum, mut worst, mut truth) = (0.0, 0u64, 0i64);
    for _ in 0..LOOKS {
        for _ in 0..10 * cpus {
            // As much as a batch at random CPUs, in uneven pieces.
            Area::simulate_cpu(rng.u32(..cpus as u32));
            let n = rng.u64(..2 * batch) as i64;
            counter.add(n);
            truth += n;
        }
        let error = counter.read().value().abs_diff(truth);
        (sum, worst) = (sum + error as f64, worst.max(error));
    }
    let read = counter.read();
    let width = read.high() - read.low();
    // Distances from 1 to 10^8, each order of magnitude as often as any other.
    let rhs: Vec<i64> = (0..512).map(|_| truth + distance(&mut rng)).collect();
    let decided = rhs.iter().filter(|&&rhs| read.compare(rhs).is_some()).count() * 100 / rhs.len();
    let compare = || {
        for &rhs in &rhs {
            black_box(counter.compare(black_box(rhs)) == Equal);
        }
    };
    let add = || {
        // There and back over many batches, so that the truth stays where `rhs` was chosen.
        (0..ADDS / 2).for_each(|_| counter.add(black_box(1)));
        (0..ADDS / 2).for_each(|_| counter.add(black_box(-1)));
    };
    let costs = best(&mut [
        Thing { name: "compare", count: rhs.len() as u32, work: Box::new(compare) },
        Thing { name: "add", count: ADDS, work: Box::new(add) },
    ]);
    let (mean, [compare, add]) = (sum / LOOKS as f64, [costs[0], costs[1]]);
    println!(
        "| {cpus} | {design} | {batch} | {width} | {mean:.0} | {worst} | {decided} % | {compare:.1} | {add:.2} |"
    );
}

fn distance(rng: &mut Rng) -> i64 {
    let magnitude = 10f64.powf(rng.f64() * 8.0) as i64;
    if rng.bool() { magnitude } else { -magnitude }
}
