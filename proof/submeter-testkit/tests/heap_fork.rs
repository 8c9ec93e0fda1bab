//! A forked child counts what it allocates in its own copy of the tree, while threads of its parent
//! that it does not have were in the middle of allocating.
#![cfg(not(miri))]
#![expect(unsafe_code, reason = "forks")]

use std::alloc::System;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use submeter::{Schema, Tree};
use submeter_alloc::{Metered, Volume};

#[global_allocator]
static HEAP: Metered<System> = Metered::new(System);

#[test]
fn a_forked_child_counts_for_itself_while_others_allocate() {
    const FORKS: usize = 50;
    let mut schema = Schema::builder();
    let heap: Volume = schema.declare();
    let tree = Tree::new(schema.build().expect("valid")).expect("address space");
    let [own, others] = ["/own", "/others"].map(|path| tree.create(path).expect("new"));
    let over = AtomicBool::new(false);
    // Relaxed, here and below: it ends the loops.
    let going = || !over.load(Ordering::Relaxed);
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while going() {
                    others.run(|| drop(vec![0_u8; 100]));
                }
            });
        }
        for fork in 0..FORKS {
            let entered = own.enter();
            let before = std::hint::black_box(vec![0_u8; 1_000]);
            // SAFETY: the child allocates, switches, reads and ends, without the parent's exit
            // handlers. glibc gives it an allocator that no vanished thread has locked.
            let child = unsafe { libc::fork() };
            if child == 0 {
                drop(before);
                drop(vec![0_u8; 50]);
                drop(entered);
                // Nobody flushed at the fork: no lock is held by a thread that it does not have.
                let sum = |counter| own.sum(counter);
                let right = sum(heap.allocated_bytes) == (fork as u64 + 1) * 1_000 + 50
                    && sum(heap.freed_bytes) == (fork as u64 + 1) * 1_000 + 50;
                // SAFETY: as above.
                unsafe { libc::_exit(i32::from(!right)) };
            }
            let mut status = -1;
            // SAFETY: `status` is live; `child` is ours to wait for.
            assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
            assert_eq!(status, 0, "fork {fork}");
            drop(before);
            drop(entered);
        }
        over.store(true, Ordering::Relaxed);
    });
    let sum = own.sum(heap.allocated_bytes);
    assert_eq!(sum, 1_000 * FORKS as u64, "the parent is not charged for its children");
    assert_eq!(others.sum(heap.allocated_blocks), others.sum(heap.freed_blocks));
}
