//! One event group that is attached: its state, its counts, and the time that it could have counted.

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
    /// What each event has counted until it was last taken off.
    values: Box<[u64]>,
    /// What each said when it was last placed.
    bases: Box<[u64]>,
    enabled: Span,
    running: Span,
}

/// A sum of intervals, the last of which may be open.
#[derive(Clone, Copy, Debug, Default)]
struct Span {
    sum_ns: u64,
    since_ns: Option<u64>,
}

impl Span {
    fn open(&mut self, now_ns: u64) {
        // An interval that is open goes on: opening it again must not lose its start.
        self.since_ns.get_or_insert(now_ns);
    }

    fn close(&mut self, now_ns: u64) {
        self.sum_ns = self.until(now_ns);
        self.since_ns = None;
    }

    fn until(&self, now_ns: u64) -> u64 {
        // A clock that went back adds nothing, rather than centuries.
        self.sum_ns + self.since_ns.map_or(0, |since| now_ns.saturating_sub(since))
    }
}

impl Attached {
    pub(super) fn new(
        scope: Scope,
        pinned: bool,
        hardware: bool,
        handles: Box<[Handle]>,
    ) -> Attached {
        let zeroes = || vec![0; handles.len()].into_boxed_slice();
        let (values, bases) = (zeroes(), zeroes());
        let (enabled, running) = (Span::default(), Span::default());
        let state = State::Inactive;
        Attached { scope, pinned, hardware, state, handles, values, bases, enabled, running }
    }

    /// Its group is the thread's from now on, or it was in error and is tried again.
    pub(super) fn enable(&mut self, now_ns: u64) {
        if self.state != State::Error {
            self.enabled.open(now_ns);
        }
    }

    /// Its group is not the thread's any more.
    pub(super) fn disable(&mut self, now_ns: u64) {
        self.enabled.close(now_ns);
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
        let mut lost = false;
        for (index, &handle) in self.handles.iter().enumerate() {
            match pmu.read(handle) {
                Some(value) => self.values[index] += value.wrapping_sub(self.bases[index]),
                None => lost = true,
            }
        }
        pmu.remove(&self.handles);
        self.running.close(now_ns);
        self.state = State::Inactive;
        if lost {
            self.fail(now_ns);
        }
    }

    /// Does not try again: pinned and without a place, or without a counter that it had.
    pub(super) fn fail(&mut self, now_ns: u64) {
        self.enabled.close(now_ns);
        self.state = State::Error;
    }

    pub(super) fn release<P: Pmu>(&self, pmu: &mut P) {
        for &handle in &self.handles {
            pmu.release(handle);
        }
    }

    pub(super) fn counts<P: Pmu>(&self, pmu: &mut P, now_ns: u64) -> Counts {
        let (mut values, mut state) = (self.values.to_vec(), self.state);
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
            enabled_ns: self.enabled.until(now_ns),
            running_ns: self.running.until(now_ns),
        }
    }
}
