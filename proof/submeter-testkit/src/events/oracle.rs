//! A scheduler of events that visits every event each time, and counts as time passes.

use submeter::perf::{EventGroup, EventKind};
use submeter_events::{GroupKey, Scope, State};

/// A scheduler of events that is slow but obviously correct: no index, no differences of counters,
/// no open intervals.
#[derive(Clone, Debug)]
pub struct EventOracle {
    counters: usize,
    /// The thread's group and its ancestors.
    chain: Vec<GroupKey>,
    /// In the order in which they were attached. Detached ones stay, so that an index identifies
    /// one.
    attached: Vec<Naive>,
    next_order: usize,
}

/// One event group.
#[derive(Clone, Debug)]
pub struct Naive {
    scope: Scope,
    pinned: bool,
    kinds: Vec<EventKind>,
    order: usize,
    /// `running_ns` at the end of its last turn.
    turn_ns: u64,
    /// Whether it is still attached.
    pub live: bool,
    /// As in the scheduler.
    pub state: State,
    /// As in the scheduler.
    pub values: Vec<u64>,
    /// As in the scheduler.
    pub enabled_ns: u64,
    /// As in the scheduler.
    pub running_ns: u64,
}

impl Naive {
    fn need(&self) -> usize {
        self.kinds.iter().filter(|kind| !matches!(kind, EventKind::Software(_))).count()
    }
}

impl EventOracle {
    /// Creates one without events, whose thread is in no group.
    #[must_use]
    pub fn new(counters: usize) -> EventOracle {
        EventOracle { counters, chain: Vec::new(), attached: Vec::new(), next_order: 0 }
    }

    /// Returns all event groups that were ever attached.
    #[must_use]
    pub fn attached(&self) -> &[Naive] {
        &self.attached
    }

    /// Returns how many counters are in use.
    #[must_use]
    pub fn used(&self) -> usize {
        self.attached.iter().filter(|e| e.state == State::Active).map(Naive::need).sum()
    }

    /// Attaches an event group, which its index identifies.
    pub fn attach(&mut self, scope: Scope, group: &EventGroup) {
        self.next_order += 1;
        let kinds: Vec<_> = group.events().iter().map(|event| event.kind()).collect();
        self.attached.push(Naive {
            scope,
            pinned: group.is_pinned(),
            values: vec![0; kinds.len()],
            kinds,
            order: self.next_order,
            turn_ns: 0,
            live: true,
            state: State::Inactive,
            enabled_ns: 0,
            running_ns: 0,
        });
        let new = self.attached.len() - 1;
        if !self.is_current(new) {
            return;
        }
        self.stop_flexible();
        if group.is_pinned() {
            self.place_or_fail(new);
        }
        self.fill(|_| true);
    }

    /// Detaches an event group.
    pub fn detach(&mut self, index: usize) {
        self.attached[index].live = false;
        if self.attached[index].state == State::Active {
            self.attached[index].state = State::Inactive;
        }
    }

    /// Moves the thread to another chain of groups.
    pub fn switch(&mut self, chain: &[GroupKey]) {
        if self.chain.first() == chain.first() {
            return;
        }
        let before = std::mem::replace(&mut self.chain, chain.to_vec());
        for index in 0..self.attached.len() {
            if !self.is_current(index) && self.attached[index].state == State::Active {
                self.attached[index].state = State::Inactive;
            }
        }
        let entered = |scope: Scope| match scope {
            Scope::Everywhere => false,
            Scope::Group(group) => chain.contains(&group) && !before.contains(&group),
        };
        let mut pinned = self.in_order(|e| e.pinned && e.state == State::Inactive);
        pinned.retain(|&index| entered(self.attached[index].scope));
        if pinned.is_empty() {
            return self.fill(entered);
        }
        self.stop_flexible();
        for index in pinned {
            self.place_or_fail(index);
        }
        self.fill(|_| true);
    }

    /// Ends the turn of the first flexible event group, if it had a turn or can never have one, and
    /// another one waits.
    pub fn rotate(&mut self) -> bool {
        let flexible = self.in_order(|e| !e.pinned);
        if flexible.iter().all(|&index| self.attached[index].state == State::Active) {
            return false;
        }
        self.stop_flexible();
        let first = &self.attached[flexible[0]];
        if first.running_ns > first.turn_ns {
            self.end_turn(flexible[0]);
        }
        self.fill(|_| true);
        let first = self.in_order(|e| !e.pinned)[0];
        if self.attached[first].state != State::Active {
            self.stop_flexible();
            self.end_turn(first);
            self.fill(|_| true);
        }
        true
    }

    fn end_turn(&mut self, index: usize) {
        self.next_order += 1;
        let event = &mut self.attached[index];
        (event.order, event.turn_ns) = (self.next_order, event.running_ns);
    }

    /// Lets time pass, during which each of `happened` occurs.
    pub fn run(&mut self, ns: u64, happened: &[(EventKind, u64)]) {
        for index in 0..self.attached.len() {
            if !self.is_current(index) || self.attached[index].state == State::Error {
                continue;
            }
            let event = &mut self.attached[index];
            event.enabled_ns += ns;
            if event.state != State::Active {
                continue;
            }
            event.running_ns += ns;
            for (kind, value) in event.kinds.iter().zip(&mut event.values) {
                let of_kind = happened.iter().filter(|(happened, _)| happened == kind);
                *value += of_kind.map(|(_, n)| n).sum::<u64>();
            }
        }
    }

    fn is_current(&self, index: usize) -> bool {
        let event = &self.attached[index];
        event.live
            && match event.scope {
                Scope::Everywhere => true,
                Scope::Group(group) => self.chain.contains(&group),
            }
    }

    /// Returns the current event groups that `wanted` selects, in scheduling order.
    fn in_order(&self, wanted: impl Fn(&Naive) -> bool) -> Vec<usize> {
        let all = 0..self.attached.len();
        let mut found: Vec<_> =
            all.filter(|&i| self.is_current(i) && wanted(&self.attached[i])).collect();
        found.sort_by_key(|&index| self.attached[index].order);
        found
    }

    fn stop_flexible(&mut self) {
        for index in self.in_order(|e| !e.pinned) {
            self.attached[index].state = State::Inactive;
        }
    }

    fn place(&mut self, index: usize) -> bool {
        let fits = self.used() + self.attached[index].need() <= self.counters;
        if fits {
            self.attached[index].state = State::Active;
        }
        fits
    }

    fn place_or_fail(&mut self, index: usize) {
        if !self.place(index) {
            self.attached[index].state = State::Error;
        }
    }

    fn fill(&mut self, of: impl Fn(Scope) -> bool) {
        let mut full = false;
        for index in self.in_order(|e| !e.pinned && e.state == State::Inactive) {
            let event = &self.attached[index];
            if of(event.scope) && !(full && event.need() > 0) {
                full |= !self.place(index);
            }
        }
    }
}
