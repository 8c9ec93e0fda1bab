//! Lists of blocks that threads pass on to each other.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::witness::Witness;

/// A list for each thread, which any of them may take.
pub(crate) struct Lists<T> {
    /// Each with the thread that had it last.
    lists: Vec<Mutex<(usize, Vec<T>)>>,
    ended: Vec<AtomicBool>,
    /// A thread gets what a thread that still runs has had.
    passed_on: Witness,
}

impl<T> Lists<T> {
    /// Makes lists with room for `held` blocks each.
    pub(crate) fn new(threads: usize, held: usize) -> Lists<T> {
        let list = |at| Mutex::new((at, Vec::with_capacity(held)));
        Lists {
            lists: (0..threads).map(list).collect(),
            ended: (0..threads).map(|_| AtomicBool::new(false)).collect(),
            passed_on: Witness::new(),
        }
    }

    /// Numbers a thread's rounds: at least so many, and more until a list was passed on.
    pub(crate) fn rounds(&self, least: usize) -> impl Iterator<Item = u64> + '_ {
        (0..).take_while(move |&round| self.passed_on.goes_on(round, least as u64))
    }

    /// Exchanges the list that a thread has for any other.
    pub(crate) fn exchange(&self, thread: usize, own: &mut Vec<T>, random: &mut fastrand::Rng) {
        let mut list = self.lists[random.usize(..self.lists.len())].lock().expect("whole");
        // Relaxed: a thread that seems to run has just ended.
        let runs = list.0 != thread && !self.ended[list.0].load(Ordering::Relaxed);
        self.passed_on.met(runs && !list.1.is_empty());
        list.0 = thread;
        std::mem::swap(own, &mut list.1);
    }

    /// Ends a thread, and keeps what it has.
    pub(crate) fn end(&self, thread: usize, mut own: Vec<T>) {
        // Relaxed: as above.
        self.ended[thread].store(true, Ordering::Relaxed);
        self.lists[thread].lock().expect("whole").1.append(&mut own);
    }

    /// Returns what is left of all threads.
    ///
    /// # Panics
    /// When no thread was given what a thread that still ran had had.
    pub(crate) fn left(self) -> Vec<T> {
        self.passed_on.assert_met();
        self.lists.into_iter().flat_map(|list| list.into_inner().expect("whole").1).collect()
    }
}
