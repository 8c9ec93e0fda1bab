//! Where counters come from.

use std::fmt;

use super::event::{Event, EventGroup};

/// The key of a prepared event, for the [`Pmu`] that prepared it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Handle(pub u32);

/// The counters of one thread.
///
/// Implement it to schedule events on other counters than the kernel's. A
/// [`Scheduler`](super::Scheduler) prepares each event once, places it and takes it off as groups
/// come and go, reads it only while it is placed, and releases it once.
pub trait Pmu {
    /// Begins a moment: all reads until the next call are of it, so that a value may be taken once
    /// however many ask.
    ///
    /// `now_ns` is the calling thread's CPU time, which the caller has read already. A backend
    /// that needs neither ignores it; where this is never called, each read is anew.
    fn begin(&mut self, now_ns: u64) {
        let _ = now_ns;
    }

    /// Makes everything ready to place an event: the only call that may allocate.
    ///
    /// # Errors
    /// When the event cannot be counted here at all.
    fn prepare(&mut self, event: &Event) -> Result<Handle, NotSupportedError>;

    /// Starts to count all of `events`, or none: then it returns false, and has changed nothing.
    fn place(&mut self, events: &[Handle]) -> bool;

    /// Stops to count `events`, which are placed.
    fn remove(&mut self, events: &[Handle]);

    /// Returns what a placed event has counted since some moment that stays the same while it is
    /// placed. `None` if it has lost its counter: the event group is in error from then on.
    fn read(&mut self, event: Handle) -> Option<u64>;

    /// Forgets an event that is not placed.
    fn release(&mut self, event: Handle);
}

/// The reason why an event cannot be counted. Shown where its value would be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotSupportedError {
    pub(super) event: String,
    pub(super) reason: String,
}

impl NotSupportedError {
    /// Makes one from the event and the reason.
    #[must_use]
    pub fn new(event: &Event, reason: impl Into<String>) -> NotSupportedError {
        NotSupportedError { event: event.to_string(), reason: reason.into() }
    }

    /// Refuses an event group without events, which nothing could place.
    pub(super) fn empty(group: &EventGroup) -> Option<NotSupportedError> {
        group.events().is_empty().then(|| {
            let reason = "an event group needs one event at least".to_owned();
            NotSupportedError { event: group.to_string(), reason }
        })
    }

    /// Returns the event, as it was asked for.
    #[must_use]
    pub fn event(&self) -> &str {
        &self.event
    }

    /// Returns why, and what would help.
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
