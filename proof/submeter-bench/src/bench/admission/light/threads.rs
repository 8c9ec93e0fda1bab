//! Clients that are threads: the kernel decides which of those with a place has a CPU.

use std::fs;
use std::thread;
use std::time::Duration;

use submeter::Group;
use tokio::runtime::{Builder, Runtime};

use super::{Act, Door, HEAVY, Heavy, LIGHT, Seen, Variant, work};
use crate::bench::admission::tree;

impl Act {
    fn on_thread(self, group: &Group) {
        match self {
            Act::Works => work(group, HEAVY),
            Act::Sleeps => thread::sleep(HEAVY),
        }
    }
}

impl Door {
    /// Makes a request of a tenant act once it is admitted; tenant 1 is the light one.
    fn pass<T>(
        &self,
        runtime: &Runtime,
        tenant: usize,
        group: &Group,
        act: impl FnOnce() -> T,
    ) -> T {
        match self.variant {
            Variant::Alone | Variant::NoQueue | Variant::OneClient => act(),
            Variant::Semaphore | Variant::SemaphorePerTenant => {
                let acquire = self.semaphore(tenant).acquire();
                let _permit = runtime.handle().block_on(acquire).expect("it is open");
                act()
            }
            Variant::Submeter | Variant::GroupLimit => {
                let admitted = self.admission.acquire_blocking(group, Duration::MAX);
                let result = act();
                drop(admitted.expect("it waits"));
                result
            }
        }
    }
}

pub(super) fn measure(cpus: usize, variant: Variant, act: Act) -> Seen {
    let (_tree, [heavy, light]) = tree(false);
    let (door, clients) = (Door::new(cpus, variant, &heavy), Heavy::default());
    let runtime = Builder::new_current_thread().build().expect("a runtime");
    thread::scope(|scope| {
        for _ in 0..variant.clients() {
            scope.spawn(|| {
                while clients.goes_on() {
                    door.pass(&runtime, 0, &heavy, || act.on_thread(&heavy));
                    clients.count();
                }
            });
        }
        clients.beside(|from| {
            let waited = door.pass(&runtime, 1, &light, || {
                let before = waited_for_cpu();
                work(&light, LIGHT);
                Some(waited_for_cpu()?.saturating_sub(before?))
            });
            (from.elapsed(), waited)
        })
    })
}

/// Returns for how long the calling thread was runnable without a CPU, where the kernel counts it.
fn waited_for_cpu() -> Option<Duration> {
    let counts = fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    counts.split(' ').nth(1)?.parse().ok().map(Duration::from_nanos)
}
