//! What reading costs with the number of CPUs, on simulated ones: a line of its own for each, all
//! in the cache of the one CPU that reads. What it costs real CPUs to take lines from each other is
//! test 3.

use std::hint::black_box;
use std::io;
use std::sync::Arc;
use std::thread;

use crossbeam_utils::CachePadded;
use submeter::counter::BATCH_DEFAULT;
use submeter_percpu::{Area, PercpuCounter};

use super::designs::{Counter, LockFold};
use super::lock::Spin;
use crate::bench::runner::{Cell, Sample};
use crate::bench::threads::rates;
use crate::row::{Param, Params};

/// The machines that are simulated.
pub(super) const CPUS: [usize; 7] = [1, 2, 4, 8, 16, 32, 64];

/// Operations between two looks at the clock.
const LOOPS: u32 = 256;

/// A way to learn of a counter's value.
#[derive(Clone, Copy)]
pub(super) enum Operation {
    Read,
    Sum,
    /// With what is so much more.
    Compare(i64),
}

/// What is beyond all bounds is compared by a read, what is near by a sum.
pub(super) const OPERATIONS: [(&str, Operation); 4] = [
    ("read", Operation::Read),
    ("sum", Operation::Sum),
    ("compare_far", Operation::Compare(1 << 40)),
    ("compare_near", Operation::Compare(1)),
];

/// Returns the cells of all operations on all machines, and notes what there cannot be.
///
/// Reads on `cpu`.
pub(super) fn groups(cpu: usize, notes: &mut Vec<String>) -> Vec<Vec<Cell>> {
    let mut machines = Vec::new();
    for cpus in CPUS {
        match Machine::new(cpus) {
            Ok(machine) => machines.push(machine),
            Err(error) => {
                notes.push(format!("no figures for {cpus} simulated CPUs and more: {error}"));
                break;
            }
        }
    }
    let group =
        |(name, operation)| machines.iter().map(move |machine| machine.cells(cpu, name, operation));
    OPERATIONS.into_iter().flat_map(group).collect()
}

/// Counters of so many CPUs, to which each has added.
struct Machine {
    cpus: usize,
    lock_fold: Arc<LockFold<Spin>>,
    submeter: Arc<CachePadded<PercpuCounter>>,
    tree: Arc<CachePadded<PercpuCounter>>,
}

impl Machine {
    fn new(cpus: usize) -> io::Result<Machine> {
        let area = Area::simulated(cpus)?;
        Ok(Machine {
            cpus,
            lock_fold: filled(LockFold::new(cpus, BATCH_DEFAULT), cpus),
            submeter: filled(
                CachePadded::new(PercpuCounter::with_batch(&area, BATCH_DEFAULT)?),
                cpus,
            ),
            tree: filled(CachePadded::new(PercpuCounter::with_tree(&area, BATCH_DEFAULT)?), cpus),
        })
    }

    fn cells(&self, cpu: usize, name: &'static str, operation: Operation) -> Vec<Cell> {
        let params = || {
            let cpus = Param::number(self.cpus as u64);
            Params::from([("operation", Param::word(name)), ("simulated_cpus", cpus)])
        };
        let place = (cpu, self.cpus);
        vec![
            cell(params(), "lock_fold", &self.lock_fold, place, operation),
            cell(params(), "submeter", &self.submeter, place, operation),
            cell(params(), "submeter_tree", &self.tree, place, operation),
        ]
    }
}

/// What is added on a CPU: most of it carried, the rest not.
fn added(cpu: usize) -> i64 {
    1000 + cpu as i64
}

/// Adds on each CPU, from a thread that can be let simulate all of them.
fn filled<C: Counter>(counter: C, cpus: usize) -> Arc<C> {
    let fill = || {
        for cpu in 0..cpus {
            Area::simulate_cpu(cpu as u32);
            counter.adder(cpu)(added(cpu));
        }
    };
    thread::scope(|scope| scope.spawn(fill).join().expect("adds do not panic"));
    Arc::new(counter)
}

fn cell<C: Counter>(
    params: Params,
    variant: &'static str,
    counter: &Arc<C>,
    (cpu, cpus): (usize, usize),
    operation: Operation,
) -> Cell {
    let counter = Arc::clone(counter);
    let measure = move || {
        let value: i64 = (0..cpus).map(added).sum();
        let run = |_, loops| operation.run(&*counter, value, loops);
        let (rates, disturbed) = rates(&[cpu], LOOPS, &run)?;
        assert_eq!(counter.sum(), value, "{variant} has what {cpus} CPUs added");
        // Fractions of a loop a second are no figures.
        Ok(Sample::of("loops/s", rates[0].round(), disturbed))
    };
    Cell::new(params, variant, measure)
}

impl Operation {
    /// Does it on a counter of `value`.
    fn run<C: Counter>(self, counter: &C, value: i64, loops: u32) {
        match self {
            Operation::Read => sum_of(loops, || counter.read()),
            Operation::Sum => sum_of(loops, || counter.sum()),
            Operation::Compare(more) => sum_of(loops, || {
                let found = counter.compare(value + more);
                assert!(found.is_lt(), "compared with {more} more");
                1
            }),
        }
    }
}

/// Does `operation` and uses what it returns, or the compiler would leave out loads.
#[inline]
fn sum_of(loops: u32, operation: impl Fn() -> i64) {
    black_box((0..loops).map(|_| operation()).fold(0, i64::wrapping_add));
}
