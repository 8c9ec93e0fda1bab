//! The compared designs: the library's scheduler, and what Linux did before the document.
//!
//! The document's kernels keep the events of all cgroups in one pinned and one flexible list. At a
//! switch they take everything off the counters, walk both lists, and check for each event whether
//! its cgroup is the new one or an ancestor of it. [`SystemWide::Switched`] is their behaviour
//! before the patches: events of the whole system are removed and put back at every switch.
//! [`SystemWide::LeftAlone`] is the document's first patch. Both were written from the document's
//! description, for this table only.

use submeter::perf::{EventGroup, NotSupportedError};
use submeter_events::{GroupKey, Handle, Pmu, Scheduler, Scope};

/// A design that follows the switches of one thread.
pub(super) trait Design {
    /// Adds an event group.
    fn attach(
        &mut self,
        scope: Scope,
        group: &EventGroup,
        now_ns: u64,
    ) -> Result<(), NotSupportedError>;

    /// Makes the first of `chain` the thread's group; the others are its ancestors.
    fn switch(&mut self, chain: &[GroupKey], now_ns: u64);
}

impl<P: Pmu> Design for Scheduler<P> {
    fn attach(
        &mut self,
        scope: Scope,
        group: &EventGroup,
        now_ns: u64,
    ) -> Result<(), NotSupportedError> {
        Scheduler::attach(self, scope, group, now_ns).map(drop)
    }

    #[inline]
    fn switch(&mut self, chain: &[GroupKey], now_ns: u64) {
        Scheduler::switch(self, chain, now_ns);
    }
}

/// What a switch between groups does to the events of the whole process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SystemWide {
    Switched,
    LeftAlone,
}

/// All events in two lists, filtered at each switch.
#[derive(Debug)]
pub(super) struct Filtered<P> {
    pmu: P,
    system_wide: SystemWide,
    pinned: Vec<Listed>,
    flexible: Vec<Listed>,
    /// The thread's group and its ancestors.
    chain: Vec<GroupKey>,
    /// How often an event group was visited.
    #[cfg(test)]
    visits: u64,
}

/// An event group in its list.
#[derive(Debug)]
struct Listed {
    scope: Scope,
    hardware: bool,
    /// Whether it is pinned and found no counter.
    failed: bool,
    handles: Box<[Handle]>,
    /// For each event, its count up to the last removal, and its reading when it was last placed.
    values: Box<[(u64, u64)]>,
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
        self.since_ns.get_or_insert(now_ns);
    }

    fn close(&mut self, now_ns: u64) {
        if let Some(since) = self.since_ns.take() {
            self.sum_ns += now_ns - since;
        }
    }
}

impl Listed {
    fn matches(&self, chain: &[GroupKey]) -> bool {
        match self.scope {
            Scope::Everywhere => true,
            Scope::Group(group) => chain.contains(&group),
        }
    }

    fn is_placed(&self) -> bool {
        self.running.since_ns.is_some()
    }

    fn place<P: Pmu>(&mut self, pmu: &mut P, now_ns: u64) -> bool {
        if !pmu.place(&self.handles) {
            return false;
        }
        for ((_, base), &handle) in self.values.iter_mut().zip(&self.handles) {
            // A lost event would count nothing; these simulated machines lose none.
            *base = pmu.read(handle).unwrap_or_default();
        }
        self.running.open(now_ns);
        true
    }

    fn remove<P: Pmu>(&mut self, pmu: &mut P, now_ns: u64) {
        for ((value, base), &handle) in self.values.iter_mut().zip(&self.handles) {
            *value += pmu.read(handle).map_or(0, |said| said.wrapping_sub(*base));
        }
        pmu.remove(&self.handles);
        self.running.close(now_ns);
    }
}

impl<P: Pmu> Filtered<P> {
    pub(super) fn new(pmu: P, system_wide: SystemWide) -> Filtered<P> {
        Filtered {
            pmu,
            system_wide,
            pinned: Vec::new(),
            flexible: Vec::new(),
            chain: Vec::new(),
            #[cfg(test)]
            visits: 0,
        }
    }

    #[cfg(test)]
    pub(super) fn pmu(&self) -> &P {
        &self.pmu
    }

    fn take_off(&mut self, now_ns: u64) {
        for listed in self.flexible.iter_mut().chain(&mut self.pinned) {
            #[cfg(test)]
            {
                self.visits += 1;
            }
            let stays =
                listed.scope == Scope::Everywhere && self.system_wide == SystemWide::LeftAlone;
            if listed.is_placed() && !stays {
                listed.remove(&mut self.pmu, now_ns);
            }
        }
    }

    /// Walks the pinned events, then the flexible ones until one finds no counter.
    fn put_on(&mut self, now_ns: u64) {
        let mut full = false;
        let all = self.pinned.iter_mut().map(|listed| (true, listed));
        for (pinned, listed) in all.chain(self.flexible.iter_mut().map(|listed| (false, listed))) {
            #[cfg(test)]
            {
                self.visits += 1;
            }
            if !listed.matches(&self.chain) {
                listed.enabled.close(now_ns);
                continue;
            }
            if listed.failed {
                continue;
            }
            listed.enabled.open(now_ns);
            if listed.is_placed() || (full && listed.hardware) {
                continue;
            }
            let placed = listed.place(&mut self.pmu, now_ns);
            if pinned && !placed {
                listed.failed = true;
                listed.enabled.close(now_ns);
            }
            full |= !pinned && !placed;
        }
    }
}

impl<P: Pmu> Design for Filtered<P> {
    fn attach(
        &mut self,
        scope: Scope,
        group: &EventGroup,
        now_ns: u64,
    ) -> Result<(), NotSupportedError> {
        let mut handles = Vec::with_capacity(group.events().len());
        for event in group.events() {
            handles.push(self.pmu.prepare(event)?);
        }
        let listed = Listed {
            scope,
            hardware: group.events().iter().any(|event| event.kind().needs_counter()),
            failed: false,
            values: vec![(0, 0); handles.len()].into(),
            handles: handles.into(),
            enabled: Span::default(),
            running: Span::default(),
        };
        let list = if group.is_pinned() { &mut self.pinned } else { &mut self.flexible };
        let current = listed.matches(&self.chain);
        list.push(listed);
        if current {
            self.pmu.begin(now_ns);
            self.take_off(now_ns);
            self.put_on(now_ns);
        }
        Ok(())
    }

    fn switch(&mut self, chain: &[GroupKey], now_ns: u64) {
        if self.chain.first() == chain.first() {
            return;
        }
        self.pmu.begin(now_ns);
        self.take_off(now_ns);
        self.chain.clear();
        self.chain.extend_from_slice(chain);
        self.put_on(now_ns);
    }
}

#[cfg(test)]
#[path = "design_tests.rs"]
mod tests;
