//! `part=accuracy`: what groups are charged, beside what the kernel says that their threads used.
//!
//! Threads burn CPU time in three groups, more of them than there are CPUs. Each is in a control group of its group's,
//! so that the kernel counts the same threads; and each switches all the time between children of its group, which
//! the kernel does not see. A part is burned in no group, for what is attributed to none.

use std::cell::RefCell;
use std::hint::black_box;
use std::io;
use std::rc::Rc;
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use submeter::switch::clock;
use submeter::{Counter, Group, Nanoseconds, Schema, Tree};
use submeter_sys::perf_event::Event;

use super::cgroup::Cgroup;
use super::record::{Combine, Figure, FigureId, SharedRecord};
use crate::bench::row::Param;
use crate::bench::runner::{Cell, Sample};

/// Groups, and how many threads burn in each.
const GROUPS: [(&str, usize); 3] = [("one", 1), ("two", 2), ("three", 3)];
/// Long against what a thread needs to start and to end.
const BURN: Duration = Duration::from_millis(200);
/// Burned in no group, by each thread.
const APART: Duration = Duration::from_millis(2);
/// Iterations between two switches: some 5 µs, so that one CPU alone makes 100,000 switches a second and more.
const ITERATIONS: u64 = 6_000;

/// Makes the cell. What cannot be compared here is a note.
pub(super) fn cell(record: &SharedRecord, notes: &mut Vec<String>) -> io::Result<Cell> {
    let mut bench = Bench::new(record, notes)?;
    let (record, mut warm) = (Rc::clone(record), false);
    let measure = move || {
        bench.sample(warm.then_some(&record))?;
        warm = true;
        Ok(Sample { values: Vec::new(), disturbed: false })
    };
    let params = vec![("part", Param::Word("accuracy"))];
    Ok(Cell { params, variant: "submeter", measure: Box::new(measure) })
}

/// A source that is compared, and its figure for each group.
struct Figures {
    submeter: FigureId,
    thread_clock: FigureId,
    cgroup_stat: Option<FigureId>,
    cgroup_perf: Option<FigureId>,
}

struct Burners {
    group: Group,
    children: Vec<Group>,
    threads: usize,
    cgroup: Option<Cgroup>,
    events: Option<Vec<Event>>,
    figures: Figures,
}

struct Bench {
    /// Its groups live as long as it does.
    _tree: Tree,
    cpu: Counter<Nanoseconds>,
    burners: Vec<Burners>,
    /// All groups and what is in none, and the process's clock.
    attributed: FigureId,
    process_clock: FigureId,
    rate: FigureId,
}

/// What one thread used.
#[derive(Clone, Copy, Debug, Default)]
struct Used {
    /// In no group, by the thread's clock.
    apart_ns: u64,
    /// In groups, by the thread's clock.
    ns: u64,
    switches: u64,
}

/// What the sources said before the threads ran.
struct Before {
    charged_ns: u64,
    stat_us: Option<u64>,
    perf_ns: Option<u64>,
}

impl Bench {
    fn new(record: &SharedRecord, notes: &mut Vec<String>) -> io::Result<Bench> {
        let mut schema = Schema::builder();
        let cpu = schema.cpu_time("cpu", "CPU time used");
        let tree = Tree::new(schema.build().map_err(io::Error::other)?);
        let tree = tree.map_err(io::Error::other)?;
        let mut burners = Vec::new();
        for (name, threads) in GROUPS {
            let make = |path: String| tree.get_or_create(&path).map_err(io::Error::other);
            let group = make(format!("/{name}"))?;
            let children = ["a", "b", "c"].map(|child| make(format!("/{name}/{child}")));
            let children = children.into_iter().collect::<io::Result<_>>()?;
            let cgroup = Cgroup::new(name).and_then(|made| made.usage_us().map(|_| made));
            let events = cgroup.as_ref().ok().map(Cgroup::events).transpose();
            if burners.is_empty() {
                notes.extend(cgroup.as_ref().err().map(no_cgroup));
                notes.extend(events.as_ref().err().map(no_events));
            }
            let (cgroup, events) = (cgroup.ok(), events.ok().flatten());
            let figures = Figures::new(record, name, cgroup.is_some(), events.is_some());
            burners.push(Burners { group, children, threads, cgroup, events, figures });
        }
        let all = |variant| figure(record, "all", variant, "ms");
        let (attributed, process_clock) = (all("submeter"), all("process_clock"));
        let params =
            vec![("part", Param::Word("accuracy")), ("measure", Param::Word("switch_rate"))];
        let rate = Figure { params, variant: "submeter", unit: "1/s", combine: Combine::Median };
        let rate = record.borrow_mut().figure(rate);
        Ok(Bench { _tree: tree, cpu, burners, attributed, process_clock, rate })
    }

    /// Burns once, and takes down what all said.
    fn sample(&mut self, record: Option<&Rc<RefCell<super::record::Record>>>) -> io::Result<()> {
        let before: io::Result<Vec<_>> = self.burners.iter().map(|b| b.before(self.cpu)).collect();
        let before = before?;
        let (process, main) = (clock::process_cpu_ns(), clock::thread_cpu_ns());
        let from = Instant::now();
        let used = self.burn()?;
        let took = from.elapsed();
        // What this thread itself used meanwhile is attributed to none either.
        let main = clock::thread_cpu_ns() - main;
        let process = clock::process_cpu_ns() - process;
        let Some(record) = record else { return Ok(()) };
        let add = |id, value| record.borrow_mut().add(id, value, false);
        let (mut total_ns, mut switches) = (main, 0);
        for ((burners, before), used) in self.burners.iter().zip(before).zip(used) {
            let Figures { submeter, thread_clock, cgroup_stat, cgroup_perf } = burners.figures;
            let charged_ns = burners.group.sum(self.cpu) - before.charged_ns;
            add(submeter, ms(charged_ns));
            add(thread_clock, ms(used.ns));
            if let (Some(id), Some(before), Some(cgroup)) =
                (cgroup_stat, before.stat_us, &burners.cgroup)
            {
                add(id, ms((cgroup.usage_us()? - before) * 1000));
            }
            if let (Some(id), Some(before), Some(now)) =
                (cgroup_perf, before.perf_ns, burners.perf_ns()?)
            {
                add(id, ms(now - before));
            }
            total_ns += charged_ns + used.apart_ns;
            switches += used.switches;
        }
        add(self.attributed, ms(total_ns));
        add(self.process_clock, ms(process));
        add(self.rate, (switches as f64 / took.as_secs_f64()).round());
        Ok(())
    }

    /// Runs all threads, and returns what those of each group used.
    fn burn(&self) -> io::Result<Vec<Used>> {
        let threads = self.burners.iter().map(|burners| burners.threads).sum();
        let start = Barrier::new(threads);
        let run = &|place: usize| self.burners[place].run(&start);
        thread::scope(|scope| {
            let mut running = Vec::with_capacity(threads);
            for (place, burners) in self.burners.iter().enumerate() {
                for _ in 0..burners.threads {
                    running.push((place, scope.spawn(move || run(place))));
                }
            }
            let mut used = vec![Used::default(); self.burners.len()];
            for (place, thread) in running {
                let one = thread.join().expect("a burner panicked")?;
                let sum = &mut used[place];
                sum.apart_ns += one.apart_ns;
                sum.ns += one.ns;
                sum.switches += one.switches;
            }
            Ok(used)
        })
    }
}

impl Burners {
    fn before(&self, cpu: Counter<Nanoseconds>) -> io::Result<Before> {
        let charged_ns = self.group.sum(cpu);
        let stat_us = self.cgroup.as_ref().map(Cgroup::usage_us).transpose()?;
        Ok(Before { charged_ns, stat_us, perf_ns: self.perf_ns()? })
    }

    /// Returns what the kernel's events have counted on all CPUs.
    fn perf_ns(&self) -> io::Result<Option<u64>> {
        let Some(events) = &self.events else { return Ok(None) };
        events.iter().map(|event| Ok(event.read()?.value)).sum::<io::Result<u64>>().map(Some)
    }

    /// Burns, as one of the threads.
    fn run(&self, start: &Barrier) -> io::Result<Used> {
        // Starts the thread's clock, which is a matter of once a thread.
        self.group.run(|| ());
        // Before it is in a control group, where the kernel would count it.
        let from = Instant::now();
        while from.elapsed() < APART {
            work();
        }
        // The kernel charges what passed since it last looked at the thread to the control group that it is in
        // by then: up to a tick. Asking makes it look.
        let _ = clock::thread_cpu_ns();
        let joined = self.cgroup.as_ref().map_or(Ok(()), Cgroup::join);
        start.wait();
        joined?;
        // All that the thread has used until now; the rest of its life is within a group, but for its end.
        let apart_ns = clock::thread_cpu_ns();
        let home = self.group.enter();
        let (until, mut switches) = (Instant::now() + BURN, 1);
        while Instant::now() < until {
            for child in &self.children {
                child.run(work);
            }
            switches += 2 * self.children.len() as u64;
        }
        drop(home);
        let ns = clock::thread_cpu_ns() - apart_ns;
        Ok(Used { apart_ns, ns, switches: switches + 1 })
    }
}

impl Figures {
    fn new(record: &SharedRecord, group: &'static str, stat: bool, perf: bool) -> Figures {
        let of = |variant| figure(record, group, variant, "ms");
        Figures {
            submeter: of("submeter"),
            thread_clock: of("thread_clock"),
            cgroup_stat: stat.then(|| of("cgroup_stat")),
            cgroup_perf: perf.then(|| of("cgroup_perf")),
        }
    }
}

fn figure(
    record: &SharedRecord,
    group: &'static str,
    variant: &'static str,
    unit: &'static str,
) -> FigureId {
    let word = |(name, value)| (name, Param::Word(value));
    let params = [("part", "accuracy"), ("measure", "cpu_time"), ("group", group)];
    // The whole run's: a share of one is an error, which medians of different rounds would make up.
    let combine = Combine::Sum;
    let params = params.map(word).to_vec();
    record.borrow_mut().figure(Figure { params, variant, unit, combine })
}

fn work() {
    black_box((0..ITERATIONS).map(black_box).sum::<u64>());
}

fn ms(ns: u64) -> f64 {
    ns as f64 / 1e6
}

fn no_cgroup(error: &io::Error) -> String {
    format!(
        "accuracy: skipped: the kernel's control groups, {error}; run as root with cgroup v2 mounted, or in a \
         delegated group (systemd-run --user --scope -p Delegate=yes)"
    )
}

fn no_events(error: &io::Error) -> String {
    format!(
        "accuracy: skipped: perf events of control groups, {error}; grant CAP_PERFMON or set \
         kernel.perf_event_paranoid to 0"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_charged_what_the_kernel_counts() {
        let (record, mut notes) = (SharedRecord::default(), Vec::new());
        let mut cell = cell(&record, &mut notes).expect("made");
        for _ in 0..2 {
            (cell.measure)().expect("measured");
        }
        for note in &notes {
            println!("{note}");
        }
        let rows = record.borrow().rows("perf");
        let value = |group, variant| {
            let of_group = |row: &&crate::bench::row::Row| {
                row.variant == variant && row.params.contains(&("group", Param::Word(group)))
            };
            rows.iter().find(of_group).map(|row| row.value)
        };
        for (group, _) in GROUPS {
            let charged = value(group, "submeter").expect("measured");
            for reference in ["thread_clock", "cgroup_stat", "cgroup_perf"] {
                let Some(expected) = value(group, reference) else { continue };
                // Wide: what a thread does before and after is little, but a machine that is loaded or a debug
                // build makes it more.
                let off = charged / expected - 1.0;
                assert!(off.abs() < 0.1, "{group}: {charged} ms, {reference} {expected} ms");
            }
        }
        let (all, process) = (value("all", "submeter"), value("all", "process_clock"));
        let (all, process) = all.zip(process).expect("measured");
        // Other tests of this process use CPU time too: the rest of the comparison needs a process of its own.
        assert!(all <= process * 1.01, "{all} ms of {process} ms");
        assert!(rows.iter().any(|row| row.unit == "1/s" && row.value > 1000.0), "{rows:?}");
    }
}
