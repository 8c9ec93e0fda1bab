//! An allocator for which two `Heap`s are started at once.

use std::alloc::System;
use std::env;
use std::hint::spin_loop;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use submeter::{Schema, Tree};
use submeter_alloc::{Chosen, Live, StartError, exact, sampled};

#[global_allocator]
static HEAP: Chosen<System> = Chosen::new(System);

/// Set in a process that starts both, which a process can do only once: how much later one starts.
const BEGINS: &str = "SUBMETER_TEST_BEGINS";

#[test]
fn of_two_at_once_each_is_first_or_second() {
    // Miri starts no processes.
    const PROCESSES: usize = if cfg!(miri) { 0 } else { 40 };
    if let Ok(later) = env::var(BEGINS) {
        return begin_both(later.parse().expect("a number"));
    }
    for process in 0..PROCESSES {
        let this = env::current_exe().expect("it runs");
        let output = Command::new(this)
            .env(BEGINS, (50 * process).to_string())
            .output()
            .expect("the same again");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    }
}

/// Starts one heap, and the other `later` spins after it.
fn begin_both(later: usize) {
    let tree = Tree::new(Schema::builder().build().expect("valid")).expect("address space");
    let live: Live = tree.declare().expect("room");
    let of_samples: sampled::Live = tree.declare().expect("room");
    let other = Tree::new(Schema::builder().build().expect("valid")).expect("address space");
    // Reserves the address space, which takes longer than everything else.
    let error = sampled::Heap::start(&other, of_samples).expect_err("not its gauge");
    assert!(matches!(error, StartError::OtherTree), "{error}");
    // Both run when it is 2: being woken would take longer than starting a heap.
    let ready = AtomicUsize::new(0);
    let wait = || {
        // Relaxed, here and below: only a count.
        ready.fetch_add(1, Ordering::Relaxed);
        while ready.load(Ordering::Relaxed) < 2 {
            spin_loop();
        }
    };
    let begun = thread::scope(|scope| {
        let samples = scope.spawn(|| {
            wait();
            (0..later).for_each(|_| spin_loop());
            sampled::Heap::start(&tree, of_samples).map(drop)
        });
        wait();
        [exact::Heap::start(&tree, live).map(drop), samples.join().expect("no panic")]
    });
    let is_second = |begun: &Result<(), StartError>| matches!(begun, Err(StartError::Twice));
    let is_right = begun.iter().any(Result::is_ok) && begun.iter().any(is_second);
    assert!(is_right, "{begun:?}");
}
