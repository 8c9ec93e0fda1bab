//! Nanoseconds per add on each backend, and with what people use otherwise.
//!
//! Every variant is measured once per round, so that a disturbance of the machine affects all of
//! them. The reported value is the median of the rounds; the interquartile range says how far to
//! trust it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::thread::Builder;
use std::time::{Duration, Instant};

use crossbeam_utils::CachePadded;
use serde::Serialize;
use submeter_percpu::Area;
use submeter_sys::{Backend, cpu, probe};

use super::facts::{BackendName, Facts};

/// Time limit for all rounds together.
const BUDGET: Duration = Duration::from_millis(1300);
const ROUNDS_MAX: usize = 41;
const ROUNDS_MIN: usize = 3;
/// Duration of one sample on one thread.
const SAMPLE: Duration = Duration::from_micros(300);
/// Number of threads beyond which a backend shows nothing new.
const THREADS_MAX: usize = 16;

/// One variant's figures.
#[derive(Debug, Serialize)]
pub(crate) struct Adds {
    /// The measured variant.
    pub(crate) variant: &'static str,
    /// The backend that the variant stands for.
    pub(crate) backend: Option<BackendName>,
    /// Whether that backend is in use.
    pub(crate) in_use: bool,
    /// Why there are no figures.
    pub(crate) missing: Option<String>,
    /// Figures of one thread alone.
    pub(crate) one_thread_ns: Option<Spread>,
    /// Figures of a thread on each of `threads` CPUs, all adding to the same word.
    pub(crate) all_threads_ns: Option<Spread>,
    /// Number of threads.
    pub(crate) threads: usize,
}

/// The middle of the samples, in nanoseconds per add.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Spread {
    /// The median.
    pub(crate) median: f64,
    /// The first quartile.
    pub(crate) low: f64,
    /// The third quartile.
    pub(crate) high: f64,
    /// Number of samples.
    pub(crate) samples: usize,
}

/// Measures every variant of an add that this process can run, and also what `others` do, on one
/// thread alone.
pub(crate) fn measure(facts: &Facts, others: &mut [Variant]) -> Vec<Adds> {
    let cpus: Vec<usize> = facts.cpus_allowed.iter().copied().take(THREADS_MAX).collect();
    let mut variants = variants(facts);
    variants.iter_mut().chain(&mut *others).for_each(Variant::calibrate);
    let start = Instant::now();
    for round in 0..ROUNDS_MAX {
        if round >= ROUNDS_MIN && start.elapsed() > BUDGET {
            break;
        }
        variants.iter_mut().chain(&mut *others).for_each(Variant::sample_one);
        variants.iter_mut().for_each(|variant| variant.sample_all(&cpus));
    }
    variants.into_iter().map(|variant| variant.adds(facts.backend, cpus.len())).collect()
}

/// Something that repeats one operation as often as asked, and its samples.
pub(crate) struct Variant {
    name: &'static str,
    backend: Option<BackendName>,
    /// The operation, or why it cannot run.
    add: Result<Arc<dyn Fn(u64) + Send + Sync>, String>,
    count: u64,
    one: Vec<f64>,
    all: Vec<f64>,
}

/// Returns the backends, between the least and the most that an add can cost.
fn variants(facts: &Facts) -> Vec<Variant> {
    let variant =
        |name, backend, add| Variant { name, backend, add, ..Variant::of(Arc::new(|_| ())) };
    let reason = |missing: bool, why: &str| if missing { Err(why.to_owned()) } else { Ok(()) };
    let rseq =
        if facts.backend == BackendName::OwnRseq { Backend::OwnRseq } else { Backend::LibcRseq };
    vec![
        variant("plain add, own word of a thread", None, Ok(Arc::new(plain))),
        variant(
            "rseq",
            Some(rseq.into()),
            reason(probe().rseq().is_none(), &facts.reason).and_then(|()| on(rseq)),
        ),
        variant(
            "locked add by CPU",
            Some(BackendName::LockedByCpu),
            reason(probe().cpu_hint().is_none(), "libc does not provide the CPU number")
                .and_then(|()| on(Backend::LockedByCpu)),
        ),
        variant(
            "locked add by thread",
            Some(BackendName::LockedByThread),
            on(Backend::LockedByThread),
        ),
        variant("one atomic for all", None, Ok(Arc::new(shared))),
    ]
}

/// Adds to a word that only one thread writes. It is as cheap as an add can be, but no reader could
/// sum such words in time.
fn plain(count: u64) {
    thread_local!(static WORD: AtomicI64 = const { AtomicI64::new(0) });
    WORD.with(|word| {
        for _ in 0..count {
            // Relaxed: only this thread writes it.
            word.store(word.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        }
    });
}

/// Adds to one shared counter, the usual first attempt.
fn shared(count: u64) {
    // The word has a cache line of its own, which adds elsewhere must not disturb.
    static WORD: CachePadded<AtomicI64> = CachePadded::new(AtomicI64::new(0));
    for _ in 0..count {
        // Relaxed: a statistic.
        WORD.fetch_add(1, Ordering::Relaxed);
    }
}

/// Adds to a word of an area on `backend`.
fn on(backend: Backend) -> Result<Arc<dyn Fn(u64) + Send + Sync>, String> {
    let area = Area::with_backend(backend, |_| 0);
    let block = area.and_then(|area| area.block(1)).map_err(|error| error.to_string())?;
    Ok(Arc::new(move |count| (0..count).for_each(|_| block.add(0, 1))))
}

impl Variant {
    /// Makes a variant that has no name and stands for no backend.
    pub(super) fn of(work: Arc<dyn Fn(u64) + Send + Sync>) -> Variant {
        let (one, all) = (Vec::new(), Vec::new());
        Variant { name: "", backend: None, add: Ok(work), count: 0, one, all }
    }

    /// Returns the time that one thread alone took.
    pub(super) fn alone(self) -> Option<Spread> {
        Spread::of(self.one)
    }

    /// Finds how many adds make a sample.
    fn calibrate(&mut self) {
        const FIRST: u64 = 5_000;
        let Ok(add) = &self.add else { return };
        add(FIRST);
        let start = Instant::now();
        add(FIRST);
        let took = start.elapsed().max(Duration::from_nanos(1));
        let count = FIRST as f64 * SAMPLE.as_secs_f64() / took.as_secs_f64();
        self.count = (count as u64).clamp(1_000, 2_000_000);
    }

    fn sample_one(&mut self) {
        let Ok(add) = &self.add else { return };
        self.one.push(time(add, self.count));
    }

    /// Times the same adds on a thread on each of `cpus`, and takes the mean.
    fn sample_all(&mut self, cpus: &[usize]) {
        let Ok(add) = &self.add else { return };
        let (go, count) = (AtomicBool::new(false), self.count);
        let run = |cpu: usize| {
            // If left to the scheduler, short-lived threads may share a CPU. Where pinning is
            // refused, the figure shows exactly that.
            let _ = cpu::set_affinity(&[cpu]);
            // Relaxed: a plain signal; the adds order nothing either.
            while !go.load(Ordering::Relaxed) {
                std::thread::yield_now();
            }
            time(add, count)
        };
        let run = &run;
        let each: Option<Vec<f64>> = std::thread::scope(|scope| {
            let start = |&cpu| Builder::new().spawn_scoped(scope, move || run(cpu));
            let threads: Vec<_> = cpus.iter().map(start).collect();
            // Relaxed: as above.
            go.store(true, Ordering::Relaxed);
            threads.into_iter().map(|thread| thread.ok()?.join().ok()).collect()
        });
        // With fewer threads than requested, under a limit on threads, it would be a different
        // measurement.
        if let Some(each) = each.filter(|each| !each.is_empty()) {
            self.all.push(each.iter().sum::<f64>() / each.len() as f64);
        }
    }

    fn adds(self, in_use: BackendName, threads: usize) -> Adds {
        Adds {
            variant: self.name,
            backend: self.backend,
            in_use: self.backend == Some(in_use),
            missing: self.add.err(),
            one_thread_ns: Spread::of(self.one),
            all_threads_ns: Spread::of(self.all),
            threads,
        }
    }
}

/// Returns nanoseconds per add.
fn time(add: &Arc<dyn Fn(u64) + Send + Sync>, count: u64) -> f64 {
    let start = Instant::now();
    add(count);
    start.elapsed().as_secs_f64() * 1e9 / count as f64
}

impl Spread {
    /// Sorts the samples and takes their quartiles; `None` without samples.
    fn of(mut samples: Vec<f64>) -> Option<Spread> {
        samples.sort_by(f64::total_cmp);
        let at = |part: usize| samples.get((samples.len().checked_sub(1)? * part).div_ceil(4));
        Some(Spread { median: *at(2)?, low: *at(1)?, high: *at(3)?, samples: samples.len() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quartiles_of_few_and_many() {
        assert!(Spread::of(Vec::new()).is_none());
        let one = Spread::of(vec![2.0]).expect("one");
        assert_eq!((one.low, one.median, one.high, one.samples), (2.0, 2.0, 2.0, 1));
        let many = Spread::of((0..=100).rev().map(f64::from).collect()).expect("many");
        assert_eq!((many.low, many.median, many.high), (25.0, 50.0, 75.0));
    }

    #[test]
    fn a_word_takes_what_is_added_on_every_backend() {
        for backend in [Backend::LibcRseq, Backend::LockedByCpu, Backend::LockedByThread] {
            let block =
                Area::with_backend(backend, |_| 0).and_then(|area| area.block(1)).expect("room");
            (0..1000).for_each(|_| block.add(0, 1));
            assert_eq!(block.sum(0), 1000, "{backend:?}");
        }
    }
}
