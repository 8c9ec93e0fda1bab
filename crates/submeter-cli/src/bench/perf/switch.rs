//! `part=switch`: what a switch costs.
//!
//! A sample is a thread of its own, pinned, that enters a group and leaves it again, to one that it is in all the
//! time: two switches, of which each is half. The groups are entered in turn, all that there are. Event groups
//! of one `task-clock` each are attached to every group, as `perf stat -e task-clock,… -G …` does without braces: it
//! is read without a system call, so that what is left is the scheduling.

use std::hint::black_box;
use std::io;
use std::rc::Rc;
use std::thread;
use std::time::{Duration, Instant};

use submeter::switch::clock::thread_cpu_ns;
use submeter::{Group, Schema, Tree};
use submeter_sys::clock::ThreadClock;
use submeter_sys::cpu::{affinity, set_affinity};

use super::record::{Combine, Figure, SharedRecord, cell};
use crate::bench::row::{Param, Params};
use crate::bench::runner::Cell;
use crate::bench::threads::Preemptions;

/// How long one sample runs; long against a clock read, short against a scheduler's slice.
const SAMPLE: Duration = Duration::from_millis(1);
/// The least time between two looks at the clock, whose price is a part of the figure.
const BATCH: Duration = Duration::from_micros(40);
/// The fewest and the most groups.
const GROUPS: [u64; 4] = [6, 100, 1000, 10_000];
const DEPTH_MAX: u64 = 8;

/// Makes the cells. Those that are compared are next to each other.
pub(super) fn cells(record: &SharedRecord) -> io::Result<Vec<Vec<Cell>>> {
    let world = Rc::new(World::new()?);
    let mut groups = vec![clock(record, world.cpu)];
    let submeter = |case, number: u64, depth, events| {
        vec![of_groups(record, &world, case, [number, depth, events])]
    };
    groups.push(submeter("same", GROUPS[0], 1, 0));
    groups.extend(GROUPS.map(|number| submeter("sibling", number, 1, 0)));
    groups.extend((1..=DEPTH_MAX).map(|depth| submeter("depth", GROUPS[0], depth, 0)));
    Ok(groups)
}

/// The groups that are entered.
struct World {
    cpu: usize,
    home: Group,
    many: Vec<Group>,
    /// One of each depth, in a chain.
    deep: Vec<Group>,
}

impl World {
    fn new() -> io::Result<World> {
        let mut schema = Schema::builder();
        schema.cpu_time("cpu", "CPU time used");
        let schema = schema.build().map_err(io::Error::other)?;
        let tree = Tree::builder(schema).groups_max(20_000).build().map_err(io::Error::other)?;
        let make = |path: &str| tree.get_or_create(path).map_err(io::Error::other);
        let last = GROUPS[GROUPS.len() - 1];
        let many = (0..last).map(|index| make(&format!("/tenant{index}")));
        let deep = (1..=DEPTH_MAX).map(|depth| {
            let names: Vec<String> = (1..=depth).map(|level| format!("/level{level}")).collect();
            make(&names.concat())
        });
        let (many, deep) = (many.collect::<io::Result<_>>()?, deep.collect::<io::Result<_>>()?);
        Ok(World { cpu: affinity()?[0], home: make("/home")?, many, deep })
    }
}

fn params(case: &'static str) -> Params {
    vec![("part", Param::Word("switch")), ("case", Param::Word(case))]
}

fn figure(params: Params, variant: &'static str) -> Figure {
    Figure { params, variant, unit: "ns", combine: Combine::Median }
}

/// One read of the clock that switches read, and of the kernel's.
fn clock(record: &SharedRecord, cpu: usize) -> Vec<Cell> {
    let chosen = move || {
        on_cpu(cpu, || {
            let mut clock = ThreadClock::new();
            time(1, || clock.now_ns())
        })
    };
    let kernel = move || on_cpu(cpu, || time(1, thread_cpu_ns));
    vec![
        cell(record, figure(params("clock"), "submeter"), Box::new(chosen)),
        cell(record, figure(params("clock"), "clock_thread_cputime_id"), Box::new(kernel)),
    ]
}

fn of_groups(
    record: &SharedRecord,
    world: &Rc<World>,
    case: &'static str,
    [number, depth, events]: [u64; 3],
) -> Cell {
    let mut params = params(case);
    let numbers = [("groups", number), ("depth", depth), ("events", events)];
    params.extend(numbers.map(|(name, value)| (name, Param::Number(value))));
    let world = Rc::clone(world);
    let measure = move || {
        let (home, cpu) = (&world.home, world.cpu);
        let many = &world.many[..number as usize];
        let deep = &world.deep[depth as usize - 1];
        on_cpu(cpu, || {
            let _home = home.enter();
            match case {
                "same" => time(2, || home.run(|| ())),
                "depth" => time(2, || deep.run(|| ())),
                _ => {
                    let mut next = 0;
                    time(2, || {
                        next = if next + 1 == many.len() { 0 } else { next + 1 };
                        many[next].run(|| ());
                    })
                }
            }
        })
    };
    cell(record, figure(params, "submeter"), Box::new(measure))
}

/// Measures on a thread of its own, so that what it leaves behind is nobody's.
fn on_cpu(cpu: usize, measure: impl FnOnce() -> f64 + Send) -> io::Result<(f64, bool)> {
    let measured = || {
        set_affinity(&[cpu])?;
        let preemptions = Preemptions::count();
        let ns = measure();
        Ok((ns, preemptions.any()))
    };
    thread::scope(|scope| scope.spawn(measured).join().expect("a measuring thread panicked"))
}

/// Returns what one of the `parts` of an operation takes, in nanoseconds.
fn time<T>(parts: u32, mut operation: impl FnMut() -> T) -> f64 {
    let mut run = |operations: u64| {
        let from = Instant::now();
        for _ in 0..operations {
            black_box(operation());
        }
        from.elapsed()
    };
    // Grows until the looks at the clock are a small part; the first ones warm up.
    let mut batch = 1;
    while run(batch) < BATCH {
        batch *= 2;
    }
    let (mut sum, mut operations) = (Duration::ZERO, 0);
    while sum < SAMPLE {
        sum += run(batch);
        operations += batch;
    }
    sum.as_nanos() as f64 / operations as f64 / f64::from(parts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_case_gives_its_price() {
        let record = SharedRecord::default();
        let mut cells = cells(&record).expect("made");
        for cell in cells.iter_mut().flatten() {
            for _ in 0..2 {
                (cell.measure)().expect("measured");
            }
        }
        let rows = record.borrow().rows("perf");
        assert_eq!(rows.len(), cells.iter().flatten().count());
        for row in &rows {
            assert!(row.value > 0.0 && row.value < 1e6, "{row:?}");
        }
    }

    #[test]
    fn time_is_of_a_part() {
        let each = Duration::from_micros(50);
        let wait = || {
            let from = Instant::now();
            while from.elapsed() < each {}
        };
        let ns = time(2, wait);
        // Never shorter; on a loaded machine longer.
        assert!(ns >= 25_000.0, "{ns}");
    }
}
