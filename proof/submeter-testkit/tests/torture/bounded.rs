//! Counts with a known minimum and maximum at every moment: the adds that have returned, and the
//! adds that have begun. Every read is checked against both.

use std::cmp;
use std::fmt;
use std::io;
use std::sync::RwLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use submeter::{Count, Counter, Group, Schema, Tree};
use submeter_percpu::PercpuCounter;

use crate::Running;

/// A counter, a group and its parent that all count the same.
pub(crate) struct Bounded {
    counter: PercpuCounter,
    tree: Tree,
    key: Counter<Count>,
    leaf: Group,
    began: AtomicU64,
    returned: AtomicU64,
    handled: AtomicU64,
    reads: AtomicU64,
    crowds: AtomicU64,
    forked: AtomicU64,
}

impl Bounded {
    pub(crate) fn new() -> Bounded {
        let mut schema = Schema::builder();
        let key = schema.counter("adds", "What was added");
        let tree = Tree::new(schema.build().expect("valid")).expect("address space");
        Bounded {
            counter: PercpuCounter::new().expect("address space"),
            leaf: tree.get_or_create("/a/leaf").expect("room"),
            tree,
            key,
            began: AtomicU64::new(0),
            returned: AtomicU64::new(0),
            handled: AtomicU64::new(0),
            reads: AtomicU64::new(0),
            crowds: AtomicU64::new(0),
            forked: AtomicU64::new(0),
        }
    }

    fn add(&self, n: u64) {
        // SeqCst, as in `read`: orders the notes before and after the reads of other threads.
        self.began.fetch_add(n, Ordering::SeqCst);
        self.counter.add(n.cast_signed());
        self.leaf.add(self.key, n);
        // SeqCst: as above.
        self.returned.fetch_add(n, Ordering::SeqCst);
    }

    pub(crate) fn add_in_handler(&self) {
        self.add(3);
        // Relaxed: a statistic.
        self.handled.fetch_add(1, Ordering::Relaxed);
    }

    /// The work of a forked child, which counts for itself, unseen by others.
    pub(crate) fn add_in_child(&self) {
        (0..1_000).for_each(|_| self.add(1));
    }

    pub(crate) fn note_fork(&self) {
        // Relaxed: a statistic.
        self.forked.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn add_until(&self, running: Running<'_>) {
        let mut rng = fastrand::Rng::with_seed(1);
        while running.go_on() {
            for _ in 0..200 {
                // Some adds cross a batch boundary.
                self.add(rng.u64(1..700));
            }
            // The thread shares its CPU with a hundred others.
            thread::yield_now();
        }
    }

    /// Reads in every way that has a bound.
    pub(crate) fn read_until(&self, running: Running<'_>) {
        let mut round = 0u64;
        while running.go_on() {
            for _ in 0..1_000 {
                self.check_counter();
                self.check_group(&self.leaf);
                self.check_group(self.tree.root());
            }
            // Relaxed: a statistic.
            self.reads.fetch_add(4_000, Ordering::Relaxed);
            round += 1;
            if round.is_multiple_of(16) {
                self.tree.flush();
            }
        }
    }

    fn check_counter(&self) {
        // SeqCst, here and below: see `add`.
        let least = self.returned.load(Ordering::SeqCst).cast_signed();
        let read = self.counter.read();
        let compared = self.counter.compare(least);
        let most = self.began.load(Ordering::SeqCst).cast_signed();
        assert!(read.high() >= least && read.low() <= most, "{least} to {most}: {read:?}");
        assert!(compared != cmp::Ordering::Less, "{least} to {most}: less than {least}");
        assert!(compared != cmp::Ordering::Greater || most > least, "greater than {most}");
    }

    fn check_group(&self, group: &Group) {
        // SeqCst, both: see `add`.
        let least = self.returned.load(Ordering::SeqCst);
        let read = group.read(self.key);
        let most = self.began.load(Ordering::SeqCst);
        let path = group.path();
        assert!(read.value.saturating_add(read.max_error) >= least, "{path}: {least}: {read:?}");
        assert!(read.value <= most, "{path}: {most}: {read:?}");
    }

    /// Starts `threads` threads that add, wait for each other, add once more and end.
    pub(crate) fn crowd(&self, threads: usize, running: Running<'_>) {
        let gate = RwLock::new(());
        thread::scope(|scope| {
            let closed = gate.write().expect("no panic with it locked");
            for n in 0..threads {
                let member = || {
                    self.add(2);
                    drop(gate.read().expect("no panic with it locked"));
                    self.add(5);
                };
                let spawned =
                    thread::Builder::new().stack_size(64 << 10).spawn_scoped(scope, member);
                match spawned {
                    Ok(_) => {}
                    // A limit on threads: a larger crowd is not possible here.
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock && n > 0 => break,
                    Err(error) => panic!("thread {n} of a crowd: {error}"),
                }
                if !running.go_on() {
                    break;
                }
                // Relaxed: a statistic, the size of the largest crowd.
                self.crowds.fetch_max(n as u64 + 1, Ordering::Relaxed);
            }
            drop(closed);
        });
    }

    /// Checks all totals; no thread may be adding.
    pub(crate) fn assert_exact(&self) {
        self.tree.flush();
        // SeqCst: see `add`.
        let [began, returned] = [&self.began, &self.returned].map(|n| n.load(Ordering::SeqCst));
        assert_eq!(began, returned, "adds under way");
        assert_eq!(self.counter.sum(), began.cast_signed(), "the counter");
        for group in [&self.leaf, self.tree.root()] {
            let read = group.read(self.key);
            assert_eq!((read.value, read.max_error), (began, 0), "{}", group.path());
        }
    }

    /// Checks that everything happened at least once: otherwise the run proves nothing.
    pub(crate) fn assert_used(&self) {
        // Relaxed: every thread has been joined.
        assert!(self.reads.load(Ordering::Relaxed) > 0, "no read");
        assert!(self.forked.load(Ordering::Relaxed) > 0, "no fork");
        assert!(self.handled.load(Ordering::Relaxed) > 0, "no handler");
    }
}

impl fmt::Display for Bounded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Relaxed: statistics.
        let of = |n: &AtomicU64| n.load(Ordering::Relaxed);
        write!(
            f,
            "{} reads within their bounds, {} interruptions, {} threads at once, {} forks",
            of(&self.reads),
            of(&self.handled),
            of(&self.crowds),
            of(&self.forked)
        )
    }
}
