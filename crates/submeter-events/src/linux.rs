//! The kernel's counters, through `perf_event_open`.
//!
//! Each event is opened once per thread, however many groups count it, and read once per moment: a
//! switch between groups that count the same events reprograms nothing. How an event is read
//! depends on what it counts ([`Way`]).
//!
//! The kernel would multiplex hardware counters by itself, and then the difference of two readings
//! would be an estimate. Hardware events are therefore opened pinned: one without a counter reads
//! as an error at once, and the scheduler above, which knows the groups, multiplexes them. An event
//! that is no longer counted keeps its counter until another needs it. Kernel events need no
//! counter, and count from open to close.

mod opened;

use std::marker::PhantomData;

use submeter_sys::fork;
use submeter_sys::perf_event::{Switches, Together};

use opened::{Opened, Way};

use crate::event::Event;
use crate::pmu::{Handle, NotSupportedError, Pmu};

/// The counters of the thread that created it, for kernel and hardware events.
///
/// Costs a file descriptor for each different event, one more for all kernel events together, and
/// at each moment when it is read:
///
/// - an instruction for an event of the CPU if user mode may read counters, otherwise a system
///   call;
/// - a load for `context-switches` and `cpu-migrations`, and a system call after each context
///   switch of the thread;
/// - one system call for all other events of the kernel together.
///
/// An event that needs privilege, or that the machine lacks, is refused when it is attached. In a
/// forked child all events are opened again for the child's thread.
#[derive(Debug)]
pub struct LinuxPmu {
    /// The index in `opened`, by handle.
    prepared: Vec<Option<usize>>,
    opened: Vec<Option<Opened>>,
    /// The number of the current moment; 0 before the first one, when no reading is cached.
    moment: u64,
    /// The reader of the events of [`Way::Together`].
    together: Option<Together>,
    switches: Option<Switches>,
    /// Number of context switches noticed.
    noticed: u64,
    /// [`fork::generation`] of the process whose thread is counted.
    generation: u32,
    /// The events count on the thread that opened them.
    _not_send: PhantomData<*const ()>,
}

impl LinuxPmu {
    /// Creates the calling thread's counters; none is opened yet.
    #[must_use]
    pub fn new() -> LinuxPmu {
        fork::watch();
        LinuxPmu {
            prepared: Vec::new(),
            opened: Vec::new(),
            moment: 0,
            together: None,
            switches: None,
            noticed: 0,
            generation: fork::generation(),
            _not_send: PhantomData,
        }
    }

    /// Checks whether an event can be counted here at all, by opening it once.
    ///
    /// # Errors
    /// When it cannot, with the reason and the remedy.
    pub fn supports(event: &Event) -> Result<(), NotSupportedError> {
        LinuxPmu::new().open(event).map(drop)
    }

    /// Places all events or none.
    #[inline]
    pub fn place_each(&mut self, events: impl Iterator<Item = Handle> + Clone) -> bool {
        for again in [true, false] {
            let (placed, all) = self.try_place(events.clone());
            if all {
                return true;
            }
            self.remove_each(events.clone().take(placed));
            if !(again && self.reclaim()) {
                break;
            }
        }
        false
    }

    /// Takes events off their counters.
    #[inline]
    pub fn remove_each(&mut self, events: impl Iterator<Item = Handle>) {
        for handle in events {
            if let Some(opened) = self.opened(handle) {
                opened.placed = opened.placed.saturating_sub(1);
            }
        }
    }

    /// Places events up to the first that finds no counter; returns how many were placed, and
    /// whether these were all.
    fn try_place(&mut self, events: impl Iterator<Item = Handle>) -> (usize, bool) {
        // A child must not start its parent's counters.
        self.follow_the_fork();
        let mut placed = 0;
        for handle in events {
            let Some(opened) = self.opened(handle) else { return (placed, false) };
            if !opened.counting && !opened.start() {
                return (placed, false);
            }
            opened.placed += 1;
            placed += 1;
        }
        (placed, true)
    }

    /// Stops counters that nothing uses. Returns whether there were any.
    #[cold]
    fn reclaim(&mut self) -> bool {
        let idle = self.opened.iter_mut().flatten().filter(|opened| opened.is_idle());
        idle.map(Opened::stop).count() > 0
    }

    fn find(&self, event: &Event) -> Option<usize> {
        self.opened.iter().position(|opened| opened.as_ref().is_some_and(|o| o.event == *event))
    }

    #[inline]
    fn index(&self, handle: Handle) -> Option<usize> {
        self.prepared.get(handle.0 as usize).copied().flatten()
    }

    #[inline]
    fn opened(&mut self, handle: Handle) -> Option<&mut Opened> {
        let index = self.index(handle)?;
        self.opened[index].as_mut()
    }

    fn open(&mut self, event: &Event) -> Result<Opened, NotSupportedError> {
        let refuse = |error| NotSupportedError::new(event, opened::reason(event, &error));
        match Way::of(event) {
            Way::AtSwitch if !event.counts_kernel() => {
                Err(NotSupportedError::new(event, opened::ONLY_IN_THE_KERNEL))
            }
            Way::AtSwitch => {
                if self.switches.is_none() {
                    // Without it, the event is read at every moment.
                    self.switches = Switches::watch().ok();
                }
                Opened::alone(event).map_err(refuse)
            }
            Way::Together => {
                if self.together.is_none() {
                    self.together = Together::new().ok();
                }
                Opened::together(event, self.together.as_mut()).map_err(refuse)
            }
            Way::Counter => Opened::alone(event).map_err(refuse),
        }
    }

    /// Reads the value of an event at this moment, and those of others if that costs nothing more.
    fn take(&mut self, index: usize) -> Option<u64> {
        self.follow_the_fork();
        let opened = self.opened[index].as_mut()?;
        match opened.way {
            Way::Counter => opened.take(self.moment),
            Way::AtSwitch => {
                if self.switches.as_mut().is_none_or(Switches::happened) {
                    self.noticed += 1;
                }
                opened.take_after_switch(self.moment, self.noticed)
            }
            Way::Together => {
                let wanted = self.opened.iter().flatten();
                let wanted = wanted.filter(|o| o.way == Way::Together && o.placed > 0).count();
                if wanted > 1 && self.take_together().is_some() {
                    let opened = self.opened[index].as_ref()?;
                    if opened.moment == self.moment {
                        return Some(opened.value);
                    }
                }
                self.opened[index].as_mut()?.take(self.moment)
            }
        }
    }

    fn take_together(&mut self) -> Option<()> {
        if self.moment == 0 {
            // The values of other events would not be cached.
            return None;
        }
        for (number, value) in self.together.as_mut()?.read().ok()? {
            let mut events = self.opened.iter_mut().flatten();
            if let Some(opened) = events.find(|opened| opened.number == Some(number)) {
                opened.note(value, self.moment);
            }
        }
        Some(())
    }

    /// Opens all events again in a forked child, where they still count the parent's thread.
    #[inline]
    fn follow_the_fork(&mut self) {
        if self.generation != fork::generation() {
            self.renew();
        }
    }

    #[cold]
    #[inline(never)]
    fn renew(&mut self) {
        self.generation = fork::generation();
        (self.together, self.switches) = (None, None);
        for index in 0..self.opened.len() {
            if let Some(old) = self.opened[index].take() {
                let new = self.open(&old.event).ok();
                self.opened[index] = Some(old.renewed(new));
            }
        }
    }
}

impl Default for LinuxPmu {
    fn default() -> LinuxPmu {
        LinuxPmu::new()
    }
}

impl Pmu for LinuxPmu {
    #[inline]
    fn begin(&mut self, _: u64) {
        self.moment += 1;
    }

    fn prepare(&mut self, event: &Event) -> Result<Handle, NotSupportedError> {
        self.follow_the_fork();
        let index = match self.find(event) {
            Some(index) => index,
            None => {
                let new = self.open(event)?;
                let free = free_slot(&mut self.opened);
                self.opened[free] = Some(new);
                free
            }
        };
        if let Some(opened) = &mut self.opened[index] {
            opened.handles += 1;
        }
        let handle = free_slot(&mut self.prepared);
        self.prepared[handle] = Some(index);
        Ok(Handle(handle as u32))
    }

    #[inline]
    fn place(&mut self, events: &[Handle]) -> bool {
        self.place_each(events.iter().copied())
    }

    #[inline]
    fn remove(&mut self, events: &[Handle]) {
        self.remove_each(events.iter().copied());
    }

    #[inline]
    fn read(&mut self, event: Handle) -> Option<u64> {
        let index = self.index(event)?;
        let opened = self.opened[index].as_ref()?;
        if opened.moment == self.moment && self.moment != 0 {
            return Some(opened.value);
        }
        self.take(index)
    }

    fn release(&mut self, event: Handle) {
        let Some(index) = self.index(event) else { return };
        self.prepared[event.0 as usize] = None;
        if let Some(opened) = &mut self.opened[index] {
            opened.handles -= 1;
            if opened.handles == 0 {
                self.opened[index] = None;
            }
        }
    }
}

fn free_slot<T>(slots: &mut Vec<Option<T>>) -> usize {
    slots.iter().position(Option::is_none).unwrap_or_else(|| {
        slots.push(None);
        slots.len() - 1
    })
}

#[cfg(not(miri))]
#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse;

    /// Returns an event that is off its counter, as hardware events are until they are placed. It
    /// is a kernel event, because not every machine allows use of its counters.
    fn off_its_counter() -> Option<(LinuxPmu, Handle)> {
        let event = parse("page-faults:u").expect("valid")[0].events()[0];
        let mut pmu = LinuxPmu::new();
        let handle = match pmu.prepare(&event) {
            Ok(handle) => handle,
            Err(error) => {
                eprintln!("skipped: {error}");
                return None;
            }
        };
        let opened = pmu.opened(handle).expect("prepared");
        opened.way = Way::Counter;
        opened.stop();
        Some((pmu, handle))
    }

    /// Placing an event starts it, even one that was taken off its counter.
    #[test]
    fn a_placed_event_is_started() {
        let Some((mut pmu, handle)) = off_its_counter() else { return };
        assert!(pmu.place(&[handle]));
        let opened = pmu.opened(handle).expect("prepared");
        assert!(opened.counting && opened.placed == 1);
    }

    #[test]
    fn only_a_counter_that_nothing_uses_is_reclaimed() {
        let Some((mut pmu, handle)) = off_its_counter() else { return };
        assert!(!pmu.reclaim(), "it has none");
        assert!(pmu.place(&[handle]));
        assert!(!pmu.reclaim(), "it is in use");
        pmu.remove(&[handle]);
        assert!(pmu.opened(handle).expect("prepared").counting, "nobody needs it yet");
        assert!(pmu.reclaim());
        assert!(!pmu.opened(handle).expect("prepared").counting);
    }
}
