//! `part=switch`: the cost of a switch.
//!
//! A sample runs on a new pinned thread that enters a group and leaves it again for the group that
//! it is in otherwise: two switches, each counted as half. All groups are entered in turn. Event
//! groups with one `task-clock` each are attached to every group, as `perf stat -e task-clock,… -G
//! …` does without braces: this event is read without a system call, so that the scheduling of
//! events dominates. Case `depth_priced` has `cycles` and `instructions` instead, on a
//! [model](super::priced) of the CPU's counters.

use std::hint::black_box;
use std::io;
use std::rc::Rc;
use std::thread;
use std::time::{Duration, Instant};

use submeter::switch::clock::thread_cpu_ns;
use submeter::{Group, Schema, Tree};
use submeter_sys::clock::ThreadClock;
use submeter_sys::cpu::{affinity, set_affinity};

use super::follow::{Counters, DOCUMENT, Variant, install, wanted};
use crate::bench::runner::{Cell, Sample};
use crate::bench::threads::Preemptions;
use crate::row::{Param, Params};

/// How long one sample runs: long compared with a clock read, short compared with a scheduler's
/// time slice.
const SAMPLE: Duration = Duration::from_millis(1);
/// The minimum time between two clock reads, whose cost is part of the figure.
const BATCH: Duration = Duration::from_micros(40);
/// The numbers of groups.
const GROUPS: [u64; 4] = [6, 100, 1000, 10_000];
/// The depth of the deepest group.
const DEPTH_MAX: u64 = 8;

/// Makes the cells. Those that are compared are adjacent.
pub(super) fn cells() -> io::Result<Vec<Vec<Cell>>> {
    let world = Rc::new(World::new()?);
    let mut groups = vec![clock(world.cpu)];
    let mut add = |place: Place| {
        // Without events there is nothing to schedule, so all designs are the same.
        let variants: &[Variant] =
            if place.events == 0 { &[Variant::Submeter] } else { &Variant::DESIGNS };
        let cell = |&variant| of_groups(&world, place, variant);
        groups.push(variants.iter().map(cell).collect());
    };
    let few = GROUPS[0];
    add(Place { case: Case::Same, groups: few, depth: 1, events: 0 });
    add(Place { case: Case::Same, groups: few, depth: 1, events: 2 });
    for events in [0, 2] {
        for groups in GROUPS {
            add(Place { case: Case::Sibling, groups, depth: 1, events });
        }
        for depth in 1..=DEPTH_MAX {
            add(Place { case: Case::Depth, groups: DEPTH_MAX, depth, events });
        }
    }
    for depth in 1..=DEPTH_MAX {
        add(Place { case: Case::DepthPriced, groups: DEPTH_MAX, depth, events: 2 });
    }
    for events in [1, 4, 8] {
        add(Place { case: Case::Sibling, groups: few, depth: 1, events });
    }
    Ok(groups)
}

/// The target of a switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Case {
    Same,
    Sibling,
    Depth,
    DepthPriced,
}

/// One line of the table.
#[derive(Clone, Copy, Debug)]
struct Place {
    case: Case,
    groups: u64,
    depth: u64,
    events: u64,
}

impl Place {
    fn params(self) -> Params {
        let mut params = params(match self.case {
            Case::Same => "same",
            Case::Sibling => "sibling",
            Case::Depth => "depth",
            Case::DepthPriced => "depth_priced",
        });
        let numbers = [("groups", self.groups), ("depth", self.depth), ("events", self.events)];
        for (name, value) in numbers {
            params.set(name, Param::number(value));
        }
        params
    }
}

/// The groups that are entered.
struct World {
    cpu: usize,
    /// Kept alive for its groups.
    tree: Tree,
    home: Group,
    many: Vec<Group>,
    /// A chain with one group at each depth.
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
        let home = make("/home")?;
        Ok(World { cpu: affinity()?[0], tree, home, many, deep })
    }
}

fn params(case: &'static str) -> Params {
    Params::from([("part", Param::word("switch")), ("case", Param::word(case))])
}

/// Measures one read of the clock that switches use, and one of the kernel's.
fn clock(cpu: usize) -> Vec<Cell> {
    let chosen = move || {
        on_cpu(cpu, || {
            let mut clock = ThreadClock::new();
            time(1, || clock.now_ns())
        })
    };
    let kernel = move || on_cpu(cpu, || time(1, thread_cpu_ns));
    vec![
        Cell::new(params("clock"), "submeter", chosen),
        Cell::new(params("clock"), "clock_thread_cputime_id", kernel),
    ]
}

fn of_groups(world: &Rc<World>, place: Place, variant: Variant) -> Cell {
    let world = Rc::clone(world);
    let (counters, events) = match place.case {
        Case::DepthPriced => (Counters::Priced, DOCUMENT.to_owned()),
        _ => (Counters::Live, vec!["task-clock"; place.events as usize].join(",")),
    };
    let measure = move || {
        let World { cpu, tree, home, many, deep } = &*world;
        let many = &many[..place.groups as usize];
        let _following = (place.events > 0).then(|| {
            let nested = matches!(place.case, Case::Depth | Case::DepthPriced);
            let groups = if nested { deep } else { many };
            let all = groups.iter().chain([home]).cloned().map(Some);
            install(variant, counters, tree, &wanted(all, &events))
        });
        let deep = &deep[place.depth as usize - 1];
        on_cpu(*cpu, || {
            let _home = home.enter();
            match place.case {
                Case::Same => time(2, || home.run(|| ())),
                Case::Depth | Case::DepthPriced => time(2, || deep.run(|| ())),
                Case::Sibling => {
                    // Visits each group once, so that first visits are not measured, unless that
                    // takes too long.
                    let from = Instant::now();
                    let early = || from.elapsed() < SAMPLE;
                    many.iter().take_while(|_| early()).for_each(|group| group.run(|| ()));
                    let mut next = 0;
                    time(2, || {
                        next = if next + 1 == many.len() { 0 } else { next + 1 };
                        many[next].run(|| ());
                    })
                }
            }
        })
    };
    Cell::new(place.params(), variant.name(), measure)
}

/// Measures on a new thread, so that it leaves no state behind for the next sample.
fn on_cpu(cpu: usize, measure: impl FnOnce() -> f64 + Send) -> io::Result<Sample> {
    let measured = || {
        set_affinity(&[cpu])?;
        let preemptions = Preemptions::count();
        let ns = measure();
        Ok(Sample::of("ns", ns, preemptions.any()))
    };
    thread::scope(|scope| scope.spawn(measured).join().expect("a measuring thread panicked"))
}

/// Returns the nanoseconds that one of the `parts` of an operation takes.
fn time<T>(parts: u32, mut operation: impl FnMut() -> T) -> f64 {
    let mut run = |operations: u64| {
        let from = Instant::now();
        for _ in 0..operations {
            black_box(operation());
        }
        from.elapsed()
    };
    // Grows until clock reads are a small part; the first batches warm up.
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
    fn each_case_yields_its_cost() {
        let groups = cells().expect("made");
        let cells = groups.iter().flatten().count();
        let rows = super::super::measured_once(groups).rows;
        assert_eq!(rows.len(), cells);
        for row in &rows {
            assert!(row.value > 0.0 && row.value.is_finite(), "{row:?}");
        }
    }

    #[test]
    fn time_is_per_part() {
        let each = Duration::from_micros(50);
        let wait = || {
            let from = Instant::now();
            while from.elapsed() < each {}
        };
        let ns = time(2, wait);
        // Never shorter, but longer on a loaded machine.
        assert!(ns >= 25_000.0, "{ns}");
    }
}
