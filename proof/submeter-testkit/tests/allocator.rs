//! A global allocator that accounts for itself in a tree, whatever the tree is doing when it
//! allocates. It has a program of its own, because the allocator applies to the whole process.
#![cfg(not(miri))]
#![expect(unsafe_code, reason = "a global allocator")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{OnceLock, mpsc};
use std::time::Duration;

use submeter::{Bytes, Counter, Group, Nanoseconds, Quota, Schema, Tree, switch};

/// Long enough for any machine; only a deadlock exceeds it.
const PATIENCE: Duration = Duration::from_secs(120);

/// What the allocator accounts to.
struct Books {
    group: Group,
    bytes: Counter<Bytes>,
    memory: Quota<Bytes>,
}

static BOOKS: OnceLock<Books> = OnceLock::new();

/// All bytes that it accounted for.
static ALLOCATED: AtomicU64 = AtomicU64::new(0);

/// How often it did so inside a call of its own.
static NESTED: AtomicU64 = AtomicU64::new(0);

thread_local! {
    /// Whether this thread's allocations are accounted for: only those of threads that have ended
    /// when totals are compared.
    static ON: Cell<bool> = const { Cell::new(false) };

    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// Counts each allocation, and also does the other things that an update may involve: charges,
/// handles, reads, switches.
struct Accounting;

impl Books {
    fn note(&self, bytes: u64) {
        // Relaxed: a statistic, compared when all threads have ended.
        ALLOCATED.fetch_add(bytes, Ordering::Relaxed);
        self.group.add(self.bytes, bytes);
        // The rest allocates itself, and would recurse forever.
        if INSIDE.replace(true) {
            // Relaxed: a statistic.
            NESTED.fetch_add(1, Ordering::Relaxed);
            return;
        }
        drop(self.group.try_charge(self.memory, bytes));
        let again = self.group.clone();
        let _ = again.read(self.bytes);
        again.run(|| ());
        drop(again);
        INSIDE.set(false);
    }
}

// SAFETY: 1. What an allocator promises holds: the system's allocator does all the work, and what
// is called beside it does not unwind: a counter and a quota of this tree, and no limit.
unsafe impl GlobalAlloc for Accounting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if ON.get()
            && let Some(books) = BOOKS.get()
        {
            books.note(layout.size() as u64);
        }
        // SAFETY: 1. The caller's promise, passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: 1. The caller's promise, passed on.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Accounting = Accounting;

/// Everything that takes locks or allocates in the middle of a change.
fn work(tree: &Tree, cpu: Counter<Nanoseconds>, thread: usize, rounds: usize) {
    let root = tree.root();
    ON.set(true);
    for round in 0..rounds {
        let path = format!("/t{thread}/{}", round % 7);
        let group = tree.get_or_create(&path).expect("room");
        group.run(|| root.run(|| drop(switch::observe(|_| None))));
        assert_eq!(switch::current(), None, "the allocator's switches leave none behind");
        if round % 5 == 0 {
            tree.flush();
            assert!(tree.snapshot().get(&path).is_some(), "it lives");
        }
        let _ = (group.sum(cpu), root.children().len());
        drop(group);
        // Another round's groups go with it.
        let top = tree.get(&format!("/t{thread}")).expect("only this thread kills it");
        drop(top.kill_subtree().expect("lives"));
    }
    ON.set(false);
}

/// An allocator that updates, charges and enters a group is exact, and never waits for itself.
#[test]
fn an_allocator_may_update_charge_and_enter() {
    const THREADS: usize = 3;
    const ROUNDS: usize = 300;
    let (done, finished) = mpsc::channel();
    std::thread::spawn(move || {
        let mut schema = Schema::builder();
        let bytes = schema.counter::<Bytes>("allocated", "What was allocated");
        let memory = schema.quota::<Bytes>("memory", "What is in use");
        let cpu = schema.cpu_time("cpu", "CPU time");
        let tree = Tree::new(schema.build().expect("valid")).expect("address space");
        let group = tree.create("/allocator").expect("new");
        assert!(BOOKS.set(Books { group: group.clone(), bytes, memory }).is_ok(), "set once");
        std::thread::scope(|scope| {
            let tree = &tree;
            for thread in 0..THREADS {
                scope.spawn(move || work(tree, cpu, thread, ROUNDS));
            }
        });
        let (counted, usage) = (group.sum(bytes), tree.root().usage(memory).current);
        done.send((counted, usage)).expect("the test waits");
    });
    let (counted, usage) = finished.recv_timeout(PATIENCE).expect("no deadlock");
    // Relaxed: its threads have ended.
    let (allocated, nested) = (ALLOCATED.load(Ordering::Relaxed), NESTED.load(Ordering::Relaxed));
    assert!(allocated > 1 << 20, "{allocated} bytes: it was asked");
    assert_eq!((counted, usage), (allocated, 0), "{nested} nested");
}
