//! Bounds, memory and flushes, which depend on the number of CPUs or threads, measured on simulated
//! ones.

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use submeter::Group;
use submeter_percpu::Area;

use super::crowd::Made;
use super::{VARIANT, ns_each, params, pinned};
use crate::bench::proc_memory::anonymous_bytes;
use crate::bench::runner::{Cell, Sample};
use crate::row::{Param, Params};

/// The numbers of simulated CPUs; in a quick run, up to `QUICK_MAX`.
const CPUS: [usize; 7] = [8, 16, 32, 64, 128, 256, 512];
const QUICK_MAX: usize = 128;
/// A few threads on a machine with many CPUs; they have run on each of them.
const FEW: (usize, usize) = (8, 128);
/// Leaves of each tree.
const GROUPS: usize = 1_000;
/// Reads of one sample.
const READS: usize = 512;

/// Measures once.
type Once = fn(&Machine) -> io::Result<f64>;

const OPERATIONS_ALL: [(&str, &str, Once); 6] = [
    ("bound_one", "count", bound_one),
    ("bound_all", "count", bound_all),
    ("read_one", "ns", read_one),
    ("sum_one", "ns", sum_one),
    ("flush_one", "ns", flush_one),
    ("flush_all", "ns", flush_all),
];
/// Operations of a few threads, which add to another leaf each time: what was marked last time
/// stays marked, and a flush that finds no new marks looks for none.
const OPERATIONS_FEW: [(&str, &str, Once); 4] = [
    ("bound_all", "count", bound_all),
    ("sum_any", "ns", sum_one),
    ("flush_any", "ns", flush_one),
    ("flush_all", "ns", flush_all),
];

/// Appends the cells of all machines.
pub(super) fn cells(cpu: usize, quick: bool, groups: &mut Vec<Vec<Cell>>) {
    for cpus in CPUS.into_iter().filter(|&cpus| !quick || cpus <= QUICK_MAX) {
        let params = |name| params(name, "simulated_cpus", cpus);
        timed(cpu, (Use::all(cpus), &OPERATIONS_ALL), params, groups);
        memory(
            cpu,
            params("memory_one"),
            move || growth(Use::all(cpus), Machine::add_one_each),
            groups,
        );
        memory(cpu, params("memory_all"), move || growth(Use::all(cpus), Machine::add_all), groups);
    }
    for (rows, of) in [("by_cpu", Use::few_by_cpu()), ("by_mm_cid", Use::few_by_thread())] {
        let params = |name| {
            Params::from([("operation", Param::word(name)), ("few_threads", Param::word(rows))])
        };
        timed(cpu, (of, &OPERATIONS_FEW), params, groups);
        memory(cpu, params("memory_all"), move || growth(of, Machine::add_all_over_time), groups);
    }
}

/// Appends the cells of one machine that are measured repeatedly.
fn timed(
    cpu: usize,
    (of, operations): (Use, &'static [(&'static str, &'static str, Once)]),
    params: impl Fn(&'static str) -> Params,
    groups: &mut Vec<Vec<Cell>>,
) {
    let shared = Arc::new(OnceLock::new());
    for &(name, unit, once) in operations {
        let shared = Arc::clone(&shared);
        let measure = move || pinned(cpu, unit, &|| once(machine(&shared, of)?));
        groups.push(vec![Cell::new(params(name), VARIANT, measure)]);
    }
}

fn memory(
    cpu: usize,
    params: Params,
    growth: impl Fn() -> io::Result<f64> + Sync + 'static,
    groups: &mut Vec<Vec<Cell>>,
) {
    let measure = move || {
        let sample = pinned(cpu, "bytes", &growth)?;
        // Preemption of the thread does not change its memory.
        Ok(Sample { disturbed: false, ..sample })
    };
    groups.push(vec![Cell::once(params, VARIANT, measure)]);
}

/// Which rows of a simulated machine threads add to.
#[derive(Clone, Copy)]
struct Use {
    cpus: usize,
    /// The rows that the threads have used, from the first on.
    visited: usize,
    threads: usize,
    /// The distance from the row of one thread to that of the next, during the measurement.
    apart: usize,
    /// Whether they add to another leaf each time.
    any: bool,
}

impl Use {
    /// A thread on each CPU.
    fn all(cpus: usize) -> Use {
        Use { cpus, visited: 0, threads: cpus, apart: 1, any: false }
    }

    /// A few threads, with rows by CPU: they were on all CPUs, and now stay where they are.
    fn few_by_cpu() -> Use {
        let (threads, cpus) = FEW;
        Use { cpus, visited: cpus, threads, apart: cpus / threads, any: true }
    }

    /// The same threads, with rows by `mm_cid`: they use the first rows wherever they run.
    fn few_by_thread() -> Use {
        let (threads, cpus) = FEW;
        Use { cpus, visited: threads, threads, apart: 1, any: true }
    }
}

/// A tree on a simulated machine.
struct Machine {
    of: Use,
    round: AtomicUsize,
    made: Made,
}

impl Machine {
    fn new(of: Use) -> io::Result<Machine> {
        let made = Made::new(GROUPS, |builder| builder.simulated_cpus(of.cpus))?;
        let machine = Machine { of, round: AtomicUsize::new(0), made };
        for row in 0..of.visited {
            Area::simulate_cpu(row as u32);
            machine.made.leaves[0].add(machine.made.counter, 1);
        }
        Ok(machine)
    }

    /// Adds 1 to a leaf, from each thread, and returns it.
    fn add_one(&self) -> &Group {
        // Relaxed: one thread measures at a time.
        let round = if self.of.any { self.round.fetch_add(1, Ordering::Relaxed) } else { 0 };
        let leaf = self.made.any(round);
        self.by_each_thread(|| leaf.add(self.made.counter, 1));
        leaf
    }

    /// Adds 1 to each leaf, from each thread.
    fn add_all(&self) {
        self.by_each_thread(|| self.add_everywhere());
    }

    /// Adds 1 to each leaf, each from one CPU, in turn.
    fn add_one_each(&self) {
        for (n, leaf) in self.made.leaves.iter().enumerate() {
            Area::simulate_cpu((n % self.of.cpus) as u32);
            leaf.add(self.made.counter, 1);
        }
    }

    /// Adds 1 to each leaf in every row that threads use, with a flush after each.
    fn add_all_over_time(&self) {
        for row in 0..self.of.visited {
            Area::simulate_cpu(row as u32);
            self.add_everywhere();
            self.made.tree.flush();
        }
    }

    fn add_everywhere(&self) {
        self.made.leaves.iter().for_each(|leaf| leaf.add(self.made.counter, 1));
    }

    fn by_each_thread(&self, add: impl Fn()) {
        for row in (0..self.of.threads).map(|thread| thread * self.of.apart) {
            Area::simulate_cpu(row as u32);
            add();
        }
    }
}

fn machine(shared: &OnceLock<Machine>, of: Use) -> io::Result<&Machine> {
    if let Some(machine) = shared.get() {
        return Ok(machine);
    }
    let machine = Machine::new(of)?;
    Ok(shared.get_or_init(|| machine))
}

/// Returns the error bound of the root's cached value after each thread has counted once in one
/// group.
fn bound_one(machine: &Machine) -> io::Result<f64> {
    machine.made.tree.flush();
    machine.add_one();
    Ok(machine.made.tree.root().read(machine.made.counter).max_error as f64)
}

/// Returns the same after each thread has counted in each group.
fn bound_all(machine: &Machine) -> io::Result<f64> {
    machine.made.tree.flush();
    machine.add_all();
    Ok(machine.made.tree.root().read(machine.made.counter).max_error as f64)
}

fn read_one(machine: &Machine) -> io::Result<f64> {
    let leaf = machine.add_one();
    let start = Instant::now();
    for _ in 0..READS {
        std::hint::black_box(leaf.read(machine.made.counter));
    }
    Ok(ns_each(start, READS))
}

fn sum_one(machine: &Machine) -> io::Result<f64> {
    machine.made.tree.flush();
    let root = machine.made.tree.root();
    let before = root.read(machine.made.counter).value;
    let leaf = machine.add_one();
    let start = Instant::now();
    std::hint::black_box(leaf.sum(machine.made.counter));
    let ns = ns_each(start, 1);
    let counted = root.read(machine.made.counter).value - before;
    assert_eq!(counted, machine.of.threads as u64, "once from each thread");
    Ok(ns)
}

fn flush_one(machine: &Machine) -> io::Result<f64> {
    machine.made.tree.flush();
    machine.add_one();
    let start = Instant::now();
    machine.made.tree.flush();
    Ok(ns_each(start, 1))
}

/// Returns the time of a flush of the tree, per group.
fn flush_all(machine: &Machine) -> io::Result<f64> {
    let root = machine.made.tree.root();
    machine.made.tree.flush();
    let before = root.read(machine.made.counter).value;
    machine.add_all();
    let start = Instant::now();
    machine.made.tree.flush();
    let ns = ns_each(start, GROUPS);
    let counted = root.read(machine.made.counter).value - before;
    let wanted = GROUPS * machine.of.threads;
    assert_eq!(counted, wanted as u64, "once in each group from each thread");
    Ok(ns)
}

/// Returns a tree's growth per group by adds, measured after a flush, which stores what it read
/// from each CPU.
fn growth(of: Use, add: fn(&Machine)) -> io::Result<f64> {
    let machine = Machine::new(of)?;
    let before = anonymous_bytes()?;
    add(&machine);
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
                &|| once(&Machine::new(Use::all(cpus))?),
            );
            found.expect("address space").readings[0].values[0]
        };
        for (once, groups) in [(bound_one as Once, 1), (bound_all, GROUPS)] {
            let [few, many] = [8, 64].map(|cpus| of(cpus, once));
            assert!(few >= (8 * groups) as f64 && many >= (64 * groups) as f64, "{few} {many}");
            assert!(many > few, "{many} with eight times as many CPUs, {few} before");
        }
        for (_, _, once) in OPERATIONS_ALL {
            assert!(of(8, once) > 0.0);
        }
        let [few, many] =
            [8, 64].map(|cpus| growth(Use::all(cpus), Machine::add_all).expect("smaps"));
        assert!(many > few);
    }

    /// A few threads take memory in each row that they use.
    #[test]
    fn a_few_threads_take_memory_in_each_row() {
        let [by_cpu, by_thread] = [Use::few_by_cpu(), Use::few_by_thread()]
            .map(|of| growth(of, Machine::add_all_over_time).expect("smaps"));
        // A sixteenth; but this process runs other tests too.
        assert!(by_cpu > 2.0 * by_thread, "{by_cpu} and {by_thread} bytes");
    }
}
