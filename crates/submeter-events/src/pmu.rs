//! The interface to counters.

use std::fmt;

use crate::event::{Event, EventGroup};

/// The key of a prepared event, for the [`Pmu`] that prepared it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Handle(pub u32);

/// The counters of one thread.
///
/// Implement it to schedule events on counters other than the kernel's. A
/// [`Scheduler`](crate::Scheduler) prepares each event once, places and removes it as groups
/// are entered and left, reads it only while it is placed, and releases it once.
pub trait Pmu {
    /// Begins a moment: all reads until the next call belong to it, so that an implementation may
    /// read each value once and cache it.
    ///
    /// `now_ns` is the calling thread's CPU time, which the caller has already read. A backend may
    /// ignore the call; if it is never called, nothing may be cached.
    fn begin(&mut self, now_ns: u64) {
        let _ = now_ns;
    }

    /// Prepares an event for being placed: the only call that may allocate.
    ///
    /// # Errors
    /// When the event cannot be counted here at all.
    fn prepare(&mut self, event: &Event) -> Result<Handle, NotSupportedError>;

    /// Returns whether a prepared event counts nothing but the time that
    /// [`begin`](Pmu::begin) is given. A session does not place event
    /// groups of such events alone.
    fn is_clock(&self, event: Handle) -> bool {
        let _ = event;
        false
    }

    /// Starts to count all of `events`. If that is impossible, changes nothing and returns false.
    fn place(&mut self, events: &[Handle]) -> bool;

    /// Stops counting `events`, which are placed.
    fn remove(&mut self, events: &[Handle]);

    /// Returns the count of a placed event, from any starting value that stays the same while it is
    /// placed. `None` if it has lost its counter: the event group is in error from then on.
    fn read(&mut self, event: Handle) -> Option<u64>;

    /// Releases an event that is not placed.
    fn release(&mut self, event: Handle);
}

/// The reason why an event cannot be counted, shown in place of its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotSupportedError {
    pub(crate) event: String,
    pub(crate) reason: String,
}

impl NotSupportedError {
    /// Creates an error from the event and the reason.
    #[must_use]
    pub fn new(event: &Event, reason: impl Into<String>) -> NotSupportedError {
        NotSupportedError { event: event.to_string(), reason: reason.into() }
    }

    /// Refuses an event group without events, which could never be placed.
    #[must_use]
    pub fn empty(group: &EventGroup) -> Option<NotSupportedError> {
        group.events().is_empty().then(|| {
            let reason = "an event group needs at least one event".to_owned();
            NotSupportedError { event: group.to_string(), reason }
        })
    }

    /// Returns the event as requested.
    #[must_use]
    pub fn event(&self) -> &str {
        &self.event
    }

    /// Returns the reason, with a remedy.
    #[must_use]
    pub fn reason(&self) -> &str {
        &self.reason
    }
}

impl fmt::Display for NotSupportedError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "event {:?} is <not supported> here: {}", self.event, self.reason)
    }
}

impl std::error::Error for NotSupportedError {}
