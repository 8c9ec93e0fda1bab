//! Measuring threads, each pinned to its CPU.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::{Duration, Instant};

use submeter_sys::cpu::{affinity, set_affinity};

use super::runner::{Cell, Sample};
use crate::row::{Param, Params};

/// How long one sample runs: long compared with a clock read, short compared with a scheduler's
/// time slice.
pub(crate) const SAMPLE: Duration = Duration::from_millis(3);
/// Operations between two clock reads.
const BATCH: u32 = 512;

/// Does the given number of operations on the object that all threads share.
pub(crate) type Work = Arc<dyn Fn(u32) + Send + Sync>;

/// Returns the CPUs of the settings `1` and `all`.
///
/// # Errors
/// When the CPUs of this process cannot be determined.
pub(crate) fn settings() -> io::Result<[(&'static str, Vec<usize>); 2]> {
    let cpus = affinity()?;
    Ok([("1", cpus[..1].to_vec()), ("all", cpus)])
}

/// Makes a cell that measures the rate of `work` in `unit` on `cpus`, which the row calls `name`.
pub(crate) fn rate_cell(
    name: &'static str,
    cpus: &[usize],
    variant: &'static str,
    unit: &'static str,
    work: &Work,
) -> Cell {
    let (cpus, work) = (cpus.to_vec(), Arc::clone(work));
    Cell::new(Params::from([("cpus", Param::word(name))]), variant, move || {
        let (rate, disturbed) = rate(&cpus, &*work)?;
        Ok(Sample::of(unit, rate, disturbed))
    })
}

/// Runs `work` on each of `cpus` at once; returns the operations per second of all together, and
/// whether they were disturbed.
///
/// A sample is disturbed if a thread was preempted: the others then had the line to themselves,
/// which flatters the variant that was being measured.
pub(crate) fn rate(cpus: &[usize], work: &(dyn Fn(u32) + Sync)) -> io::Result<(f64, bool)> {
    let (rates, disturbed) = rates(cpus, BATCH, &|_, operations| work(operations))?;
    // Fractions of an operation per second are meaningless.
    Ok((rates.iter().sum::<f64>().round(), disturbed))
}

/// Runs `work` on each of `cpus` at once. Its arguments are the index of its CPU and the number of
/// operations to do between two clock reads, `batch`. Returns the operations per second of each,
/// and whether they were disturbed, as in [`rate`].
///
/// # Errors
/// When a thread cannot be pinned.
pub(crate) fn rates(
    cpus: &[usize],
    batch: u32,
    work: &(dyn Fn(usize, u32) + Sync),
) -> io::Result<(Vec<f64>, bool)> {
    rates_after(cpus, batch, &|_| (), work)
}

/// The same as [`rates`], for threads that have first run `before`, which is not timed.
///
/// # Errors
/// The same as [`rates`].
pub(crate) fn rates_after(
    cpus: &[usize],
    batch: u32,
    before: &(dyn Fn(usize) + Sync),
    work: &(dyn Fn(usize, u32) + Sync),
) -> io::Result<(Vec<f64>, bool)> {
    let start = Barrier::new(cpus.len());
    let runs: io::Result<Vec<Run>> = thread::scope(|scope| {
        let start = &start;
        let run = |(place, &cpu): (usize, &usize)| {
            scope.spawn(move || {
                let pinned = set_affinity(&[cpu]);
                before(place);
                start.wait();
                pinned.map(|()| Run::of(batch, &|operations| work(place, operations)))
            })
        };
        let workers: Vec<_> = cpus.iter().enumerate().map(run).collect();
        workers.into_iter().map(|worker| worker.join().expect("a worker panicked")).collect()
    });
    let runs = runs?;
    Ok((runs.iter().map(Run::rate).collect(), !together(&runs)))
}

/// The result of one thread in one sample.
struct Run {
    from: Instant,
    until: Instant,
    operations: u64,
    /// The longest time between two clock reads.
    longest: Duration,
}

impl Run {
    fn of(batch: u32, work: &dyn Fn(u32)) -> Run {
        let from = Instant::now();
        let mut run = Run { from, until: from, operations: 0, longest: Duration::ZERO };
        while run.until - from < SAMPLE {
            work(batch);
            run.operations += u64::from(batch);
            let now = Instant::now();
            run.longest = run.longest.max(now - run.until);
            run.until = now;
        }
        run
    }

    fn rate(&self) -> f64 {
        self.operations as f64 / (self.until - self.from).as_secs_f64()
    }
}

/// Returns whether threads whose starts were `apart` by this much, and whose longest gap was
/// `longest`, ran all the time except for at most a tenth.
pub(crate) fn ran_together(apart: Duration, longest: Duration) -> bool {
    let tolerated = SAMPLE / 10;
    apart <= tolerated && longest <= tolerated
}

/// Returns whether all threads ran all the time.
fn together(runs: &[Run]) -> bool {
    let first = runs.iter().map(|run| run.from).min();
    let last = runs.iter().map(|run| run.from).max();
    let apart = first.zip(last).map_or(Duration::ZERO, |(first, last)| last - first);
    let longest = runs.iter().map(|run| run.longest).max().unwrap_or_default();
    ran_together(apart, longest)
}

/// A count of how often the thread that created it was preempted.
///
/// For latencies: a gap in time is what they measure, so it does not reveal its cause.
pub(crate) struct Preemptions {
    /// Opened through `thread-self`, so that it stays this thread's; `None` without `/proc`.
    status: Option<File>,
    before: Option<u64>,
}

impl Preemptions {
    /// Starts counting.
    pub(crate) fn count() -> Preemptions {
        let status = File::open("/proc/thread-self/status").ok();
        let mut preemptions = Preemptions { status, before: None };
        preemptions.before = preemptions.read();
        preemptions
    }

    /// Returns whether there was a preemption; false if the kernel does not count them.
    pub(crate) fn any(&self) -> bool {
        self.read() != self.before
    }

    /// Returns how many preemptions there were; 0 if the kernel does not count them.
    pub(crate) fn so_far(&self) -> u64 {
        self.read().zip(self.before).map_or(0, |(now, before)| now - before)
    }

    fn read(&self) -> Option<u64> {
        let mut bytes = [0; 4096];
        let n = self.status.as_ref()?.read_at(&mut bytes, 0).ok()?;
        let text = std::str::from_utf8(&bytes[..n]).ok()?;
        let line =
            text.lines().find_map(|line| line.strip_prefix("nonvoluntary_ctxt_switches:"))?;
        line.trim().parse().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(from: Instant, longest: Duration) -> Run {
        Run { from, until: from + SAMPLE, operations: 300, longest }
    }

    #[test]
    fn together_means_at_once_and_without_gaps() {
        let (now, short, long) = (Instant::now(), SAMPLE / 100, SAMPLE / 5);
        assert!(together(&[run(now, short), run(now + short, short)]));
        assert!(!together(&[run(now, short), run(now, long)]), "off its CPU");
        assert!(!together(&[run(now, short), run(now + long, short)]), "alone at first");
    }

    #[test]
    fn rates_of_all_threads_add_up() {
        let cpus = affinity().expect("this process may run somewhere");
        let done = std::sync::atomic::AtomicU64::new(0);
        let sample = rate(&cpus, &|operations| {
            // Relaxed: a statistic, read after the threads were joined.
            done.fetch_add(u64::from(operations), std::sync::atomic::Ordering::Relaxed);
            thread::sleep(Duration::from_micros(100));
        });
        let (value, _) = sample.expect("pinned");
        // Relaxed: as above.
        let done = done.load(std::sync::atomic::Ordering::Relaxed) as f64;
        let seconds = SAMPLE.as_secs_f64();
        // Each thread runs for at least the sample's time; on a loaded machine it runs longer.
        assert!(value > 0.0 && value <= done / seconds + 1.0, "{value} of {done}");
    }

    #[test]
    fn preemptions_are_counted() {
        let preemptions = Preemptions::count();
        assert!(preemptions.before.is_some(), "Linux says so in /proc");
        // Two threads on one CPU cannot both keep it.
        let cpu = affinity().expect("this process may run somewhere")[0];
        let start = Barrier::new(2);
        let both: Vec<bool> = thread::scope(|scope| {
            let workers = [(); 2].map(|()| {
                scope.spawn(|| {
                    set_affinity(&[cpu]).expect("a CPU of ours");
                    let preemptions = Preemptions::count();
                    start.wait();
                    let from = Instant::now();
                    while !preemptions.any() && from.elapsed() < Duration::from_secs(10) {
                        std::hint::spin_loop();
                    }
                    preemptions.any()
                })
            });
            workers.into_iter().map(|worker| worker.join().expect("no panic")).collect()
        });
        assert!(both.contains(&true), "{both:?}");
    }
}
