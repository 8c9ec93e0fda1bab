//! Measures what decided the epoch under `rcuref`: crossbeam-epoch or seize.
//!
//! Run: `cargo bench -p submeter-percpu --bench epoch_choice`. Both candidates do the same work in
//! turns, three kinds of it: entering and leaving (alone, nested, on every CPU), retiring boxes,
//! and the garbage that gathers behind one reader who does not leave.
#![expect(clippy::print_stdout, reason = "a bench prints its table")]

use std::hint::black_box;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::thread;
use std::time::Instant;

#[expect(unsafe_code, reason = "retiring a raw pointer is unsafe in both candidates")]
mod raw;
use raw::{Candidate, Crossbeam, Seize};

/// Rounds; the candidates alternate inside each.
const ROUNDS: usize = 15;
/// Operations of one sample.
const OPS: u64 = 200_000;

/// Payloads not yet dropped. Relaxed everywhere: a statistic, read after the threads were joined
/// or as a peak that may be late.
static LIVE: AtomicI64 = AtomicI64::new(0);

pub(crate) struct Payload([u8; 64]);

impl Payload {
    fn boxed() -> Box<Payload> {
        // Relaxed: a statistic.
        LIVE.fetch_add(1, Ordering::Relaxed);
        Box::new(Payload([1; 64]))
    }
}

impl Drop for Payload {
    fn drop(&mut self) {
        black_box(self.0[0]);
        // Relaxed: a statistic.
        LIVE.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Runs `op` on `threads` threads at once; returns ns an operation.
fn time(threads: usize, op: impl Fn() + Sync) -> f64 {
    let start = Barrier::new(threads);
    let spent: Vec<f64> = thread::scope(|scope| {
        let workers: Vec<_> = (0..threads)
            .map(|_| {
                scope.spawn(|| {
                    start.wait();
                    let from = Instant::now();
                    for _ in 0..OPS {
                        op();
                    }
                    from.elapsed().as_secs_f64()
                })
            })
            .collect();
        workers.into_iter().map(|worker| worker.join().expect("a worker panicked")).collect()
    });
    spent.iter().sum::<f64>() / spent.len() as f64 * 1e9 / OPS as f64
}

/// Returns the most payloads that gathered while one thread stayed inside, and the longest retire.
fn stalled<C: Candidate>(candidate: &C) -> (i64, f64) {
    // Relaxed: a statistic; the scope's joins order the end of the run.
    let before = LIVE.load(Ordering::Relaxed);
    let (stop, entered) = (AtomicBool::new(false), Barrier::new(2));
    let mut most = 0;
    let mut longest_us: f64 = 0.0;
    thread::scope(|scope| {
        scope.spawn(|| {
            candidate.enter(|| {
                entered.wait();
                // Acquire: pairs with the Release below, though only the flag itself matters.
                while !stop.load(Ordering::Acquire) {
                    thread::yield_now();
                }
            });
        });
        entered.wait();
        for _ in 0..OPS {
            let from = Instant::now();
            candidate.retire(Payload::boxed());
            longest_us = longest_us.max(from.elapsed().as_secs_f64() * 1e6);
            // Relaxed: a statistic.
            most = most.max(LIVE.load(Ordering::Relaxed) - before);
        }
        // Release: pairs with the Acquire of the reader's loop.
        stop.store(true, Ordering::Release);
    });
    (most, longest_us)
}

fn samples<C: Candidate>(candidate: &C, cpus: usize, into: &mut [Vec<f64>; 6]) {
    // Relaxed: a statistic.
    let before = LIVE.load(Ordering::Relaxed);
    into[0].push(time(1, || candidate.enter(|| {})));
    into[1].push(time(cpus, || candidate.enter(|| {})));
    candidate.enter(|| ());
    into[2].push(time(1, || candidate.enter(|| candidate.enter(|| {}))));
    into[3].push(time(1, || candidate.retire(Payload::boxed())));
    into[4].push(time(cpus, || candidate.retire(Payload::boxed())));
    // Relaxed: a statistic.
    into[5].push((LIVE.load(Ordering::Relaxed) - before) as f64);
}

fn median(samples: &mut [f64]) -> f64 {
    samples.sort_by(f64::total_cmp);
    samples[samples.len() / 2]
}

fn main() {
    let cpus = thread::available_parallelism().map_or(1, usize::from);
    let (mut crossbeam, mut seize) = (<[Vec<f64>; 6]>::default(), <[Vec<f64>; 6]>::default());
    for _ in 0..ROUNDS {
        samples(&Crossbeam, cpus, &mut crossbeam);
        samples(&Seize, cpus, &mut seize);
    }
    println!("{:<44} {:>16} {:>10}", "median", Crossbeam::NAME, Seize::NAME);
    let rows = [
        "enter + leave, 1 thread (ns)",
        "enter + leave, all CPUs (ns)",
        "enter + nested enter (ns)",
        "allocate + retire, 1 thread (ns)",
        "allocate + retire, all CPUs (ns)",
        "payloads not yet freed after that",
    ];
    for (index, row) in rows.iter().enumerate() {
        let (left, right) = (median(&mut crossbeam[index]), median(&mut seize[index]));
        println!("{row:<44} {left:>16.1} {right:>10.1}");
    }
    let ((left, left_us), (right, right_us)) = (stalled(&Crossbeam), stalled(&Seize));
    println!("{:<44} {left:>16} {right:>10}", "gathered behind a stalled reader");
    println!("{:<44} {left_us:>16.1} {right_us:>10.1}", "longest retire meanwhile (us)");
}
