//! Compares the counts with a ledger that knows each block.

use std::alloc::System;
use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Barrier, Mutex, mpsc};
use std::thread;

use submeter::{Group, Schema, Tree, switch};
use submeter_alloc::{Metered, Volume, thread_counts};

#[path = "common/lists.rs"]
mod lists;
#[path = "common/operations.rs"]
mod operations;
#[path = "../../submeter-percpu/tests/it/witness.rs"]
mod witness;

use lists::Lists;
use operations::operations;
use witness::Witness;

#[global_allocator]
static HEAP: Metered<System> = Metered::new(System);

fn tree() -> (Tree, Volume) {
    let mut schema = Schema::builder();
    let heap: Volume = schema.declare();
    let tree = Tree::new(schema.build().expect("valid")).expect("address space");
    (tree, heap)
}

/// Allocated and freed bytes, allocated and freed blocks.
fn sums(group: &Group, heap: Volume) -> [u64; 4] {
    [
        group.sum(heap.allocated_bytes),
        group.sum(heap.freed_bytes),
        group.sum(heap.allocated_blocks),
        group.sum(heap.freed_blocks),
    ]
}

#[test]
fn the_intended_allocator_is_linked() {
    assert!(submeter_alloc::is_linked());
}

/// A group is charged exactly what was requested in it.
#[test]
fn a_group_is_charged_what_was_asked_for_in_it() {
    let (tree, heap) = tree();
    let (a, b) = (tree.create("/a").expect("created"), tree.create("/a/b").expect("created"));
    let outside = vec![0_u8; 1_000];
    let (kept, text) = a.run(|| (vec![1_u8; 100], b.run(|| "seven..".to_owned())));
    drop(outside);
    assert_eq!(sums(&b, heap), [7, 0, 1, 0]);
    assert_eq!(sums(&a, heap), [107, 0, 2, 0], "its own, and what is below");
    b.run(|| drop(kept));
    drop(text);
    assert_eq!(sums(&b, heap), [7, 100, 1, 1], "freed where it was freed");
    assert_eq!(sums(tree.root(), heap), [107, 100, 2, 1]);
}

#[test]
fn a_resize_frees_the_old_and_allocates_the_new() {
    let (tree, heap) = tree();
    tree.root().run(|| {
        let mut bytes: Vec<u8> = Vec::with_capacity(16);
        bytes.reserve_exact(4_096);
        bytes.push(1);
        bytes.shrink_to_fit();
        assert_eq!(bytes.capacity(), 1);
    });
    assert_eq!(sums(tree.root(), heap), [16 + 4_096 + 1, 16 + 4_096 + 1, 3, 3]);
}

/// Miri ends when its memory does, and refuses nothing.
#[cfg(not(miri))]
#[test]
fn what_is_refused_does_not_count() {
    let (tree, heap) = tree();
    let refused = tree.root().run(|| {
        let mut bytes: Vec<u8> = Vec::new();
        let new = bytes.try_reserve_exact(isize::MAX as usize).is_err();
        bytes.reserve_exact(16);
        new && bytes.try_reserve_exact(isize::MAX as usize - 16).is_err()
    });
    assert!(refused);
    assert_eq!(sums(tree.root(), heap), [16, 16, 1, 1]);
}

#[test]
fn a_thread_that_stays_is_charged_when_it_parks() {
    let (tree, heap) = tree();
    let turn = Barrier::new(2);
    let read = thread::scope(|scope| {
        // Done by another thread, because a read may allocate.
        let reader = scope.spawn(|| {
            [(), (), ()].map(|()| {
                turn.wait();
                let read = sums(tree.root(), heap);
                turn.wait();
                read
            })
        });
        let entered = tree.root().enter();
        let block = vec![0_u8; 64];
        for _ in 0..2 {
            turn.wait();
            turn.wait();
            switch::park();
        }
        drop(block);
        drop(entered);
        turn.wait();
        turn.wait();
        reader.join().expect("no panic")
    });
    assert_eq!(read, [[0; 4], [64, 0, 1, 0], [64, 64, 1, 1]]);
}

#[test]
fn a_switch_charges_each_of_two_groups_its_own() {
    let (tree, heap) = tree();
    let groups = ["/a", "/b"].map(|path| tree.create(path).expect("created"));
    let mut entered = groups[0].enter();
    let first = Box::new([0_u8; 10]);
    entered.switch_to(&groups[1]);
    let second = Box::new([0_u8; 20]);
    drop(entered);
    drop((first, second));
    let charged = groups.map(|group| sums(&group, heap));
    assert_eq!(charged, [[10, 0, 1, 0], [20, 0, 1, 0]]);
}

#[test]
fn trees_of_two_schemas_are_charged_their_own() {
    let (first, heap) = tree();
    let (second, other) = tree();
    let blocks = first.root().run(|| {
        let outer = Box::new([0_u8; 10]);
        (outer, second.root().run(|| Box::new([0_u8; 20])), Box::new([0_u8; 40]))
    });
    drop(blocks);
    assert_eq!(sums(first.root(), heap), [50, 0, 2, 0]);
    assert_eq!(sums(second.root(), other), [20, 0, 1, 0]);
}

#[test]
fn counters_are_declared_again_only_as_they_are() {
    let (tree, heap) = tree();
    let again: Volume = tree.declare().expect("it has them");
    assert_eq!(again.freed_blocks, heap.freed_blocks);
    let without = Tree::new(Schema::builder().build().expect("valid")).expect("address space");
    let error = without.declare::<Volume>().expect_err("too late");
    assert!(error.to_string().contains("cannot be added to a tree later"), "{error}");
}

#[test]
fn the_usual_types_count_from_any_thread() {
    let (tree, heap) = tree();
    let group = tree.create("/a").expect("created");
    let (sender, receiver) = mpsc::channel();
    thread::scope(|scope| {
        scope.spawn(|| {
            let shared = group.run(|| Arc::new([7_u8; 48]));
            let more = group.run(|| (vec![0_u32; 25], "text".repeat(5), Box::new([0_u64; 3])));
            sender.send((shared, more)).expect("it is received");
        });
        let (shared, more) = receiver.recv().expect("it is sent");
        // An `Arc` has two counts besides its value.
        assert_eq!(sums(&group, heap), [(48 + 16) + 100 + 20 + 24, 0, 4, 0]);
        let other = tree.create("/b").expect("created");
        other.run(|| drop((shared, more)));
        assert_eq!(sums(&other, heap), [0, (48 + 16) + 100 + 20 + 24, 0, 4]);
    });
}

#[test]
fn memory_that_outlives_its_tenant_stays_above() {
    let (tree, heap) = tree();
    let (top, below) = (tree.create("/a").expect("created"), tree.create("/a/b").expect("created"));
    let kept = below.run(|| vec![0_u8; 500]);
    below.kill().expect("no children");
    below.run(|| drop(vec![0_u8; 30]));
    drop(below);
    drop(kept);
    assert_eq!(sums(&top, heap), [530, 30, 2, 1]);
}

/// Allocates when its thread ends, before or after the switch's own values end.
struct Late(RefCell<Option<Arc<AtomicU64>>>);

impl Drop for Late {
    fn drop(&mut self) {
        let before = thread_counts();
        drop(vec![0_u8; 77]);
        let counted = thread_counts().allocated_bytes - before.allocated_bytes;
        if let Some(told) = self.0.borrow().as_ref() {
            // Relaxed: read after the thread was joined.
            told.fetch_add(counted, Ordering::Relaxed);
        }
    }
}

thread_local! {
    static FIRST: Late = const { Late(RefCell::new(None)) };
    static LAST: Late = const { Late(RefCell::new(None)) };
}

#[test]
fn destructors_of_thread_locals_are_counted() {
    let (tree, heap) = tree();
    let told = Arc::new(AtomicU64::new(0));
    let group = tree.create("/a").expect("created");
    let (inside, tell) = (group.clone(), Arc::clone(&told));
    let thread = thread::spawn(move || {
        FIRST.with(|late| *late.0.borrow_mut() = Some(Arc::clone(&tell)));
        std::mem::forget(inside.enter());
        LAST.with(|late| *late.0.borrow_mut() = Some(tell));
    });
    thread.join().expect("no panic");
    // Relaxed: the thread was joined.
    assert_eq!(told.load(Ordering::Relaxed), 2 * 77, "the words outlive every destructor");
    // One destructor runs before the thread's values end, in the group, and one after.
    assert!(sums(&group, heap)[0] >= 77);
}

/// Allocated and freed bytes, allocated and freed blocks, as in `sums`.
type Ledger = [u64; 4];

fn enter_into(ledger: &mut Ledger, more: Ledger) {
    ledger.iter_mut().zip(more).for_each(|(sum, n)| *sum += n);
}

/// Makes threads allocate in groups that live and die, and free what others allocated. Each group
/// that ever existed must be charged as its ledger says.
fn storm(threads: usize, operations: usize) {
    const ROUND: usize = if cfg!(miri) { 40 } else { 100 };
    /// One in this many rounds ends with its group.
    const LIVES: u32 = if cfg!(miri) { 5 } else { 50 };
    /// No list of blocks grows beyond this: growing would be counted too.
    const HELD: usize = 1_000;
    let (tree, heap) = tree();
    let (lists, killed) = (Lists::new(threads, HELD), Witness::new());
    let ledgers = Mutex::new(HashMap::<Group, Ledger>::new());
    thread::scope(|scope| {
        for thread in 0..threads {
            let (tree, lists, killed, ledgers) = (&tree, &lists, &killed, &ledgers);
            scope.spawn(move || {
                let mut random = fastrand::Rng::with_seed(thread as u64);
                let mut own = Vec::with_capacity(HELD);
                for _ in lists.rounds(operations / threads / ROUND) {
                    let name = format!("/tenants/t{}", random.u32(..20));
                    let group = tree.get_or_create(&name).expect("room");
                    let mut ledger = Ledger::default();
                    let entered = group.enter();
                    for _ in 0..ROUND {
                        if own.len() < HELD && random.bool() {
                            let size = 1 + (random.usize(..1 << 12) >> random.u32(..12));
                            own.push(vec![0_u8; size]);
                            enter_into(&mut ledger, [size as u64, 0, 1, 0]);
                        } else if let Some(block) = own.pop() {
                            enter_into(&mut ledger, [0, block.capacity() as u64, 0, 1]);
                        }
                    }
                    drop(entered);
                    lists.exchange(thread, &mut own, &mut random);
                    if random.u32(..LIVES) == 0 {
                        // What others still do there counts as well.
                        killed.met(group.kill().is_ok());
                    }
                    let mut ledgers = ledgers.lock().expect("whole");
                    let known = ledgers.entry(group).or_default();
                    enter_into(known, ledger);
                }
                lists.end(thread, own);
            });
        }
    });
    lists.left();
    killed.assert_met();
    let mut all = Ledger::default();
    for (group, ledger) in ledgers.into_inner().expect("whole") {
        assert_eq!(sums(&group, heap), ledger, "{group:?}: no byte more and none less");
        enter_into(&mut all, ledger);
    }
    assert_eq!(sums(tree.root(), heap), all, "and all of them, dead and alive");
}

/// Counts are exact when threads free what others allocated while groups are killed.
#[test]
fn frees_by_other_threads_are_exact_stress() {
    storm(4, operations(480));
}
