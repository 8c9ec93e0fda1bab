//! Schedules and arguments that once broke what the documentation promises.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use submeter::refs::{RcuArc, pin};
use submeter::{Bytes, Count, Counter, Schema, SchemaError, Tree};

use crate::stop::StopOnDrop;

/// Long enough for any machine; only a deadlock exceeds it.
const PATIENCE: Duration = Duration::from_secs(120);

fn counting(groups_max: usize) -> (Tree, Counter<Count>) {
    let mut schema = Schema::builder();
    let requests = schema.counter("requests", "Requests");
    let schema = schema.build().expect("valid");
    (Tree::builder(schema).groups_max(groups_max).build().expect("address space"), requests)
}

/// A create in a full tree and a snapshot do not deadlock.
///
/// A snapshot locks children while it excludes flushes; creating in a full tree needs a flush.
#[test]
fn creates_and_snapshots_do_not_deadlock_stress() {
    let (tree, _) = counting(2);
    let only = tree.create("/only").expect("room");
    let (done, finished) = mpsc::channel();
    let counts = [(); 2].map(|()| Arc::new(AtomicU64::new(0)));
    for (own, snapshots) in [true, false].into_iter().enumerate() {
        let (tree, only, done) = (tree.clone(), only.clone(), done.clone());
        let [own, other] = [own, 1 - own].map(|at| Arc::clone(&counts[at]));
        std::thread::spawn(move || {
            // Until the other thread has done the same beside this one. Relaxed: it ends the loop.
            while own.fetch_add(1, Ordering::Relaxed) < 2_000
                || other.load(Ordering::Relaxed) < 2_000
            {
                if snapshots {
                    assert_eq!(tree.snapshot().groups().len(), 2);
                } else {
                    assert!(only.create_child("more").is_err_and(|error| error.is_full()));
                }
            }
            done.send(()).expect("the test waits");
        });
    }
    for _ in 0..2 {
        finished.recv_timeout(PATIENCE).expect("no deadlock");
    }
}

/// A value whose drop flushes the tree and reports that.
struct Flushes(Tree, mpsc::Sender<()>);

impl Drop for Flushes {
    fn drop(&mut self) {
        self.0.flush();
        // The test may have failed and ended.
        let _ = self.1.send(());
    }
}

/// A snapshot runs no drop of other values while flushes are locked.
///
/// A thread that makes a guard may free what other threads dropped, and so run their destructors.
#[test]
fn a_snapshot_runs_no_drop_under_its_locks() {
    const VALUES: usize = 200;
    let (tree, _) = counting(1_000);
    let groups: Vec<_> = (0..300).map(|n| tree.create(&format!("/{n}")).expect("room")).collect();
    let (ended, ends) = mpsc::channel();
    let left = tree.clone();
    let leave = move || {
        let guard = pin();
        for _ in 0..VALUES {
            RcuArc::release(RcuArc::new(Flushes(left.clone(), ended.clone())), &guard);
        }
    };
    // They are left to other threads, because this one ends.
    std::thread::spawn(leave).join().expect("ends");
    let (done, finished) = mpsc::channel();
    std::thread::spawn(move || {
        for _ in 0..20 {
            assert_eq!(tree.snapshot().groups().len(), 1 + groups.len());
        }
        done.send(()).expect("the test waits");
    });
    finished.recv_timeout(PATIENCE).expect("no deadlock");
    let start = Instant::now();
    let mut left = VALUES;
    while left > 0 {
        assert!(start.elapsed() < PATIENCE, "{left} have not ended");
        pin().flush();
        left -= ends.try_iter().count();
        std::thread::yield_now();
    }
}

/// The bound of a read covers groups that a flush removes halfway through it.
#[test]
fn reads_are_bounded_as_groups_go_stress() {
    const CHILDREN: u64 = 100;
    /// Less than a batch, so that no overflow reaches the ancestors.
    const ADDS: u64 = 63;
    let (tree, requests) = counting(1_000);
    let (begun, returned, stop) = (AtomicU64::new(0), AtomicU64::new(0), AtomicBool::new(false));
    let (flushed, met) = (AtomicU64::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let _stopping = StopOnDrop(&stop);
        let readers: Vec<_> = (0..3)
            .map(|_| {
                scope.spawn(|| {
                    let mut last = 0;
                    while !stop.load(Ordering::SeqCst) {
                        let least = returned.load(Ordering::SeqCst);
                        let read = tree.root().read(requests);
                        let most = begun.load(Ordering::SeqCst);
                        assert!(
                            read.value + read.max_error >= least,
                            "{read:?}, {least} had returned"
                        );
                        assert!(read.value <= most + read.max_error, "{read:?}, {most} had begun");
                        let flushes = flushed.load(Ordering::SeqCst);
                        if read.max_error != 0 && flushes != std::mem::replace(&mut last, flushes) {
                            met.store(true, Ordering::SeqCst);
                        }
                    }
                })
            })
            .collect();
        // Continues until a reader has come between a flush and what the next one finds.
        for round in (0..).take_while(|&n| n < 300 || !met.load(Ordering::SeqCst)) {
            let children: Vec<_> = (0..CHILDREN)
                .map(|n| tree.create(&format!("/{round}-{n}")).expect("room"))
                .collect();
            begun.fetch_add(CHILDREN * ADDS, Ordering::SeqCst);
            children.iter().for_each(|child| child.add(requests, ADDS));
            returned.fetch_add(CHILDREN * ADDS, Ordering::SeqCst);
            children.iter().for_each(|child| drop(child.kill().expect("alive")));
            drop(children);
            tree.flush();
            flushed.fetch_add(1, Ordering::SeqCst);
            if readers.iter().any(|reader| reader.is_finished()) {
                break;
            }
        }
    });
}

/// A key holds its quota's number in 16 bits; with more quotas, two would share a number.
#[test]
fn more_metrics_than_keys_are_refused() {
    let mut schema = Schema::builder();
    for n in 0..=usize::from(u16::MAX) {
        schema.quota::<Bytes>(&format!("r{n}"), "One of many");
    }
    assert_eq!(schema.build().expect_err("too many"), SchemaError::TooMany { metrics: 65_536 });
}
