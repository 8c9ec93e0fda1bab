//! The stand-in for the kernel's counters on systems other than Linux.

use crate::event::Event;
use crate::pmu::{Handle, NotSupportedError, Pmu};

/// Counters that refuse every event. No event is ever prepared, so none can be placed or read.
#[derive(Debug, Default)]
pub struct NoKernelPmu;

impl NoKernelPmu {
    /// Refuses the event.
    ///
    /// # Errors
    /// Always.
    pub fn supports(event: &Event) -> Result<(), NotSupportedError> {
        Err(NotSupportedError::new(event, "only Linux counts it: use task-clock or cpu-clock"))
    }

    /// Places no event.
    pub fn place_each(&mut self, mut events: impl Iterator<Item = Handle> + Clone) -> bool {
        events.next().is_none()
    }

    /// Does nothing.
    pub fn remove_each(&mut self, _: impl Iterator<Item = Handle>) {}
}

impl Pmu for NoKernelPmu {
    fn prepare(&mut self, event: &Event) -> Result<Handle, NotSupportedError> {
        NoKernelPmu::supports(event).map(|()| Handle(0))
    }

    fn place(&mut self, events: &[Handle]) -> bool {
        self.place_each(events.iter().copied())
    }

    fn remove(&mut self, _: &[Handle]) {}

    fn read(&mut self, _: Handle) -> Option<u64> {
        None
    }

    fn release(&mut self, _: Handle) {}
}
