//! Work that sleeps in its places, in simulated time.

use std::collections::VecDeque;
use std::task::Waker;
use std::time::{Duration, Instant};

use submeter_percpu::slots::Line;

use super::error::Why;
use super::fair::Fair;
use super::parts::{Bounds, Outcome, Setting, Used};
use super::tests::timed_tree;
use crate::{Group, Tree};

const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);

/// Longer than any simulation.
const FOR_EVER: Duration = Duration::from_secs(1_000_000);

/// A tenant of the simulation, and what a piece of its work is like.
struct Tenant {
    path: &'static str,
    weight: Option<u32>,
    /// Either a number of threads, each with one piece after another; or one piece per interval.
    comes: Comes,
    /// How long a piece is in its place, and how much of that on a CPU.
    held: Duration,
    cpu: Duration,
}

#[derive(Clone, Copy)]
enum Comes {
    Threads(usize),
    Each(Duration),
}

impl Tenant {
    fn new(path: &'static str, threads: usize, held: Duration, cpu: Duration) -> Tenant {
        Tenant { path, weight: None, comes: Comes::Threads(threads), held, cpu }
    }

    fn weighs(self, weight: u32) -> Tenant {
        Tenant { weight: Some(weight), ..self }
    }
}

/// What became of a tenant's work.
#[derive(Clone, Default)]
struct Found {
    cpu: Duration,
    /// The time in places, all together, at the end.
    held: Duration,
    in_flight: u32,
    latencies: Vec<Duration>,
}

impl Found {
    fn latency_max(&self) -> Duration {
        self.latencies.iter().max().copied().expect("some ended")
    }
}

/// One piece in its place.
struct Piece {
    of: usize,
    came: Duration,
    since: Duration,
    expected: u64,
}

struct Simulation<'a> {
    tenants: &'a [Tenant],
    groups: Vec<Group>,
    fair: Fair,
    start: Instant,
    now: Duration,
    used: Vec<u64>,
    waiting: Vec<VecDeque<(u64, Duration)>>,
    in_flight: Vec<Piece>,
    found: Vec<Found>,
}

/// Lets `tenants` share so many places, on so many CPUs, for a time. With no CPUs places cost
/// nothing, and CPU time alone counts.
fn simulate(tenants: &[Tenant], places: u32, cpus: u32, time: Duration) -> Vec<Found> {
    let tree = timed_tree();
    let mut simulation = Simulation::new(&tree, tenants, cpus);
    let next_of = |tenant: &Tenant| match tenant.comes {
        Comes::Each(_) => Duration::ZERO,
        Comes::Threads(_) => FOR_EVER,
    };
    let mut next: Vec<_> = tenants.iter().map(next_of).collect();
    loop {
        simulation.let_in(places);
        let ends = |piece: &Piece| piece.since.saturating_add(tenants[piece.of].held);
        let end = simulation.in_flight.iter().map(ends).min().unwrap_or(FOR_EVER);
        let come = next.iter().min().copied().unwrap_or(FOR_EVER);
        simulation.now = end.min(come);
        if simulation.now >= time {
            return simulation.end(time);
        }
        simulation.fair.tick(simulation.start + simulation.now, places);
        for (of, next) in next.iter_mut().enumerate().filter(|(_, next)| **next <= end) {
            if let (Comes::Each(interval), true) = (tenants[of].comes, *next == simulation.now) {
                *next += interval;
                simulation.come(of);
            }
        }
        let ended = simulation.in_flight.iter().position(|piece| ends(piece) <= simulation.now);
        if let Some(at) = ended {
            simulation.complete(at);
        }
    }
}

impl Simulation<'_> {
    fn new<'a>(tree: &Tree, tenants: &'a [Tenant], cpus: u32) -> Simulation<'a> {
        let bounds = Bounds { all: usize::MAX, by_group: usize::MAX };
        let group = |tenant: &Tenant| tree.get_or_create(tenant.path).expect("a path");
        let mut simulation = Simulation {
            tenants,
            groups: tenants.iter().map(group).collect(),
            fair: Fair::new(bounds, cpus),
            start: Instant::now(),
            now: Duration::ZERO,
            used: vec![0; tenants.len()],
            waiting: vec![VecDeque::new(); tenants.len()],
            in_flight: Vec::new(),
            found: vec![Found::default(); tenants.len()],
        };
        for (of, tenant) in tenants.iter().enumerate() {
            let weight = Setting::Weight(tenant.weight);
            simulation.fair.configure(&simulation.groups[of], weight, &mut |_| Some(0));
            if let Comes::Threads(threads) = tenant.comes {
                (0..threads).for_each(|_| simulation.come(of));
            }
        }
        simulation
    }

    fn come(&mut self, of: usize) {
        let (group, used) = (&self.groups[of], Some(self.used[of]));
        let waker = Waker::noop().clone();
        let number = self.fair.join(group, waker, None, used, false, &mut |_| Some(0));
        self.waiting[of].push_back((number.expect("no bound"), self.now));
    }

    fn let_in(&mut self, places: u32) {
        while self.fair.is_ready() && self.in_flight.len() < places as usize {
            self.fair.admit();
            let fair = &mut self.fair;
            let granted = |(of, line): (usize, &mut VecDeque<_>)| {
                let &(number, came) = line.front()?;
                let Some(Outcome::Granted(expected)) = fair.take_outcome(number) else {
                    return None;
                };
                line.pop_front();
                Some((of, came, expected))
            };
            let found = self.waiting.iter_mut().enumerate().find_map(granted);
            let (of, came, expected) = found.expect("the first of one of them");
            self.in_flight.push(Piece { of, came, since: self.now, expected });
        }
    }

    fn complete(&mut self, at: usize) {
        let Piece { of, came, since, expected } = self.in_flight.swap_remove(at);
        let tenant = &self.tenants[of];
        self.used[of] += tenant.cpu.as_nanos() as u64;
        self.fair.complete(&self.groups[of], expected, Used::CpuTime(self.used[of]));
        self.found[of].held += self.now - since;
        self.found[of].latencies.push(self.now - came);
        if matches!(tenant.comes, Comes::Threads(_)) {
            self.come(of);
        }
    }

    fn end(mut self, time: Duration) -> Vec<Found> {
        for piece in &self.in_flight {
            let found = &mut self.found[piece.of];
            (found.held, found.in_flight) =
                (found.held + (time - piece.since), found.in_flight + 1);
        }
        for (found, used) in self.found.iter_mut().zip(&self.used) {
            found.cpu = Duration::from_nanos(*used);
        }
        self.found
    }
}

/// Returns the first tenant's part, in percent.
fn part(of: impl Fn(&Found) -> Duration, found: &[Found]) -> f64 {
    let all: Duration = found.iter().map(&of).sum();
    of(&found[0]).as_secs_f64() * 100.0 / all.as_secs_f64()
}

/// A light tenant waits no longer beside one that sleeps than beside one that works.
///
/// The sleeping tenant used nothing, and so always went before it.
#[test]
fn fair_a_sleeper_delays_no_more_than_a_worker() {
    for places in [2, 8] {
        let beside = |cpu, cpus| {
            let comes = Comes::Each(25 * MS);
            let light = Tenant { comes, ..Tenant::new("/light", 0, 4 * MS, 4 * MS) };
            let heavy = Tenant::new("/heavy", 32, MS, cpu);
            simulate(&[light, heavy], places, cpus, 3 * SECOND)[0].latency_max()
        };
        let works = beside(MS, places);
        let sleeps = beside(MS / 100, places);
        let sleeps_for_nothing = beside(MS / 100, 0);
        // It gets the next place that becomes free.
        assert!(works <= 5 * MS && sleeps <= 5 * MS, "{works:?}, {sleeps:?}");
        assert!(sleeps_for_nothing > 10 * MS, "{sleeps_for_nothing:?}: the simulation shows it");
    }
}

/// A tenant that returns gets the next place that becomes free.
///
/// Each time, it started a turn behind, as if it had never come before, and the heavy tenant went
/// first once more.
#[test]
fn fair_a_returning_tenant_gets_the_next_place() {
    // At another moment of a heavy piece each time.
    let comes = Comes::Each(Duration::from_micros(12_300));
    let light = Tenant { comes, ..Tenant::new("/light", 0, 2 * MS, 2 * MS) };
    let heavy = Tenant::new("/heavy", 32, MS / 2, MS / 2);
    let found = simulate(&[light, heavy], 1, 1, 10 * SECOND);
    let later = found[0].latencies[1..].iter().max().expect("it came again");
    assert!(*later <= 2 * MS + MS / 2, "{later:?}: it waits for what is in flight");
}

/// Nor does another tenant make it a newcomer, by however many groups.
///
/// All tenants shared one bound on the groups that are remembered.
#[test]
fn fair_a_returning_tenant_stays_known() {
    const GROUPS: u32 = if cfg!(miri) { 50 } else { 20_000 };
    for below in ["", "/below"] {
        let tree = timed_tree();
        let [heavy, light] = ["/heavy", "/light/user"].map(|path| tree.get_or_create(path));
        let [heavy, light] = [heavy.expect("new"), light.expect("new")];
        let mut fair = Fair::new(Bounds { all: 8, by_group: 8 }, 1);
        let join = |fair: &mut Fair, group: &Group| {
            let waker = Waker::noop().clone();
            fair.join(group, waker, None, None, false, &mut |_| Some(0)).expect("no bound")
        };
        let turn = |fair: &mut Fair, group: &Group, number, cost| {
            fair.admit();
            let expected = fair.granted(number).expect("it goes next");
            assert!(fair.take_outcome(number).is_some());
            fair.complete(group, expected, Used::Cost(cost));
        };
        let number = join(&mut fair, &light);
        turn(&mut fair, &light, number, 1);
        for request in 0..GROUPS {
            let group = tree.get_or_create(&format!("/busy/{request}{below}")).expect("new");
            let number = join(&mut fair, &group);
            turn(&mut fair, &group, number, 100);
            group.kill().expect("a child");
        }
        let of_heavy = [0; 2].map(|_| join(&mut fair, &heavy));
        turn(&mut fair, &heavy, of_heavy[0], 1);
        let number = join(&mut fair, &light);
        turn(&mut fair, &light, number, 1);
        turn(&mut fair, &heavy, of_heavy[1], 1);
    }
}

/// Work that sleeps has eight places for each place of work that does not.
#[test]
fn fair_sleepers_have_eight_places_for_each() {
    for held in [10 * MS, 100 * MS] {
        let tenants =
            [Tenant::new("/works", 16, MS, MS), Tenant::new("/sleeps", 16, held, MS / 100)];
        let places = part(|found| found.held, &simulate(&tenants, 9, 9, 20 * SECOND));
        assert!((places - 100.0 / 9.0).abs() < 1.0, "{places} % for work, beside {held:?}");
        let places = part(|found| found.held, &simulate(&tenants, 9, 0, 20 * SECOND));
        assert!(places < 5.0, "{places} %: the simulation shows it");
    }
}

/// Nor does it go first when it wakes: otherwise it would be ahead of all others until then.
#[test]
fn fair_work_that_sleeps_pays_while_it_does() {
    let works = Tenant::new("/works", 8, MS, MS).weighs(1000);
    let tenants = [works, Tenant::new("/sleeps", 1, FOR_EVER, MS)];
    let tree = timed_tree();
    let mut simulation = Simulation::new(&tree, &tenants, 2);
    simulation.let_in(2);
    simulation.come(1);
    for ms in 1..=100 {
        simulation.now = ms * MS;
        simulation.fair.tick(simulation.start + simulation.now, 2);
        let works = simulation.in_flight.iter().position(|piece| piece.of == 0);
        simulation.complete(works.expect("another that sleeps was let in"));
        simulation.let_in(2);
    }
}

#[test]
fn fair_those_that_sleep_share_places_by_weight() {
    let sleeps = |path| Tenant::new(path, 32, 10 * MS, MS / 100);
    let found = simulate(&[sleeps("/a"), sleeps("/b").weighs(300)], 8, 8, 10 * SECOND);
    let of_a = part(|found| found.held, &found);
    assert!((of_a - 25.0).abs() < 1.0, "{of_a} %");
}

/// Work shares CPU time by weight, however long it takes.
///
/// Work may be preempted for most of its time, which is not its fault.
#[test]
fn fair_workers_share_cpu_time_by_weight() {
    for [held, other] in [[MS, 7 * MS], [7 * MS, MS], [MS, MS]] {
        let tenants =
            [Tenant::new("/a", 16, held, MS), Tenant::new("/b", 16, other, MS).weighs(300)];
        for paths in [["/a", "/b"], ["/x/a", "/x/b"]] {
            let mut tenants = tenants.each_ref().map(|tenant| Tenant { ..*tenant });
            (tenants[0].path, tenants[1].path) = (paths[0], paths[1]);
            let of_a = part(|found| found.cpu, &simulate(&tenants, 4, 4, 4 * SECOND));
            assert!((of_a - 25.0).abs() < 1.0, "{of_a} %");
        }
    }
}

/// A group that slept in its places for long, and then works.
#[test]
fn time_slept_is_no_credit_for_the_cpu() {
    let tree = timed_tree();
    let sleeps = |path| Tenant::new(path, 4, 100 * MS, MS / 100);
    let tenants = [sleeps("/a"), Tenant::new("/b", 4, 10 * MS, 10 * MS)];
    let mut simulation = Simulation::new(&tree, &tenants, 2);
    let mut used = [Duration::ZERO; 2];
    for step in 0..4_000 {
        simulation.let_in(2);
        // One of the first sleeps, until half of the time has passed.
        let works = step >= 2_000;
        let held = |piece: &Piece| {
            if works { 10 * MS } else { tenants[piece.of].held }.max(MS) + piece.since
        };
        let (at, end) = (0..simulation.in_flight.len())
            .map(|at| (at, held(&simulation.in_flight[at])))
            .min_by_key(|(_, end)| *end)
            .expect("there are always some");
        simulation.now = end.max(simulation.now);
        simulation.fair.tick(simulation.start + simulation.now, 2);
        let of = simulation.in_flight[at].of;
        if works {
            let more = 10 * MS - tenants[of].cpu;
            simulation.used[of] += more.as_nanos() as u64;
            used[of] += 10 * MS;
        }
        simulation.complete(at);
        if step == 2_200 {
            // Of the 200 that ended since, to within those in flight and the one waited for.
            let [a, b] = used;
            assert!(a.abs_diff(b) <= 300 * MS, "{a:?} and {b:?}");
        }
    }
    let [a, b] = used;
    assert!(a.abs_diff(b) <= 300 * MS, "{a:?} and {b:?}");
}

/// Its places were not counted, and cost nothing.
#[test]
fn earlier_places_are_paid_for_once_others_wait() {
    let tree = timed_tree();
    let [heavy, light] = ["/heavy", "/light"].map(|path| tree.create(path).expect("new"));
    let (start, mut watch) = (Instant::now(), |_: &Group| Some(0));
    let mut fair = Fair::new(Bounds { all: 8, by_group: 8 }, 2);
    // Long before anything waits; that time must not count.
    fair.tick(start + 100 * SECOND, 2);
    let mut join = |fair: &mut Fair, group| {
        let joined = fair.join(group, Waker::noop().clone(), None, Some(0), false, &mut watch);
        joined.expect("no bound")
    };
    let of_heavy = [0; 2].map(|_| join(&mut fair, &heavy));
    let of_light = [0; 3].map(|_| join(&mut fair, &light));
    fair.tick(start + 100 * SECOND + 8 * MS, 2);
    fair.complete_other(&heavy, Used::CpuTime(0));
    // A piece that sleeps for 8 ms has to pay for 1 ms of the CPU: more than the first of these
    // turns uses, and less than both.
    for (number, used_us) in of_light.into_iter().zip([900, 1_100]) {
        fair.admit();
        let expected = fair.granted(number).expect("the other had a place");
        fair.complete(&light, expected, Used::CpuTime(used_us * 1000));
    }
    fair.admit();
    assert!(fair.granted(of_heavy[0]).is_some(), "and for nothing before");
}

/// Each moves on continuously. An end once looked at all of them to find the one ahead by a hair.
#[test]
fn an_end_among_sleeping_thousands_looks_at_few() {
    const TENANTS: u32 = if cfg!(miri) { 100 } else { 2_000 };
    let (tree, mut watch) = (timed_tree(), |_: &Group| Some(0));
    let group = |tenant| tree.create(&format!("/{tenant}")).expect("new");
    let (other, groups) = (group(0), (1..=TENANTS).map(group).collect::<Vec<_>>());
    let start = Instant::now();
    let mut fair = Fair::new(Bounds { all: usize::MAX, by_group: usize::MAX }, 2);
    let mut join = |fair: &mut Fair, group| {
        let joined = fair.join(group, Waker::noop().clone(), None, Some(0), false, &mut watch);
        joined.expect("no bound")
    };
    let of_other: Vec<_> = (0..TENANTS).map(|_| join(&mut fair, &other)).collect();
    (0..TENANTS).for_each(|_| fair.admit());
    // Each has one piece in its place, and one that waits.
    groups.iter().for_each(|group| _ = join(&mut fair, group));
    (0..TENANTS).for_each(|_| fair.admit());
    groups.iter().for_each(|group| _ = join(&mut fair, group));
    let mut before = 0;
    for (end, &number) in (0..=TENANTS / 2).zip(&of_other) {
        // Until all have ended; the first end after a pause looks at all.
        fair.tick(start + MS * (end + 2 * TENANTS) / 10, 2 * TENANTS);
        let expected = fair.granted(number).expect("let in");
        fair.complete(&other, expected, Used::CpuTime(0));
        fair.admit();
        before = if end == 0 { fair.looks } else { before };
    }
    let looks = fair.looks - before;
    assert!(looks < u64::from(TENANTS / 2) * 100, "{looks} for {} ends", TENANTS / 2);
}

/// Holds one of two places with a piece of one tenant for a time in which nothing else happens,
/// then ends `by_way` pieces that entered by the fast path. Returns how much CPU time another
/// tenant gets before the first has a turn again.
fn cost_of(time: Duration, by_way: u32) -> Duration {
    let tree = timed_tree();
    let groups = ["/held", "/other"].map(|path| tree.create(path).expect("new"));
    let start = Instant::now();
    let mut fair = Fair::new(Bounds { all: usize::MAX, by_group: usize::MAX }, 2);
    let mut used = 0;
    let join = |fair: &mut Fair, of: usize, used| {
        let waker = Waker::noop().clone();
        let joined = fair.join(&groups[of], waker, None, Some(used), false, &mut |_| Some(0));
        joined.expect("no bound")
    };
    fair.tick(start, 2);
    // The group is then remembered, and so is what a turn costs.
    fair.configure(&groups[1], Setting::Weight(Some(100)), &mut |_| Some(0));
    let first = join(&mut fair, 1, 0);
    fair.admit();
    let expected = fair.granted(first).expect("let in");
    used += 10 * MS.as_nanos() as u64;
    fair.complete(&groups[1], expected, Used::CpuTime(used));
    let held = join(&mut fair, 0, 0);
    fair.admit();
    fair.tick(start + time, 2);
    (0..by_way).for_each(|_| fair.complete_other(&groups[0], Used::CpuTime(0)));
    let mut next = [0, 1].map(|of| join(&mut fair, of, [0, used][of]));
    let expected = fair.granted(held).expect("let in");
    fair.complete(&groups[0], expected, Used::CpuTime(0));
    loop {
        fair.admit();
        if fair.granted(next[0]).is_some() {
            return Duration::from_nanos(used);
        }
        let expected = fair.granted(next[1]).expect("one of them");
        used += 10 * MS.as_nanos() as u64;
        assert!(used < 1_000_000_000_000, "it has no turn");
        // No time passes here: only CPU time is counted.
        fair.complete(&groups[1], expected, Used::CpuTime(used));
        next[1] = join(&mut fair, 1, used);
    }
}

/// A process that is stopped for hours costs those in flight a second of work.
///
/// Work in flight when a process was stopped once waited for hours of others' work.
#[test]
fn hours_stopped_cost_a_second_of_work() {
    for hours in [1, 1_000] {
        let cost = cost_of(hours * 3_600 * SECOND, 0);
        assert!(cost >= 5 * SECOND / 4 && cost <= 3 * SECOND / 2, "{cost:?} for {hours} h");
    }
    // Work that sleeps pays no less.
    let cost = cost_of(8 * SECOND, 0);
    assert!(cost >= SECOND && cost <= 5 * SECOND / 4, "{cost:?}");
}

/// A process that is stopped for an hour tells no one to retry only after minutes.
///
/// Everyone was told to retry after minutes at the earliest.
#[test]
fn an_hour_stopped_delays_no_retry_by_minutes() {
    let tree = timed_tree();
    let mut now = Instant::now();
    let mut fair = Fair::new(Bounds { all: usize::MAX, by_group: usize::MAX }, 1);
    let mut end = |gap: Duration| {
        let join = |fair: &mut Fair| {
            let waker = Waker::noop().clone();
            fair.join(tree.root(), waker, None, Some(0), false, &mut |_| Some(0)).expect("room")
        };
        let [first, second] = [0; 2].map(|_| join(&mut fair));
        fair.admit();
        now += gap;
        fair.tick(now, 1);
        let expected = fair.granted(first).expect("it came first");
        fair.complete(tree.root(), expected, Used::CpuTime(0));
        fair.cancel(tree.root(), second);
        fair.retry_after(Why::Full)
    };
    (0..20).for_each(|_| _ = end(10 * MS));
    let after = end(3_600 * SECOND).expect("known");
    assert!(after >= 10 * MS && after <= 20 * MS, "{after:?}");
    // It does learn what lasts.
    (0..60).for_each(|_| _ = end(60 * SECOND));
    assert!(end(60 * SECOND).expect("known") > 59 * SECOND);
}

/// It was charged for its place since the fast path was last closed, which may be long ago.
#[test]
fn an_end_while_nobody_waits_pays_for_no_place() {
    let costs = [0, 1].map(|by_way| cost_of(8 * SECOND, by_way));
    assert!(costs[1].abs_diff(costs[0]) <= 20 * MS, "{costs:?}");
}

/// Returns what work of one tenant counts for, after `pieces` of it are admitted one after the
/// other and end as `ends` says: when, and what the group had used by then. Another tenant's work
/// has cost a quarter of a second before.
fn learnt(pieces: u32, rounds: usize, ends: impl Fn(u32) -> (Duration, Duration)) -> Duration {
    let tree = timed_tree();
    let [group, other] = ["/a", "/b"].map(|path| tree.create(path).expect("new"));
    let (mut now, mut used) = (Instant::now(), Duration::ZERO);
    let mut fair = Fair::new(Bounds { all: usize::MAX, by_group: usize::MAX }, 2);
    fair.configure(&group, Setting::Weight(Some(100)), &mut |_| Some(0));
    let dear = fair.join(&other, Waker::noop().clone(), None, Some(0), false, &mut |_| Some(0));
    let dear = dear.expect("room");
    fair.admit();
    let expected = fair.granted(dear).expect("let in");
    assert!(fair.take_outcome(dear).is_some());
    fair.complete(&other, expected, Used::CpuTime((250 * MS).as_nanos() as u64));
    for _ in 0..rounds {
        let mut join = |_| {
            let (waker, used) = (Waker::noop().clone(), Some(used.as_nanos() as u64));
            fair.join(&group, waker, None, used, false, &mut |_| Some(0)).expect("room")
        };
        let numbers: Vec<_> = (0..pieces).map(&mut join).collect();
        (0..pieces).for_each(|_| fair.admit());
        for (piece, number) in (1..).zip(numbers) {
            let (end, by_then) = ends(piece);
            fair.tick(now + end, pieces);
            let expected = fair.granted(number).expect("let in");
            assert!(fair.take_outcome(number).is_some());
            let by_then = Used::CpuTime((used + by_then).as_nanos() as u64);
            fair.complete(&group, expected, by_then);
        }
        let (end, by_then) = ends(pieces);
        (now, used) = (now + end, used + by_then);
    }
    Duration::from_nanos(fair.cost(fair.at(Some(&group))))
}

/// The first end took the cost of all, and the average soon reflected only the 63 that cost
/// nothing: 0.06 ms instead of 3.9 ms.
#[test]
fn sleepers_that_end_at_once_count_at_their_cost() {
    // An eighth of its part of two CPUs.
    let each = 2 * SECOND / 64 / 8;
    for rounds in [1, 8] {
        let cost = learnt(64, rounds, |_| (SECOND, Duration::ZERO));
        assert!(cost.abs_diff(each) < MS / 10, "{cost:?} and not {each:?}");
        // However far apart they end: on average that is how long they sleep.
        let cost = learnt(64, rounds, |piece| (SECOND + MS * piece / 100, Duration::ZERO));
        assert!(cost.abs_diff(each) < MS / 10, "{cost:?} and not {each:?}");
    }
}

/// Work that overlaps and ends at once counts for what it used.
#[test]
fn overlapping_work_counts_for_what_it_used() {
    for rounds in [1, 8] {
        let cost = learnt(64, rounds, |_| (32 * MS, 64 * MS));
        assert!(cost.abs_diff(MS) < MS / 10, "{cost:?} each");
    }
}

/// It does not count for a 64th, as if the first to end had shared its usage with all in flight.
#[test]
fn work_one_by_one_counts_for_what_it_used() {
    let cost = learnt(64, 8, |piece| (MS * piece / 2, MS * piece));
    assert!(cost.abs_diff(MS) < MS / 10, "{cost:?} each");
}
