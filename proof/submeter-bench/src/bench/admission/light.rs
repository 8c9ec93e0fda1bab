//! A light tenant beside a heavy one that always wants more, which works or sleeps in its places.

use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use submeter::Group;
use submeter::admission::Admission;
use submeter::switch::clock::thread_cpu_ns;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::Semaphore;

use super::{params, tree};
use crate::bench::record::Reading;
use crate::bench::runner::{Cell, Sample};

/// CPU time of a light request, and how often one comes.
const LIGHT: Duration = Duration::from_millis(2);
const INTERVAL: Duration = Duration::from_micros(12_500);
/// How long a heavy request takes, and how many threads have one after the other.
const HEAVY: Duration = Duration::from_micros(500);
const THREADS: usize = 32;
/// How long the heavy tenant is at it before, and for how long light requests come.
const BEFORE: Duration = Duration::from_millis(20);
const TIME: Duration = Duration::from_millis(60);

/// Who shares the CPUs, and what lets them in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Variant {
    Alone,
    NoQueue,
    Semaphore,
    SemaphorePerTenant,
    Submeter,
}

const VARIANTS: [(&str, Variant); 5] = [
    ("alone", Variant::Alone),
    ("no_queue", Variant::NoQueue),
    ("tokio_semaphore", Variant::Semaphore),
    ("semaphore_per_tenant", Variant::SemaphorePerTenant),
    ("submeter_blocking", Variant::Submeter),
];

/// What a request does in its place, for so long.
type Act = fn(&Group, Duration);

/// Uses the CPU in the group.
fn work(group: &Group, long: Duration) {
    group.run(|| {
        let end = thread_cpu_ns() + long.as_nanos() as u64;
        while thread_cpu_ns() < end {
            black_box((0..200).fold(0_u64, |sum, n| sum.rotate_left(7) ^ n));
        }
    });
}

fn sleep(_: &Group, long: Duration) {
    thread::sleep(long);
}

/// Returns the cells by what the neighbour does; there are as many places as CPUs.
pub(super) fn groups(cpus: usize) -> [Vec<Cell>; 2] {
    [("works", work as Act), ("sleeps", sleep as Act)].map(|(neighbour, act)| {
        let cell = |(name, variant)| {
            Cell::new(params("latency", neighbour), name, move || {
                Ok(Sample::kept(readings(&measure(cpus, variant, act))))
            })
        };
        VARIANTS.map(cell).into()
    })
}

/// What became of both tenants' requests.
struct Seen {
    light_us: Vec<f64>,
    heavy_per_s: f64,
}

fn readings(seen: &Seen) -> Vec<Reading> {
    let light = |(name, part)| {
        Reading::of("us", seen.light_us.clone()).with("quantile", name).quantile(part)
    };
    let mut readings = [("p50", 0.5), ("p99", 0.99)].map(light).to_vec();
    if seen.heavy_per_s > 0.0 {
        readings.push(Reading::of("1/s", vec![seen.heavy_per_s]).with("measure", "neighbour_rate"));
    }
    readings
}

/// What lets requests in.
struct Door {
    variant: Variant,
    admission: Admission,
    /// For all, or for the heavy tenant and the light one.
    semaphores: [Arc<Semaphore>; 2],
    runtime: Runtime,
}

impl Door {
    fn new(cpus: usize, variant: Variant) -> Door {
        let semaphore = |permits| Arc::new(Semaphore::new(permits));
        let semaphores = match variant {
            Variant::SemaphorePerTenant => [(); 2].map(|()| semaphore((cpus / 2).max(1))),
            _ => {
                let one = semaphore(cpus);
                [Arc::clone(&one), one]
            }
        };
        let runtime = Builder::new_current_thread().build().expect("a runtime");
        Door { variant, admission: Admission::new(cpus as u32), semaphores, runtime }
    }

    /// Has a request of a tenant, the second of which is the light one, act once it is let in.
    fn pass(&self, tenant: usize, group: &Group, act: impl FnOnce()) {
        match self.variant {
            Variant::Alone | Variant::NoQueue => act(),
            Variant::Semaphore | Variant::SemaphorePerTenant => {
                let acquire = self.semaphores[tenant].acquire();
                let _permit = self.runtime.handle().block_on(acquire).expect("it is open");
                act();
            }
            Variant::Submeter => {
                let admitted = self.admission.acquire_blocking(group, Duration::MAX);
                act();
                drop(admitted.expect("it waits"));
            }
        }
    }
}

fn measure(cpus: usize, variant: Variant, act: Act) -> Seen {
    let (_tree, [heavy, light]) = tree(false);
    let door = Door::new(cpus, variant);
    let (has_ended, done) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        for _ in 0..if variant == Variant::Alone { 0 } else { THREADS } {
            scope.spawn(|| {
                // Relaxed: a flag alone.
                while !has_ended.load(Ordering::Relaxed) {
                    door.pass(0, &heavy, || act(&heavy, HEAVY));
                    // Relaxed: a statistic.
                    done.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        thread::sleep(BEFORE);
        // Relaxed, here and below: a statistic.
        let (begun, before) = (Instant::now(), done.load(Ordering::Relaxed));
        let mut light_us = Vec::new();
        while begun.elapsed() < TIME {
            let from = Instant::now();
            door.pass(1, &light, || work(&light, LIGHT));
            light_us.push(from.elapsed().as_secs_f64() * 1e6);
            thread::sleep(INTERVAL.saturating_sub(from.elapsed()));
        }
        // Relaxed, both: a statistic, and a flag alone.
        let heavy = done.load(Ordering::Relaxed) - before;
        has_ended.store(true, Ordering::Relaxed);
        let heavy_per_s = heavy as f64 / begun.elapsed().as_secs_f64();
        Seen { light_us, heavy_per_s }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_door_lets_both_tenants_in() {
        for (name, variant) in VARIANTS {
            for act in [work as Act, sleep as Act] {
                let seen = measure(2, variant, act);
                assert!(seen.light_us.iter().all(|&us| us >= 2_000.0), "{name}: it works");
                assert_eq!(seen.heavy_per_s == 0.0, variant == Variant::Alone, "{name}");
            }
        }
    }
}
