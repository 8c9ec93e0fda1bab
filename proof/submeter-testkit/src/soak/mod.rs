//! A soak test of any length: updates, flushes, kills and creations on a large tree, with a check
//! of every total.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

mod compare;
mod notes;
mod shared_tree;
mod worker;

pub use compare::Comparison;
use shared_tree::SharedTree;
use worker::Worker;
pub use worker::{Difference, Progress};

/// Threads that update, flush, kill and create on one tree, and a comparison of every metric of
/// every group with the threads' own notes.
///
/// While the threads run, no thread sees another's notes, and the notes do not depend on how
/// submeter counts: they share only the numbers.
///
/// # Examples
/// ```
/// use std::sync::atomic::AtomicBool;
/// use submeter_testkit::Soak;
///
/// let mut soak = Soak::new(60, 2, 1);
/// soak.round(500, &AtomicBool::new(false), |_| ());
/// assert!(soak.compare().differences.is_empty());
/// ```
pub struct Soak {
    shared: SharedTree,
    workers: Vec<Worker>,
    /// Flushes by the flushers of past rounds.
    flushes: u64,
}

impl Soak {
    /// Creates a tree of `groups` groups, and `threads` workers with their notes.
    ///
    /// # Panics
    /// When there are fewer than 4 groups, or no threads.
    #[must_use]
    pub fn new(groups: usize, threads: usize, seed: u64) -> Soak {
        assert!(threads > 0, "no threads: give at least 1");
        let shared = SharedTree::new(groups);
        let workers = (0..threads as u64).map(|n| Worker::new(&shared, seed ^ n << 32)).collect();
        Soak { shared, workers, flushes: 0 }
    }

    /// Runs every worker for `steps_max` steps, or until `stop` is true, while the tree's own
    /// flusher runs. This thread calls `watch` a few times per second.
    pub fn round(&mut self, steps_max: u64, stop: &AtomicBool, mut watch: impl FnMut(Progress)) {
        let Soak { shared, workers, flushes } = self;
        let watched: Vec<_> = workers.iter().map(Worker::watched).collect();
        let flusher = shared.flusher();
        thread::scope(|scope| {
            let shared = &*shared;
            let running: Vec<_> = workers
                .iter_mut()
                .map(|worker| scope.spawn(move || worker.run(shared, steps_max, stop)))
                .collect();
            while !running.iter().all(thread::ScopedJoinHandle::is_finished) {
                watch(sum(*flushes + flusher.flushes(), &watched));
                thread::sleep(Duration::from_millis(if cfg!(miri) { 1 } else { 50 }));
            }
            running.into_iter().for_each(|worker| worker.join().expect("no panic"));
        });
        assert_eq!(flusher.panics(), 0, "flushes that panicked");
        *flushes += flusher.flushes();
    }

    /// Returns what was done so far.
    #[must_use]
    pub fn progress(&self) -> Progress {
        let watched: Vec<_> = self.workers.iter().map(Worker::watched).collect();
        sum(self.flushes, &watched)
    }

    /// Flushes, then compares every metric of every group with the threads' notes.
    pub fn compare(&mut self) -> Comparison {
        compare::compare(&self.shared, &mut self.workers)
    }

    /// Drops every handle and charge that the workers hold, so that only the tree holds its groups.
    /// Returns how many exist after a flush, including groups not yet released.
    pub fn settle(&mut self) -> usize {
        self.workers.iter_mut().for_each(Worker::drop_all);
        // The first flush propagates what the last handles counted, and frees their words.
        self.shared.tree.flush();
        self.shared.tree.flush();
        self.shared.tree.group_count()
    }
}

fn sum(flushes: u64, workers: &[Arc<Mutex<Progress>>]) -> Progress {
    let own = Progress { flushes, ..Progress::default() };
    workers
        .iter()
        .fold(own, |sum, worker| sum.plus(*worker.lock().expect("no panic with it locked")))
}
