//! `part=hop`: Linux's own events of control groups beside those of this table's designs.
//!
//! Two threads on one CPU pass a byte back and forth through two pipes. Each is in a control group
//! of its own and works for a tenant of its own: it enters the tenant's group when it wakes, and
//! leaves it before it waits. A hop is thus one switch between control groups in the kernel, and
//! two switches between groups here. Six tenants and their parent have two events each, as in the
//! document; for the variant `cgroup_perf`, so have six control groups and their parent.
//!
//! The figure is the process's CPU time per hop: on a quiet machine the whole hop, on a busy one
//! without the wait for other programs.

use std::io::{self, Read, Write};
use std::rc::Rc;
use std::thread;
use std::time::{Duration, Instant};

use submeter::switch::clock;
use submeter::{Group, Schema, Tree};
use submeter_sys::cpu::{affinity, set_affinity};
use submeter_sys::perf_event::Event;

use super::cgroup::Cgroup;
use super::follow::{Counters, Variant, Wanted, document_events, install, wanted};
use crate::bench::runner::{Cell, Sample};
use crate::row::{Param, Params};

const TENANTS: usize = 6;
/// Duration of a sample: thousands of hops.
const SAMPLE: Duration = Duration::from_millis(15);
/// Hops before a sample, in which events are attached and caches filled.
const WARM: u32 = 200;
/// Hops between two reads of the clock.
const BATCH: u32 = 100;

/// What follows the switches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Events {
    Of(Variant),
    /// The kernel, by control group.
    Kernel,
}

/// Makes the cells. What cannot be compared here becomes a note.
pub(super) fn cells(notes: &mut Vec<String>) -> io::Result<Vec<Cell>> {
    // The note on what replaces the document's events is that of part `response`.
    let world = Rc::new(World::new(document_events(&mut Vec::new()), notes)?);
    let mut all = vec![Events::Of(Variant::Nothing)];
    all.extend(Variant::DESIGNS.map(Events::Of));
    if let Some(why) = world.refused() {
        notes.push(format!("hop: no events of control groups (cgroup_perf): {why}"));
    } else {
        all.push(Events::Kernel);
    }
    let cell = |events| {
        let world = Rc::clone(&world);
        let name = match events {
            Events::Of(variant) => variant.name(),
            Events::Kernel => "cgroup_perf",
        };
        let params = Params::from([("part", Param::word("hop"))]);
        Cell::new(params, name, move || world.sample(events))
    };
    Ok(all.into_iter().map(cell).collect())
}

/// The groups, and the control groups that belong to them.
struct World {
    cpu: usize,
    tree: Tree,
    tenants: Vec<Group>,
    wanted: Vec<Wanted>,
    events: &'static str,
    /// The tenants' control groups, or why there are none.
    cgroups: io::Result<Cgroups>,
}

/// The control groups, dropped in this order: a directory that contains others cannot be removed.
struct Cgroups {
    tenants: Vec<Cgroup>,
    parent: Cgroup,
}

impl Cgroups {
    fn new() -> io::Result<Cgroups> {
        let parent = Cgroup::new("hop")?;
        let tenant = |nth| parent.child(&format!("tenant{nth}"));
        Ok(Cgroups { tenants: (0..TENANTS).map(tenant).collect::<io::Result<_>>()?, parent })
    }

    /// Opens `list` for all of them, on the CPU of the threads.
    fn open(&self, list: &str, cpu: usize) -> io::Result<Vec<Event>> {
        let mut opened = Vec::new();
        for cgroup in self.tenants.iter().chain([&self.parent]) {
            opened.extend(cgroup.open(list, cpu)?);
        }
        Ok(opened)
    }
}

impl World {
    fn new(events: &'static str, notes: &mut Vec<String>) -> io::Result<World> {
        let mut schema = Schema::builder();
        schema.cpu_time("cpu", "CPU time used");
        let tree = Tree::new(schema.build().map_err(io::Error::other)?);
        let tree = tree.map_err(io::Error::other)?;
        let make = |path: String| tree.get_or_create(&path).map_err(io::Error::other);
        let tenants = (0..TENANTS).map(|nth| make(format!("/load/tenant{nth}")));
        let tenants = tenants.collect::<io::Result<Vec<Group>>>()?;
        let scopes = tenants.iter().cloned().chain([make("/load".to_owned())?]).map(Some);
        let wanted = wanted(scopes.chain([None]), events);
        let cgroups = Cgroups::new();
        if let Err(why) = &cgroups {
            notes.push(format!("hop: all threads are in one control group: {why}"));
        }
        Ok(World { cpu: affinity()?[0], tree, tenants, wanted, events, cgroups })
    }

    /// Returns why the kernel's events cannot be compared.
    fn refused(&self) -> Option<String> {
        match &self.cgroups {
            Ok(cgroups) => cgroups.open(self.events, self.cpu).err().map(|why| why.to_string()),
            Err(why) => Some(why.to_string()),
        }
    }

    fn sample(&self, events: Events) -> io::Result<Sample> {
        let _following = match events {
            Events::Of(variant) => install(variant, Counters::Live, &self.tree, &self.wanted),
            Events::Kernel => install(Variant::Nothing, Counters::Live, &self.tree, &[]),
        };
        let _kernels = match (&self.cgroups, events) {
            (Ok(cgroups), Events::Kernel) => cgroups.open(self.events, self.cpu)?,
            _ => Vec::new(),
        };
        let (here, there) = (io::pipe()?, io::pipe()?);
        let ns = thread::scope(|scope| {
            let back = scope.spawn(|| self.player(1, (here.0, there.1))?.answer());
            let forth = scope.spawn(|| self.player(0, (there.0, here.1))?.drive());
            let ns = forth.join().expect("a measuring thread panicked");
            back.join().expect("a measuring thread panicked").and(ns)
        })?;
        // Threads that wait for each other are switched constantly: no sample is undisturbed.
        Ok(Sample::of("ns", ns, false))
    }

    /// Makes the calling thread one of the two.
    fn player(
        &self,
        nth: usize,
        (from, to): (io::PipeReader, io::PipeWriter),
    ) -> io::Result<Player<'_>> {
        set_affinity(&[self.cpu])?;
        if let Ok(cgroups) = &self.cgroups {
            cgroups.tenants[nth].join()?;
        }
        Ok(Player { group: &self.tenants[nth], from, to })
    }
}

/// One of the two threads. When it ends, the other finds its pipe closed.
struct Player<'a> {
    group: &'a Group,
    from: io::PipeReader,
    to: io::PipeWriter,
}

impl Player<'_> {
    /// Sends the byte back until the other thread ends.
    fn answer(mut self) -> io::Result<()> {
        while self.take()? {
            self.give()?;
        }
        Ok(())
    }

    /// Measures the CPU time of a hop.
    fn drive(mut self) -> io::Result<f64> {
        self.rounds(WARM)?;
        let (start, before) = (Instant::now(), clock::process_cpu_ns());
        let mut rounds = 0;
        while start.elapsed() < SAMPLE {
            self.rounds(BATCH)?;
            rounds += BATCH;
        }
        // There and back.
        Ok((clock::process_cpu_ns() - before) as f64 / f64::from(rounds) / 2.0)
    }

    fn rounds(&mut self, rounds: u32) -> io::Result<()> {
        for _ in 0..rounds {
            self.give()?;
            if !self.take()? {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        Ok(())
    }

    fn give(&mut self) -> io::Result<()> {
        let (group, to) = (self.group, &mut self.to);
        group.run(|| to.write_all(&[1]))
    }

    /// Waits for the byte, outside of the group. Returns false if the other thread has ended.
    fn take(&mut self) -> io::Result<bool> {
        let mut byte = [0];
        Ok(self.from.read(&mut byte)? > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_variant_hops() {
        let mut notes = Vec::new();
        let cells = cells(&mut notes).expect("made");
        let count = cells.len();
        assert_eq!(count == 5, notes.is_empty(), "{notes:?}");
        let rows = super::super::measured_once(vec![cells]).rows;
        assert_eq!(rows.len(), count);
        // At least two system calls.
        assert!(rows.iter().all(|row| row.value > 100.0 && row.value.is_finite()), "{rows:?}");
    }

    #[test]
    fn the_kernel_counts_threads_time_by_tenant() {
        let mut notes = Vec::new();
        let world = World::new("task-clock", &mut notes).expect("made");
        if let Some(why) = world.refused() {
            eprintln!("skipped: {why}");
            return;
        }
        let cgroups = world.cgroups.as_ref().expect("not refused");
        let events = cgroups.open("task-clock", world.cpu).expect("not refused");
        world.sample(Events::Of(Variant::Nothing)).expect("measured");
        let values: Vec<u64> = events.iter().map(|e| e.read().expect("open").value).collect();
        let (tenants, parent) = (&values[..TENANTS], values[TENANTS]);
        // Hundreds of hops, of a microsecond or more each.
        assert!(tenants[..2].iter().all(|&ns| ns > 100_000), "{values:?}");
        assert!(tenants[2..].iter().all(|&ns| ns == 0), "nobody is there: {values:?}");
        assert!(parent >= tenants[0] + tenants[1], "{values:?}");
    }
}
