//! A model of a CPU's counters that takes as long as programming them takes on hardware.
//!
//! Test machines rarely have counters, and placing a clock instead costs nothing. The model makes
//! each write and read of a counter's registers take as long as it does in Linux on hardware; what
//! it counts is the thread's time.
//!
//! # The prices
//! - [`WRITE_NS`], a `WRMSR` of a counter or its event select. Linux's commit b0b6a8d3be16 ("KVM:
//!   x86/pmu: Elide WRMSRs when loading guest PMCs if values already match") replaces one write for
//!   each counter by one `RDPMC`, and thereby saves 900 cycles on an AMD Turin, which has six, and
//!   1000 on an Intel Emerald Rapids, which has eight and at least three fixed ones: 90 to 150
//!   cycles per write in excess of a read. 50 ns is 150 cycles at 3 GHz. Under a hypervisor that
//!   intercepts the write it is a VM exit, many times as much.
//! - [`READ_NS`], an `RDPMC`: an assumption, a third of a write; all designs pay it equally.
//! - What Linux writes (`arch/x86/events/core.c`): for an event that is placed, its counter's start
//!   and its event select; for one that is removed, its event select, after a read of its counter.

use std::sync::OnceLock;
use std::time::Instant;

use submeter::perf::{Event, NotSupportedError};
use submeter_events::{Handle, Pmu};

pub(super) const WRITE_NS: i64 = 50;
pub(super) const READ_NS: i64 = 15;
const PLACE_NS: i64 = 2 * WRITE_NS;

/// Counters of one thread with these prices; there are always enough.
#[derive(Debug)]
pub(super) struct PricedPmu {
    sharing: Sharing,
    counters: Vec<PricedCounter>,
    /// By handle: the index in `counters`.
    handles: Vec<usize>,
    now_ns: u64,
    moment: u64,
    due: Due,
}

/// Whether events of the same kind share one counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sharing {
    /// No: each is programmed when it is placed, and stopped when it is removed, as in Linux.
    Apart,
    /// Yes, and it continues to count when none of them is placed, as on submeter's counters.
    Shared,
}

#[derive(Debug)]
struct PricedCounter {
    event: Event,
    counts: bool,
    /// The moment at which its value was known: when it was started or last read.
    known: u64,
}

impl PricedPmu {
    pub(super) fn new(sharing: Sharing) -> PricedPmu {
        PricedPmu {
            sharing,
            counters: Vec::new(),
            handles: Vec::new(),
            now_ns: 0,
            moment: 0,
            due: Due::default(),
        }
    }

    /// The total charged so far.
    #[cfg(test)]
    pub(super) fn charged_ns(&self) -> i64 {
        self.due.charged_ns
    }
}

impl Pmu for PricedPmu {
    /// Also pays for the last switch: at once, since a wait for each register would be too short to
    /// be exact.
    fn begin(&mut self, now_ns: u64) {
        self.now_ns = now_ns;
        self.moment += 1;
        self.due.pay();
    }

    fn prepare(&mut self, event: &Event) -> Result<Handle, NotSupportedError> {
        let mut known = self.counters.iter();
        let shared = known.position(|c| self.sharing == Sharing::Shared && c.event == *event);
        let counter = shared.unwrap_or_else(|| {
            self.counters.push(PricedCounter { event: *event, counts: false, known: 0 });
            self.counters.len() - 1
        });
        self.handles.push(counter);
        Ok(Handle((self.handles.len() - 1) as u32))
    }

    fn place(&mut self, events: &[Handle]) -> bool {
        for event in events {
            let counter = &mut self.counters[self.handles[event.0 as usize]];
            if !counter.counts {
                self.due.add(PLACE_NS);
                (counter.counts, counter.known) = (true, self.moment);
            }
        }
        true
    }

    fn remove(&mut self, events: &[Handle]) {
        if self.sharing == Sharing::Shared {
            return;
        }
        for event in events {
            self.due.add(WRITE_NS);
            self.counters[self.handles[event.0 as usize]].counts = false;
        }
    }

    fn read(&mut self, event: Handle) -> Option<u64> {
        let counter = &mut self.counters[self.handles[event.0 as usize]];
        if counter.known != self.moment {
            self.due.add(READ_NS);
            counter.known = self.moment;
        }
        Some(self.now_ns)
    }

    fn release(&mut self, _: Handle) {}
}

/// Time that is charged and not yet spent.
#[derive(Debug, Default)]
struct Due {
    /// Below 0 if more was spent, which the next payment takes into account.
    ns: i64,
    #[cfg(test)]
    charged_ns: i64,
}

/// How much may be spent in advance. A thread that was preempted while it paid spent much more,
/// which must not count.
const ADVANCE_NS: i64 = 100;

impl Due {
    fn add(&mut self, ns: i64) {
        self.ns += ns;
        #[cfg(test)]
        {
            self.charged_ns += ns;
        }
    }

    /// Spends what is due.
    fn pay(&mut self) {
        if self.ns <= 0 {
            return;
        }
        let start = Instant::now();
        let spent = loop {
            let spent = start.elapsed().as_nanos() as i64 + clock_ns();
            if spent >= self.ns {
                break spent;
            }
        };
        self.ns = (self.ns - spent).max(-ADVANCE_NS);
    }
}

/// Returns the time that one read of the clock takes: an interval between two reads lacks that
/// much.
fn clock_ns() -> i64 {
    static NS: OnceLock<i64> = OnceLock::new();
    const READS: u32 = 1000;
    *NS.get_or_init(|| {
        let times = (0..20).map(|_| {
            let start = Instant::now();
            for _ in 0..READS {
                std::hint::black_box(Instant::now());
            }
            (start.elapsed() / READS).as_nanos() as i64
        });
        times.min().unwrap_or(0)
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use submeter::perf::parse;
    use submeter_events::{GroupKey, Scheduler, Scope};

    use super::super::design::{Design, Filtered, SystemWide};
    use super::*;

    /// What is due is spent, and overspending is made good.
    #[test]
    fn what_is_due_is_spent_and_made_good() {
        const ROUNDS: u32 = 2000;
        const EACH_NS: i64 = 350;
        let mut due = Due::default();
        let start = Instant::now();
        for _ in 0..ROUNDS {
            due.add(EACH_NS);
            due.pay();
            assert!(due.ns <= 0 && due.ns >= -ADVANCE_NS, "{due:?}");
        }
        // Longer on a loaded machine; shorter by what `clock_ns` may be too large.
        let least = Duration::from_nanos(EACH_NS as u64) * ROUNDS * 9 / 10;
        assert!(start.elapsed() >= least, "{:?} of {least:?}", start.elapsed());
    }

    /// The document's setup: siblings, their parent and the whole system, two events each.
    fn attach_all(design: &mut dyn Design) {
        let siblings = (1..=6).map(|sibling| Scope::Group(GroupKey(sibling)));
        for scope in siblings.chain([Scope::Group(GroupKey(50)), Scope::Everywhere]) {
            for group in parse("cycles,instructions").expect("valid") {
                design.attach(scope, &group, 0).expect("counts everything");
            }
        }
    }

    /// Returns the charge of a switch between siblings, once both were visited.
    fn price_of<D: Design>(mut design: D, charged_ns: impl Fn(&D) -> i64) -> i64 {
        attach_all(&mut design);
        let chain = |sibling| [GroupKey(sibling), GroupKey(50)];
        design.switch(&chain(1), 10);
        design.switch(&chain(2), 20);
        let before = charged_ns(&design);
        design.switch(&chain(1), 30);
        charged_ns(&design) - before
    }

    #[test]
    fn a_switch_is_charged_what_each_design_programs() {
        const MOVED_NS: i64 = READ_NS + WRITE_NS + PLACE_NS;
        let filtered = |system_wide| {
            let design = Filtered::new(PricedPmu::new(Sharing::Apart), system_wide);
            price_of(design, |design| design.pmu().charged_ns())
        };
        let scheduled = |sharing| {
            let design = Scheduler::new(PricedPmu::new(sharing));
            price_of(design, |design: &Scheduler<PricedPmu>| design.pmu().charged_ns())
        };
        // The sibling's, the parent's and the whole system's.
        assert_eq!(filtered(SystemWide::Switched), 6 * MOVED_NS);
        // The sibling's and the parent's.
        assert_eq!(filtered(SystemWide::LeftAlone), 4 * MOVED_NS);
        // The sibling's.
        assert_eq!(scheduled(Sharing::Apart), 2 * MOVED_NS);
        // The two counters continue; each is read once.
        assert_eq!(scheduled(Sharing::Shared), 2 * READ_NS);
    }
}
