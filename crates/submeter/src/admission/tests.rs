//! The queue beside a naive one, and what its faces promise.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Barrier};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use submeter_percpu::slots::Line;

use super::fair::{Fair, Outcome, Setting, Used, WEIGHT_USUAL};
use super::{Acquire, Admission, AdmissionError, Admitted, Bounds};
use crate::{Group, Schema, Tree};

/// Longer than any machine takes for what should happen at once.
const LONG: Duration = Duration::from_secs(30);

fn tree() -> Tree {
    Tree::new(Schema::builder().build().expect("a schema")).expect("a tree")
}

fn poll(acquire: &mut Pin<&mut Acquire>) -> Poll<Result<Admitted, AdmissionError>> {
    acquire.as_mut().poll(&mut Context::from_waker(Waker::noop()))
}

fn waits(admission: &Admission, group: &Group) -> Pin<Box<Acquire>> {
    let mut acquire = Box::pin(admission.acquire(group));
    assert!(poll(&mut acquire.as_mut()).is_pending());
    acquire
}

fn admitted(acquire: &mut Pin<Box<Acquire>>) -> Option<Admitted> {
    match poll(&mut acquire.as_mut()) {
        Poll::Ready(admitted) => Some(admitted.expect("let in")),
        Poll::Pending => None,
    }
}

// ---- beside a naive queue ------------------------------------------------------------------------

/// A level of the naive queue: looks at all there is at each step, and forgets nothing.
struct Level {
    group: Option<Group>,
    up: usize,
    weight: u32,
    limit: Option<u32>,
    waiters: Vec<u64>,
    in_flight: u32,
    at: i128,
    own_at: i128,
    now: i128,
    /// Whether it could be let in, and whether what waits in the group itself could.
    was_ready: bool,
    own_was_ready: bool,
    is_dead: bool,
}

struct Naive(Vec<Level>);

impl Naive {
    fn new(tree: &Tree, rng: &mut fastrand::Rng) -> Naive {
        let level = |group, up| Level {
            group,
            up,
            weight: WEIGHT_USUAL,
            limit: None,
            waiters: Vec::new(),
            in_flight: 0,
            at: 0,
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
            let level = &mut self.0[at];
            if is_ready && !std::mem::replace(&mut level.was_ready, is_ready) && at > 0 {
                level.at = level.at.max(now);
            }
            level.was_ready = is_ready;
            let own_is_ready = !level.waiters.is_empty();
            if own_is_ready && !level.own_was_ready {
                level.own_at = level.own_at.max(level.now);
            }
            level.own_was_ready = own_is_ready;
        }
        for at in (0..self.0.len()).rev().filter(|&at| self.is_idle(at)).collect::<Vec<_>>() {
            let farthest = self.children(at).map(|child| self.0[child].at).max();
            let level = &mut self.0[at];
            level.now = level.now.max(level.own_at).max(farthest.unwrap_or(0));
        }
    }

    fn charge(&mut self, index: usize, cost: i128) {
        let taken = |weight: u32| (cost << 20) / i128::from(weight);
        self.0[index].own_at += taken(WEIGHT_USUAL);
        for at in self.path(index) {
            let level = &mut self.0[at];
            level.at += taken(level.weight);
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
            let least = others.map(|child| self.0[child].at).chain(own).min();
            let at = child.map_or(self.0[up].own_at, |child| self.0[child].at);
            assert_eq!(Some(at), least, "another has used less");
            let level = &mut self.0[up];
            level.now = level.now.max(at);
            level.in_flight += 1;
            assert!(level.limit.is_none_or(|limit| level.in_flight <= limit), "above a limit");
        }
        let first = self.0[index].waiters.remove(0);
        assert_eq!(first, number, "in one group who comes first goes first");
        self.charge(index, i128::from(expected));
        self.step();
    }

    fn leave(&mut self, index: usize, correction: i128) {
        self.charge(index, correction);
        for at in self.path(index) {
            self.0[at].in_flight -= 1;
        }
        self.step();
    }
}

/// Arrivals, ends, cancellations, weights, limits and kills in any order.
#[test]
fn fair_each_place_goes_to_whom_a_naive_queue_gives_it_and_nothing_is_lost() {
    for seed in 0..if cfg!(miri) { 2 } else { 60 } {
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
    for step in 0..if cfg!(miri) { 60 } else { 1500 } {
        let is_ending = step % 300 > 250;
        let index = rng.usize(1..naive.0.len());
        let group = naive.group(index).clone();
        match rng.u32(0..100) {
            0..45 if !is_ending && !naive.0[index].is_dead => {
                let number = fair.join(&group, Waker::noop().clone(), None, 0, &mut watch);
                naive.0[index].waiters.push(number.expect("no bound"));
                naive.step();
            }
            0..70 if !in_flight.is_empty() => {
                let (index, expected) = in_flight.swap_remove(rng.usize(0..in_flight.len()));
                let cost = rng.u64(1..1000);
                let group = naive.group(index).clone();
                fair.complete(&group, expected, Used::Cost(cost), Instant::now());
                naive.leave(index, i128::from(cost) - i128::from(expected));
            }
            70..85 if !naive.0[index].waiters.is_empty() => {
                let waiters = &mut naive.0[index].waiters;
                let number = waiters.remove(rng.usize(0..waiters.len()));
                assert_eq!(fair.cancel(&group, number), None);
                naive.step();
            }
            85..93 if !naive.0[index].is_dead => {
                let weight = rng.bool().then(|| rng.u32(1..=10_000));
                fair.configure(&group, Setting::Weight(weight), &mut watch);
                naive.0[index].weight = weight.unwrap_or(WEIGHT_USUAL);
                naive.step();
            }
            93..99 if !naive.0[index].is_dead => {
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
                    assert!(matches!(outcome, Some(Outcome::Failed(super::error::Why::Killed))));
                }
                naive.step();
            }
            _ => {}
        }
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
        let waiting = naive.0.iter().map(|level| level.waiters.len()).sum::<usize>();
        assert_eq!(fair.waiting(), waiting);
        if in_flight.len() < places as usize {
            assert!(!naive.is_ready(0), "a place is free, and somebody could have it");
        }
    }
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

// ---- fairness ------------------------------------------------------------------------------------

/// Works off what always waits in `groups`, of random costs around each group's own; returns what
/// each used.
fn saturated(admission: &Admission, groups: &[(&Group, u64)], ends: usize) -> Vec<u64> {
    let mut rng = fastrand::Rng::with_seed(7);
    let mut used = vec![0; groups.len()];
    let held: Vec<_> = (0..admission.limit()).map(|_| admission.try_acquire(groups[0].0)).collect();
    let several = 0..groups.len() * 8;
    let mut waiting: Vec<(usize, Pin<Box<Acquire>>)> =
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

/// Says whether `used` is divided by `weights` to within what `most` pieces of the largest cost are.
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
    let used = saturated(&admission, &[(&small, 10), (&large, 1000)], 20_000);
    assert!(is_divided(&used, &[1, 3], 5 * 2000), "{used:?}");
    let used = saturated(&admission, &[(&small, 1000), (&large, 10)], 20_000);
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
    let used = saturated(&admission, &[(&a, 100), (&x, 100), (&y, 100)], 20_000);
    assert!(is_divided(&used, &[1, 1, 2], 5 * 200), "{used:?}");
    // What waits in the group itself contends with those below it, as one of the usual weight.
    let used = saturated(&admission, &[(&a, 100), (&x, 100), (&y, 100), (b, 100)], 20_000);
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
    let turn = |of: &mut [Pin<Box<Acquire>>; 2], group: &Group| {
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

// ---- faces ---------------------------------------------------------------------------------------

#[test]
fn a_place_that_comes_free_is_for_who_waits_and_a_drop_hands_it_on() {
    let (tree, admission) = (tree(), Admission::new(1));
    let held = admission.try_acquire(tree.root()).expect("free");
    let [mut first, mut second] = [0; 2].map(|_| waits(&admission, tree.root()));
    drop(held);
    assert!(admission.try_acquire(tree.root()).is_err_and(|error| error.is_late()));
    assert!(admitted(&mut second).is_none(), "another was first");
    // It was let in by then, and nobody has asked.
    drop(first);
    first = second;
    assert!(admitted(&mut first).is_some());
    assert_eq!((admission.in_flight(), admission.waiting()), (0, 0));
}

#[test]
fn waits_end_with_the_kill_of_their_group_and_hold_up_no_release() {
    let (tree, admission) = (tree(), Admission::new(1));
    let web = tree.get_or_create("/acme/web").expect("new");
    let mail = tree.get_or_create("/acme/mail").expect("new");
    admission.set_weight(&mail, Some(7)).expect("in range");
    admission.set_group_limit(&mail, Some(7));
    let held = admission.try_acquire(tree.root()).expect("free");
    let mut waiting = [&web, &web, &mail].map(|group| waits(&admission, group));
    let killed = tree.get("/acme").expect("above").kill_subtree().expect("alive");
    for acquire in &mut waiting {
        let ended = match poll(&mut acquire.as_mut()) {
            Poll::Ready(ended) => ended.expect_err("killed"),
            Poll::Pending => panic!("it ends at once"),
        };
        assert!(ended.is_killed() && ended.retry_after().is_none());
    }
    assert!(admission.try_acquire(&web).is_err_and(|error| error.is_killed()));
    assert_eq!((admission.waiting(), admission.weight(&mail)), (0, None));
    drop((waiting, web, mail));
    for killed in &killed {
        killed.wait_released(LONG).expect("nothing holds it");
    }
    drop(held);
    assert!(admission.try_acquire(tree.root()).is_ok(), "one exchange again");
    assert_eq!(admission.shared.with(|fair| fair.is_needed()), Some(false));
}

#[test]
fn a_group_that_is_killed_while_it_is_weighed_is_let_go() {
    let (tree, admission) = (tree(), Admission::new(1));
    let web = tree.create("/web").expect("new");
    admission.set_weight(&web, Some(7)).expect("in range");
    let killed = web.kill().expect("alive");
    admission.set_weight(&web, Some(9)).expect("in range");
    assert_eq!(admission.weight(&web), None, "nothing would end it");
    drop(web);
    killed.wait_released(LONG).expect("the queue has let go of it");
}

#[test]
fn a_queue_that_is_dropped_lets_go_of_all_groups() {
    let (tree, admission) = (tree(), Admission::new(1));
    let web = tree.create("/web").expect("new");
    admission.set_weight(&web, Some(7)).expect("in range");
    drop(admission);
    assert_eq!(web.inner.extras.kill_waits().len(), 0);
    let killed = web.kill().expect("alive");
    drop(web);
    killed.wait_released(LONG).expect("nothing holds it");
}

#[test]
fn one_that_fills_the_queue_takes_no_places_of_others() {
    let (tree, admission) = (tree(), Admission::builder(1).waiting_max(4).build());
    let [heavy, light] = ["/heavy", "/light"].map(|path| tree.create(path).expect("new"));
    let _held = admission.try_acquire(tree.root()).expect("free");
    let mut of_heavy: Vec<_> = (0..4).map(|_| waits(&admission, &heavy)).collect();
    let mut fifth = pin!(admission.acquire(&heavy));
    assert!(matches!(poll(&mut fifth), Poll::Ready(Err(error)) if error.is_full()));
    let of_light: Vec<_> = (0..2).map(|_| waits(&admission, &light)).collect();
    let mut third = pin!(admission.acquire(&light));
    assert!(matches!(poll(&mut third), Poll::Ready(Err(error)) if error.is_full()));
    let ended = of_heavy.iter_mut().map(|acquire| match poll(&mut acquire.as_mut()) {
        Poll::Ready(ended) => ended.is_err_and(|error| error.is_displaced()),
        Poll::Pending => false,
    });
    assert_eq!(ended.collect::<Vec<_>>(), [false, false, true, true], "the latest of the longest");
    assert_eq!((admission.waiting_in(&heavy), of_light.len()), (2, 2));
}

#[test]
fn what_is_late_is_never_let_in() {
    let (tree, admission) = (tree(), Admission::new(1));
    let held = admission.try_acquire(tree.root()).expect("free");
    let mut late = Box::pin(admission.acquire(tree.root()).within(Duration::from_millis(1)));
    assert!(poll(&mut late.as_mut()).is_pending());
    let mut patient = waits(&admission, tree.root());
    std::thread::sleep(Duration::from_millis(2));
    drop(held);
    let turn = admitted(&mut patient).expect("the one before it was late");
    assert!(matches!(poll(&mut late.as_mut()), Poll::Ready(Err(error)) if error.is_late()));
    drop(turn);
    // A deadline that has passed is a last attempt, and one that nobody can name is none.
    let at_once = admission.acquire_timeout(tree.root(), Duration::ZERO);
    assert!(at_once.is_ok());
    let again = admission.acquire_timeout(tree.root(), Duration::from_millis(1));
    assert!(again.is_err_and(|error| error.is_late()), "it asks inside of what was let in");
    drop(at_once);
    assert!(admission.acquire_timeout(tree.root(), Duration::MAX).is_ok());
}

#[test]
fn a_limit_of_a_group_holds_below_it_and_leaves_places_to_others() {
    let (tree, admission) = (tree(), Admission::new(8));
    let [x, y, other] = ["/a/x", "/a/y", "/o"].map(|path| tree.get_or_create(path).expect("new"));
    let a = x.parent().expect("above").clone();
    admission.set_group_limit(&a, Some(2));
    let held = [&x, &y].map(|group| admission.try_acquire(group).expect("two"));
    let mut third = waits(&admission, &x);
    let others: Vec<_> = (0..6).map(|_| admission.try_acquire(&other)).collect();
    assert!(others.iter().all(Result::is_ok), "who waits for its own limit holds up nobody");
    drop(others);
    assert!(admitted(&mut third).is_none());
    admission.set_group_limit(&a, Some(3));
    let third = admitted(&mut third).expect("another place");
    assert_eq!(admission.group_limit(&a), Some(3));
    admission.set_group_limit(&a, None);
    assert!(admission.try_acquire(&x).is_ok());
    drop((held, third));
}

#[test]
fn bad_input_is_refused_or_has_the_effect_it_says() {
    let (tree, admission) = (tree(), Admission::new(0));
    let web = tree.create("/web").expect("new");
    assert!(admission.try_acquire(&web).is_err_and(|error| error.is_late()), "nothing is let in");
    for weight in [0, 10_001] {
        let error = admission.set_weight(&web, Some(weight)).expect_err("out of range");
        assert!(error.to_string().contains("give one from 1 to 10000"));
    }
    assert_eq!(admission.weight(&web), None);
    let mut waiting = waits(&admission, &web);
    admission.set_group_limit(&web, Some(0));
    admission.set_limit(1);
    assert!(admitted(&mut waiting).is_none(), "its group's limit is 0");
    admission.set_group_limit(&web, None);
    assert!(admitted(&mut waiting).is_some());
    admission.set_limit(u32::MAX);
    assert_eq!(admission.limit(), super::SLOTS_MAX);
}

#[test]
fn a_refusal_names_nobody_else_to_the_tenant() {
    let (tree, admission) = (tree(), Admission::builder(1).waiting_max(1).build());
    let [web, secret] = ["/web", "/secret"].map(|path| tree.create(path).expect("new"));
    let _held = admission.try_acquire(&secret).expect("free");
    let _waits = waits(&admission, &secret);
    let refused = admission.acquire_blocking(&web).expect_err("one may wait");
    assert_eq!(refused.to_string(), "too much is asked for by all together");
    let detail = "/web: too much is asked for by all together; 1 of 1 in flight, 1 wait, \
                  0 of them there";
    assert_eq!(refused.detail().to_string(), detail);
}

#[test]
fn a_refusal_says_how_fast_places_come_free() {
    let (tree, admission) = (tree(), Admission::builder(1).waiting_max(2).build());
    let mut held = admission.try_acquire(tree.root()).expect("free");
    for _ in 0..4 {
        let mut next = waits(&admission, tree.root());
        let _another = waits(&admission, tree.root());
        drop(held);
        held = admitted(&mut next).expect("it was first");
    }
    let _waiting = [0; 2].map(|_| waits(&admission, tree.root()));
    let refused = admission.acquire_blocking(tree.root()).expect_err("two may wait");
    assert!(refused.retry_after().is_some_and(|after| after < LONG));
}

// ---- threads -------------------------------------------------------------------------------------

#[test]
fn threads_that_come_go_and_give_up_lose_nothing_stress() {
    const THREADS: usize = 8;
    const PLACES: u32 = 3;
    let rounds = if cfg!(miri) { 20 } else { 2_000 };
    let (tree, admission) = (tree(), Admission::builder(PLACES).waiting_max(6).build());
    let groups = ["/a/x", "/a/y", "/b"].map(|path| tree.get_or_create(path).expect("new"));
    let (inside, turns) = (AtomicU64::new(0), &AtomicU64::new(0));
    let all = Barrier::new(THREADS);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (admission, groups, inside, all) = (&admission, &groups, &inside, &all);
            scope.spawn(move || {
                let mut rng = fastrand::Rng::with_seed(thread as u64);
                let work = |admitted: Admitted| {
                    // Relaxed, all: the places are what is tested.
                    assert!(inside.fetch_add(1, Ordering::Relaxed) < u64::from(PLACES));
                    turns.fetch_add(1, Ordering::Relaxed);
                    inside.fetch_sub(1, Ordering::Relaxed);
                    drop(admitted);
                };
                all.wait();
                for _ in 0..rounds {
                    let group = &groups[rng.usize(0..groups.len())];
                    match rng.u32(0..8) {
                        0..3 => {
                            // Given up at once, let in or not.
                            let mut acquire = Box::pin(admission.acquire(group));
                            _ = poll(&mut acquire.as_mut());
                        }
                        3 => _ = admission.try_acquire(group).map(work),
                        4 => {
                            let timeout = Duration::from_micros(rng.u64(0..50));
                            _ = admission.acquire_timeout(group, timeout).map(work);
                        }
                        5 if rng.u32(0..20) == 0 => {
                            let limit = rng.bool().then_some(1);
                            admission.set_group_limit(group, limit);
                        }
                        _ => _ = admission.acquire_blocking(group).map(work),
                    }
                }
            });
        }
    });
    groups.iter().for_each(|group| admission.set_group_limit(group, None));
    assert_eq!((admission.in_flight(), admission.waiting()), (0, 0));
    assert_eq!(admission.shared.with(|fair| fair.nodes()), Some(0));
    // Relaxed: after the threads.
    assert!(turns.load(Ordering::Relaxed) > 0);
    assert!(admission.try_acquire(&groups[0]).is_ok());
}

#[test]
fn groups_that_are_killed_while_threads_wait_end_all_waits_stress() {
    let (tree, admission) = (Arc::new(tree()), Admission::new(1));
    for round in 0..if cfg!(miri) { 3 } else { 100 } {
        let web = tree.create("/web").expect("it was killed");
        let held = admission.try_acquire(tree.root()).expect("free");
        std::thread::scope(|scope| {
            let waiting: Vec<_> =
                (0..3).map(|_| scope.spawn(|| admission.acquire_blocking(&web))).collect();
            if round % 2 == 0 {
                while admission.waiting() < 3 {
                    std::thread::yield_now();
                }
            }
            web.kill().expect("alive");
            for waits in waiting {
                let ended = waits.join().expect("no panic");
                assert!(ended.expect_err("killed").is_killed());
            }
        });
        drop(held);
        assert_eq!((admission.in_flight(), admission.waiting()), (0, 0));
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
