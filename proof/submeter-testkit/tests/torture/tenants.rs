//! Short-lived groups, and events that are charged to groups.

use std::fmt;
use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};

use submeter::perf::parse;
use submeter::{Count, Counter, Group, Nanoseconds, Schema, Tree, switch};

use crate::Running;

/// Pages that are touched per visit to a group.
const PAGES: u64 = 64;
/// More than an allocator keeps for reuse, so that the kernel supplies new pages each time.
const FRESH_BYTES: usize = 64 << 20;

pub(crate) struct Tenants {
    tree: Tree,
    adds: Counter<Count>,
    cpu: Counter<Nanoseconds>,
    /// Page faults in user mode, if the kernel counts them.
    faults: Option<Counter<Count>>,
    /// The parent of the short-lived groups.
    churn: Group,
    entered: Vec<Group>,
    churned: AtomicU64,
    added: AtomicU64,
    /// Pages touched for the first time in a group.
    touched: AtomicU64,
    /// The kernel's count of all faults of the threads that touched them, in kernel mode too.
    faulted: AtomicU64,
}

impl Tenants {
    pub(crate) fn new() -> Tenants {
        let mut schema = Schema::builder();
        let adds = schema.counter("adds", "What was added");
        let cpu = schema.cpu_time("cpu", "CPU time");
        let events = parse("page-faults:u").expect("valid");
        let faults = schema.event("faults", "Page faults", &events[0].events()[0]);
        if let Err(error) = &faults {
            println!("skipped: the conservation of events: {error}");
        }
        let faults = faults.ok();
        let tree = Tree::new(schema.build().expect("valid")).expect("address space");
        let entered = (0..8).map(|n| tree.get_or_create(&format!("/in/{n}")).expect("room"));
        Tenants {
            entered: entered.collect(),
            churn: tree.create("/churn").expect("room"),
            adds,
            cpu,
            faults,
            tree,
            churned: AtomicU64::new(0),
            added: AtomicU64::new(0),
            touched: AtomicU64::new(0),
            faulted: AtomicU64::new(0),
        }
    }

    /// Repeatedly creates a group, counts in it and kills it.
    pub(crate) fn churn_until(&self, running: Running<'_>) {
        let mut rng = fastrand::Rng::with_seed(2);
        while running.go_on() {
            for _ in 0..100 {
                let n = rng.u64(1..1_000);
                let group = self.churn.create_child("moment").expect("the name is free again");
                group.add(self.adds, n);
                group.kill().expect("a live group");
                // Relaxed, both: statistics, read after the threads were joined.
                self.churned.fetch_add(1, Ordering::Relaxed);
                self.added.fetch_add(n, Ordering::Relaxed);
            }
            // Killed groups stay until a flush.
            self.tree.flush();
        }
    }

    /// Switches between groups, with page faults in each.
    pub(crate) fn enter_until(&self, running: Running<'_>) {
        let before = faults_of_this_thread();
        let mut rng = fastrand::Rng::with_seed(3);
        while running.go_on() {
            let mut fresh = vec![0u8; FRESH_BYTES];
            for turn in 0..FRESH_BYTES / (PAGES as usize * 4096) {
                if !running.go_on() {
                    break;
                }
                let group = rng.usize(..self.entered.len());
                self.entered[group].run(|| {
                    let start = turn * PAGES as usize * 4096;
                    (0..PAGES as usize).for_each(|page| fresh[start + page * 4096] = 1);
                });
                // Relaxed: a statistic, read after the threads were joined.
                self.touched.fetch_add(PAGES, Ordering::Relaxed);
            }
            black_box(&fresh);
        }
        // Relaxed: as above.
        self.faulted.fetch_add(faults_of_this_thread() - before, Ordering::Relaxed);
    }

    /// Checks all totals; all threads must have been joined.
    pub(crate) fn assert_conserved(&self) {
        self.tree.flush();
        // Relaxed, here and below: every thread has been joined.
        let added = self.added.load(Ordering::Relaxed);
        assert_eq!(self.churn.read(self.adds).value, added, "of groups that are no more");
        assert_eq!(self.tree.root().read(self.adds).value, added);
        let (root, leaves) = self.both(self.cpu);
        assert_eq!(root, leaves, "CPU time of the root and of all leaves");
        let Some(faults) = self.faults else { return };
        let (root, leaves) = self.both(faults);
        assert_eq!(root, leaves, "page faults of the root and of all leaves");
        assert_eq!(switch::lost_events(), 0);
        let [touched, faulted] = [&self.touched, &self.faulted].map(|n| n.load(Ordering::Relaxed));
        assert!(root <= faulted, "{root} faults charged, {faulted} in the kernel's books");
        // One fault may bring several pages where pages are large.
        if crate::machine::pages_are_small() {
            assert!(root >= touched, "{root} faults charged, {touched} pages touched");
        }
    }

    /// Returns the root's value and the sum over the groups that threads enter.
    fn both<U: submeter::Unit>(&self, key: Counter<U>) -> (u64, u64) {
        let leaves = self.entered.iter().map(|group| group.read(key).value).sum();
        (self.tree.root().read(key).value, leaves)
    }
}

impl fmt::Display for Tenants {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let faults = self.faults.map(|faults| self.tree.root().read(faults).value);
        // Relaxed: a statistic.
        let churned = self.churned.load(Ordering::Relaxed);
        write!(f, "{churned} groups churned, {} faults charged", faults.unwrap_or(0))
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
