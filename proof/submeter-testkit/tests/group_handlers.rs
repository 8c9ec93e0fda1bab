//! Updates of groups in signal handlers: their counts are also exact.
#![cfg(not(miri))]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use submeter::{Buckets, Bytes, Count, Counter, Gauge, Histogram, Nanoseconds, Schema, Tree};

#[path = "common/handler.rs"]
#[expect(unsafe_code, reason = "handles signals")]
mod handler;
#[path = "../../../crates/submeter/tests/it/one_number.rs"]
mod one_number;

use one_number::OneNumber;

/// Frequent enough to interrupt every step of an update, rare enough that threads make progress.
const PERIOD_NS: i64 = 40_000;

/// Interruptions that a test waits for.
const HANDLED_MIN: u64 = 5_000;

/// Long enough that only a machine without signals exceeds it.
const TIMEOUT: Duration = Duration::from_secs(60);

#[derive(Clone, Copy)]
struct Meters {
    requests: Counter<Count>,
    memory: Gauge<Bytes>,
    latency: Histogram<Nanoseconds>,
}

fn tree() -> (Meters, Tree) {
    let mut schema = Schema::builder();
    let meters = Meters {
        requests: schema.counter("requests", "Requests answered"),
        memory: schema.gauge("memory", "Memory held"),
        latency: schema.histogram("latency", "Time of a request", Buckets::powers(2, 6)),
    };
    (meters, Tree::new(schema.build().expect("good names")).expect("a tree"))
}

/// Runs `work` while a timer interrupts it; `None` if the kernel has no timer left.
fn interrupted(work: impl FnOnce() -> u64) -> Option<u64> {
    match handler::Timer::on_this_thread(PERIOD_NS) {
        Ok(_timer) => Some(work()),
        Err(error) => {
            eprintln!("skipped: updates in a handler: no timer: {error}");
            None
        }
    }
}

/// Updates in a handler are exact while others add, flush and kill.
///
/// The handler adds to the leaf that the interrupted thread is adding to or flushing, with the
/// locks of a flush, a kill or a creation held. Another thread's flushes constantly clear the
/// marks, so that the handler also runs between the steps of an add that finds no mark: the test,
/// the marking and the add.
#[test]
fn updates_in_a_handler_are_exact_stress() {
    let (meters, tree) = tree();
    let leaf = tree.get_or_create("/tenant/leaf").expect("room");
    let visits = tree.aggregator("visits", OneNumber);
    let visited = visits.attach(&leaf);
    visited.prepare();
    let handled = Arc::new(AtomicU64::new(0));
    handler::on_signal({
        let (leaf, handled, visited) = (leaf.clone(), Arc::clone(&handled), visited.clone());
        move || {
            // Relaxed: the aggregator orders it.
            visited.update(|visits| visits.fetch_add(1, Ordering::Relaxed));
            leaf.inc(meters.requests);
            leaf.add(meters.requests, 2);
            leaf.adjust(meters.memory, -7);
            leaf.record(meters.latency, 5);
            // Relaxed: read after all threads were joined.
            handled.fetch_add(1, Ordering::Relaxed);
        }
    });
    let deadline = Instant::now() + TIMEOUT;
    // Relaxed: only ends the loops.
    let going = || handled.load(Ordering::Relaxed) < HANDLED_MIN && Instant::now() < deadline;
    let add = || {
        let mut added = 0;
        while going() {
            for _ in 0..500 {
                leaf.add(meters.requests, 1);
                leaf.adjust(meters.memory, 2);
                leaf.record(meters.latency, 40);
                // Relaxed: the aggregator orders it.
                visited.update(|visits| visits.fetch_add(1, Ordering::Relaxed));
                added += 1;
            }
        }
        added
    };
    let flush_and_kill = || {
        let mut added = 0;
        while going() {
            for _ in 0..20 {
                tree.flush();
                visits.flush().expect("not from a callback");
                let child = tree.get_or_create("/tenant/passing").expect("room");
                child.add(meters.requests, 1);
                child.kill().expect("a live group");
                added += 1;
            }
        }
        added
    };
    let (adders, killer) = thread::scope(|scope| {
        let adders = [(); 2].map(|()| scope.spawn(|| interrupted(add)));
        let killer = scope.spawn(|| interrupted(flush_and_kill));
        (adders.map(|adder| adder.join().expect("no panic")), killer.join().expect("no panic"))
    });
    let (added, passing): (u64, u64) =
        (adders.into_iter().flatten().sum(), killer.unwrap_or_default());
    // Relaxed: all threads were joined.
    let handled = handled.load(Ordering::Relaxed);
    println!("{handled} interruptions of {added} updates and {passing} kills");
    assert!(adders.contains(&None) || handled >= HANDLED_MIN, "{handled} interruptions");
    assert_eq!(leaf.sum(meters.requests), added + 3 * handled);
    assert_eq!(leaf.sum(meters.memory), 2 * added.cast_signed() - 7 * handled.cast_signed());
    let latency = leaf.sum_histogram(meters.latency);
    assert_eq!((latency.count(), latency.sum()), (added + handled, 40 * added + 5 * handled));
    let visited = visits.sum(tree.root(), |seen| *seen.total).expect("no callback panics");
    assert_eq!(visited, added + handled);
    assert_eq!(tree.root().sum(meters.requests), added + 3 * handled + passing);
}
