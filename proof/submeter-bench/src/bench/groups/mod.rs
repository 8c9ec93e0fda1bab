//! The `groups` table: what each operation on a group costs, in trees of ten groups and of a
//! million.
//!
//! Figures that depend on the number of CPUs but not on their speed (error bounds, memory, the work
//! of a flush) are measured on simulated CPUs.

mod crowd;
mod memory;
mod operations;
mod simulated;

use std::io;
use std::rc::Rc;
use std::thread;
use std::time::Instant;

use submeter_sys::cpu::{affinity, set_affinity};

use super::Inputs;
use super::proc_memory::available_bytes;
use super::runner::{Plan, Sample};
use super::threads::Preemptions;
use crate::row::{Param, Params};
use crowd::Crowd;

pub(crate) use memory::measure_memory;

const TABLE: &str = "groups";
const VARIANT: &str = "submeter";

/// Leaves of the trees. The largest only if time and memory allow.
const SIZES: [usize; 4] = [10, 1_000, 100_000, 1_000_000];
/// A generous estimate of what the largest tree, the process that measures memory, and other
/// programs take together.
const MEMORY_BYTES_MIN: u64 = 4 << 30;

/// Returns the table's plan.
///
/// # Errors
/// When the CPUs of this process cannot be determined.
pub(crate) fn plan(inputs: &Inputs) -> io::Result<Plan> {
    let cpu = affinity()?[0];
    let mut notes = LEGEND.map(str::to_owned).to_vec();
    let mut sizes = SIZES.to_vec();
    if inputs.quick {
        sizes.pop();
        notes.push("no tree of 1,000,000 groups: run without --quick to measure it".to_owned());
    } else if available_bytes().is_some_and(|bytes| bytes < MEMORY_BYTES_MIN) {
        sizes.pop();
        notes.push(
            "no tree of 1,000,000 groups, because less than 4 GiB of memory are free".to_owned(),
        );
    }
    let mut groups = Vec::new();
    for &size in &sizes {
        groups.extend(memory::cells(size));
        groups.extend(operations::cells(cpu, &Rc::new(Crowd::new(size))));
    }
    simulated::cells(cpu, inputs.quick, &mut groups);
    Ok(Plan { mixed: true, notes, ..Plan::new(TABLE, groups) })
}

/// Notes that a reader needs to understand the rows.
const LEGEND: [&str; 4] = [
    "a group has 8 metrics, CPU time among them; `any` is a different group each time, in scattered order, through a \
     handle; all on one pinned thread, with no other thread in the tree",
    "enter_*: to the group and back, two switches, each of which charges CPU time; sum_any: an exact read after an \
     add to the same group; flush_all: time per group, after an add to each",
    "memory_*: growth of a fresh process per group, including its share of the tree, without handles; updated: \
     after one add and a flush",
    "simulated CPUs are rows of one real CPU, which writes and reads them: valid for bounds, memory and how much a flush has to \
     visit, but not for the cost of transferring lines between CPUs",
];

/// Measures on a new thread, pinned to `cpu`.
fn pinned(
    cpu: usize,
    unit: &'static str,
    measure: &(dyn Fn() -> io::Result<f64> + Sync),
) -> io::Result<Sample> {
    let work = || {
        set_affinity(&[cpu])?;
        let preemptions = Preemptions::count();
        let value = measure()?;
        Ok(Sample::of(unit, value, preemptions.any()))
    };
    thread::scope(|scope| scope.spawn(work).join().expect("a measuring thread panicked"))
}

/// Returns the nanoseconds since `start`, divided by `times`.
fn ns_each(start: Instant, times: usize) -> f64 {
    start.elapsed().as_nanos() as f64 / times.max(1) as f64
}

fn params(operation: &'static str, of: &'static str, number: usize) -> Params {
    Params::from([("operation", Param::word(operation)), (of, Param::number(number as u64))])
}

#[cfg(test)]
mod tests;
