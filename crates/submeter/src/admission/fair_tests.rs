//! The queue beside a naive one, and what fair means.

use std::pin::Pin;
use std::task::Waker;
use std::time::Instant;

use submeter_percpu::slots::Line;

use super::error::Why;
use super::fair::{Fair, WEIGHT_USUAL};
use super::parts::{Bounds, Comes, Outcome, Setting, Used};
use super::tests::{admitted, tree, waits};
use super::{Admission, Admitted, Admitting};
use crate::switch::clock;
use crate::{Group, Schema, Tree};

/// A level of the naive queue: looks at all there is at each step, and forgets nothing.
struct Level {
    group: Option<Group>,
    up: usize,
    weight: u32,
    limit: Option<u32>,
    waiters: Vec<u64>,
    in_flight: u32,
    /// Where it would be if nothing were in flight.
    ended_at: i128,
    /// What each of those in flight there counts for.
    expected: Vec<i128>,
    own_at: i128,
    now: i128,
    /// Whether it could be let in, and whether what waits in the group itself could.
    was_ready: bool,
    own_was_ready: bool,
    is_dead: bool,
}

struct Naive(Vec<Level>);

fn taken(cost: i128, weight: u32) -> i128 {
    (cost << 20) / i128::from(weight)
}

fn nothing_free() -> Comes {
    Comes { at: Instant::now(), has_place: false }
}

impl Naive {
    fn new(tree: &Tree, rng: &mut fastrand::Rng) -> Naive {
        let level = |group, up| Level {
            group,
            up,
            weight: WEIGHT_USUAL,
            limit: None,
            waiters: Vec::new(),
            in_flight: 0,
            ended_at: 0,
            expected: Vec::new(),
            own_at: 0,
            now: 0,
            was_ready: false,
            own_was_ready: false,
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

    /// Where a level is in the time above: what has ended by the weights of those times, and what
    /// is in flight by the present one.
    fn at(&self, index: usize) -> i128 {
        let level = &self.0[index];
        level.ended_at + taken(level.expected.iter().sum(), level.weight)
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
        any && level.limit.is_none_or(|limit| level.in_flight < limit)
    }

    fn is_idle(&self, at: usize) -> bool {
        let level = &self.0[at];
        let alone = level.waiters.is_empty() && level.in_flight == 0;
        alone && self.children(at).all(|child| self.is_idle(child))
    }

    /// After each step: who could not be let in and can now begins at its level's time; a level at
    /// which nothing is left has no past.
    fn step(&mut self) {
        for at in 0..self.0.len() {
            let (is_ready, now) = (self.is_ready(at), self.0[self.0[at].up].now);
            let behind = now - self.at(at);
            let level = &mut self.0[at];
            if is_ready && !std::mem::replace(&mut level.was_ready, is_ready) && at > 0 {
                level.ended_at += behind.max(0);
            }
            level.was_ready = is_ready;
            let own_is_ready = !level.waiters.is_empty();
            if own_is_ready && !level.own_was_ready {
                level.own_at = level.own_at.max(level.now);
            }
            level.own_was_ready = own_is_ready;
        }
        for at in (0..self.0.len()).rev().filter(|&at| self.is_idle(at)).collect::<Vec<_>>() {
            let farthest = self.children(at).map(|child| self.at(child)).max();
            let level = &mut self.0[at];
            level.now = level.now.max(level.own_at).max(farthest.unwrap_or(0));
        }
    }

    /// Has groups that nothing is remembered of begin a turn behind the time above.
    fn come(&mut self, index: usize, fair: &Fair) {
        for at in self.path(index).into_iter().rev().filter(|&at| at > 0) {
            if !fair.knows(self.group(at)) {
                self.0[at].ended_at = self.0[self.0[at].up].now + fair.debit();
            }
        }
    }

    fn charge(&mut self, index: usize, cost: i128) {
        self.0[index].own_at += taken(cost, WEIGHT_USUAL);
        for at in self.path(index) {
            let level = &mut self.0[at];
            level.ended_at += taken(cost, level.weight);
        }
    }

    /// Checks that `index` has got least far at each level, among those that can be let in.
    fn admit(&mut self, index: usize, number: u64, expected: u64) {
        let mut path = self.path(index);
        path.reverse();
        for pair in 0..path.len() {
            let (up, child) = (path[pair], path.get(pair + 1).copied());
            let others = self.children(up).filter(|&child| self.is_ready(child));
            let own = (!self.0[up].waiters.is_empty()).then_some(self.0[up].own_at);
            let least = others.map(|child| self.at(child)).chain(own).min();
            let at = child.map_or(self.0[up].own_at, |child| self.at(child));
            assert_eq!(Some(at), least, "another has used less");
            let level = &mut self.0[up];
            level.now = level.now.max(at);
            level.in_flight += 1;
            assert!(level.limit.is_none_or(|limit| level.in_flight <= limit), "above a limit");
        }
        let first = self.0[index].waiters.remove(0);
        assert_eq!(first, number, "in one group who comes first goes first");
        let expected = i128::from(expected);
        self.0[index].own_at += taken(expected, WEIGHT_USUAL);
        for at in self.path(index) {
            self.0[at].expected.push(expected);
        }
        self.step();
    }

    fn leave(&mut self, index: usize, expected: u64, cost: u64) {
        let expected = i128::from(expected);
        self.0[index].own_at -= taken(expected, WEIGHT_USUAL);
        self.charge(index, i128::from(cost));
        for at in self.path(index) {
            let level = &mut self.0[at];
            level.in_flight -= 1;
            let found = level.expected.iter().position(|&one| one == expected);
            level.expected.swap_remove(found.expect("it was let in at this"));
        }
        self.step();
    }
}

/// Arrivals, ends, cancellations, weights, limits and kills in any order.
#[test]
fn fair_each_place_goes_to_whom_a_naive_queue_gives_it_and_nothing_is_lost() {
    for seed in 0..if cfg!(miri) { 2 } else { 30 } {
        let mut rng = fastrand::Rng::with_seed(seed);
        beside_a_naive_queue(&mut rng);
    }
}

fn beside_a_naive_queue(rng: &mut fastrand::Rng) {
    let (tree, mut watch) = (tree(), |_: &Group| Some(0));
    let mut naive = Naive::new(&tree, rng);
    let mut fair = Fair::new(Bounds { all: usize::MAX, by_group: usize::MAX });
    let places = rng.u32(1..5);
    let mut in_flight: Vec<(usize, u64)> = Vec::new();
    for step in 0..if cfg!(miri) { 60 } else { 1000 } {
        let is_ending = step % 300 > 250;
        let index = rng.usize(1..naive.0.len());
        let group = naive.group(index).clone();
        match rng.u32(0..100) {
            0..45 if !is_ending && !naive.0[index].is_dead => {
                naive.come(index, &fair);
                let (waker, comes) = (Waker::noop().clone(), nothing_free());
                let number = fair.join(&group, waker, None, 0, comes, &mut watch);
                naive.0[index].waiters.push(number.expect("no bound"));
                naive.step();
            }
            0..70 if !in_flight.is_empty() => {
                let (index, expected) = in_flight.swap_remove(rng.usize(0..in_flight.len()));
                let cost = rng.u64(1..1000);
                let group = naive.group(index).clone();
                fair.complete(&group, expected, Used::Cost(cost), Instant::now());
                naive.leave(index, expected, cost);
            }
            70..85 if !naive.0[index].waiters.is_empty() => {
                let waiters = &mut naive.0[index].waiters;
                let number = waiters.remove(rng.usize(0..waiters.len()));
                assert_eq!(fair.cancel(&group, number), None);
                naive.step();
            }
            85..93 if !naive.0[index].is_dead => {
                naive.come(index, &fair);
                let weight = rng.bool().then(|| rng.u32(1..=10_000));
                fair.configure(&group, Setting::Weight(weight), &mut watch);
                naive.0[index].weight = weight.unwrap_or(WEIGHT_USUAL);
                naive.step();
            }
            93..99 if !naive.0[index].is_dead => {
                naive.come(index, &fair);
                let limit = rng.bool().then(|| rng.u32(0..3));
                fair.configure(&group, Setting::Limit(limit), &mut watch);
                naive.0[index].limit = limit;
                naive.step();
            }
            // One without children: of others those below are dead as well.
            99 if index > 1 && naive.children(index).next().is_none() && rng.u32(0..4) == 0 => {
                fair.kill(group.id());
                let level = &mut naive.0[index];
                (level.weight, level.limit, level.is_dead) = (WEIGHT_USUAL, None, true);
                for number in std::mem::take(&mut level.waiters) {
                    let outcome = fair.take_outcome(number);
                    assert!(matches!(outcome, Some(Outcome::Failed(Why::Killed))));
                }
                naive.step();
            }
            _ => {}
        }
        let_in(&mut fair, &mut naive, &mut in_flight, places);
        let waiting = naive.0.iter().map(|level| level.waiters.len()).sum::<usize>();
        assert_eq!(fair.waiting(), waiting);
        if in_flight.len() < places as usize {
            assert!(!naive.is_ready(0), "a place is free, and somebody could have it");
        }
    }
    must_come_to_nothing(fair, naive, in_flight);
}

/// Has those go in for whom there is a place, and checks whether it is theirs.
fn let_in(fair: &mut Fair, naive: &mut Naive, in_flight: &mut Vec<(usize, u64)>, places: u32) {
    while fair.is_ready() && in_flight.len() < places as usize {
        fair.admit();
        let waiting = (1..naive.0.len()).filter_map(|at| Some((at, *naive.0[at].waiters.first()?)));
        let found = waiting.collect::<Vec<_>>().into_iter().find_map(|(at, number)| {
            match fair.take_outcome(number)? {
                Outcome::Granted(expected) => Some((at, number, expected)),
                Outcome::Failed(_) => None,
            }
        });
        let (at, number, expected) = found.expect("one that waits was let in");
        naive.admit(at, number, expected);
        in_flight.push((at, expected));
    }
}

/// Ends all there is, after which nothing is left.
fn must_come_to_nothing(mut fair: Fair, mut naive: Naive, in_flight: Vec<(usize, u64)>) {
    let mut watch = |_: &Group| Some(0);
    for at in 1..naive.0.len() {
        let group = naive.group(at).clone();
        fair.configure(&group, Setting::Weight(None), &mut watch);
        fair.configure(&group, Setting::Limit(None), &mut watch);
        for number in std::mem::take(&mut naive.0[at].waiters) {
            fair.cancel(&group, number);
        }
    }
    for (index, expected) in in_flight {
        fair.complete(naive.group(index), expected, Used::Cost(1), Instant::now());
    }
    assert_eq!((fair.nodes(), fair.waiting(), fair.is_needed()), (0, 0, false), "nothing is left");
}

// ---- fairness ----------------------------------------------------------------------------------

/// Works off what always waits in `groups`, of random costs around each group's own; returns what
/// each used.
fn saturated(admission: &Admission, groups: &[(&Group, u64)], ends: usize) -> Vec<u64> {
    let mut rng = fastrand::Rng::with_seed(7);
    let mut used = vec![0; groups.len()];
    let held: Vec<_> = (0..admission.limit()).map(|_| admission.try_acquire(groups[0].0)).collect();
    let several = 0..groups.len() * 8;
    let mut waiting: Vec<(usize, Pin<Box<Admitting>>)> =
        several.map(|i| (i % groups.len(), waits(admission, groups[i % groups.len()].0))).collect();
    drop(held);
    let mut in_flight = Vec::new();
    for _ in 0..ends {
        for (of, acquire) in &mut waiting {
            if let Some(admitted) = admitted(acquire) {
                in_flight.push((*of, admitted));
                *acquire = waits(admission, groups[*of].0);
            }
        }
        let (of, mut admitted) = in_flight.swap_remove(rng.usize(0..in_flight.len()));
        let cost = rng.u64(1..groups[of].1 * 2);
        admitted.set_cost(cost);
        used[of] += cost;
    }
    used
}

/// Says whether `used` is divided by `weights` to within what `most` pieces of the largest cost
/// are.
fn is_divided(used: &[u64], weights: &[u64], most: u64) -> bool {
    let (all, sum) = (used.iter().sum::<u64>(), weights.iter().sum::<u64>());
    used.iter().zip(weights).all(|(used, weight)| used.abs_diff(all * weight / sum) <= most)
}

#[test]
fn fair_groups_share_by_weight_whatever_their_requests_cost() {
    let (tree, admission) = (tree(), Admission::new(4));
    let [small, large] = ["/small", "/large"].map(|path| tree.create(path).expect("new"));
    admission.set_weight(&large, Some(300)).expect("in range");
    // One asks for little at once, the other for much.
    let used = saturated(&admission, &[(&small, 10), (&large, 1000)], 4_000);
    assert!(is_divided(&used, &[1, 3], 5 * 2000), "{used:?}");
    let used = saturated(&admission, &[(&small, 1000), (&large, 10)], 4_000);
    assert!(is_divided(&used, &[1, 3], 5 * 2000), "{used:?}");
}

#[test]
fn fair_a_group_divides_its_part_among_those_below_it() {
    let (tree, admission) = (tree(), Admission::new(3));
    let paths = ["/a", "/b/x", "/b/y"];
    let [a, x, y] = paths.map(|path| tree.get_or_create(path).expect("new"));
    let b = x.parent().expect("made with it");
    admission.set_weight(b, Some(300)).expect("in range");
    admission.set_weight(&y, Some(200)).expect("in range");
    let used = saturated(&admission, &[(&a, 100), (&x, 100), (&y, 100)], 4_000);
    assert!(is_divided(&used, &[1, 1, 2], 5 * 200), "{used:?}");
    // What waits in the group itself contends with those below it, as one of the usual weight.
    let used = saturated(&admission, &[(&a, 100), (&x, 100), (&y, 100), (b, 100)], 4_000);
    let of_b: u64 = used[1..].iter().sum();
    assert!(is_divided(&[used[0], of_b], &[1, 3], 5 * 200), "{used:?}");
    assert!(is_divided(&used[1..], &[1, 2, 1], 5 * 200), "{used:?}");
}

#[test]
fn fair_ten_thousand_tenants_each_have_a_turn_before_any_has_a_second() {
    const TENANTS: usize = if cfg!(miri) { 50 } else { 10_000 };
    let (tree, admission) = (tree(), Admission::builder(1).waiting_max(3 * TENANTS).build());
    let groups: Vec<_> =
        (0..TENANTS).map(|i| tree.create(&format!("/{i}")).expect("new")).collect();
    let held = admission.try_acquire(tree.root()).expect("free");
    // The first has as many waiting as all others together, and came first.
    let mut of_first: Vec<_> = (0..TENANTS).map(|_| waits(&admission, &groups[0])).collect();
    let of_others: Vec<_> = groups[1..].iter().map(|group| waits(&admission, group)).collect();
    assert_eq!(admission.waiting(), 2 * TENANTS - 1);
    drop(held);
    drop(admitted(&mut of_first[0]).expect("it came first"));
    for mut acquire in of_others {
        assert!(admitted(&mut of_first[1]).is_none(), "all others come before its second");
        drop(admitted(&mut acquire).expect("each lets the next in"));
    }
    drop(admitted(&mut of_first[1]).expect("and now its second"));
    drop(of_first);
    assert_eq!((admission.in_flight(), admission.waiting()), (0, 0));
    assert_eq!(admission.shared.with(|fair| fair.nodes()), Some(0), "nothing is left behind");
}

#[test]
fn one_that_wanted_nothing_has_no_credit_for_it() {
    let (tree, admission) = (tree(), Admission::new(1));
    let [busy, idle] = ["/busy", "/idle"].map(|path| tree.create(path).expect("new"));
    let mut held = admission.try_acquire(&busy).expect("free");
    let mut of_busy = [0; 2].map(|_| waits(&admission, &busy));
    let turn = |of: &mut [Pin<Box<Admitting>>; 2], group: &Group| {
        let found = of.iter_mut().find_map(|acquire| Some((admitted(acquire)?, acquire)));
        found.map(|(admitted, acquire)| {
            *acquire = waits(&admission, group);
            admitted
        })
    };
    for _ in 0..100 {
        held.set_cost(1000);
        drop(held);
        held = turn(&mut of_busy, &busy).expect("nobody else wants it");
    }
    let mut of_idle = [0; 2].map(|_| waits(&admission, &idle));
    let mut turns_of_idle = 0;
    for _ in 0..20 {
        held.set_cost(1000);
        drop(held);
        let of_idle = turn(&mut of_idle, &idle);
        turns_of_idle += usize::from(of_idle.is_some());
        held = of_idle.or_else(|| turn(&mut of_busy, &busy)).expect("one of them has it");
    }
    assert!((9..=11).contains(&turns_of_idle), "they take turns from the start");
}

/// What it counted for at one weight was given back at another: 1000 at 10,000 for 1000 at 1.
#[test]
fn a_weight_that_changes_while_work_is_in_flight_is_no_credit_and_no_debt() {
    for weights in [[10_000, 1], [1, 10_000]] {
        let (tree, admission) = (tree(), Admission::new(1));
        let [a, b] = ["/a", "/b"].map(|path| tree.create(path).expect("new"));
        let mut held = admission.try_acquire(&a).expect("free");
        let mut waiting = [&a, &b].map(|group| [0; 2].map(|_| waits(&admission, group)));
        let mut turn = |mut held: Admitted, cost| {
            held.set_cost(cost);
            drop(held);
            let found = (0..4).find_map(|at| Some((at, admitted(&mut waiting[at / 2][at % 2])?)));
            let (at, turn) = found.expect("one has the place");
            waiting[at / 2][at % 2] = waits(&admission, [&a, &b][at / 2]);
            turn
        };
        for _ in 0..100 {
            held = turn(held, 1000);
        }
        admission.set_weight(&a, Some(weights[0])).expect("in range");
        while held.group() != &a {
            held = turn(held, 1000);
        }
        // It was let in at the first weight, or is in flight at it; and ends at the second.
        admission.set_weight(&a, Some(weights[1])).expect("in range");
        held = turn(held, 1);
        admission.set_weight(&a, None).expect("none is none");
        let mut of_a = 0;
        for _ in 0..40 {
            of_a += u32::from(held.group() == &a);
            held = turn(held, 1000);
        }
        assert!((18..=22).contains(&of_a), "{of_a} of 40 turns, with {weights:?}");
    }
}

/// What the module says of it: by CPU time alone it is always before others, and keeps its places.
#[test]
fn work_that_sleeps_leaves_places_to_others_where_its_group_has_a_limit() {
    for (limit, most, all_work) in [(None, 4, false), (Some(3), 3, true)] {
        let mut schema = Schema::builder();
        let cpu = schema.cpu_time("cpu", "CPU time used");
        let tree = Tree::new(schema.build().expect("a schema")).expect("a tree");
        let [sleeps, works] = ["/sleeps", "/works"].map(|path| tree.create(path).expect("new"));
        let admission = Admission::new(4);
        admission.set_group_limit(&sleeps, limit);
        let held: Vec<_> = (0..4).map(|_| admission.try_acquire(tree.root())).collect();
        let groups = (0..110).map(|at| if at < 10 { &sleeps } else { &works });
        let mut waiting: Vec<_> = groups.map(|group| Some(waits(&admission, group))).collect();
        drop(held);
        let mut asleep = Vec::new();
        for _ in 0..110 {
            for one in &mut waiting {
                let Some(turn) = one.as_mut().and_then(admitted) else { continue };
                *one = None;
                if turn.group() == &sleeps {
                    asleep.push(turn);
                } else {
                    works.add(cpu, 1_000_000);
                }
            }
        }
        assert_eq!(asleep.len(), most);
        assert_eq!(admission.waiting_in(&works) == 0, all_work, "with {limit:?}");
    }
}

/// With CPU time that a test can set: it is a counter as any other.
#[test]
fn what_a_group_used_of_the_cpu_is_what_its_turns_cost() {
    let mut schema = Schema::builder();
    let cpu = schema.cpu_time("cpu", "CPU time used");
    let tree = Tree::new(schema.build().expect("a schema")).expect("a tree");
    let [slow, quick] = ["/slow", "/quick"].map(|path| tree.create(path).expect("new"));
    let admission = Admission::new(1);
    let mut held = admission.try_acquire(tree.root()).expect("free");
    let groups = [(&slow, 40_000), (&quick, 4_000)];
    let mut waiting = groups.map(|(group, _)| [0; 2].map(|_| waits(&admission, group)));
    let mut turns = [0_u64; 2];
    for _ in 0..1100 {
        drop(held);
        let found = (0..4).find_map(|at| Some((at, admitted(&mut waiting[at / 2][at % 2])?)));
        let (at, turn) = found.expect("one has the place");
        let (group, cost) = groups[at / 2];
        waiting[at / 2][at % 2] = waits(&admission, group);
        turns[at / 2] += 1;
        group.add(cpu, cost);
        held = turn;
    }
    // What this thread does besides is charged to no group.
    assert!(turns[0].abs_diff(100) <= 2, "ten of the quick for one of the slow: {turns:?}");
}

#[test]
fn work_that_ends_in_its_group_is_charged_before_the_next_is_chosen() {
    let mut schema = Schema::builder();
    let cpu = schema.cpu_time("cpu", "CPU time used");
    let tree = Tree::new(schema.build().expect("a schema")).expect("a tree");
    let admission = Admission::new(1);
    let held = admission.try_acquire(tree.root()).expect("free");
    let mut next = waits(&admission, tree.root());
    tree.root().run(|| {
        let end = clock::thread_cpu_ns() + 3_000_000;
        while clock::thread_cpu_ns() < end {}
        assert_eq!(tree.root().sum(cpu), 0, "the thread has not left it");
        drop(held);
        assert!(tree.root().sum(cpu) > 0);
    });
    assert!(admitted(&mut next).is_some());
}

#[test]
fn who_comes_to_a_group_whose_kill_was_told_does_not_wait() {
    let (tree, mut watch) = (tree(), |_: &Group| Some(0));
    let mut fair = Fair::new(Bounds { all: 8, by_group: 8 });
    let mut join = |fair: &mut Fair| {
        fair.join(tree.root(), Waker::noop().clone(), None, 0, nothing_free(), &mut watch)
    };
    join(&mut fair).expect("room");
    fair.admit();
    fair.kill(tree.root().id());
    // What is in flight still has its node.
    assert_eq!((fair.nodes(), join(&mut fair)), (1, Err(Why::Killed)));
}

/// Each of them would be before those that have had a turn, for ever.
#[test]
fn groups_that_are_made_for_one_request_each_keep_nobody_from_its_turns() {
    let (tree, admission) = (tree(), Admission::new(1));
    let long = tree.create("/long").expect("new");
    let mut held = admission.try_acquire(&long).expect("free");
    let mut waiting = waits(&admission, &long);
    let (mut turns, mut fresh) = (0, Vec::new());
    for request in 0..300 {
        // There is always one.
        if fresh.is_empty() {
            let group = tree.create(&format!("/{request}")).expect("new");
            fresh.push((waits(&admission, &group), group));
        }
        drop(held);
        if let Some(turn) = admitted(&mut waiting) {
            turns += 1;
            waiting = waits(&admission, &long);
            held = turn;
        } else {
            let ready = |(at, one): (usize, &mut (_, _))| Some((at, admitted(&mut one.0)?));
            let found = fresh.iter_mut().enumerate().find_map(ready);
            let (at, turn) = found.expect("one has the place");
            held = turn;
            fresh.swap_remove(at).1.kill().expect("alive");
        }
    }
    assert!(turns > 50, "{turns} of 300");
}
