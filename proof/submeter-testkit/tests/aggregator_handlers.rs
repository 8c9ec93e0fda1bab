//! Updates of aggregators in signal handlers: flushes find them too.
//!
//! In a program of its own, because a process has only one handler.
#![cfg(not(miri))]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use submeter::{Schema, Tree};

#[path = "common/handler.rs"]
#[expect(unsafe_code, reason = "handles signals")]
mod handler;
#[path = "../../../crates/submeter/tests/it/one_number.rs"]
mod one_number;

use one_number::OneNumber;

/// Frequent enough to interrupt every step of an update, rare enough that threads make progress.
const PERIOD_NS: i64 = 40_000;

/// Interruptions that the test waits for.
const HANDLED_MIN: u64 = 3_000;

/// Long enough that only a machine without signals exceeds it.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Updates in a handler are collected while others update and flush.
///
/// The handler updates the same state as the interrupted thread, which may be updating it or
/// flushing it with the aggregator's lock held. Flushes constantly clear the marks, so that the
/// handler also runs between an update of the state and its mark.
#[test]
fn updates_in_a_handler_are_collected_stress() {
    let tree = Tree::new(Schema::builder().build().expect("empty")).expect("address space");
    let sum = tree.aggregator("sum", OneNumber);
    let leaf = sum.attach(&tree.get_or_create("/tenant/leaf").expect("room"));
    // A handler must not allocate.
    leaf.prepare();
    let handled = Arc::new(AtomicU64::new(0));
    handler::on_signal({
        let (leaf, handled) = (leaf.clone(), Arc::clone(&handled));
        move || {
            leaf.update(|local| local.fetch_add(3, Ordering::Relaxed));
            // Relaxed: read after all threads were joined.
            handled.fetch_add(1, Ordering::Relaxed);
        }
    });
    let deadline = Instant::now() + TIMEOUT;
    // Relaxed: only ends the loops.
    let going = || handled.load(Ordering::Relaxed) < HANDLED_MIN && Instant::now() < deadline;
    let interrupted = |work: &dyn Fn() -> u64| match handler::Timer::on_this_thread(PERIOD_NS) {
        Ok(_timer) => Some(work()),
        Err(error) => {
            eprintln!("skipped: updates of an aggregator in a handler: no timer: {error}");
            None
        }
    };
    let update = || {
        let mut updated = 0;
        while going() {
            for _ in 0..500 {
                leaf.update(|local| local.fetch_add(1, Ordering::Relaxed));
                updated += 1;
            }
        }
        updated
    };
    let flush = || {
        while going() {
            sum.flush().expect("not nested");
        }
        0
    };
    let threads = thread::scope(|scope| {
        let threads: [&(dyn Fn() -> u64 + Sync); 3] = [&update, &update, &flush];
        let threads = threads.map(|work| scope.spawn(move || interrupted(work)));
        threads.map(|thread| thread.join().expect("no panic"))
    });
    let updated: u64 = threads.iter().flatten().sum();
    // Relaxed: all threads were joined.
    let handled = handled.load(Ordering::Relaxed);
    println!("{handled} interruptions of {updated} updates");
    assert!(threads.contains(&None) || handled >= HANDLED_MIN, "{handled} interruptions");
    let total = sum.sum(tree.root(), |seen| *seen.total).expect("whole");
    assert_eq!(total, updated + 3 * handled);
}
