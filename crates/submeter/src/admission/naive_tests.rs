//! The queue beside a naive one.

use std::collections::HashMap;
use std::task::Waker;
use std::time::{Duration, Instant};

use submeter_percpu::slots::Line;

use super::error::Why;
use super::fair::{Fair, WEIGHT_USUAL};
use super::parts::{Bounds, Outcome, Setting, Used};
use super::tests::{timed_tree, tree};
use crate::{Group, Tree};

/// A level of the naive queue, which looks at everything at each step, and forgets nothing.
struct Level {
    group: Option<Group>,
    up: usize,
    weight: u32,
    limit: Option<u32>,
    waiters: Vec<u64>,
    /// What is in flight in it and below, and in the group itself.
    all: Part,
    own: Part,
    now: i128,
    /// Whether it could be admitted, and whether what waits in the group itself could.
    was_ready: bool,
    own_was_ready: bool,
    /// Whether it is a newcomer without a turn so far.
    is_new: bool,
    /// By how much the group's own part was moved on for its places and for its usage, and which no
    /// end has taken.
    untaken: [i128; 2],
    /// What work there costs, and how far a child gets in a turn.
    average: Option<i128>,
    turn: Option<i128>,
    is_dead: bool,
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
            waiters: Vec::new(),
            all: Part::default(),
            own: Part::default(),
            now: 0,
            was_ready: false,
            own_was_ready: false,
            is_new: false,
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
        any && level.limit.is_none_or(|limit| level.all.in_flight() < limit)
    }

    /// Whether work that joins is admitted if there is a place.
    fn would_enter(&self, index: usize) -> bool {
        let has_room = |level: &Level| level.limit.is_none_or(|most| level.all.in_flight() < most);
        self.path(index).into_iter().all(|at| has_room(&self.0[at]))
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
                (level.is_new, level.untaken) = (true, [0; 2]);
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
            let least = least.expect("itself at least");
            let off = fair.tolerance(node) + ROUNDING;
            assert!(at - least <= off, "another has used less");
            if let Some(child) = child.map(|child| &mut self.0[child])
                && std::mem::take(&mut child.is_new)
            {
                child.all.ended_at += debit;
            }
            let level = &mut self.0[up];
            level.now = level.now.max(at);
            let in_flight = level.all.in_flight();
            assert!(level.limit.is_none_or(|limit| in_flight < limit), "above a limit");
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
        let in_flight = i128::from(self.0[index].own.in_flight());
        match ended {
            Some((cost, among)) => self.end(index, cost, among),
            None => self.0[index].untaken[0] -= self.0[index].untaken[0] / in_flight,
        }
        self.parts(index, |part, _| {
            let found = part.expected.iter().position(|&one| one == i128::from(expected));
            part.expected.swap_remove(found.expect("it was let in at this"));
        });
        self.step();
    }
}

/// Each place goes where a naive queue gives it, and nothing is lost.
///
/// Arrivals, ends, deadlines, cancellations before and after the grant, bounds, weights, limits and
/// kills in any order. `SUBMETER_STRESS=N` tries N times as many seeds.
#[test]
fn fair_places_go_where_a_naive_queue_gives_them() {
    let factor = std::env::var("SUBMETER_STRESS").ok().and_then(|n| n.parse().ok()).unwrap_or(1);
    for seed in 0..factor * if cfg!(miri) { 3 } else { 48 } {
        let mut storm = Storm::new(fastrand::Rng::with_seed(seed), seed % 3 > 0, seed % 2 > 0);
        for step in 0..if cfg!(miri) { 60 } else { 1000 } {
            storm.step(step % 300 > 250);
        }
        storm.must_come_to_nothing();
    }
}

/// The queue and the naive one, which both see the same events.
struct Storm {
    rng: fastrand::Rng,
    _tree: Tree,
    naive: Naive,
    fair: Fair,
    bounds: Bounds,
    places: u32,
    cpus: u32,
    /// Whether CPU time counts, and with it the cost of places.
    is_timed: bool,
    now: Instant,
    /// CPU time, by level.
    used: Vec<u64>,
    deadlines: HashMap<u64, Instant>,
    /// What a place has cost since all work has used the line, in parts.
    held: i128,
    /// The level, the number and what it counts for; no number for work that the line did not admit
    /// because nothing waited. Work that has not asked yet is cancelled.
    in_flight: Vec<(usize, Option<(u64, u64)>)>,
}

fn watch(_: &Group) -> Option<u64> {
    Some(0)
}

impl Storm {
    fn new(mut rng: fastrand::Rng, is_timed: bool, is_bounded: bool) -> Storm {
        let tree = if is_timed { timed_tree() } else { tree() };
        let bounds = match is_bounded {
            true => Bounds { all: rng.usize(1..30), by_group: rng.usize(0..8) },
            false => Bounds { all: usize::MAX, by_group: usize::MAX },
        };
        let (naive, places, cpus) = (Naive::new(&tree, &mut rng), rng.u32(1..5), rng.u32(1..5));
        Storm {
            used: vec![0; naive.0.len()],
            naive,
            fair: Fair::new(bounds, cpus),
            bounds,
            places,
            cpus,
            is_timed,
            now: Instant::now(),
            deadlines: HashMap::new(),
            held: 0,
            in_flight: Vec::new(),
            rng,
            _tree: tree,
        }
    }

    fn step(&mut self, is_ending: bool) {
        self.wait();
        let index = self.rng.usize(1..self.naive.0.len());
        let group = self.naive.group(index).clone();
        let is_alive = !self.naive.0[index].is_dead;
        match self.rng.u32(0..100) {
            0..45 if !is_ending && is_alive => {
                self.note_close();
                let has_place = self.in_flight.len() < self.places as usize;
                match has_place && !self.naive.is_needed() && self.rng.bool() {
                    true => self.in_flight.push((index, None)),
                    false => self.join(index),
                }
            }
            0..70 if !self.in_flight.is_empty() => self.end(),
            70..85 if !self.naive.0[index].waiters.is_empty() => {
                let waiters = &mut self.naive.0[index].waiters;
                let number = waiters.remove(self.rng.usize(0..waiters.len()));
                assert_eq!(self.fair.cancel(&group, number), None);
            }
            85..93 if is_alive => {
                self.naive.come(index, &self.fair);
                let weight = self.rng.bool().then(|| self.rng.u32(1..=10_000));
                self.fair.configure(&group, Setting::Weight(weight), &mut watch);
                self.naive.0[index].weight = weight.unwrap_or(WEIGHT_USUAL);
            }
            93..99 if is_alive => {
                self.naive.come(index, &self.fair);
                self.note_close();
                let limit = self.rng.bool().then(|| self.rng.u32(0..3));
                self.fair.configure(&group, Setting::Limit(limit), &mut watch);
                self.naive.0[index].limit = limit;
            }
            99 if index > 1 && self.rng.u32(0..4) == 0 => self.kill(index),
            _ => {}
        }
        self.naive.step();
        self.let_in();
        let waiting = self.naive.0.iter().map(|level| level.waiters.len()).sum::<usize>();
        assert_eq!(self.fair.waiting(), waiting);
        if self.in_flight.len() < self.places as usize {
            assert!(!self.naive.is_ready(0), "a place is free, and somebody could have it");
        }
    }

    /// Lets time pass, by which some may become late.
    fn wait(&mut self) {
        let time = self.rng.u64(0..1000);
        self.now += Duration::from_nanos(time);
        self.fair.tick(self.now, self.places);
        if self.is_timed {
            let parallel = i128::from(self.places.min(self.cpus));
            let held = (i128::from(time) << 20) * parallel / i128::from(8 * self.places);
            self.held += held;
            self.naive.wait(held);
        }
        let (now, deadlines) = (self.now, &self.deadlines);
        let is_late = |number| deadlines.get(&number).is_some_and(|&deadline| deadline <= now);
        for level in &mut self.naive.0 {
            for number in level.waiters.extract_if(.., |number| is_late(*number)) {
                assert_eq!(self.fair.take_outcome(number), Some(Outcome::Failed(Why::Late)));
            }
        }
        self.naive.step();
    }

    fn note_close(&mut self) {
        if !self.naive.is_needed() {
            self.held = 0;
        }
    }

    fn join(&mut self, index: usize) {
        self.naive.come(index, &self.fair);
        // Some of them have already passed.
        let deadline = self.rng.bool().then(|| {
            self.now + Duration::from_nanos(self.rng.u64(0..20_000)) - Duration::from_nanos(1_000)
        });
        let (group, waker) = (self.naive.group(index), Waker::noop().clone());
        let used = self.is_timed.then_some(self.used[index]);
        let has_place = self.in_flight.len() < self.places as usize;
        let joined = self.fair.join(group, waker, deadline, used, has_place, &mut watch);
        let will_wait = !has_place || !self.naive.would_enter(index);
        let lengths = self.naive.0.iter().map(|level| level.waiters.len());
        let (own, longest) = (self.naive.0[index].waiters.len(), lengths.clone().max());
        let longest = longest.expect("the root's at least");
        let is_full = lengths.sum::<usize>() >= self.bounds.all;
        let expected = if !will_wait {
            None
        } else if deadline.is_some_and(|deadline| deadline <= self.now) {
            Some(Why::Late)
        } else if own >= self.bounds.by_group {
            Some(Why::FullForGroup)
        } else {
            (is_full && longest <= own + 1).then_some(Why::Full)
        };
        assert_eq!(joined.err(), expected);
        let Ok(number) = joined else { return };
        if is_full && will_wait {
            let fair = &mut self.fair;
            let mut is_displaced =
                |number: &u64| fair.take_outcome(*number) == Some(Outcome::Failed(Why::Displaced));
            let longest = self.naive.0.iter_mut().filter(|level| level.waiters.len() == longest);
            let found = longest.map(|level| &mut level.waiters).find_map(|waiters| {
                waiters.last().is_some_and(&mut is_displaced).then(|| waiters.pop())
            });
            assert!(found.is_some(), "the latest of one that has most");
        }
        self.naive.0[index].waiters.push(number);
        self.deadlines.extend(deadline.map(|deadline| (number, deadline)));
    }

    /// Ends work in flight, or work that has not asked yet whether it is.
    fn end(&mut self) {
        let at = self.rng.usize(0..self.in_flight.len());
        let (index, by_line) = self.in_flight.swap_remove(at);
        // Mostly little, but up to a billion.
        let most = 1 << self.rng.u32(0..30);
        let (cost, group) = (self.rng.u64(1..=most), self.naive.group(index).clone());
        let Some((number, expected)) = by_line else {
            self.note_close();
            let own = &self.naive.0[index];
            let takes_part = !own.waiters.is_empty() || own.own.in_flight() > 0;
            let (among, held) = match self.is_timed {
                true => (own.own.in_flight() + 1, self.held),
                false => (1, 0),
            };
            let (knows, used) = (self.fair.knows(&group), self.use_up(index, cost));
            self.fair.complete_other(&group, used);
            if if self.is_timed { takes_part } else { knows } {
                self.naive.count(index, cost, among, held);
            }
            return;
        };
        if self.rng.u32(0..4) == 0 {
            assert_eq!(self.fair.cancel(&group, number), Some(expected));
            self.naive.leave(index, expected, None);
            return;
        }
        assert_eq!(self.fair.take_outcome(number), Some(Outcome::Granted(expected)));
        let used = self.use_up(index, cost);
        self.fair.complete(&group, expected, used);
        let among = if self.is_timed { self.naive.0[index].own.in_flight() } else { 1 };
        self.naive.leave(index, expected, Some((cost, among)));
    }

    fn use_up(&mut self, index: usize, cost: u64) -> Used {
        self.used[index] += cost - 1;
        if self.is_timed { Used::CpuTime(self.used[index]) } else { Used::Cost(cost) }
    }

    /// Kills a group without children: if it had any, those below would be dead as well.
    fn kill(&mut self, index: usize) {
        if self.naive.children(index).next().is_some() {
            return;
        }
        self.fair.kill(self.naive.group(index).id());
        let level = &mut self.naive.0[index];
        (level.weight, level.limit, level.is_dead) = (WEIGHT_USUAL, None, true);
        for number in std::mem::take(&mut level.waiters) {
            assert_eq!(self.fair.take_outcome(number), Some(Outcome::Failed(Why::Killed)));
        }
    }

    /// Admits as many as there are places for, and checks each choice.
    fn let_in(&mut self) {
        while self.fair.is_ready() && self.in_flight.len() < self.places as usize {
            self.fair.admit();
            let (fair, levels) = (&self.fair, self.naive.0.iter().enumerate());
            let found = levels.filter_map(|(at, level)| Some((at, *level.waiters.first()?)));
            let mut granted =
                found.filter_map(|(at, number)| Some((at, number, fair.granted(number)?)));
            let (at, number, expected) = granted.next().expect("one that waits was let in");
            drop(granted);
            self.naive.admit(at, number, expected, &self.fair);
            self.in_flight.push((at, Some((number, expected))));
        }
    }

    /// Ends everything, after which nothing may be left.
    fn must_come_to_nothing(mut self) {
        for at in 1..self.naive.0.len() {
            let group = self.naive.group(at).clone();
            self.fair.configure(&group, Setting::Weight(None), &mut watch);
            self.fair.configure(&group, Setting::Limit(None), &mut watch);
            for number in std::mem::take(&mut self.naive.0[at].waiters) {
                self.fair.cancel(&group, number);
            }
        }
        for (index, by_line) in std::mem::take(&mut self.in_flight) {
            let group = self.naive.group(index);
            match by_line {
                Some((number, expected)) => {
                    assert!(self.fair.take_outcome(number).is_some());
                    self.fair.complete(group, expected, Used::Cost(1));
                }
                None => self.fair.complete_other(group, Used::Cost(1)),
            }
        }
        let left = (self.fair.nodes(), self.fair.waiting(), self.fair.is_needed());
        assert_eq!(left, (0, 0, false), "nothing is left");
        assert!(!self.fair.has_outcomes(), "all were told");
    }
}
