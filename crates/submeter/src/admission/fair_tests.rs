//! What fair means.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};

use submeter_percpu::slots::Line;

use super::error::Why;
use super::fair::Fair;
use super::parts::Bounds;
use super::tests::{admitted, timed_tree, tree, waits};
use super::{Admission, Admitted, Admitting};
use crate::switch::clock;
use crate::{Group, Schema, Tree};

/// Works off what always waits in `groups`, at random costs around each group's own. Returns what
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

/// Returns whether `used` is divided by `weights`, to within `most` pieces of the largest cost.
fn is_divided(used: &[u64], weights: &[u64], most: u64) -> bool {
    let (all, sum) = (used.iter().sum::<u64>(), weights.iter().sum::<u64>());
    used.iter().zip(weights).all(|(used, weight)| used.abs_diff(all * weight / sum) <= most)
}

#[test]
fn fair_weights_decide_whatever_requests_cost() {
    let (tree, admission) = (tree(), Admission::new(4));
    let [small, large] = ["/small", "/large"].map(|path| tree.create(path).expect("new"));
    admission.set_weight(&large, Some(300)).expect("in range");
    // One asks for a little at a time, the other for a lot.
    let used = saturated(&admission, &[(&small, 10), (&large, 1000)], 4_000);
    assert!(is_divided(&used, &[1, 3], 5 * 2000), "{used:?}");
    let used = saturated(&admission, &[(&small, 1000), (&large, 10)], 4_000);
    assert!(is_divided(&used, &[1, 3], 5 * 2000), "{used:?}");
}

#[test]
fn fair_a_groups_part_is_divided_below_it() {
    let (tree, admission) = (tree(), Admission::new(3));
    let paths = ["/a", "/b/x", "/b/y"];
    let [a, x, y] = paths.map(|path| tree.get_or_create(path).expect("new"));
    let b = x.parent().expect("made with it");
    admission.set_weight(b, Some(300)).expect("in range");
    admission.set_weight(&y, Some(200)).expect("in range");
    let used = saturated(&admission, &[(&a, 100), (&x, 100), (&y, 100)], 4_000);
    assert!(is_divided(&used, &[1, 1, 2], 5 * 200), "{used:?}");
    // What waits in the group itself contends with its children, as one of the usual weight.
    let used = saturated(&admission, &[(&a, 100), (&x, 100), (&y, 100), (b, 100)], 4_000);
    let of_b: u64 = used[1..].iter().sum();
    assert!(is_divided(&[used[0], of_b], &[1, 3], 5 * 200), "{used:?}");
    assert!(is_divided(&used[1..], &[1, 2, 1], 5 * 200), "{used:?}");
}

#[test]
fn fair_ten_thousand_have_a_turn_before_a_second() {
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

/// Notes which waiter was woken.
struct Bell {
    index: usize,
    woken: Arc<Mutex<Vec<usize>>>,
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.woken.lock().expect("no panic").push(self.index);
    }
}

/// A storm among ten thousand tenants loses no one and leaves nothing.
///
/// Weights change, groups are killed and waits given up in a crowd, while places become free. No
/// future is polled again unless it was woken.
#[test]
fn fair_a_storm_of_ten_thousand_loses_nobody() {
    const TENANTS: usize = if cfg!(miri) { 50 } else { 10_000 };
    let (tree, mut rng) = (tree(), fastrand::Rng::with_seed(7));
    let admission = Admission::builder(3).waiting_max(2 * TENANTS).build();
    let parents = ["/a", "/b", "/c"].map(|path| tree.create(path).expect("new"));
    let group = |i: usize| parents[i % 3].create_child(&i.to_string()).expect("new");
    let groups: Vec<_> = (0..TENANTS).map(group).collect();
    let held: Vec<_> = (0..3).map(|_| admission.try_acquire(tree.root())).collect();
    let woken = Arc::new(Mutex::new(Vec::new()));
    let poll = |index, acquire: &mut Pin<Box<Admitting>>| {
        let bell = Waker::from(Arc::new(Bell { index, woken: Arc::clone(&woken) }));
        acquire.as_mut().poll(&mut Context::from_waker(&bell))
    };
    let mut waiting: Vec<_> =
        (0..2 * TENANTS).map(|i| Some(Box::pin(admission.acquire(&groups[i % TENANTS])))).collect();
    for (i, acquire) in waiting.iter_mut().enumerate() {
        assert!(poll(i, acquire.as_mut().expect("new")).is_pending());
    }
    let [mut given_up, mut killed] = [0; 2];
    for (i, group) in groups.iter().enumerate() {
        match rng.u32(0..16) {
            0..4 => given_up += usize::from(waiting[i].take().is_some()),
            4..8 => admission.set_weight(group, Some(rng.u32(1..=10_000))).expect("in range"),
            8 => killed += 2 * usize::from(group.kill().is_ok()),
            9 => admission.set_group_limit(group, Some(1)),
            _ => {}
        }
    }
    assert_eq!(admission.waiting(), 2 * TENANTS - given_up - killed);
    drop(held);
    let [mut let_in, mut ended] = [0; 2];
    loop {
        let next = woken.lock().expect("no panic").pop();
        let Some(i) = next else { break };
        // For some that were admitted, the future is dropped instead.
        let Some(acquire) = waiting[i].as_mut().filter(|_| i % 10 > 0) else {
            given_up += usize::from(waiting[i].take().is_some());
            continue;
        };
        match poll(i, acquire) {
            Poll::Ready(Ok(turn)) => (let_in, _) = (let_in + 1, drop(turn)),
            Poll::Ready(Err(error)) => ended += usize::from(error.is_killed()),
            Poll::Pending => continue,
        }
        waiting[i] = None;
    }
    assert!(waiting.iter().all(Option::is_none), "all that waited were woken");
    assert!(let_in > TENANTS && ended > 0 && let_in + ended + given_up == 2 * TENANTS);
    for group in &groups {
        _ = admission.set_weight(group, None);
        admission.set_group_limit(group, None);
    }
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

/// A weight that changes while work is in flight gives no credit and no debt.
///
/// What it counted for at one weight was given back at another: 1000 at 10,000 for 1000 at 1.
#[test]
fn a_weight_changed_in_flight_is_no_credit() {
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
        // It was admitted at the first weight, or is in flight at it, and ends at the second.
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

/// Work that entered by the fast path is charged in full to a group that wanted nothing before.
///
/// The share it had left unused while it wanted nothing paid for it.
#[test]
fn work_by_the_open_way_is_charged_in_full() {
    let (tree, admission) = (tree(), Admission::new(2));
    let [busy, idle] = ["/busy", "/idle"].map(|path| tree.create(path).expect("new"));
    // With a weight, the group is remembered.
    admission.set_weight(&idle, Some(100)).expect("in range");
    let end = |mut held: Admitted, cost| {
        held.set_cost(cost);
        drop(held);
    };
    let mut held = [0; 2].map(|_| admission.try_acquire(&busy).expect("free"));
    for _ in 0..100 {
        let mut next = waits(&admission, &busy);
        let [first, second] = held;
        end(first, 1000);
        held = [second, admitted(&mut next).expect("nobody else wants it")];
    }
    let [first, mut turn] = held;
    end(first, 1000);
    let by_way = admission.try_acquire(&idle).expect("free");
    let mut next = waits(&admission, &busy);
    end(by_way, 50_000);
    let _second = admitted(&mut next).expect("nobody else wants it");
    let mut of_idle = waits(&admission, &idle);
    let mut turns = 0;
    while admitted(&mut of_idle).is_none() {
        turns += 1;
        assert!(turns < 100, "50 turns of the other cost as much");
        let mut next = waits(&admission, &busy);
        end(turn, 1000);
        turn = match admitted(&mut next) {
            Some(turn) => turn,
            None => break,
        };
    }
    assert!(turns > 40, "{turns} turns, of 50 that cost as much");
}

/// The CPU time is one that the test can set: it is a counter like any other.
#[test]
fn a_groups_cpu_time_is_what_its_turns_cost() {
    let mut schema = Schema::builder();
    let cpu = schema.cpu_time("cpu", "CPU time used");
    let tree = Tree::new(schema.build().expect("a schema")).expect("a tree");
    let [slow, quick] = ["/slow", "/quick"].map(|path| tree.create(path).expect("new"));
    let admission = Admission::new(1);
    let mut held = admission.try_acquire(tree.root()).expect("free");
    // Far more than this test itself uses in a place.
    let groups = [(&slow, 40_000_000), (&quick, 4_000_000)];
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
    // Whatever else this thread does is charged to no group.
    assert!(turns[0].abs_diff(100) <= 2, "ten of the quick for one of the slow: {turns:?}");
}

/// Work that was admitted before others waited counts in its group's part once they do.
///
/// It was charged only when the next work of its group ended, which had gone first.
#[test]
fn what_was_let_in_before_a_wait_counts_in_it() {
    let mut schema = Schema::builder();
    let cpu = schema.cpu_time("cpu", "CPU time used");
    let tree = Tree::new(schema.build().expect("a schema")).expect("a tree");
    let [heavy, light] = ["/heavy", "/light"].map(|path| tree.create(path).expect("new"));
    let admission = Admission::new(4);
    let held = [0; 4].map(|_| admission.try_acquire(&heavy).expect("free"));
    let _of_heavy = [0; 4].map(|_| waits(&admission, &heavy));
    let mut of_light = [0; 4].map(|_| waits(&admission, &light));
    for held in held {
        heavy.add(cpu, 40_000_000);
        drop(held);
    }
    let let_in: Vec<_> = of_light.iter_mut().filter_map(admitted).collect();
    assert_eq!(let_in.len(), 4, "the other has used four turns, and it none");
}

/// A newcomer does not get all places before its first work ends.
///
/// What it had in flight counted for nothing until the first of it ended.
#[test]
fn a_newcomer_does_not_have_all_places_at_first() {
    let (tree, admission) = (tree(), Admission::new(8));
    let [long, fresh] = ["/long", "/fresh"].map(|path| tree.create(path).expect("new"));
    let mut held: Vec<_> =
        (0..8).map(|_| admission.try_acquire(&long).expect("there are 8 places")).collect();
    let mut of_long: Vec<_> = (0..50).map(|_| waits(&admission, &long)).collect();
    let mut end = |mut held: Admitted| {
        held.set_cost(1000);
        drop(held);
        let (at, turn) =
            of_long.iter_mut().enumerate().find_map(|(at, one)| Some((at, admitted(one)?)))?;
        drop(of_long.remove(at));
        Some(turn)
    };
    // Everything in flight then was admitted by the line, at what work costs.
    for _ in 0..20 {
        let first = held.remove(0);
        held.extend(end(first));
    }
    let mut of_fresh: Vec<_> = (0..8).map(|_| waits(&admission, &fresh)).collect();
    let let_in: Vec<_> = held.into_iter().filter_map(&mut end).collect();
    let of_fresh: Vec<_> = of_fresh.iter_mut().filter_map(admitted).collect();
    let turns = [let_in.len(), of_fresh.len()];
    assert!(turns.iter().all(|turns| (3..=5).contains(turns)), "{turns:?}");
}

#[test]
fn ended_work_is_charged_before_the_next_choice() {
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
fn nobody_waits_in_a_group_whose_kill_was_told() {
    let (tree, mut watch) = (tree(), |_: &Group| Some(0));
    let mut fair = Fair::new(Bounds { all: 8, by_group: 8 }, 1);
    let mut join = |fair: &mut Fair| {
        fair.join(tree.root(), Waker::noop().clone(), None, None, false, &mut watch)
    };
    join(&mut fair).expect("room");
    fair.admit();
    fair.kill(tree.root().id());
    // Work in flight still has its node.
    assert_eq!((fair.nodes(), join(&mut fair)), (1, Err(Why::Killed)));
}

/// Each of them would forever go before those that have had a turn.
#[test]
fn a_group_per_request_keeps_nobody_from_turns() {
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

/// Work of several groups, one piece after another in one place, where more always waits.
struct Turns<'a> {
    admission: &'a Admission,
    held: Option<Admitted>,
    waiting: Vec<(Group, Pin<Box<Admitting>>)>,
}

impl<'a> Turns<'a> {
    fn new(admission: &'a Admission, first: &Group) -> Turns<'a> {
        let held = Some(admission.try_acquire(first).expect("free"));
        let mut turns = Turns { admission, held, waiting: Vec::new() };
        turns.join(first);
        turns
    }

    fn join(&mut self, group: &Group) {
        self.waiting.push((group.clone(), waits(self.admission, group)));
    }

    /// Ends the work that has the place, and returns the group that goes next.
    fn next(&mut self, cost: u64) -> Group {
        let mut held = self.held.take().expect("there is always one");
        held.set_cost(cost);
        drop(held);
        let waiting = self.waiting.iter_mut().enumerate();
        let mut ready = waiting.filter_map(|(at, one)| Some((at, admitted(&mut one.1)?)));
        let (at, turn) = ready.next().expect("one has the place");
        drop(ready);
        self.held = Some(turn);
        let (group, _) = self.waiting.swap_remove(at);
        self.join(&group);
        group
    }

    /// Returns after how many turns, of `cost` each, a group that comes now has its own.
    fn until(&mut self, fresh: &Group, cost: u64) -> usize {
        self.join(fresh);
        (0..1000).find(|_| self.next(cost) == *fresh).unwrap_or(usize::MAX)
    }
}

/// A newcomer waits for few turns of others, whatever ended before it cost.
///
/// A newcomer starts a turn behind; one end that cost a billion made that millions of turns.
#[test]
fn a_newcomer_waits_for_few_turns_of_others() {
    const HUGE: u64 = 1_000_000_000;
    // The number of cheap turns, the number that cost a billion, and how many more cheap turns a
    // newcomer may wait for then: until the average, which loses an eighth with each end, has
    // become small.
    for (cheap, huge, most) in [(10, 1, 10), (0, 1, 150), (0, 50, 150), (10, 50, 150)] {
        let (tree, admission) = (tree(), Admission::new(1));
        let [small, large, fresh] = ["/s", "/l", "/f"].map(|path| tree.create(path).expect("new"));
        let mut turns = Turns::new(&admission, if cheap > 0 { &small } else { &large });
        (1..cheap).for_each(|_| _ = turns.next(1));
        if cheap > 0 {
            turns.join(&large);
            while turns.next(1) == small {}
        }
        turns.waiting.clear();
        turns.join(&large);
        (1..huge).for_each(|_| _ = turns.next(HUGE));
        turns.waiting.clear();
        turns.join(&small);
        assert_eq!(turns.next(HUGE), small, "nobody else wants it");
        let waited = turns.until(&fresh, 1);
        assert!(waited < most, "{waited} turns, after {cheap} of 1 and {huge} of {HUGE}");
    }
}

/// Groups that waited together during a dear piece of work share evenly from their first turn on.
///
/// Each started behind by what a turn was known to take at its own first turn: the first of two was
/// behind the other by an eighth of the dear piece, for as many turns as that is worth.
#[test]
fn newcomers_share_evenly_after_a_dear_piece() {
    for count in [2, 6, 50] {
        let (tree, admission) = (tree(), Admission::new(1));
        let [other, dear] = ["/other", "/dear"].map(|path| tree.create(path).expect("new"));
        let groups: Vec<_> =
            (0..count).map(|n| tree.create(&format!("/{n}")).expect("new")).collect();
        let mut turns = Turns::new(&admission, &other);
        turns.waiting.clear();
        turns.join(&dear);
        // Two each, so that none stops waiting for a moment.
        (0..2).for_each(|_| groups.iter().for_each(|group| turns.join(group)));
        assert_eq!(turns.next(1), dear, "it came first");
        turns.waiting.retain(|(group, _)| *group != dear);
        let (mut had, mut cost) = (vec![0; count], 1_000_000_000);
        for _ in 0..20 * count {
            let next = turns.next(std::mem::replace(&mut cost, 1));
            had[groups.iter().position(|group| *group == next).expect("one of them")] += 1;
            let (least, most) = (had.iter().min(), had.iter().max());
            assert!(most <= least.map(|least| least + 2).as_ref(), "{had:?}");
        }
    }
}

/// A group has its turn soon after newcomers cost a billion times as much.
///
/// The reverse case: until the average is as high, newcomers go before those that have had a turn.
#[test]
fn a_group_has_its_turn_despite_dear_newcomers() {
    let (tree, admission) = (tree(), Admission::new(1));
    let long = tree.create("/long").expect("new");
    let mut turns = Turns::new(&admission, &long);
    (0..10).for_each(|_| _ = turns.next(1));
    let mut since = 0;
    for request in 0..300 {
        turns.waiting.retain(|(group, _)| group == &long);
        turns.join(&tree.create(&format!("/{request}")).expect("new"));
        since = if turns.next(1_000_000_000) == long { 0 } else { since + 1 };
        assert!(since < 35, "thirty doublings of the average");
    }
}

/// It waited for as many of their turns as add up to the cost of a turn elsewhere.
#[test]
fn a_newcomer_is_behind_by_a_siblings_turn() {
    let (tree, admission) = (tree(), Admission::new(1));
    let paths = ["/web/s", "/web/f", "/batch"];
    let [small, fresh, batch] = paths.map(|path| tree.get_or_create(path).expect("new"));
    // One turn of the one for one of the other, whatever they cost.
    admission.set_weight(&batch, Some(10_000)).expect("in range");
    admission.set_weight(small.parent().expect("/web"), Some(1)).expect("in range");
    let mut turns = Turns::new(&admission, &small);
    turns.join(&batch);
    let cost = |group: &Group| if group == &batch { 10_000 } else { 1 };
    let mut of = small.clone();
    (0..200).for_each(|_| of = turns.next(cost(&of)));
    turns.join(&fresh);
    let mut of_small = 0;
    while of != fresh {
        of = turns.next(cost(&of));
        of_small += usize::from(of == small);
        assert!(of_small < 5, "it waits for one turn");
    }
}

/// A newcomer is behind by a turn, whatever its siblings weigh.
///
/// It waited for a turn at the usual weight: a hundred turns of siblings with the highest.
#[test]
fn a_newcomer_is_a_turn_behind_at_any_weight() {
    for weight in [1, 10_000] {
        let (tree, admission) = (tree(), Admission::new(1));
        let [small, fresh] = ["/s", "/f"].map(|path| tree.create(path).expect("new"));
        for group in [&small, &fresh] {
            admission.set_weight(group, Some(weight)).expect("in range");
        }
        let mut turns = Turns::new(&admission, &small);
        (0..50).for_each(|_| _ = turns.next(1000));
        let waited = turns.until(&fresh, 1000);
        assert!((1..5).contains(&waited), "{waited} turns, of {weight}");
    }
}

/// Any code may add to the counter. The end of work then panicked, with the lock held.
#[test]
fn cpu_time_below_nothing_is_none() {
    let tree = timed_tree();
    let cpu = tree.schema().cpu_time().expect("declared");
    let admission = Admission::new(1);
    let held = admission.try_acquire(tree.root()).expect("free");
    let mut next = waits(&admission, tree.root());
    drop(held);
    let turn = admitted(&mut next).expect("the next");
    tree.root().add(cpu, u64::MAX);
    drop(turn);
    assert_eq!((admission.in_flight(), admission.waiting()), (0, 0));
}
