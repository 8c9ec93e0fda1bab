//! The `admission` table: what admission costs while nothing waits, what the switch costs that
//! charges for it, and the check whether the slice is used up; and what a light tenant sees of a
//! heavy one.

mod light;

use std::future::Future;
use std::hint::black_box;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::{Duration, Instant};

use submeter::admission::Admission;
use submeter::switch::TimeSlice;
use submeter::{Group, Rate, Schema, Tree};
use submeter_sys::cpu::{affinity, set_affinity};
use tokio::sync::Semaphore;

use super::runner::{Absent, Cell, Plan, Sample};
use super::threads::{Preemptions, SAMPLE};
use crate::row::{Param, Params};

const TABLE: &str = "admission";

/// Calls between two clock reads.
const BATCH: u32 = 512;
/// Number of requests that may be in flight; one is.
const PLACES: u32 = 8;
/// CPU time per second, a limit that is never close.
const BUDGET: u64 = 1_000_000_000_000;

/// Returns the table's plan.
///
/// # Errors
/// When the CPUs of this process cannot be determined.
pub(crate) fn plan() -> io::Result<Plan> {
    let cpus = affinity()?;
    let of = |(measure, calls): (&'static str, Vec<Call>)| {
        calls.into_iter().map(|call| cell(measure, cpus[0], call)).collect()
    };
    let mut uncontended = uncontended().to_vec();
    uncontended.extend(peers());
    let costs = [
        ("uncontended", uncontended),
        ("switch", vec![("without_budget", || switch(false)), ("with_budget", || switch(true))]),
        ("checkpoint", vec![("checkpoint", checkpoint)]),
    ];
    Ok(Plan {
        mixed: true,
        absent: Absent::peers().into_iter().collect(),
        ..Plan::new(TABLE, costs.map(of).into_iter().chain(light::groups(cpus.len())).collect())
    })
}

/// A call that does something the given number of times.
type Calls = Box<dyn FnMut(u32)>;

/// A variant, and the function that makes its loop, on a thread of its own.
type Call = (&'static str, fn() -> Calls);

fn cell(measure: &'static str, cpu: usize, (variant, start): Call) -> Cell {
    Cell::new([("measure", Param::word(measure))].into(), variant, move || {
        let (ns, disturbed) = time(cpu, start)?;
        Ok(Sample::of("ns", ns, disturbed))
    })
}

/// Returns the time of a call, and whether the thread was preempted.
fn time(cpu: usize, start: fn() -> Calls) -> io::Result<(f64, bool)> {
    let timed = thread::spawn(move || {
        set_affinity(&[cpu])?;
        let mut calls = start();
        calls(BATCH);
        let (preemptions, from) = (Preemptions::count(), Instant::now());
        let mut done = 0_u32;
        while from.elapsed() < SAMPLE {
            calls(BATCH);
            done += BATCH;
        }
        let ns = from.elapsed().as_secs_f64() * 1e9;
        Ok((ns / f64::from(done), preemptions.any()))
    });
    timed.join().expect("it panicked")
}

/// Makes a tree with two siblings on the second level.
fn tree(has_budget: bool) -> (Tree, [Group; 2]) {
    let mut schema = Schema::builder();
    let _cpu = schema.cpu_time("cpu", "CPU time used");
    let budget = has_budget.then(|| schema.cpu_budget("cpu_budget", "CPU time to be used"));
    let tree = Tree::new(schema.build().expect("a schema")).expect("a tree");
    let groups = ["/acme/web", "/acme/mail"].map(|path| tree.get_or_create(path).expect("new"));
    if let (Some(budget), Some(acme)) = (budget, groups[0].parent()) {
        let rate = Some(Rate::new(BUDGET, Duration::from_secs(1)));
        groups[0].set_rate(budget, rate).expect("a rate");
        acme.set_rate(budget, rate).expect("a rate");
    }
    (tree, groups)
}

fn ready<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => value,
        Poll::Pending => unreachable!("there is room"),
    }
}

/// Makes a loop of a call that owns what it needs.
fn repeated(mut call: impl FnMut() + 'static) -> Calls {
    Box::new(move |times| (0..times).for_each(|_| call()))
}

/// Returns a call of each limiter of other libraries.
#[cfg(feature = "peers")]
fn peers() -> Vec<Call> {
    submeter_peers::gates::gates().map(|gate| (gate.variant, gate.start)).to_vec()
}

/// Returns none: they were not built.
#[cfg(not(feature = "peers"))]
fn peers() -> Vec<Call> {
    Vec::new()
}

fn uncontended() -> [Call; 3] {
    [
        ("submeter", || {
            let ((tree, [web, _]), admission) = (tree(false), Admission::new(PLACES));
            repeated(move || {
                let _alive = &tree;
                drop(black_box(ready(admission.acquire(&web)).expect("there is room")));
            })
        }),
        ("submeter_blocking", || {
            let ((tree, [web, _]), admission) = (tree(false), Admission::new(PLACES));
            repeated(move || {
                let _alive = &tree;
                let admitted = admission.acquire_blocking(&web, Duration::MAX);
                drop(black_box(admitted.expect("there is room")));
            })
        }),
        ("tokio_semaphore", || {
            let semaphore = Arc::new(Semaphore::new(PLACES as usize));
            repeated(move || {
                let permit = ready(Arc::clone(&semaphore).acquire_owned());
                drop(black_box(permit.expect("it is open")));
            })
        }),
    ]
}

/// Switches from one sibling to the other, or back.
fn switch(has_budget: bool) -> Calls {
    let (tree, [web, mail]) = tree(has_budget);
    Box::new(move |times| {
        let (_alive, _home) = (&tree, web.enter());
        // Entering a group and returning are two switches.
        (0..times / 2).for_each(|_| mail.run(|| black_box(())));
    })
}

fn checkpoint() -> Calls {
    let (tree, [web, _]) = tree(false);
    let slice = TimeSlice::new(Duration::from_secs(3600));
    Box::new(move |times| {
        let (_alive, _home) = (&tree, web.enter());
        (0..times).for_each(|_| ready(slice.checkpoint()));
    })
}

/// Returns the parameters of a figure that a tenant sees.
fn params(measure: &'static str, neighbour: &'static str) -> Params {
    [("measure", Param::word(measure)), ("neighbour", Param::word(neighbour))].into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_call_is_timed() {
        let cpu = affinity().expect("this process may run somewhere")[0];
        let switches: [Call; 3] = [
            ("without_budget", || switch(false)),
            ("with_budget", || switch(true)),
            ("checkpoint", checkpoint),
        ];
        for (variant, start) in uncontended().into_iter().chain(switches).chain(peers()) {
            let (ns, _) = time(cpu, start).expect("pinned");
            assert!(ns > 0.5, "{variant}: {ns}");
        }
    }
}
