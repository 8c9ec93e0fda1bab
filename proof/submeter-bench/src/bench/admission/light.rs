//! A light tenant beside a heavy one that always wants more, and that works or sleeps in its
//! places.

mod tasks;
mod threads;

use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use submeter::Group;
use submeter::admission::Admission;
use submeter::switch::clock::thread_cpu_ns;
use tokio::sync::Semaphore;

use super::params;
use crate::bench::record::Reading;
use crate::bench::runner::{Cell, Sample};
use crate::row::Param;

/// CPU time of a light request, and the interval between two of them.
const LIGHT: Duration = Duration::from_millis(2);
const INTERVAL: Duration = Duration::from_micros(12_500);
/// Duration of a heavy request, and number of clients that send one after another.
const HEAVY: Duration = Duration::from_micros(500);
const CLIENTS: usize = 32;
/// How long the heavy tenant is active beforehand, and for how long light requests come.
const BEFORE: Duration = Duration::from_millis(20);
const TIME: Duration = Duration::from_millis(60);

/// Who shares the CPUs, and what admits them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Variant {
    Alone,
    NoQueue,
    /// The same, but the heavy tenant has one client: nothing is handed from one to the next.
    OneClient,
    Semaphore,
    SemaphorePerTenant,
    Submeter,
    /// The same as `Submeter`, but the heavy tenant never has all places.
    GroupLimit,
}

impl Variant {
    /// Returns the number of the heavy tenant's clients.
    fn clients(self) -> usize {
        match self {
            Variant::Alone => 0,
            Variant::OneClient => 1,
            _ => CLIENTS,
        }
    }
}

fn variants(submeter: &'static str) -> [(&'static str, Variant); 7] {
    [
        ("alone", Variant::Alone),
        ("no_queue", Variant::NoQueue),
        ("one_client", Variant::OneClient),
        ("tokio_semaphore", Variant::Semaphore),
        ("semaphore_per_tenant", Variant::SemaphorePerTenant),
        (submeter, Variant::Submeter),
        ("group_limit", Variant::GroupLimit),
    ]
}

/// What a heavy request does in its place.
#[derive(Clone, Copy, Debug)]
enum Act {
    Works,
    Sleeps,
}

/// Measures on that many CPUs.
type Measure = fn(usize, Variant, Act) -> Seen;

/// The light tenant's neighbour, and the variant name under which submeter admits both.
const NEIGHBOURS: [(&str, Act, &str, &str, Measure); 3] = [
    ("works", Act::Works, "threads", "submeter_blocking", threads::measure),
    ("works", Act::Works, "tasks", "submeter", tasks::measure),
    ("sleeps", Act::Sleeps, "threads", "submeter_blocking", threads::measure),
];

/// Returns the cells by neighbour; there are as many places as CPUs.
pub(super) fn groups(cpus: usize) -> [Vec<Cell>; 3] {
    NEIGHBOURS.map(|(neighbour, act, clients, submeter, measure)| {
        let cell = |(name, variant)| {
            let mut params = params("latency", neighbour);
            params.set("clients", Param::word(clients));
            Cell::new(params, name, move || {
                Ok(Sample::kept(readings(&measure(cpus, variant, act))))
            })
        };
        variants(submeter).map(cell).into()
    })
}

/// The outcome of both tenants' requests.
struct Seen {
    light_us: Vec<f64>,
    /// For each request that had its place, how long it was kept from a CPU, where the kernel
    /// reports it.
    waited_us: Vec<f64>,
    heavy_per_s: f64,
}

fn readings(seen: &Seen) -> Vec<Reading> {
    let quantiles = |measure, us: &[f64]| {
        let us = us.to_vec();
        [("p50", 0.5), ("p99", 0.99)].map(|(name, part)| {
            let of = Reading::of("us", us.clone()).with("measure", measure);
            of.with("quantile", name).quantile(part)
        })
    };
    let mut readings = quantiles("latency", &seen.light_us).to_vec();
    if !seen.waited_us.is_empty() {
        readings.extend(quantiles("cpu_wait", &seen.waited_us));
        // The part that the queue adds, not the kernel.
        let both = seen.light_us.iter().zip(&seen.waited_us);
        let less: Vec<_> = both.map(|(latency, waited)| latency - waited).collect();
        readings.extend(quantiles("latency_less_cpu_wait", &less));
    }
    if seen.heavy_per_s > 0.0 {
        readings.push(Reading::of("1/s", vec![seen.heavy_per_s]).with("measure", "neighbour_rate"));
    }
    readings
}

/// The gate that admits requests.
struct Door {
    variant: Variant,
    admission: Admission,
    /// One for all, or one each for the heavy and the light tenant.
    semaphores: [Semaphore; 2],
}

impl Door {
    fn new(cpus: usize, variant: Variant, heavy: &Group) -> Arc<Door> {
        let permits = match variant {
            Variant::SemaphorePerTenant => [(cpus / 2).max(1); 2],
            _ => [cpus, 0],
        };
        let semaphores = permits.map(Semaphore::new);
        let admission = Admission::new(cpus as u32);
        if variant == Variant::GroupLimit {
            admission.set_group_limit(heavy, Some((cpus as u32 - 1).max(1)));
        }
        Arc::new(Door { variant, admission, semaphores })
    }

    fn semaphore(&self, tenant: usize) -> &Semaphore {
        let own = self.variant == Variant::SemaphorePerTenant;
        &self.semaphores[if own { tenant } else { 0 }]
    }
}

/// The heavy tenant's clients.
#[derive(Default)]
struct Heavy {
    has_ended: AtomicBool,
    done: AtomicU64,
}

impl Heavy {
    fn goes_on(&self) -> bool {
        // Relaxed: a standalone flag.
        !self.has_ended.load(Ordering::Relaxed)
    }

    fn count(&self) {
        // Relaxed: a statistic.
        self.done.fetch_add(1, Ordering::Relaxed);
    }

    /// Makes light requests for a time by `request`, and then ends. `request` returns how long a
    /// request took since it arrived, and for how much of that time it was kept from a CPU.
    fn beside(&self, mut request: impl FnMut(Instant) -> (Duration, Option<Duration>)) -> Seen {
        thread::sleep(BEFORE);
        // A tenant's first turn is a turn later than each one after.
        request(Instant::now());
        thread::sleep(INTERVAL);
        let us = |time: Duration| time.as_secs_f64() * 1e6;
        // Relaxed, here and below: a statistic.
        let (begun, before) = (Instant::now(), self.done.load(Ordering::Relaxed));
        let mut seen = Seen { light_us: Vec::new(), waited_us: Vec::new(), heavy_per_s: 0.0 };
        while begun.elapsed() < TIME {
            let from = Instant::now();
            let (took, waited) = request(from);
            seen.light_us.push(us(took));
            seen.waited_us.extend(waited.map(us));
            thread::sleep(INTERVAL.saturating_sub(from.elapsed()));
        }
        // Relaxed, both: a statistic, and a standalone flag.
        let heavy = self.done.load(Ordering::Relaxed) - before;
        self.has_ended.store(true, Ordering::Relaxed);
        seen.heavy_per_s = heavy as f64 / begun.elapsed().as_secs_f64();
        seen
    }
}

/// Uses the CPU in the group.
fn work(group: &Group, long: Duration) {
    group.run(|| {
        let end = thread_cpu_ns() + long.as_nanos() as u64;
        while thread_cpu_ns() < end {
            black_box((0..200).fold(0_u64, |sum, n| sum.rotate_left(7) ^ n));
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_door_lets_both_tenants_in() {
        for (_, act, clients, submeter, measure) in NEIGHBOURS {
            for (name, variant) in variants(submeter) {
                let name = format!("{name}, {clients}, {act:?}");
                // A busy machine may run nothing of the heavy tenant within one sample.
                let has_heavy = (0..10).any(|_| {
                    let seen = measure(2, variant, act);
                    assert!(seen.light_us.iter().all(|&us| us >= 2_000.0), "{name}: it works");
                    seen.heavy_per_s > 0.0
                });
                assert_eq!(has_heavy, variant != Variant::Alone, "{name}");
            }
        }
    }
}
