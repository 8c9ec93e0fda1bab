//! Clients that are tasks of a runtime with a worker per CPU: waiting work has no thread, and the
//! kernel has no more threads to run than CPUs.

use std::sync::{Arc, mpsc};
use std::time::Instant;

use submeter::Group;
use tokio::runtime::Builder;
use tokio::task::yield_now;
use tokio::time::sleep;

use super::{Act, Door, HEAVY, Heavy, LIGHT, Seen, Variant, work};
use crate::bench::admission::tree;

impl Act {
    async fn in_task(self, group: &Group) {
        match self {
            Act::Works => work(group, HEAVY),
            Act::Sleeps => sleep(HEAVY).await,
        }
    }
}

impl Door {
    /// Makes a request of a tenant act once it is admitted; tenant 1 is the light one.
    async fn pass_task(&self, tenant: usize, group: &Group, act: impl Future<Output = ()>) {
        match self.variant {
            Variant::Alone | Variant::NoQueue | Variant::OneClient => act.await,
            Variant::Semaphore | Variant::SemaphorePerTenant => {
                let _permit = self.semaphore(tenant).acquire().await.expect("it is open");
                act.await;
            }
            Variant::Submeter | Variant::GroupLimit => {
                let admitted = self.admission.acquire(group).await;
                act.await;
                drop(admitted.expect("it waits"));
            }
        }
    }
}

/// Measures with light requests from outside of the runtime, each of which is a task.
pub(super) fn measure(cpus: usize, variant: Variant, act: Act) -> Seen {
    let (_tree, [heavy, light]) = tree(false);
    let (door, clients) = (Door::new(cpus, variant, &heavy), Arc::new(Heavy::default()));
    let mut runtime = Builder::new_multi_thread();
    // As the page of `admission` recommends: otherwise a light request waits for many heavy polls
    // before a busy worker looks for it.
    runtime.worker_threads(cpus).global_queue_interval(1).event_interval(1);
    let runtime = runtime.enable_time().build().expect("a runtime");
    for _ in 0..variant.clients() {
        let (door, clients, heavy) = (Arc::clone(&door), Arc::clone(&clients), heavy.clone());
        runtime.spawn(async move {
            while clients.goes_on() {
                door.pass_task(0, &heavy, act.in_task(&heavy)).await;
                clients.count();
                // As between the requests of a connection, the runtime decides what runs next.
                yield_now().await;
            }
        });
    }
    let (ended, ends) = mpsc::channel();
    clients.beside(|from: Instant| {
        let (door, light, ended) = (Arc::clone(&door), light.clone(), ended.clone());
        runtime.spawn(async move {
            door.pass_task(1, &light, async { work(&light, LIGHT) }).await;
            ended.send(from.elapsed()).expect("it is waited for");
        });
        (ends.recv().expect("it ends"), None)
    })
}
