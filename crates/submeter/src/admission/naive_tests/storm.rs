//! A storm of events, over which both queues must agree.

use std::collections::HashMap;
use std::task::Waker;
use std::time::{Duration, Instant};

use submeter_percpu::LimitMode;
use submeter_percpu::slots::Line;

use super::Naive;
use crate::admission::error::Why;
use crate::admission::fair::{Fair, WEIGHT_USUAL};
use crate::admission::parts::{Bounds, Outcome, Setting, Used};
use crate::admission::tests::{timed_tree, tree};
use crate::{Group, Tree};

/// Each place goes where a naive queue gives it, and nothing is lost.
///
/// Arrivals, ends, deadlines, cancellations before and after the grant, bounds, weights, limits and
/// kills in any order. `SUBMETER_STRESS=N` tries N times as many seeds.
#[test]
fn fair_places_go_where_a_naive_queue_gives_them() {
    let factor = std::env::var("SUBMETER_STRESS").ok().and_then(|n| n.parse().ok()).unwrap_or(1);
    let mut overdrafts = 0;
    for seed in 0..factor * if cfg!(miri) { 3 } else { 48 } {
        let mut storm = Storm::new(fastrand::Rng::with_seed(seed), seed % 3 > 0, seed % 2 > 0);
        for step in 0..if cfg!(miri) { 60 } else { 1000 } {
            storm.step(step % 300 > 250);
        }
        overdrafts += storm.naive.0.iter().map(|level| level.overdrafts).sum::<u64>();
        storm.must_come_to_nothing();
    }
    assert!(cfg!(miri) || overdrafts > 0, "soft limits were exceeded");
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
            93..97 if is_alive => {
                self.naive.come(index, &self.fair);
                self.note_close();
                let limit = self.rng.bool().then(|| self.rng.u32(0..3));
                self.fair.configure(&group, Setting::Limit(limit), &mut watch);
                let level = &mut self.naive.0[index];
                (level.limit, level.overdrafts) = (limit, limit.map_or(0, |_| level.overdrafts));
            }
            97..99 if is_alive => {
                self.naive.come(index, &self.fair);
                let mode = [LimitMode::Enforced, LimitMode::Soft][self.rng.usize(0..2)];
                self.fair.configure(&group, Setting::Mode(mode), &mut watch);
                self.naive.0[index].mode = mode;
            }
            99 if index > 1 && self.rng.u32(0..4) == 0 => self.kill(index),
            _ => {}
        }
        self.naive.step();
        self.let_in();
        let waiting = self.naive.0.iter().map(|level| level.waiters.len()).sum::<usize>();
        assert_eq!(self.fair.waiting(), waiting);
        let overdrafts = self.fair.state(&group).overdrafts;
        assert_eq!(overdrafts, self.naive.0[index].overdrafts);
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
        let own = self.naive.0[index].waiters.len();
        let is_full = self.naive.waiting(0) >= self.bounds.all;
        let expected = if !will_wait {
            None
        } else if deadline.is_some_and(|deadline| deadline <= self.now) {
            Some(Why::Late)
        } else if own >= self.bounds.by_group {
            Some(Why::FullForGroup)
        } else {
            (is_full && self.naive.displaced(index).is_empty()).then_some(Why::Full)
        };
        assert_eq!(joined.err(), expected);
        let Ok(number) = joined else { return };
        if is_full && will_wait {
            let displaced = self.naive.displaced(index).into_iter().find(|&level| {
                let latest = self.naive.0[level].waiters.last().expect("it has most");
                self.fair.take_outcome(*latest) == Some(Outcome::Failed(Why::Displaced))
            });
            self.naive.0[displaced.expect("the latest of one that has most")].waiters.pop();
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
        (level.mode, level.overdrafts) = (LimitMode::Enforced, 0);
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
            self.fair.configure(&group, Setting::Mode(LimitMode::Enforced), &mut watch);
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
