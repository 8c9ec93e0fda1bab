//! What the model checkers run: the real count, switch and rows, over two ways to hold words.
//!
//! A sequence is modelled as a critical section of its CPU: whole or not at all, and the barrier
//! waits for those under way. The locked rows are the real ones. Either way a get counts on the
//! first CPU and a put on the second, the worst that migration can do.

use std::sync::Arc;
// Not the checkers': what the models note for themselves must add neither orders nor states.
use std::sync::atomic::{AtomicI32 as Notes, Ordering::Relaxed as Noted};

use super::rows;
use super::switch::{After, Put, Revival, Slots, Stopping, Switch};
use crate::sync::atomic::{AtomicI64, AtomicU32, Ordering};

#[cfg(loom)]
use loom::sync::Mutex;

/// Words written by sequences. `OUTSIDE` is the mistake: the gate is tested before the section
/// begins.
pub(super) struct Sequences<const OUTSIDE: bool = false> {
    gate: AtomicU32,
    words: [Mutex<i64>; 2],
}

impl<const OUTSIDE: bool> Default for Sequences<OUTSIDE> {
    fn default() -> Self {
        Sequences { gate: AtomicU32::new(0), words: [Mutex::new(0), Mutex::new(0)] }
    }
}

impl<const OUTSIDE: bool> Sequences<OUTSIDE> {
    fn sum(&self) -> i64 {
        self.words.iter().map(|word| *word.lock().expect("nobody panics inside")).sum()
    }
}

impl<const OUTSIDE: bool> Slots for Sequences<OUTSIDE> {
    fn add_one<const N: i32>(&self) -> bool {
        self.add(i64::from(N))
    }

    fn add(&self, n: i64) -> bool {
        let word = &self.words[usize::from(n < 0)];
        if OUTSIDE {
            // Relaxed: the mistake, whatever the ordering.
            let open = self.gate.load(Ordering::Relaxed) != 0;
            if open {
                *word.lock().expect("nobody panics inside") += n;
            }
            return open;
        }
        let mut word = word.lock().expect("nobody panics inside");
        // Relaxed: a plain load in the sequence.
        let open = self.gate.load(Ordering::Relaxed) != 0;
        if open {
            *word += n;
        }
        open
    }

    fn add_slow(&self, _: i64) -> bool {
        false
    }

    fn is_open(&self) -> bool {
        // Relaxed: as the real one.
        self.gate.load(Ordering::Relaxed) != 0
    }

    fn prepare(&self) -> i64 {
        self.sum()
    }

    fn open(&self) {
        // Release: as the real one.
        self.gate.store(2, Ordering::Release);
    }

    fn close(&self) {
        // Relaxed: as the real one.
        self.gate.store(0, Ordering::Relaxed);
    }

    fn barrier(&self) {
        for word in &self.words {
            drop(word.lock().expect("nobody panics inside"));
        }
    }

    fn collect(&self) -> i64 {
        self.sum()
    }
}

/// Words written by locked adds: the emulated backend.
pub(super) struct Locked {
    rows: [(AtomicI64, AtomicI64); 2],
    live: AtomicU32,
}

impl Default for Locked {
    fn default() -> Locked {
        let row = || (AtomicI64::new(0), AtomicI64::new(0));
        Locked { rows: [row(), row()], live: AtomicU32::new(0) }
    }
}

impl Slots for Locked {
    fn add_one<const N: i32>(&self) -> bool {
        false
    }

    fn add(&self, _: i64) -> bool {
        false
    }

    fn add_slow(&self, n: i64) -> bool {
        // Relaxed: a hint, as the real one.
        self.live.load(Ordering::Relaxed) != 0 && rows::add(&self.rows[usize::from(n < 0)].0, n)
    }

    fn is_open(&self) -> bool {
        // Relaxed: as the real one.
        self.live.load(Ordering::Relaxed) != 0
    }

    fn prepare(&self) -> i64 {
        self.rows.iter().for_each(|(row, collected)| rows::forget(row, collected));
        0
    }

    fn open(&self) {
        self.rows.iter().for_each(|(row, _)| rows::live(row));
        // Relaxed: as the real one.
        self.live.store(1, Ordering::Relaxed);
    }

    fn close(&self) {
        // Relaxed: as the real one.
        self.live.store(0, Ordering::Relaxed);
    }

    fn barrier(&self) {}

    fn collect(&self) -> i64 {
        self.rows
            .iter()
            .map(|(row, collected)| {
                rows::die(row, collected);
                rows::collected(collected)
            })
            .sum()
    }
}

/// A count under a checker, with what is known about it from outside.
pub(super) struct Model<S> {
    pub(super) switch: Switch<S>,
    /// References that somebody holds, the initial one included. Lowered before a put.
    held: Notes,
    releases: Notes,
    /// Written, without order of its own, by who then puts.
    written: [AtomicU32; 4],
    /// How many of those the release must see.
    writers: Notes,
}

impl<S: Slots + Default> Model<S> {
    pub(super) fn new() -> Arc<Model<S>> {
        Arc::new(Model {
            switch: Switch::new(S::default(), false, false),
            held: Notes::new(1),
            releases: Notes::new(0),
            written: std::array::from_fn(|_| AtomicU32::new(0)),
            writers: Notes::new(0),
        })
    }

    pub(super) fn get(&self) {
        assert!(self.switch.get_one(), "told of misuse where there was none");
        self.held.fetch_add(1, Noted);
    }

    pub(super) fn try_get(&self, live: bool) -> bool {
        let took = self.switch.try_get_one(live);
        if took {
            assert_eq!(self.releases(), 0, "taken after the release");
            self.held.fetch_add(1, Noted);
        }
        took
    }

    pub(super) fn put(&self) {
        self.held.fetch_sub(1, Noted);
        self.act(After::from(self.switch.put_one()));
    }

    /// Writes something that the release must see, then puts.
    pub(super) fn write_and_put(&self, place: usize) {
        self.writers.fetch_add(1, Noted);
        // Relaxed: the puts alone are to order it.
        self.written[place].store(1, Ordering::Relaxed);
        self.put();
    }

    pub(super) fn begin_kill(&self) -> (After, Option<Stopping>) {
        self.held.fetch_sub(1, Noted);
        self.switch.begin_kill(false).expect("killed once")
    }

    pub(super) fn finish(&self, (after, stopping): (After, Option<Stopping>)) {
        self.act(after);
        if let Some(stopping) = stopping {
            self.switch.slots.barrier();
            self.act(self.switch.finish(stopping));
        }
    }

    pub(super) fn kill(&self) {
        let begun = self.begin_kill();
        self.finish(begun);
    }

    /// Takes the kill back. Returns whether it did.
    pub(super) fn resurrect(&self) -> bool {
        let (revival, after) = self.switch.resurrect();
        assert_ne!(revival, Revival::NotDead, "killed before");
        let done = revival == Revival::Done;
        self.held.fetch_add(i32::from(done), Noted);
        self.act(after);
        done
    }

    /// Starts a new life after the release.
    pub(super) fn reinit(&self) {
        let restart = || self.releases.swap(0, Noted) == 1;
        let (done, after) = self.switch.reinit(restart);
        assert!(done && after == After::default());
        self.held.fetch_add(1, Noted);
    }

    pub(super) fn to_atomic(&self) {
        let stopping = self.switch.begin_atomic();
        self.finish((After::default(), stopping));
    }

    pub(super) fn to_percpu(&self) {
        self.act(self.switch.to_percpu());
    }

    pub(super) fn act(&self, after: After) {
        assert!(!after.below, "told of misuse where there was none");
        if after.last {
            assert_eq!(self.held.load(Noted), 0, "released while held");
            assert_eq!(self.releases.fetch_add(1, Noted), 0, "released twice");
            assert_eq!(self.switch.count.exact(), Some(0));
            // Relaxed: as in `write_and_put`.
            let seen = self.written.iter().filter(|word| word.load(Ordering::Relaxed) == 1).count();
            assert_eq!(
                seen,
                self.writers.load(Noted) as usize,
                "a write before a put is not visible"
            );
        }
    }

    pub(super) fn releases(&self) -> i32 {
        self.releases.load(Noted)
    }

    /// Called once everything is put and joined.
    pub(super) fn must_be_released(&self) {
        assert_eq!(self.releases(), 1, "never released");
        assert_eq!(self.switch.put_one(), Put::Below, "zero is exact");
    }
}
