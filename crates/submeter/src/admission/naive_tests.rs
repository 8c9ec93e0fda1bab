//! The queue beside a naive one.

use submeter_percpu::LimitMode;

use super::fair::{Fair, WEIGHT_USUAL};
use crate::{Group, Tree};

mod storm;

/// A level of the naive queue, which looks at everything at each step, and forgets nothing.
struct Level {
    group: Option<Group>,
    up: usize,
    weight: u32,
    limit: Option<u32>,
    mode: LimitMode,
    overdrafts: u64,
    waiters: Vec<u64>,
    /// What is in flight in it and below, and in the group itself.
    all: Part,
    own: Part,
    now: i128,
    /// Whether it could be admitted, and whether what waits in the group itself could.
    was_ready: bool,
    own_was_ready: bool,
    /// Whether it is a newcomer without a turn so far, and whether it ever had one.
    is_new: bool,
    had_turn: bool,
    /// By how much the group's own part was moved on for its places and for its usage, and which no
    /// end has taken.
    untaken: [i128; 2],
    /// What work there costs, and how far a child gets in a turn.
    average: Option<i128>,
    turn: Option<i128>,
    is_dead: bool,
}

impl Level {
    fn is_full(&self) -> bool {
        self.limit.is_some_and(|most| self.all.in_flight() >= most)
    }

    fn has_room(&self) -> bool {
        self.mode == LimitMode::Soft || !self.is_full()
    }
}

#[derive(Clone, Default)]
struct Part {
    /// Where it would be if nothing were in flight.
    ended_at: i128,
    /// What each piece in flight there counts for.
    expected: Vec<i128>,
    /// Its usage, and the cost of its places; and the larger of both, up to which it was moved on.
    /// All in parts.
    used: i128,
    held: i128,
    counted: i128,
}

impl Part {
    fn in_flight(&self) -> u32 {
        self.expected.len() as u32
    }

    fn at(&self, weight: u32) -> i128 {
        self.ended_at + taken(self.expected.iter().sum(), weight)
    }

    /// Returns by how much it is moved on.
    fn count(&mut self, used: i128, held: i128, weight: u32) -> i128 {
        (self.used, self.held) = (self.used + used, self.held + held);
        let counted = self.counted.max(self.used).max(self.held);
        let cost = counted - self.counted;
        self.ended_at += cost / i128::from(weight);
        self.counted = counted;
        cost
    }

    /// At the end of work: limits how far either is behind the other to what is in flight.
    fn forget_most(&mut self) {
        let least = self.counted - (self.expected.iter().sum::<i128>() << 20);
        (self.used, self.held) = (self.used.max(least), self.held.max(least));
    }
}

/// A queue that looks at everything at each step, and forgets nothing.
struct Naive(Vec<Level>);

/// How much the real queue may differ, apart from a part of a turn: it divides for many steps at
/// once, this one for each.
const ROUNDING: i128 = 5_000;

fn taken(cost: i128, weight: u32) -> i128 {
    (cost << 20) / i128::from(weight)
}

impl Naive {
    fn new(tree: &Tree, rng: &mut fastrand::Rng) -> Naive {
        let level = |group, up| Level {
            group,
            up,
            weight: WEIGHT_USUAL,
            limit: None,
            mode: LimitMode::Enforced,
            overdrafts: 0,
            waiters: Vec::new(),
            all: Part::default(),
            own: Part::default(),
            now: 0,
            was_ready: false,
            own_was_ready: false,
            is_new: false,
            had_turn: false,
            untaken: [0; 2],
            average: None,
            turn: None,
            is_dead: false,
        };
        let mut levels = vec![level(None, 0), level(Some(tree.root().clone()), 0)];
        for index in 2..10 {
            let up = rng.usize(1..index);
            let above = levels[up].group.as_ref().expect("all but the first have one");
            let group = above.create_child(&format!("g{index}")).expect("new");
            levels.push(level(Some(group), up));
        }
        Naive(levels)
    }

    fn group(&self, index: usize) -> &Group {
        self.0[index].group.as_ref().expect("all but the first have one")
    }

    /// Returns where a level is in the time above: past usage at the weights of those times, work
    /// in flight at the present weight.
    fn at(&self, index: usize) -> i128 {
        self.0[index].all.at(self.0[index].weight)
    }

    fn path(&self, index: usize) -> Vec<usize> {
        let up = std::iter::successors(Some(index), |&at| (at > 0).then(|| self.0[at].up));
        up.collect()
    }

    fn children(&self, up: usize) -> impl Iterator<Item = usize> + '_ {
        (1..self.0.len()).filter(move |&child| self.0[child].up == up)
    }

    fn is_ready(&self, at: usize) -> bool {
        let level = &self.0[at];
        let any = !level.waiters.is_empty() || self.children(at).any(|child| self.is_ready(child));
        any && level.has_room()
    }

    /// Whether work that joins is admitted if there is a place.
    fn would_enter(&self, index: usize) -> bool {
        self.path(index).into_iter().all(|at| self.0[at].has_room())
    }

    /// How many wait in a level and below.
    fn waiting(&self, at: usize) -> usize {
        let below = self.children(at).map(|child| self.waiting(child)).sum::<usize>();
        self.0[at].waiters.len() + below
    }

    /// The branches of a level by their waiters: its children, and itself for its own.
    fn branches(&self, up: usize) -> Vec<(usize, usize)> {
        let children = self.children(up).map(|child| (self.waiting(child), child));
        children.chain([(self.0[up].waiters.len(), up)]).collect()
    }

    /// Returns the levels of which one loses its latest waiter if one more joins a level where the
    /// queue is full.
    fn displaced(&self, index: usize) -> Vec<usize> {
        let mut path = self.path(index);
        path.insert(0, index);
        while let [.., branch, up] = path[..] {
            let branches = self.branches(up);
            let most = branches.iter().max().expect("its own at least").0;
            let own = branches.iter().find(|(_, of)| *of == branch).expect("on the path").0;
            if most > own + 1 {
                return self.longest(up);
            }
            path.pop();
        }
        Vec::new()
    }

    /// Returns the levels in which the queue is longest, by the branches that are longest.
    fn longest(&self, up: usize) -> Vec<usize> {
        let branches = self.branches(up);
        let most = branches.iter().max().expect("its own at least").0;
        let longest = branches.into_iter().filter(|(length, _)| *length == most);
        longest.flat_map(|(_, of)| if of == up { vec![up] } else { self.longest(of) }).collect()
    }

    /// Whether all work has to use the line.
    fn is_needed(&self) -> bool {
        self.0.iter().any(|level| !level.waiters.is_empty() || level.limit.is_some())
    }

    fn is_idle(&self, at: usize) -> bool {
        let level = &self.0[at];
        let alone = level.waiters.is_empty() && level.all.in_flight() == 0;
        alone && self.children(at).all(|child| self.is_idle(child))
    }

    /// Ends a step: a level that could not be admitted and now can starts at the time of the level
    /// above; a level at which nothing is left has no past.
    fn step(&mut self) {
        for at in 0..self.0.len() {
            let (is_ready, now) = (self.is_ready(at), self.0[self.0[at].up].now);
            let behind = now - self.at(at);
            let level = &mut self.0[at];
            if is_ready && !std::mem::replace(&mut level.was_ready, is_ready) && at > 0 {
                level.all.ended_at += behind.max(0);
            }
            level.was_ready = is_ready;
            let own_is_ready = !level.waiters.is_empty();
            if own_is_ready && !level.own_was_ready {
                let behind = level.now - level.own.at(WEIGHT_USUAL);
                level.own.ended_at += behind.max(0);
            }
            level.own_was_ready = own_is_ready;
        }
        for at in (0..self.0.len()).rev().filter(|&at| self.is_idle(at)).collect::<Vec<_>>() {
            let farthest = self.children(at).map(|child| self.at(child)).max();
            let level = &mut self.0[at];
            let own = level.own.at(WEIGHT_USUAL);
            level.now = level.now.max(own).max(farthest.unwrap_or(0));
            for part in [&mut level.all, &mut level.own] {
                (part.used, part.held) = (part.counted, part.counted);
            }
        }
    }

    /// Starts groups of which nothing is remembered at the time above.
    fn come(&mut self, index: usize, fair: &Fair) {
        for at in self.path(index).into_iter().rev().filter(|&at| at > 0) {
            if !fair.knows(self.group(at)) {
                self.0[at].all.ended_at = self.0[self.0[at].up].now;
                let level = &mut self.0[at];
                (level.is_new, level.untaken) = (!level.had_turn, [0; 2]);
                (level.average, level.turn) = (None, None);
            }
        }
    }

    /// Where a level is, with a debit of a turn if it is new.
    fn behind(&self, index: usize, debit: i128) -> i128 {
        self.at(index) + if self.0[index].is_new { debit } else { 0 }
    }

    /// Lets time pass, in which each place cost `held`, in parts.
    fn wait(&mut self, held: i128) {
        for level in &mut self.0 {
            let of = |part: &Part| i128::from(part.in_flight()) * held;
            level.all.count(0, of(&level.all), level.weight);
            level.untaken[0] += level.own.count(0, of(&level.own), WEIGHT_USUAL);
        }
    }

    /// Applies `change` to the group's own part and those of its level and all above it, with each
    /// weight.
    fn parts(&mut self, index: usize, mut change: impl FnMut(&mut Part, u32)) {
        change(&mut self.0[index].own, WEIGHT_USUAL);
        for at in self.path(index) {
            let level = &mut self.0[at];
            change(&mut level.all, level.weight);
        }
    }

    /// Checks that `index` has got least far at each level, among those that can be admitted.
    fn admit(&mut self, index: usize, number: u64, expected: u64, fair: &Fair) {
        let mut path = self.path(index);
        path.reverse();
        for pair in 0..path.len() {
            let (up, child) = (path[pair], path.get(pair + 1).copied());
            let node = fair.at(self.0[up].group.as_ref());
            let debit = self.known(up, |level| level.turn).unwrap_or((1 << 20) / 100);
            let others = self.children(up).filter(|&child| self.is_ready(child));
            let own_at = self.0[up].own.at(WEIGHT_USUAL);
            let own = (!self.0[up].waiters.is_empty()).then_some(own_at);
            let least = others.map(|child| self.behind(child, debit)).chain(own).min();
            let at = child.map_or(own_at, |child| self.behind(child, debit));
            let least = least.expect("at least the group itself");
            let off = fair.tolerance(node) + ROUNDING;
            assert!(at - least <= off, "another has used less");
            let now = self.0[up].now.max(at);
            if let Some(child) = child.map(|child| &mut self.0[child]) {
                child.had_turn = true;
                if std::mem::take(&mut child.is_new) {
                    child.all.ended_at += now - (at - debit);
                }
            }
            let level = &mut self.0[up];
            level.now = now;
            assert!(level.has_room(), "above a limit");
            level.overdrafts += u64::from(level.is_full());
        }
        let first = self.0[index].waiters.remove(0);
        assert_eq!(first, number, "in one group who comes first goes first");
        let cost = self.known(index, |level| level.average).map_or(1, |parts| parts >> 20);
        assert_eq!(
            i128::from(expected),
            cost,
            "what the ends there took of what it was moved on by"
        );
        self.parts(index, |part, _| part.expected.push(expected.into()));
        self.step();
    }

    /// Counts a cost of work that is not known to be in flight. The position it was left at is no
    /// credit.
    fn count(&mut self, index: usize, cost: u64, among: u32, held: i128) {
        let level = &mut self.0[index];
        if !level.own_was_ready && level.own.in_flight() == 0 {
            level.own.ended_at += (level.now - level.own.at(WEIGHT_USUAL)).max(0);
        }
        for at in self.path(index).into_iter().filter(|&at| at > 0) {
            let behind = self.0[self.0[at].up].now - self.at(at);
            let level = &mut self.0[at];
            if !level.was_ready && level.all.in_flight() == 0 {
                level.all.ended_at += behind.max(0);
            }
        }
        let mut counted = Vec::new();
        self.parts(index, |part, weight| counted.push(part.count(0, held, weight)));
        self.0[index].untaken[0] += counted[0];
        self.end(index, cost, among);
        self.step();
    }

    /// Returns what is known of a level, or of the nearest one above.
    fn known(&self, index: usize, of: impl Fn(&Level) -> Option<i128>) -> Option<i128> {
        self.path(index).into_iter().find_map(|at| of(&self.0[at]))
    }

    /// Counts the end of one of `among` in flight. Together, ends take everything it was moved on
    /// by.
    fn end(&mut self, index: usize, cost: u64, among: u32) {
        let mut counted = Vec::new();
        self.parts(index, |part, weight| {
            counted.push(part.count(i128::from(cost) << 20, 0, weight));
            part.forget_most();
        });
        let usual = self.0[index].average.unwrap_or(0);
        let [held, used] = &mut self.0[index].untaken;
        *used += counted[0];
        let among = i128::from(among);
        let its_part = *held / among;
        let most = (*used / among).max(usual - its_part);
        let took = [its_part, if most < *used { most } else { *used }];
        (*held, *used) = (*held - took[0], *used - took[1]);
        let (cost, mut weight) = (took[0] + took[1], WEIGHT_USUAL);
        for at in self.path(index) {
            let (level, turn) = (&mut self.0[at], cost / i128::from(weight));
            let eighth = |of: i128, next: i128| of + (next - of) / 8;
            level.average = Some(level.average.map_or(cost.max(1), |of| eighth(of, cost)));
            let slowly = |of| i128::min(eighth(of, turn), 2 * of);
            level.turn = Some(level.turn.map_or(turn.max(1), slowly));
            weight = level.weight;
        }
    }

    /// Ends work; without a cost, it was cancelled.
    fn leave(&mut self, index: usize, expected: u64, ended: Option<(u64, u32)>) {
        if let Some((cost, among)) = ended {
            self.end(index, cost, among);
        }
        self.parts(index, |part, _| {
            let found = part.expected.iter().position(|&one| one == i128::from(expected));
            part.expected.swap_remove(found.expect("it was let in at this"));
        });
        self.step();
    }
}
