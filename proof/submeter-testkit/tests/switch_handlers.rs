//! Switches in signal handlers leave the guards of the interrupted thread as they were.
#![cfg(not(miri))]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use submeter::{Group, Schema, Tree, switch};

#[path = "common/handler.rs"]
#[expect(unsafe_code, reason = "handles signals")]
mod handler;

/// Frequent enough to interrupt every step of a switch.
const PERIOD_NS: i64 = 20_000;

/// Interruptions that the test waits for.
const HANDLED_MIN: u64 = 60_000;

/// Long enough that only a machine without signals exceeds it.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Ends guards in the usual order, overlapping, and in other orders; returns an unexpected current
/// group as an error.
fn switches(a: &Group, b: &Group) -> Result<(), Option<Group>> {
    let check = |expected: Option<&Group>| {
        let current = switch::current();
        if current.as_ref() == expected { Ok(()) } else { Err(current) }
    };
    let (one, two) = (a.enter(), b.enter());
    drop(one);
    check(Some(b))?;
    let three = b.enter();
    let four = a.enter();
    drop(two);
    check(Some(a))?;
    let mut five = a.enter();
    drop(four);
    five.switch_to(b);
    check(Some(b))?;
    drop(three);
    drop(five);
    check(None)?;
    a.run(|| b.run(|| a.run(|| check(Some(a)))))?;
    check(None)
}

/// A handler that switches leaves the guards of its thread as they were.
///
/// The handler enters the current group and another one at any point of the interrupted code.
#[test]
fn a_switching_handler_keeps_guards_stress() {
    let mut schema = Schema::builder();
    let cpu = schema.cpu_time("cpu", "CPU time");
    let tree = Tree::new(schema.build().expect("good names")).expect("a tree");
    let [a, b] = ["/a", "/b"].map(|path| tree.create(path).expect("new"));
    let handled = Arc::new(AtomicU64::new(0));
    handler::on_signal({
        let (a, b, handled) = (a.clone(), b.clone(), Arc::clone(&handled));
        move || {
            a.run(|| b.run(|| ()));
            b.run(|| ());
            // Relaxed: read after all threads were joined.
            handled.fetch_add(1, Ordering::Relaxed);
        }
    });
    let deadline = Instant::now() + TIMEOUT;
    // Relaxed: only ends the loops.
    let going = || handled.load(Ordering::Relaxed) < HANDLED_MIN && Instant::now() < deadline;
    let work = || {
        // The first switch of a thread allocates, which a handler must not.
        a.run(|| ());
        let Ok(_timer) = handler::Timer::on_this_thread(PERIOD_NS) else { return Ok(false) };
        while going() {
            for n in 0..100 {
                switches(&a, &b)?;
                // A handler that allocated would wait for the allocator that it interrupts.
                drop(std::hint::black_box(vec![0_u8; 100 * n]));
            }
        }
        Ok(true)
    };
    let results: Vec<Result<bool, Option<Group>>> = thread::scope(|scope| {
        let threads = [(); 2].map(|()| scope.spawn(work));
        threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
    });
    if results.contains(&Ok(false)) {
        eprintln!("skipped: switches in a handler: the kernel has no timer left");
        return;
    }
    assert_eq!(results, [Ok(true), Ok(true)], "the current group after a step");
    // Relaxed: all threads were joined.
    let handled = handled.load(Ordering::Relaxed);
    assert!(handled >= HANDLED_MIN, "{handled} interruptions");
    assert_eq!(switch::forgotten_guards(), 0, "no level has a guard that is gone");
    assert!(tree.root().sum(cpu) > 0);
}
