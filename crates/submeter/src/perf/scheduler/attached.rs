//! One event group that is attached: its state, its counts, and the time that it could have counted.

use std::sync::Arc;

use super::published::Published;
use super::{Counts, Scope, State};
use crate::perf::pmu::{Handle, Pmu};

#[derive(Debug)]
pub(super) struct Attached {
    pub(super) scope: Scope,
    pub(super) pinned: bool,
    /// Whether an event of it needs a counter.
    pub(super) hardware: bool,
    pub(super) state: State,
    handles: Box<[Handle]>,
    /// What was counted, and for how long, in the intervals that are closed.
    closed: Arc<Published>,
    /// What each event said when it was last placed.
    bases: Box<[u64]>,
    enabled: Interval,
    running: Interval,
}

/// An interval that may be open.
#[derive(Clone, Copy, Debug, Default)]
struct Interval {
    since_ns: Option<u64>,
}

impl Interval {
    fn open(&mut self, now_ns: u64) {
        // An interval that is open goes on: opening it again must not lose its start.
        self.since_ns.get_or_insert(now_ns);
    }

    /// Returns how long it was open; 0 if it was not.
    fn close(&mut self, now_ns: u64) -> u64 {
        let open_ns = self.open_ns(now_ns);
        self.since_ns = None;
        open_ns
    }

    /// Ends it here if it is open, and begins the next one.
    fn lap(&mut self, now_ns: u64) -> u64 {
        let open_ns = self.open_ns(now_ns);
        // A clock that went back must not count a stretch twice.
        self.since_ns = self.since_ns.map(|since| since.max(now_ns));
        open_ns
    }

    fn open_ns(&self, now_ns: u64) -> u64 {
        // A clock that went back adds nothing, rather than centuries.
        self.since_ns.map_or(0, |since| now_ns.saturating_sub(since))
    }
}

impl Attached {
    pub(super) fn new(
        scope: Scope,
        pinned: bool,
        hardware: bool,
        handles: Box<[Handle]>,
    ) -> Attached {
        let closed = Arc::new(Published::new(handles.len()));
        let bases = vec![0; handles.len()].into_boxed_slice();
        let (enabled, running) = (Interval::default(), Interval::default());
        let state = State::Inactive;
        Attached { scope, pinned, hardware, state, handles, closed, bases, enabled, running }
    }

    /// Returns what other threads may read of it.
    pub(super) fn published(&self) -> &Arc<Published> {
        &self.closed
    }

    /// Its group is the thread's from now on, or it was in error and is tried again.
    pub(super) fn enable(&mut self, now_ns: u64) {
        if self.state != State::Error {
            self.enabled.open(now_ns);
        }
    }

    /// Its group is not the thread's any more.
    pub(super) fn disable(&mut self, now_ns: u64) {
        let enabled_ns = self.enabled.close(now_ns);
        self.closed.add_enabled(enabled_ns);
    }

    /// Publishes what it has counted until now, and goes on.
    pub(super) fn checkpoint<P: Pmu>(&mut self, pmu: &mut P, now_ns: u64) {
        let enabled_ns = self.enabled.lap(now_ns);
        self.closed.add_enabled(enabled_ns);
        if self.state != State::Active {
            return;
        }
        let running_ns = self.running.lap(now_ns);
        self.closed.add_running(running_ns);
        for (index, &handle) in self.handles.iter().enumerate() {
            // One that has lost its counter is noted when it is taken off.
            if let Some(value) = pmu.read(handle) {
                self.closed.add_value(index, value.wrapping_sub(self.bases[index]));
                self.bases[index] = value;
            }
        }
    }

    /// Puts it on counters, if there are enough.
    pub(super) fn place<P: Pmu>(&mut self, pmu: &mut P, now_ns: u64) -> bool {
        debug_assert_eq!(self.state, State::Inactive);
        if !pmu.place(&self.handles) {
            return false;
        }
        for (base, &handle) in self.bases.iter_mut().zip(&self.handles) {
            let Some(value) = pmu.read(handle) else {
                pmu.remove(&self.handles);
                return false;
            };
            *base = value;
        }
        self.running.open(now_ns);
        self.state = State::Active;
        true
    }

    /// Takes it off its counters, if it is on any. It is in error if it has lost one.
    pub(super) fn remove<P: Pmu>(&mut self, pmu: &mut P, now_ns: u64) {
        if self.state != State::Active {
            return;
        }
        // Both times before the values, the longer one first: see `Published`.
        let enabled_ns = self.enabled.lap(now_ns);
        self.closed.add_enabled(enabled_ns);
        let running_ns = self.running.close(now_ns);
        self.closed.add_running(running_ns);
        let mut lost = false;
        for (index, &handle) in self.handles.iter().enumerate() {
            match pmu.read(handle) {
                Some(value) => {
                    self.closed.add_value(index, value.wrapping_sub(self.bases[index]));
                }
                None => lost = true,
            }
        }
        pmu.remove(&self.handles);
        self.state = State::Inactive;
        if lost {
            self.fail(now_ns);
        }
    }

    /// Does not try again: pinned and without a place, or without a counter that it had.
    pub(super) fn fail(&mut self, now_ns: u64) {
        self.disable(now_ns);
        self.closed.fail();
        self.state = State::Error;
    }

    pub(super) fn release<P: Pmu>(&self, pmu: &mut P) {
        for &handle in &self.handles {
            pmu.release(handle);
        }
    }

    pub(super) fn counts<P: Pmu>(&self, pmu: &mut P, now_ns: u64) -> Counts {
        let mut values: Vec<u64> = (0..self.handles.len()).map(|i| self.closed.value(i)).collect();
        let mut state = self.state;
        if self.state == State::Active {
            for (index, &handle) in self.handles.iter().enumerate() {
                match pmu.read(handle) {
                    Some(value) => values[index] += value.wrapping_sub(self.bases[index]),
                    // Noted when it is taken off.
                    None => state = State::Error,
                }
            }
        }
        Counts {
            state,
            values,
            enabled_ns: self.closed.enabled_ns() + self.enabled.open_ns(now_ns),
            running_ns: self.closed.running_ns() + self.running.open_ns(now_ns),
        }
    }
}
