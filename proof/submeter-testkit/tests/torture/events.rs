//! Events that are charged to groups, compared with the kernel's counts for the threads in them.
//!
//! Each thread reads its own counters before and after it enters its first group, and before and
//! after it leaves its last one. The charge of its groups must lie between the two differences:
//! nothing is lost, and nothing that happened outside of all groups is charged. Inside, the thread
//! switches between groups, moves, waits, forks, and kills groups that it is in.

use std::fmt;
use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use submeter::perf::{Event, EventKind, parse};
use submeter::{Count, Counter, Group, Nanoseconds, Schema, SchemaBuilder, Tree, switch};
use submeter_sys::cpu;
use submeter_sys::perf_event::{self, Config, TYPE_SOFTWARE};

use crate::Running;
use crate::machine;

/// Events of the kernel, which counts every one of them.
const EVENTS: &str = "task-clock,page-faults,page-faults:u,context-switches,cpu-migrations";

/// Pages that are touched per visit to a group.
const PAGES: u64 = 64;
/// More than an allocator keeps for reuse, so that the kernel supplies new pages each time.
const FRESH_BYTES: usize = 64 << 20;
const PAGE_BYTES: usize = 4096;
/// Visits to groups between the first entry and the last leaving.
const TURNS: u32 = 16;
/// Spans of each thread in a round, however short that is: the second starts where the first ended.
const SPANS_MIN: u32 = 3;
/// Groups of each thread.
const GROUPS: usize = 4;

/// Groups, the events that are charged to them, and the bounds of each charge.
pub(crate) struct Events {
    tree: Tree,
    cpu: Counter<Nanoseconds>,
    counted: Vec<Counted>,
    /// Where threads may run. Read early, as new threads inherit the mask of one that was moved.
    cpus: Vec<usize>,
    /// Pages touched for the first time in a group.
    touched: AtomicU64,
    /// All faults of the threads, including those in kernel mode and outside of groups.
    faulted: AtomicU64,
    killed: AtomicU64,
    forked: AtomicU64,
}

/// An event with the least and the most that groups must be charged with.
struct Counted {
    event: Event,
    counter: Counter<Count>,
    least: AtomicU64,
    most: AtomicU64,
}

impl Events {
    pub(crate) fn new() -> Events {
        let mut schema = Schema::builder();
        let cpu = schema.cpu_time("cpu", "CPU time");
        let events = parse(EVENTS).expect("valid");
        let events = events.iter().flat_map(|group| group.events());
        let counted = events.filter_map(|event| Counted::declare(&mut schema, event)).collect();
        Events {
            tree: Tree::new(schema.build().expect("valid")).expect("address space"),
            cpu,
            counted,
            cpus: cpu::affinity().unwrap_or_default(),
            touched: AtomicU64::new(0),
            faulted: AtomicU64::new(0),
            killed: AtomicU64::new(0),
            forked: AtomicU64::new(0),
        }
    }

    /// Enters and leaves groups repeatedly, with events inside and outside.
    pub(crate) fn enter_until(&self, running: Running<'_>, number: usize) {
        let faults_before = faults_of_this_thread();
        let mut visitor = Visitor::new(self, number);
        let mut spans = 0;
        while running.go_on() || spans < SPANS_MIN {
            visitor.touch();
            visitor.happen();
            if spans.is_multiple_of(32) {
                visitor.span(running, |visitor| {
                    visitor.fork();
                    visitor.die();
                });
            } else {
                visitor.span(running, |_| ());
            }
            spans += 1;
            self.tree.flush();
        }
        // Relaxed, both: statistics, read after the threads were joined.
        self.touched.fetch_add(visitor.touched, Ordering::Relaxed);
        self.faulted.fetch_add(faults_of_this_thread() - faults_before, Ordering::Relaxed);
    }

    /// Checks all totals; all threads must have been joined.
    pub(crate) fn assert_conserved(&self) {
        self.tree.flush();
        let root = self.tree.root();
        let inside = self.tree.get("/in").expect("it has groups");
        let [all, groups] = [root, &inside].map(|group| group.read(self.cpu).value);
        assert_eq!(all, groups, "CPU time of all and of the groups");
        assert_eq!(switch::lost_events(), 0);
        for counted in &self.counted {
            let charged = root.read(counted.counter).value;
            assert_eq!(charged, inside.read(counted.counter).value, "{}", counted.event);
            let (least, most) = counted.bounds();
            assert!(
                (least..=most).contains(&charged),
                "{}: {charged} charged, {least} to {most} in the kernel's books",
                counted.event
            );
        }
        // Relaxed, both: every thread has been joined.
        let [touched, faulted] = [&self.touched, &self.faulted].map(|n| n.load(Ordering::Relaxed));
        let Some(charged) = self.charged("page-faults:u") else { return };
        assert!(charged <= faulted, "{charged} faults charged, {faulted} in the threads' usage");
        // One fault may bring several pages where pages are large.
        if machine::pages_are_small() {
            assert!(charged >= touched, "{charged} faults charged, {touched} pages touched");
        }
    }

    /// Checks that everything happened at least once: otherwise the run proves nothing.
    pub(crate) fn assert_used(&self) {
        for Counted { event, counter, .. } in &self.counted {
            let nowhere_to_go = event.to_string() == "cpu-migrations" && self.cpus.len() < 2;
            assert!(nowhere_to_go || self.tree.root().read(*counter).value > 0, "no {event}");
        }
        // Relaxed, both: every thread has been joined.
        assert!(self.killed.load(Ordering::Relaxed) > 0, "no group killed");
        assert!(self.forked.load(Ordering::Relaxed) > 0, "no fork");
    }

    fn charged(&self, event: &str) -> Option<u64> {
        let counted = self.counted.iter().find(|counted| counted.event.to_string() == event)?;
        Some(self.tree.root().read(counted.counter).value)
    }
}

impl Counted {
    /// Declares the event, if this machine counts it.
    fn declare(schema: &mut SchemaBuilder, event: &Event) -> Option<Counted> {
        let name = event.to_string().replace(['-', ':'], "_");
        let counter = match schema.event(&name, "An event", event) {
            Ok(counter) => counter,
            Err(error) => {
                println!("skipped: the conservation of events: {error}");
                return None;
            }
        };
        Some(Counted { event: *event, counter, least: AtomicU64::new(0), most: AtomicU64::new(0) })
    }

    /// Opens a counter of the calling thread.
    fn open(&self) -> perf_event::Event {
        let EventKind::Software(number) = self.event.kind() else { panic!("not the kernel's") };
        let (user, kernel) = (self.event.counts_user(), self.event.counts_kernel());
        let config = Config { user, kernel, ..Config::new(TYPE_SOFTWARE, number) };
        perf_event::Event::open(&config, None).expect("as the tree's own")
    }

    fn bounds(&self) -> (u64, u64) {
        // Relaxed, both: every thread has been joined.
        (self.least.load(Ordering::Relaxed), self.most.load(Ordering::Relaxed))
    }
}

impl fmt::Display for Events {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for counted in &self.counted {
            let charged = self.tree.root().read(counted.counter).value;
            let (least, most) = counted.bounds();
            write!(f, "{charged} {} (within {}), ", counted.event, most - least)?;
        }
        // Relaxed, both: statistics.
        let [killed, forked] = [&self.killed, &self.forked].map(|n| n.load(Ordering::Relaxed));
        write!(f, "in groups of which {killed} were killed from inside, with {forked} forks")
    }
}

/// A thread that switches between groups.
struct Visitor<'a> {
    events: &'a Events,
    number: usize,
    groups: Vec<Group>,
    /// Its own counters, in the order of `events.counted`.
    own: Vec<perf_event::Event>,
    rng: fastrand::Rng,
    fresh: Vec<u8>,
    /// The pages of `fresh` that were touched.
    used: usize,
    touched: u64,
}

impl<'a> Visitor<'a> {
    fn new(events: &'a Events, number: usize) -> Visitor<'a> {
        let mut visitor = Visitor {
            events,
            number,
            groups: Vec::new(),
            own: events.counted.iter().map(Counted::open).collect(),
            rng: fastrand::Rng::with_seed(10 + number as u64),
            fresh: vec![0; FRESH_BYTES],
            used: 0,
            touched: 0,
        };
        visitor.groups = (0..GROUPS).map(|n| visitor.group(n)).collect();
        visitor
    }

    fn group(&self, n: usize) -> Group {
        self.events.tree.get_or_create(&format!("/in/{}/{n}", self.number)).expect("room")
    }

    fn read(&self) -> Vec<u64> {
        self.own.iter().map(|event| event.read().expect("an open event").value).collect()
    }

    /// Enters a first group, visits others, and leaves; `begin` is done first.
    fn span(&mut self, running: Running<'_>, begin: impl FnOnce(&mut Self)) {
        let before = self.read();
        let span = self.groups[0].enter();
        let first = self.read();
        begin(self);
        for _ in 0..TURNS {
            if !running.go_on() {
                break;
            }
            self.turn();
        }
        let last = self.read();
        drop(span);
        let after = self.read();
        for (n, counted) in self.events.counted.iter().enumerate() {
            // Relaxed, both: statistics, read after the threads were joined.
            counted.least.fetch_add(last[n] - first[n], Ordering::Relaxed);
            counted.most.fetch_add(after[n] - before[n], Ordering::Relaxed);
        }
    }

    /// Visits a group.
    fn turn(&mut self) {
        if self.rng.u8(..8) == 0 {
            return self.die();
        }
        let group = self.rng.choice(&self.groups).expect("some").clone();
        let _entered = group.enter();
        self.touched += self.happen();
    }

    /// Kills a group that the thread is in and stays: its parent has the charge.
    fn die(&mut self) {
        let n = self.rng.usize(..GROUPS);
        let group = self.groups[n].clone();
        let entered = group.enter();
        self.touched += self.happen();
        group.kill().expect("a live group without children");
        self.touched += self.happen();
        drop(entered);
        self.groups[n] = self.group(n);
        // Relaxed: a statistic.
        self.events.killed.fetch_add(1, Ordering::Relaxed);
    }

    /// Causes one of the events. Returns how many pages were touched for the first time.
    fn happen(&mut self) -> u64 {
        match self.rng.u8(..32) {
            0..16 => return self.touch(),
            16..20 => thread::yield_now(),
            20..24 => thread::sleep(Duration::from_micros(self.rng.u64(..200))),
            24..28 => {
                let Some(&cpu) = self.rng.choice(&self.events.cpus) else { return 0 };
                // Refused while the CPU is offline, or not one of the cgroup's.
                let _ = cpu::set_affinity(&[cpu]);
            }
            _ => (0..self.rng.u32(..50_000)).for_each(|n| _ = black_box(n)),
        }
        0
    }

    fn touch(&mut self) -> u64 {
        if self.used + PAGES as usize > FRESH_BYTES / PAGE_BYTES {
            self.fresh = vec![0; FRESH_BYTES];
            self.used = 0;
        }
        // Without one page: the allocator writes its own header to the first.
        let pages = self.used + 1..self.used + PAGES as usize;
        pages.clone().for_each(|page| self.fresh[page * PAGE_BYTES] = 1);
        self.used += PAGES as usize;
        black_box(&self.fresh);
        pages.len() as u64
    }

    /// Forks a child that uses its copy of a group: this process must not be charged for it.
    fn fork(&mut self) {
        let group = self.groups[0].clone();
        let mut touch = || _ = self.touch();
        machine::in_a_child(|| group.run(&mut touch));
        // Relaxed: a statistic.
        self.events.forked.fetch_add(1, Ordering::Relaxed);
    }
}

/// Returns this thread's minor and major faults, in user and in kernel mode.
fn faults_of_this_thread() -> u64 {
    // SAFETY: 1. Zeroes are a valid `rusage`: plain data. 2. The call writes a live one.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        assert_eq!(libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage), 0);
        usage
    };
    #[allow(clippy::useless_conversion, reason = "c_long has 32 bits on some targets")]
    let faults = i64::from(usage.ru_minflt) + i64::from(usage.ru_majflt);
    faults.cast_unsigned()
}
