//! The end of the books, in a separate process because a process has only one.

use std::alloc::System;
use std::thread;

use submeter::{Schema, Tree, switch};
use submeter_alloc::exact::{self, Exact, Heap};
use submeter_alloc::{Live, StartError};

#[global_allocator]
static HEAP: Exact<System> = Exact::new(System);

/// Once the heap is gone a thread counts for no group, and earlier blocks are still taken off.
#[test]
fn no_thread_counts_once_the_heap_is_gone() {
    let mut schema = Schema::builder();
    let live: Live = schema.declare();
    let tree = Tree::new(schema.build().expect("valid")).expect("address space");
    let heap = Heap::start(&tree, live).expect("the first");
    let [a, b] = ["/a", "/b"].map(|path| tree.create(path).expect("new"));
    for group in [&a, &b] {
        heap.set_limit(group, Some(0)).expect("a number");
    }
    let held = |group| exact::admit(group).map_or_else(|over| over.bytes, |()| 0);
    let mut entered = a.enter();
    let before = vec![0_u8; 5_000];
    switch::park();
    heap.flush();
    // The list of observers is rebuilt.
    let let_go = thread::spawn(|| drop(heap)); // this thread's own blocks of it are in its group
    let_go.join().expect("no panic");
    // A thread is released at its next switch.
    entered.switch_to(&b);
    let after = vec![0_u8; 300];
    drop(entered);
    let last = a.run(|| vec![0_u8; 70]);
    let outside = vec![0_u8; 4];
    assert_eq!((held(&a), held(&b)), (5_000, 0));
    drop((before, after, last, outside));
    assert_eq!((held(&a), held(&b)), (0, 0));
    assert_eq!(a.sum(live.bytes), 5_000, "as the last flush left it");
    let error = Heap::start(&tree, live).expect_err("numbers are not given anew");
    assert!(matches!(error, StartError::Twice), "{error}");
}
