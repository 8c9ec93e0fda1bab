//! Updates of aggregators in signal handlers: what is collected there is found too.
//!
//! Alone in its program, because a process has one handler.
#![cfg(not(miri))]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use submeter::{Aggregate, Origin, Schema, Tree};

#[path = "common/handler.rs"]
#[expect(unsafe_code, reason = "handles signals")]
mod handler;

/// Often enough to meet every step of an update, seldom enough that threads get on with it.
const PERIOD_NS: i64 = 40_000;

/// Interruptions that the test waits for.
const HANDLED_MIN: u64 = 3_000;

/// Only a machine that delivers no signals misses it.
const TIMEOUT: Duration = Duration::from_secs(60);

struct Sum;

impl Aggregate for Sum {
    type Local = AtomicU64;
    type Delta = u64;

    fn flush(&self, _: &Origin<'_>, local: &AtomicU64, delta: &mut u64) {
        *delta = local.swap(0, Ordering::Relaxed);
    }

    fn merge(&self, delta: &u64, into: &mut u64) {
        *into += delta;
    }
}

/// The handler updates what the interrupted thread is updating, or flushing with the aggregator's
/// lock held. Flushes take the marks all the time, so that it also comes between the state and its
/// mark.
#[test]
fn updates_in_a_handler_are_collected_while_others_update_and_flush_stress() {
    let tree = Tree::new(Schema::builder().build().expect("empty")).expect("address space");
    let sum = tree.aggregator("sum", Sum);
    let leaf = sum.attach(&tree.get_or_create("/tenant/leaf").expect("room"));
    // A handler must not allocate.
    leaf.prepare();
    let handled = Arc::new(AtomicU64::new(0));
    handler::on_signal({
        let (leaf, handled) = (leaf.clone(), Arc::clone(&handled));
        move || {
            leaf.update(|local| local.fetch_add(3, Ordering::Relaxed));
            // Relaxed: read when everything is joined.
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
    // Relaxed: everything is joined.
    let handled = handled.load(Ordering::Relaxed);
    println!("{handled} interruptions of {updated} updates");
    assert!(threads.contains(&None) || handled >= HANDLED_MIN, "{handled} interruptions");
    let total = sum.sum(tree.root(), |seen| *seen.total).expect("whole");
    assert_eq!(total, updated + 3 * handled);
}
