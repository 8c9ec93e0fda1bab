//! Bounds, memory and flushes, which depend on the number of CPUs, measured on simulated ones.

use std::io;
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use submeter_percpu::Area;

use super::crowd::Made;
use super::{VARIANT, ns_each, params, pinned};
use crate::bench::proc_memory::anonymous_bytes;
use crate::bench::runner::{Cell, Sample};

/// The numbers of simulated CPUs; in a quick run, up to `QUICK_MAX`.
const CPUS: [usize; 7] = [8, 16, 32, 64, 128, 256, 512];
const QUICK_MAX: usize = 128;
/// Leaves of each tree.
const GROUPS: usize = 1_000;
/// Reads of one sample.
const READS: usize = 512;

/// Measures once.
type Once = fn(&Machine) -> io::Result<f64>;

const OPERATIONS: [(&str, &str, Once); 6] = [
    ("bound_one", "count", bound_one),
    ("bound_all", "count", bound_all),
    ("read_one", "ns", read_one),
    ("sum_one", "ns", sum_one),
    ("flush_one", "ns", flush_one),
    ("flush_all", "ns", flush_all),
];

/// Appends the cells of all machines.
pub(super) fn cells(cpu: usize, quick: bool, groups: &mut Vec<Vec<Cell>>) {
    for cpus in CPUS.into_iter().filter(|&cpus| !quick || cpus <= QUICK_MAX) {
        let shared = Arc::new(OnceLock::new());
        for (name, unit, once) in OPERATIONS {
            let shared = Arc::clone(&shared);
            let params = params(name, "simulated_cpus", cpus);
            let measure = move || pinned(cpu, unit, &|| once(machine(&shared, cpus)?));
            groups.push(vec![Cell::new(params, VARIANT, measure)]);
        }
        for (name, by_all) in [("memory_one", false), ("memory_all", true)] {
            let measure = move || {
                let sample = pinned(cpu, "bytes", &|| growth(cpus, by_all))?;
                // Preemption of the thread does not change its memory.
                Ok(Sample { disturbed: false, ..sample })
            };
            let params = params(name, "simulated_cpus", cpus);
            groups.push(vec![Cell::once(params, VARIANT, measure)]);
        }
    }
}

/// A tree on a simulated machine.
struct Machine {
    cpus: usize,
    made: Made,
}

impl Machine {
    fn new(cpus: usize) -> io::Result<Machine> {
        let made = Made::new(GROUPS, |builder| builder.simulated_cpus(cpus))?;
        Ok(Machine { cpus, made })
    }

    /// Adds 1 to a leaf, on each CPU.
    fn add_one(&self) {
        for cpu in 0..self.cpus {
            Area::simulate_cpu(cpu as u32);
            self.made.leaves[0].add(self.made.counter, 1);
        }
    }

    /// Adds 1 to each leaf, on each CPU.
    fn add_all(&self) {
        for cpu in 0..self.cpus {
            Area::simulate_cpu(cpu as u32);
            self.made.leaves.iter().for_each(|leaf| leaf.add(self.made.counter, 1));
        }
    }
}

fn machine(shared: &OnceLock<Machine>, cpus: usize) -> io::Result<&Machine> {
    if let Some(machine) = shared.get() {
        return Ok(machine);
    }
    let machine = Machine::new(cpus)?;
    Ok(shared.get_or_init(|| machine))
}

/// The error bound of the root's cached value after each CPU has counted once in one group.
fn bound_one(machine: &Machine) -> io::Result<f64> {
    machine.made.tree.flush();
    machine.add_one();
    Ok(machine.made.tree.root().read(machine.made.counter).bound as f64)
}

/// The same after each CPU has counted in each group.
fn bound_all(machine: &Machine) -> io::Result<f64> {
    machine.made.tree.flush();
    machine.add_all();
    Ok(machine.made.tree.root().read(machine.made.counter).bound as f64)
}

fn read_one(machine: &Machine) -> io::Result<f64> {
    machine.add_one();
    let start = Instant::now();
    for _ in 0..READS {
        std::hint::black_box(machine.made.leaves[0].read(machine.made.counter));
    }
    Ok(ns_each(start, READS))
}

fn sum_one(machine: &Machine) -> io::Result<f64> {
    machine.made.tree.flush();
    let before = machine.made.leaves[0].read(machine.made.counter).value;
    machine.add_one();
    let start = Instant::now();
    let sum = machine.made.leaves[0].sum(machine.made.counter);
    let ns = ns_each(start, 1);
    assert_eq!(sum - before, machine.cpus as u64, "once on each CPU");
    Ok(ns)
}

fn flush_one(machine: &Machine) -> io::Result<f64> {
    machine.made.tree.flush();
    machine.add_one();
    let start = Instant::now();
    machine.made.tree.flush();
    Ok(ns_each(start, 1))
}

/// The time of a flush of the tree, per group.
fn flush_all(machine: &Machine) -> io::Result<f64> {
    let root = machine.made.tree.root();
    machine.made.tree.flush();
    let before = root.read(machine.made.counter).value;
    machine.add_all();
    let start = Instant::now();
    machine.made.tree.flush();
    let ns = ns_each(start, GROUPS);
    let counted = root.read(machine.made.counter).value - before;
    assert_eq!(counted, (GROUPS * machine.cpus) as u64, "once in each group on each CPU");
    Ok(ns)
}

/// A tree's growth per group after every group was used: each by one CPU, in turn, or `by_all`.
/// Measured after a flush, which stores what it read of each CPU.
fn growth(cpus: usize, by_all: bool) -> io::Result<f64> {
    let machine = Machine::new(cpus)?;
    let before = anonymous_bytes()?;
    if by_all {
        machine.add_all();
    } else {
        for (n, leaf) in machine.made.leaves.iter().enumerate() {
            Area::simulate_cpu((n % cpus) as u32);
            leaf.add(machine.made.counter, 1);
        }
    }
    machine.made.tree.flush();
    let after = anonymous_bytes()?;
    Ok(after.saturating_sub(before) as f64 / GROUPS as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_grow_with_cpus_and_are_never_exceeded() {
        let of = |cpus, once: Once| {
            let found = super::super::pinned(
                submeter_sys::cpu::affinity().expect("this process may run somewhere")[0],
                "",
                &|| once(&Machine::new(cpus)?),
            );
            found.expect("address space").readings[0].values[0]
        };
        for (once, groups) in [(bound_one as Once, 1), (bound_all, GROUPS)] {
            let [few, many] = [8, 64].map(|cpus| of(cpus, once));
            assert!(few >= (8 * groups) as f64 && many >= (64 * groups) as f64, "{few} {many}");
            assert!(many > few, "{many} with eight times as many CPUs, {few} before");
        }
        for (_, _, once) in OPERATIONS {
            assert!(of(8, once) > 0.0);
        }
        assert!(growth(64, true).expect("smaps") > growth(8, true).expect("smaps"));
    }
}
