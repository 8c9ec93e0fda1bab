//! How the cost of reading grows with the number of CPUs, on simulated ones: each has its own cache
//! line, and all lines are in the cache of the one CPU that reads. Test 3 shows what the transfer
//! of lines costs real CPUs.

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

/// The numbers of simulated CPUs.
pub(super) const CPUS: [usize; 8] = [1, 2, 4, 8, 16, 32, 64, 512];

/// Operations between two clock reads.
const LOOPS: u32 = 256;

/// A way to obtain a counter's value.
#[derive(Clone, Copy)]
pub(super) enum Operation {
    Read,
    ReadBounded,
    Sum,
    /// Compares the counter with its value plus this much.
    Compare(i64),
}

/// A value beyond all bounds is compared by a read, a close one by a sum.
pub(super) const OPERATIONS: [(&str, Operation); 5] = [
    ("read", Operation::Read),
    ("read_bounded", Operation::ReadBounded),
    ("sum", Operation::Sum),
    ("compare_far", Operation::Compare(1 << 40)),
    ("compare_near", Operation::Compare(1)),
];

/// Returns the cells of all operations on all machines; what cannot be measured becomes a note.
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

/// Counters on a simulated machine, each CPU of which has added to them.
struct Machine {
    cpus: usize,
    lock_fold: Arc<LockFold<Spin>>,
    submeter: Arc<CachePadded<PercpuCounter>>,
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
        ]
    }
}

/// The amount that is added on a CPU: most of it reaches the total, the rest stays below the batch.
fn added(cpu: usize) -> i64 {
    1000 + cpu as i64
}

/// Adds on each CPU, from a thread that can simulate all of them.
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
        // Fractions of a loop per second are meaningless.
        Ok(Sample::of("loops/s", rates[0].round(), disturbed))
    };
    Cell::new(params, variant, measure)
}

impl Operation {
    /// Runs it on a counter whose value is `value`.
    fn run<C: Counter>(self, counter: &C, value: i64, loops: u32) {
        match self {
            Operation::Read => sum_of(loops, || counter.read()),
            Operation::ReadBounded => sum_of(loops, || counter.read_bounded()),
            Operation::Sum => sum_of(loops, || counter.sum()),
            Operation::Compare(more) => sum_of(loops, || {
                let found = counter.compare(value + more);
                assert!(found.is_lt(), "compared with {more} more");
                1
            }),
        }
    }
}

/// Runs `operation` and uses its result, or the compiler would remove loads.
#[inline]
fn sum_of(loops: u32, operation: impl Fn() -> i64) {
    black_box((0..loops).map(|_| operation()).fold(0, i64::wrapping_add));
}
