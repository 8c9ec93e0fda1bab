//! `part=accuracy`: the CPU time that groups are charged, beside what the kernel reports for their
//! threads; `part=accuracy_ticks`: the same in a process without perf events.
//!
//! Threads burn CPU time in three groups; there are more threads than CPUs. Each is in a control
//! group that belongs to its group, so that the kernel counts the same threads, and each constantly
//! switches between children of its group, which the kernel does not see. Some time is burned
//! outside any group, so that the time charged to none is checked too: beforehand, and, if no
//! control groups are compared (they would count it), throughout.

use std::hint::black_box;
use std::io;
use std::process::Command;
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use submeter::switch::clock;
use submeter::{Counter, Group, Nanoseconds, Schema, Tree};
use submeter_sys::perf_event::Event;

use super::cgroup::Cgroup;
use crate::bench::record::Reading;
use crate::bench::runner::{Cell, Sample};
use crate::row::{Param, Params};

/// Groups, and the number of threads that burn in each.
const GROUPS: [(&str, usize); 3] = [("one", 1), ("two", 2), ("three", 3)];
/// Long compared with the start and the end of a thread.
const BURN: Duration = Duration::from_millis(200);
/// The time that each thread burns outside any group.
const APART: Duration = Duration::from_millis(2);
/// How often a thread enters all children before it leaves its group for a moment.
const ROUNDS: usize = 10;
/// The longest time that it burns there, or waits.
const MOMENT: Duration = Duration::from_micros(100);
/// Iterations between two switches: about 5 µs, so that a single CPU makes more than 100,000
/// switches per second.
const ITERATIONS: u64 = 6_000;

/// Makes the cell. What cannot be compared here becomes a note.
pub(super) fn cell(notes: &mut Vec<String>) -> io::Result<Cell> {
    let mut bench = Bench::new(Some(notes))?;
    let params = Params::from([("part", Param::word("accuracy"))]);
    Ok(Cell::new(params, "submeter", move || bench.sample().map(Sample::kept)))
}

/// Makes the cell of a process without perf events, as where they are refused.
pub(super) fn cell_of_ticks() -> Cell {
    let params = Params::from([("part", Param::word("accuracy_ticks"))]);
    Cell::new(params, "submeter", || {
        let mut command = Command::new(std::env::current_exe()?);
        let output = command.arg("--charged").env("SUBMETER_CLOCK", "ticks").output()?;
        let text = String::from_utf8_lossy(&output.stdout);
        let read = output.status.success().then(|| text.lines().map(read).collect()).flatten();
        read.map(Sample::kept)
            .ok_or_else(|| io::Error::other(format!("--charged: {}, {text}", output.status)))
    })
}

/// Burns once, and returns a line for each figure; [`cell_of_ticks`] reads them.
///
/// # Errors
/// When the tree of groups cannot be created.
pub(crate) fn charged() -> io::Result<String> {
    let readings = Bench::new(None)?.sample()?;
    let times = readings.iter().filter(|reading| reading.unit == "ms");
    let line = |reading: &Reading| {
        let group = reading.params.get("group").unwrap_or_default();
        format!("{group} {} {}\n", reading.variant().unwrap_or_default(), reading.values[0])
    };
    Ok(times.map(line).collect())
}

/// Reads a line of [`charged`].
fn read(line: &str) -> Option<Reading> {
    let mut words = line.split(' ');
    let (group, variant, ms) = (words.next()?, words.next()?, words.next()?.parse::<f64>().ok()?);
    let groups = GROUPS.map(|(name, _)| name).into_iter().chain(["all"]);
    let variants = ["submeter", "error", "thread_clock", "thread_clock_inside", "process_clock"];
    let (mut groups, mut variants) = (groups, variants.into_iter());
    let (group, variant) = (groups.find(|&g| g == group)?, variants.find(|&v| v == variant)?);
    Some(cpu_time(group, variant, (ms * 1e6).round() as u64))
}

/// A group, and the threads that burn in it.
struct Burners {
    name: &'static str,
    group: Group,
    children: Vec<Group>,
    threads: usize,
    cgroup: Option<Cgroup>,
    events: Option<Vec<Event>>,
}

struct Bench {
    /// Kept alive for its groups.
    _tree: Tree,
    cpu: Counter<Nanoseconds>,
    /// The amount by which that may be wrong.
    error: Counter<Nanoseconds>,
    burners: Vec<Burners>,
}

/// The CPU time that one thread used.
#[derive(Clone, Copy, Debug, Default)]
struct Used {
    /// Outside any group, by the thread's clock.
    apart_ns: u64,
    /// In groups, by the thread's clock, with and without what the switches take. A switch belongs
    /// to neither side, and with a query of the kernel it takes as long as two readings of the
    /// clock: compared with `ns` alone, even that clock itself, read by each switch
    /// (`SUBMETER_CLOCK=syscall`), is off by some 0.5 %.
    ns: u64,
    inside_ns: u64,
    switches: u64,
}

/// The readings of the sources before the threads ran.
struct Before {
    charged_ns: u64,
    error_ns: u64,
    stat_us: Option<u64>,
    perf_ns: Option<u64>,
}

impl Bench {
    /// Compares with the kernel's control groups if there are `notes` for what is missing.
    fn new(mut notes: Option<&mut Vec<String>>) -> io::Result<Bench> {
        let mut schema = Schema::builder();
        let cpu = schema.cpu_time("cpu", "CPU time used");
        let error = schema.cpu_error("cpu_error", "By how much that may be wrong");
        let tree = Tree::new(schema.build().map_err(io::Error::other)?);
        let tree = tree.map_err(io::Error::other)?;
        let mut burners = Vec::new();
        for (name, threads) in GROUPS {
            let make = |path: String| tree.get_or_create(&path).map_err(io::Error::other);
            let group = make(format!("/{name}"))?;
            let children = ["a", "b", "c"].map(|child| make(format!("/{name}/{child}")));
            let children = children.into_iter().collect::<io::Result<_>>()?;
            let mut burners_of =
                Burners { name, group, children, threads, cgroup: None, events: None };
            if let Some(notes) = &mut notes {
                let cgroup = Cgroup::new(name).and_then(|made| made.usage_us().map(|_| made));
                let events = cgroup.as_ref().ok().map(Cgroup::events).transpose();
                if burners.is_empty() {
                    notes.extend(cgroup.as_ref().err().map(no_cgroup));
                    notes.extend(events.as_ref().err().map(no_events));
                }
                (burners_of.cgroup, burners_of.events) = (cgroup.ok(), events.ok().flatten());
            }
            burners.push(burners_of);
        }
        Ok(Bench { _tree: tree, cpu, error, burners })
    }

    /// Burns once, and returns the readings of all sources.
    fn sample(&mut self) -> io::Result<Vec<Reading>> {
        let before: io::Result<Vec<_>> =
            self.burners.iter().map(|b| b.before(self.cpu, self.error)).collect();
        let before = before?;
        let (process, main) = (clock::process_cpu_ns(), clock::thread_cpu_ns());
        let from = Instant::now();
        let used = self.burn()?;
        let took = from.elapsed();
        // This thread's own time is not charged to a group either.
        let main = clock::thread_cpu_ns() - main;
        let process = clock::process_cpu_ns() - process;
        let mut readings = Vec::new();
        let mut add = |group, variant, used_ns| readings.push(cpu_time(group, variant, used_ns));
        let (mut total_ns, mut total_error_ns, mut switches) = (main, 0, 0);
        for ((burners, before), used) in self.burners.iter().zip(before).zip(used) {
            let charged_ns = burners.group.sum(self.cpu) - before.charged_ns;
            let error_ns = burners.group.sum(self.error) - before.error_ns;
            add(burners.name, "submeter", charged_ns);
            add(burners.name, "error", error_ns);
            add(burners.name, "thread_clock_inside", used.inside_ns);
            add(burners.name, "thread_clock", used.ns);
            if let Some((before, cgroup)) = before.stat_us.zip(burners.cgroup.as_ref()) {
                add(burners.name, "cgroup_stat", (cgroup.usage_us()? - before) * 1000);
            }
            if let Some((before, now)) = before.perf_ns.zip(burners.perf_ns()?) {
                add(burners.name, "cgroup_perf", now - before);
            }
            total_ns += charged_ns + used.apart_ns;
            total_error_ns += error_ns;
            switches += used.switches;
        }
        // All groups plus the time outside them, and the process's clock.
        add("all", "submeter", total_ns);
        add("all", "error", total_error_ns);
        add("all", "process_clock", process);
        let rate = (switches as f64 / took.as_secs_f64()).round();
        readings.push(Reading::of("1/s", vec![rate]).with("measure", "switch_rate"));
        Ok(readings)
    }

    /// Runs all threads, and returns what the threads of each group used.
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
                sum.inside_ns += one.inside_ns;
                sum.ns += one.ns;
                sum.switches += one.switches;
            }
            Ok(used)
        })
    }
}

impl Burners {
    fn before(&self, cpu: Counter<Nanoseconds>, error: Counter<Nanoseconds>) -> io::Result<Before> {
        let (charged_ns, error_ns) = (self.group.sum(cpu), self.group.sum(error));
        let stat_us = self.cgroup.as_ref().map(Cgroup::usage_us).transpose()?;
        Ok(Before { charged_ns, error_ns, stat_us, perf_ns: self.perf_ns()? })
    }

    /// Returns the counts of the kernel's events, summed over all CPUs.
    fn perf_ns(&self) -> io::Result<Option<u64>> {
        let Some(events) = &self.events else { return Ok(None) };
        events.iter().map(|event| Ok(event.read()?.value)).sum::<io::Result<u64>>().map(Some)
    }

    /// The body of one thread.
    fn run(&self, start: &Barrier) -> io::Result<Used> {
        // Starts the thread's clock, which happens once per thread.
        self.group.run(|| ());
        // Before the thread joins its control group, where the kernel would count this time.
        let from = Instant::now();
        while from.elapsed() < APART {
            work();
        }
        // The kernel charges the time since it last updated the thread, up to a tick, to the
        // control group that the thread is in by then. Reading the clock forces an update.
        let _ = clock::thread_cpu_ns();
        let joined = self.cgroup.as_ref().map_or(Ok(()), Cgroup::join);
        start.wait();
        joined?;
        // The CPU time that the thread has used so far; the rest of its time, except its exit, is
        // within a group.
        let apart_ns = clock::thread_cpu_ns();
        let mut used = Used { apart_ns, ..Used::default() };
        let until = Instant::now() + BURN;
        let mut goes_on = true;
        while goes_on {
            let home = self.group.enter();
            used.inside_ns += by_clock(|| {
                for child in std::iter::repeat_n(&self.children, ROUNDS).flatten() {
                    child.run(work);
                }
                goes_on = Instant::now() < until;
            });
            drop(home);
            used.switches += 2 * (ROUNDS * self.children.len() + 1) as u64;
            if self.cgroup.is_none() {
                used.apart_ns += by_clock(|| moment(used.switches));
            }
        }
        used.ns = clock::thread_cpu_ns() - used.apart_ns;
        Ok(used)
    }
}

/// Makes the reading of one source for a group. Its row is the sum over the whole run: a sum of
/// medians from different rounds could differ from the total without any error.
fn cpu_time(group: &'static str, variant: &'static str, used_ns: u64) -> Reading {
    let reading = Reading::of("ms", vec![used_ns as f64 / 1e6]).of_variant(variant);
    reading.with("measure", "cpu_time").with("group", group).summed()
}

/// Returns the CPU time that `work` takes, by the thread's clock, with its readings.
fn by_clock(work: impl FnOnce()) -> u64 {
    let start = clock::thread_cpu_ns();
    // The duration of a reading: half of the first one and half of the last are not seen below.
    let from = clock::thread_cpu_ns();
    let reading = from - start;
    work();
    clock::thread_cpu_ns() - start + reading
}

/// Burns for some time, or waits, as `seed` decides.
fn moment(seed: u64) {
    let random = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 40;
    let moment = MOMENT * (random % 256) as u32 / 256;
    if random & 256 == 0 {
        thread::sleep(moment);
    } else {
        let begun = Instant::now();
        while begun.elapsed() < moment {
            black_box(random);
        }
    }
}

fn work() {
    black_box((0..ITERATIONS).map(black_box).sum::<u64>());
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
        let mut notes = Vec::new();
        let cell = cell(&mut notes).expect("made");
        let rows = super::super::measured_once(vec![vec![cell]]).rows;
        for note in &notes {
            println!("{note}");
        }
        let value = |group, variant| {
            let of_group = |row: &&crate::row::Row| {
                row.variant == variant && row.params.get("group") == Some(group)
            };
            rows.iter().find(of_group).map(|row| row.value)
        };
        for (group, _) in GROUPS {
            let charged = value(group, "submeter").expect("measured");
            let by_thread = value(group, "thread_clock");
            for reference in ["thread_clock", "cgroup_stat", "cgroup_perf"] {
                let Some(expected) = value(group, reference) else { continue };
                // A wide tolerance: what a thread does before and after is little, but more on a
                // loaded machine or in a debug build.
                let is_near = |value: f64| (value / expected - 1.0).abs() < 0.1;
                let told = format!("{group}: {charged} ms, {reference} {expected} ms");
                if by_thread.is_some_and(|by_thread| !is_near(by_thread)) {
                    // The kernel contradicts itself: some of its clocks run while a hypervisor has
                    // taken the CPU.
                    println!("too noisy: {told}, thread_clock {by_thread:?} ms");
                    continue;
                }
                assert!(is_near(charged), "{told}");
            }
        }
        let (all, process) = (value("all", "submeter"), value("all", "process_clock"));
        let (all, process) = all.zip(process).expect("measured");
        // Other tests in this process use CPU time too; the full comparison needs a separate
        // process.
        assert!(all <= process * 1.01, "{all} ms of {process} ms");
        assert!(rows.iter().any(|row| row.unit == "1/s" && row.value > 1000.0), "{rows:?}");
    }
}
