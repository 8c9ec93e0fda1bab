//! One event group that is attached: its state, its counts, and the time that it could have
//! counted.

use std::ops::{Deref, DerefMut};

use super::{Counts, Scope, State};
use crate::perf::pmu::{Handle, Pmu};
use crate::perf::published::Published;

#[derive(Debug)]
pub(super) struct AttachedEvents {
    pub(super) scope: Scope,
    pub(super) pinned: bool,
    /// Whether an event of it needs a counter.
    pub(super) hardware: bool,
    pub(super) state: State,
    /// Where other threads read it.
    pub(super) published: Option<Published>,
    handles: OneOrMany<Handle>,
    /// In the order of `handles`.
    tallies: OneOrMany<Tally>,
    enabled: Span,
    running: Span,
    /// How long it had run at the end of its last turn.
    turn_ns: u64,
}

/// What one event has counted.
#[derive(Clone, Copy, Debug, Default)]
struct Tally {
    /// Until its counter was last looked at.
    value: u64,
    /// What the counter said then, or when it was placed.
    base: u64,
}

/// A sum of intervals, the last of which may be open.
#[derive(Clone, Copy, Debug)]
struct Span {
    sum_ns: u64,
    /// `CLOSED` where none is open. Not an `Option`, which is twice as long.
    since_ns: u64,
}

/// What no clock says before six centuries have passed. In it no time passes, as `until` takes it
/// for the future.
const CLOSED: u64 = u64::MAX;

impl Span {
    const NONE: Span = Span { sum_ns: 0, since_ns: CLOSED };

    fn open(&mut self, now_ns: u64) {
        // An interval that is open goes on: opening it again must not lose its start.
        if self.since_ns == CLOSED {
            self.since_ns = now_ns;
        }
    }

    fn close(&mut self, now_ns: u64) {
        self.sum_ns = self.until(now_ns);
        self.since_ns = CLOSED;
    }

    /// Counts what has passed of an open interval to the sum, and lets it go on.
    fn advance(&mut self, now_ns: u64) {
        if self.since_ns != CLOSED {
            self.close(now_ns);
            self.open(now_ns);
        }
    }

    fn until(&self, now_ns: u64) -> u64 {
        // A clock that went back adds nothing, rather than centuries.
        self.sum_ns + now_ns.saturating_sub(self.since_ns)
    }
}

impl AttachedEvents {
    pub(super) fn new(
        scope: Scope,
        pinned: bool,
        hardware: bool,
        handles: Box<[Handle]>,
    ) -> AttachedEvents {
        let tallies = handles.iter().map(|_| Tally::default()).collect();
        AttachedEvents {
            scope,
            pinned,
            hardware,
            state: State::Inactive,
            published: None,
            handles: OneOrMany::new(handles),
            tallies: OneOrMany::new(tallies),
            enabled: Span::NONE,
            running: Span::NONE,
            turn_ns: 0,
        }
    }

    /// Its group is the thread's from now on, or it was in error and is tried again.
    #[inline]
    pub(super) fn enable(&mut self, now_ns: u64) {
        if self.state != State::Error {
            self.enabled.open(now_ns);
        }
    }

    /// Its group is not the thread's any more.
    #[inline]
    pub(super) fn disable(&mut self, now_ns: u64) {
        self.enabled.close(now_ns);
    }

    /// Puts it on counters, if it is to be: not if it needs some, and they are known to be `full`.
    /// Returns false if it found that they are.
    #[inline]
    pub(super) fn place_unless<P: Pmu>(&mut self, full: bool, pmu: &mut P, now_ns: u64) -> bool {
        let to_be = self.state == State::Inactive && !(full && self.hardware);
        !to_be || self.place(pmu, now_ns)
    }

    /// Puts it on counters, if there are enough.
    #[inline]
    pub(super) fn place<P: Pmu>(&mut self, pmu: &mut P, now_ns: u64) -> bool {
        debug_assert_eq!(self.state, State::Inactive);
        if !pmu.place(&self.handles) {
            return false;
        }
        for (tally, &handle) in self.tallies.iter_mut().zip(&*self.handles) {
            let Some(value) = pmu.read(handle) else {
                pmu.remove(&self.handles);
                return false;
            };
            tally.base = value;
        }
        self.running.open(now_ns);
        self.state = State::Active;
        true
    }

    /// Takes it off its counters, if it is on any. It is in error if it has lost one.
    #[inline]
    pub(super) fn remove<P: Pmu>(&mut self, pmu: &mut P, now_ns: u64) {
        if self.state != State::Active {
            return;
        }
        let lost = !self.take(pmu);
        pmu.remove(&self.handles);
        self.running.close(now_ns);
        self.state = State::Inactive;
        if lost {
            self.fail(now_ns);
        }
    }

    /// Whether it has run since the end of its last turn, while it is off its counters.
    pub(super) fn had_its_turn(&self) -> bool {
        self.running.sum_ns > self.turn_ns
    }

    /// Waits for its next turn, while it is off its counters.
    pub(super) fn end_turn(&mut self) {
        self.turn_ns = self.running.sum_ns;
    }

    /// Does not try again: pinned and without a place, or without a counter that it had.
    pub(super) fn fail(&mut self, now_ns: u64) {
        self.enabled.close(now_ns);
        self.state = State::Error;
    }

    pub(super) fn release<P: Pmu>(&self, pmu: &mut P) {
        for &handle in &*self.handles {
            pmu.release(handle);
        }
    }

    /// Publishes what it has counted, while it is off its counters.
    #[inline]
    pub(super) fn publish(&self) {
        if let Some(published) = &self.published {
            let error = self.state == State::Error;
            let (enabled_ns, running_ns) = (self.enabled.sum_ns, self.running.sum_ns);
            let values = self.tallies.iter().map(|tally| tally.value);
            published.write(error, enabled_ns, running_ns, values);
        }
    }

    /// Publishes what it has counted, also while it is on them.
    pub(super) fn publish_running<P: Pmu>(&mut self, pmu: &mut P, now_ns: u64) {
        if self.published.is_none() {
            return;
        }
        if self.state == State::Active && !self.take(pmu) {
            pmu.remove(&self.handles);
            self.running.close(now_ns);
            self.fail(now_ns);
        }
        self.enabled.advance(now_ns);
        self.running.advance(now_ns);
        self.publish();
    }

    /// Moves what it has counted since it was placed to its values. Returns false if it has lost a
    /// counter.
    #[inline]
    fn take<P: Pmu>(&mut self, pmu: &mut P) -> bool {
        let mut all = true;
        for (tally, &handle) in self.tallies.iter_mut().zip(&*self.handles) {
            match pmu.read(handle) {
                Some(value) => {
                    tally.value += value.wrapping_sub(tally.base);
                    tally.base = value;
                }
                None => all = false,
            }
        }
        all
    }

    pub(super) fn counts<P: Pmu>(&self, pmu: &mut P, now_ns: u64) -> Counts {
        let mut values: Vec<u64> = self.tallies.iter().map(|tally| tally.value).collect();
        let mut state = self.state;
        if self.state == State::Active {
            for (index, &handle) in self.handles.iter().enumerate() {
                match pmu.read(handle) {
                    Some(value) => values[index] += value.wrapping_sub(self.tallies[index].base),
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

/// A slice that does not change its length. Most event groups have one event, which then is where
/// the event group is: a switch among many groups misses one line of the cache less. `SmallVec`
/// would do, but is a word longer, with which an event group would take three lines of the cache.
#[derive(Clone, Debug)]
enum OneOrMany<T> {
    One([T; 1]),
    Many(Box<[T]>),
}

impl<T> OneOrMany<T> {
    fn new(values: Box<[T]>) -> OneOrMany<T> {
        match <Box<[T; 1]>>::try_from(values) {
            Ok(one) => OneOrMany::One(*one),
            Err(values) => OneOrMany::Many(values),
        }
    }
}

impl<T> Deref for OneOrMany<T> {
    type Target = [T];

    #[inline]
    fn deref(&self) -> &[T] {
        match self {
            OneOrMany::One(one) => one,
            OneOrMany::Many(values) => values,
        }
    }
}

impl<T> DerefMut for OneOrMany<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut [T] {
        match self {
            OneOrMany::One(one) => one,
            OneOrMany::Many(values) => values,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_holds_what_it_was_made_of() {
        for values in [vec![], vec![1], vec![1, 2, 3]] {
            let mut kept = OneOrMany::new(values.clone().into_boxed_slice());
            assert_eq!(*kept, *values);
            assert_eq!(matches!(kept, OneOrMany::One(_)), values.len() == 1);
            kept.iter_mut().for_each(|value| *value += 1);
            assert!(kept.iter().zip(values).all(|(now, before)| *now == before + 1));
        }
    }
}
