//! One attached event group: its state, its counts, and the time for which it could have counted.

use std::ops::{Deref, DerefMut};

use super::{Counts, Scope, State};
use crate::pmu::{Handle, Pmu};
use crate::published::Published;

#[derive(Debug)]
pub(super) struct AttachedEvents {
    pub(super) scope: Scope,
    pub(super) pinned: bool,
    /// Whether any of its events needs a counter.
    pub(super) hardware: bool,
    pub(super) state: State,
    /// The copy that other threads read.
    pub(super) published: Option<Published>,
    handles: OneOrMany<Handle>,
    /// In the order of `handles`.
    tallies: OneOrMany<Tally>,
    enabled: Span,
    running: Span,
    /// Its running time at the end of its last turn.
    turn_ns: u64,
}

/// The count of one event.
#[derive(Clone, Copy, Debug, Default)]
struct Tally {
    /// Its count up to the last read of its counter.
    value: u64,
    /// The counter's value at that read, or when the event was placed.
    base: u64,
}

/// A sum of intervals, the last of which may be open.
#[derive(Clone, Copy, Debug)]
struct Span {
    sum_ns: u64,
    /// `CLOSED` if none is open. Not an `Option`, which would take twice the space.
    since_ns: u64,
}

/// A time that no clock reaches within five centuries. No time passes in it, because `until` treats
/// it as the future.
const CLOSED: u64 = u64::MAX;

impl Span {
    const NONE: Span = Span { sum_ns: 0, since_ns: CLOSED };

    #[inline]
    fn open(&mut self, now_ns: u64) {
        // Opening an open interval again must not lose its start.
        if self.since_ns == CLOSED {
            self.since_ns = now_ns;
        }
    }

    #[inline]
    fn close(&mut self, now_ns: u64) {
        self.sum_ns = self.until(now_ns);
        self.since_ns = CLOSED;
    }

    /// Adds the elapsed part of an open interval to the sum; the interval stays open.
    #[inline]
    fn advance(&mut self, now_ns: u64) {
        if self.since_ns != CLOSED {
            self.close(now_ns);
            self.open(now_ns);
        }
    }

    #[inline]
    fn until(&self, now_ns: u64) -> u64 {
        // A clock that went backwards adds nothing, rather than centuries.
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

    /// Notes that its group is now the thread's, or that it was in error and is tried again.
    #[inline]
    pub(super) fn enable(&mut self, now_ns: u64) {
        if self.state != State::Error {
            self.enabled.open(now_ns);
        }
    }

    /// Notes that its group is no longer the thread's.
    #[inline]
    pub(super) fn disable(&mut self, now_ns: u64) {
        self.enabled.close(now_ns);
    }

    /// Puts it on counters, unless it needs some and they are known to be `full`. Returns false if
    /// it finds them full.
    #[inline]
    pub(super) fn place_unless<P: Pmu>(&mut self, full: bool, pmu: &mut P, now_ns: u64) -> bool {
        let to_be = self.state == State::Inactive && !(full && self.hardware);
        !to_be || self.place(pmu, now_ns)
    }

    /// Puts it on counters if there are enough.
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

    /// Returns whether it has run since the end of its last turn, while it is off its counters.
    #[inline]
    pub(super) fn had_its_turn(&self) -> bool {
        self.running.sum_ns > self.turn_ns
    }

    /// Ends its turn, while it is off its counters.
    pub(super) fn end_turn(&mut self) {
        self.turn_ns = self.running.sum_ns;
    }

    /// Puts it in error, so that it is not tried again: it is pinned and found no counter, or it
    /// lost one.
    pub(super) fn fail(&mut self, now_ns: u64) {
        self.enabled.close(now_ns);
        self.state = State::Error;
    }

    pub(super) fn release<P: Pmu>(&self, pmu: &mut P) {
        for &handle in &*self.handles {
            pmu.release(handle);
        }
    }

    /// Publishes its counts while it is off its counters.
    #[inline]
    pub(super) fn publish(&self) {
        if let Some(published) = &self.published {
            let error = self.state == State::Error;
            let (enabled_ns, running_ns) = (self.enabled.sum_ns, self.running.sum_ns);
            let values = self.tallies.iter().map(|tally| tally.value);
            published.write(error, enabled_ns, running_ns, values);
        }
    }

    /// Publishes its counts, even while it is on its counters.
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

    /// Adds what it has counted since it was placed to its values. Returns false if it has lost a
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
                    // Recorded when it is taken off.
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

/// A slice of fixed length. Most event groups have one event, which is then stored inline: a switch
/// among many groups takes one cache miss less. `SmallVec` would work too, but is a word longer,
/// and an event group would take three cache lines.
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
    fn it_holds_the_values_it_was_made_from() {
        for values in [vec![], vec![1], vec![1, 2, 3]] {
            let mut kept = OneOrMany::new(values.clone().into_boxed_slice());
            assert_eq!(*kept, *values);
            assert_eq!(matches!(kept, OneOrMany::One(_)), values.len() == 1);
            kept.iter_mut().for_each(|value| *value += 1);
            assert!(kept.iter().zip(values).all(|(now, before)| *now == before + 1));
        }
    }
}
