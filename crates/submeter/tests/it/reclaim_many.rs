//! What charges that find no room have others give back where there are so many callbacks that a
//! look at all of them serves more than one charge.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use fastrand::Rng;
use submeter::{Bytes, Group, Quota, Tree};

use crate::reclaim::{Cache, LONG, tree};

/// More than are looked at for each charge.
const MANY: usize = 100;

/// What each holds at first.
const EACH: u64 = 1000;

struct Fleet {
    tree: Tree,
    memory: Quota<Bytes>,
    caches: Vec<Cache>,
    /// Charges on and on, and has no callback.
    web: Group,
}

impl Fleet {
    /// Caches below one limit that is full, each with what `holds` returns; a look at all of them
    /// is remembered.
    fn new(holds: impl Fn(usize) -> u64) -> Fleet {
        let held = (0..MANY).map(&holds).sum::<u64>();
        let (tree, memory) = tree(held);
        // Some deeper than others; what those claim is their parent's to give, which has nothing.
        let path =
            |n: usize| if n.is_multiple_of(7) { format!("/t/c{n}") } else { format!("/c{n}") };
        let new = |n| Cache::new(&tree, memory, &path(n), holds(n));
        let caches = (0..MANY).map(new).collect();
        let web = tree.create("/web").expect("room");
        let fleet = Fleet { tree, memory, caches, web };
        fleet.charge(1);
        fleet.asked();
        fleet
    }

    /// Charges, and keeps it.
    fn charge(&self, n: u64) {
        std::mem::forget(self.web.charge_reclaiming(self.memory, n).expect("they give it"));
    }

    /// Who was asked since, and for how much.
    fn asked(&self) -> Vec<(usize, u64)> {
        let of = |(at, cache): (usize, &Cache)| cache.asked().into_iter().map(move |n| (at, n));
        self.caches.iter().enumerate().flat_map(of).collect()
    }

    fn beyond_low(&self, at: usize) -> u64 {
        let group = &self.caches[at].group;
        let low = group.protection(self.memory, self.tree.root()).low;
        group.usage(self.memory).current - low
    }
}

#[test]
fn those_that_use_most_beyond_their_protection_are_asked_first_as_with_few() {
    let fleet = Fleet::new(|n| EACH + (n * 37 % 11) as u64 * 100);
    let mut rng = Rng::with_seed(1);
    let mut low = [0; MANY];
    for _ in 0..2000 {
        let most = (0..MANY).map(|at| fleet.beyond_low(at)).max().expect("many");
        let first = |at: &usize| fleet.beyond_low(*at) == most;
        let first: Vec<usize> = (0..MANY).filter(first).collect();
        let n = rng.u64(1..20);
        fleet.charge(n);
        let asked = fleet.asked();
        assert!(matches!(asked[..], [(at, all)] if first.contains(&at) && all == n), "{asked:?}");
        // More is protected, and caches give up what nobody asked for.
        if rng.u8(..) < 40 {
            let at = rng.usize(..MANY);
            low[at] += rng.u64(1..50);
            fleet.caches[at].group.set_low(fleet.memory, Some(low[at]));
        }
        if rng.u8(..) < 40 {
            drop(fleet.caches[rng.usize(..MANY)].held.lock().unwrap().split(3));
            fleet.charge(3);
            assert_eq!(fleet.asked(), [], "there was room");
        }
    }
}

#[test]
fn what_was_protected_since_is_not_asked_for() {
    let fleet = Fleet::new(|n| if n == 5 { 5 * EACH } else { EACH });
    fleet.charge(10);
    assert_eq!(fleet.asked(), [(5, 10)], "it has most");
    fleet.caches[5].group.set_min(fleet.memory, Some(5 * EACH));
    fleet.charge(10);
    assert!(matches!(fleet.asked()[..], [(at, 10)] if at != 5));
    assert_eq!(fleet.caches[5].holds(), 5 * EACH - 1 - 10);
}

#[test]
fn one_that_is_new_or_has_a_higher_score_is_asked_first() {
    let mut fleet = Fleet::new(|_| EACH);
    fleet.caches[70].registered.set_score(1);
    fleet.asked();
    fleet.charge(10);
    assert_eq!(fleet.asked(), [(70, 10)]);
    fleet.caches[70].registered.set_score(0);
    fleet.charge(10);
    assert!(matches!(fleet.asked()[..], [(at, 10)] if at != 70), "it has less than the others");

    fleet.tree.root().set_limit(fleet.memory, Some(MANY as u64 * EACH + 2 * EACH));
    fleet.caches.push(Cache::new(&fleet.tree, fleet.memory, "/new", 2 * EACH));
    fleet.charge(10);
    assert_eq!(fleet.asked(), [(MANY, 10)], "it uses most");
}

#[test]
fn one_that_grows_is_asked_before_long() {
    const LARGE: u64 = 1 << 40;
    let fleet = Fleet::new(|n| if n == 70 { 10 } else { LARGE });
    fleet.tree.root().set_limit(fleet.memory, Some((MANY as u64 + 1) * LARGE));
    fleet.caches[70].refill(fleet.memory, 2 * LARGE - 10);
    fleet.asked();
    let start = Instant::now();
    loop {
        fleet.charge(1);
        if fleet.asked() == [(70, 1)] {
            break;
        }
        assert!(start.elapsed() < LONG, "never asked, though it uses most");
    }
}

#[test]
fn what_a_registration_owned_goes_with_it_though_it_is_remembered() {
    let mut fleet = Fleet::new(|_| EACH);
    let cache = fleet.caches.swap_remove(30);
    let items = Arc::downgrade(&cache.asked);
    drop(cache);
    assert_eq!(items.strong_count(), 0, "a callback that is not registered is kept");
    fleet.asked();
    fleet.charge(EACH + 10);
    assert_eq!(fleet.asked().iter().map(|(_, n)| n).sum::<u64>(), 10, "of those that are left");
}

#[test]
fn a_request_that_cannot_be_satisfied_evicts_nobody_and_what_low_protects_goes_last() {
    let fleet = Fleet::new(|_| 10);
    // What its children claim, and no more, which they would share.
    let nested = (0..MANY as u64).step_by(7).count() as u64;
    fleet.tree.get("/t").expect("there").set_low(fleet.memory, Some(9 * nested));
    fleet.caches.iter().for_each(|cache| {
        cache.group.set_low(fleet.memory, Some(9));
    });
    fleet.web.charge_reclaiming(fleet.memory, MANY as u64 * 10).expect_err("1 is charged");
    assert_eq!(fleet.asked(), []);
    // One has given its own already.
    fleet.charge(MANY as u64 - 1);
    assert_eq!(fleet.asked().len(), MANY - 1);
    assert!(fleet.caches.iter().all(|cache| cache.holds() == 9), "all that low does not protect");
    fleet.charge(5);
    assert_eq!(fleet.caches.iter().map(Cache::holds).sum::<u64>(), 9 * MANY as u64 - 5);
    fleet.tree.get("/t").expect("there").set_min(fleet.memory, Some(10 * nested));
    fleet.caches.iter().for_each(|cache| {
        cache.group.set_min(fleet.memory, Some(10));
    });
    fleet.asked();
    fleet.web.charge_reclaiming(fleet.memory, 1).expect_err("all is protected");
    assert_eq!(fleet.asked(), []);
}

#[test]
fn no_one_is_asked_for_what_low_protects_while_another_has_more() {
    let fleet = Fleet::new(|_| EACH);
    for at in (0..MANY).filter(|at| at % 7 > 0) {
        fleet.caches[at].group.set_low(fleet.memory, Some(EACH - 3));
    }
    fleet.tree.get("/t").expect("there").set_min(fleet.memory, Some(MANY as u64 * EACH));
    fleet.charge(1);
    fleet.asked();
    fleet.charge(8);
    let mut asked: Vec<u64> = fleet.asked().into_iter().map(|(_, n)| n).collect();
    asked.sort_unstable();
    assert_eq!(asked, [2, 3, 3]);
}

#[test]
fn nobody_is_asked_below_one_limit_while_another_cannot_have_enough() {
    let (tree, memory) = tree(1 << 20);
    let new = |n| Cache::new(&tree, memory, &format!("/t/c{n}"), EACH);
    let caches: Vec<Cache> = (0..MANY).map(new).collect();
    let all = MANY as u64 * EACH;
    tree.get("/t").expect("there").set_limit(memory, Some(all));
    let web = tree.create("/t/web").expect("room");
    let held = web.charge_reclaiming(memory, 1).expect("they give it");
    let asked = || caches.iter().flat_map(Cache::asked).collect::<Vec<_>>();
    assert_eq!(asked(), [1]);
    // More than they hold together.
    let other = tree.create("/other").expect("room").try_charge(memory, all).expect("it fits");
    tree.root().set_limit(memory, Some(all / 2));
    web.charge_reclaiming(memory, 1).expect_err("the root has no room, whatever they give");
    assert!(asked().is_empty());
    drop((held, other));
}

#[test]
fn what_a_look_had_freed_itself_is_not_counted_as_there() {
    let fleet = Fleet::new(|_| EACH);
    let all = MANY as u64 * EACH;
    // The first charge looks at all callbacks, and the next ones use its order.
    fleet.charge(all / 10 * 9);
    fleet.asked();
    let start = Instant::now();
    let refused = fleet.web.charge_reclaiming(fleet.memory, all / 10 * 4);
    refused.expect_err("a tenth is left, less a unit");
    assert_eq!(fleet.asked(), [], "within {:?}", start.elapsed());
}

#[test]
fn others_wait_for_the_first_and_ask_none_of_a_lower_score_meanwhile() {
    let mut fleet = Fleet::new(|_| EACH);
    let first = fleet.tree.create("/first").expect("room");
    fleet.tree.root().set_limit(fleet.memory, Some((MANY as u64 + 2) * EACH));
    let mut held = first.try_charge(fleet.memory, 2 * EACH).expect("it fits");
    let (begun, has_begun) = mpsc::channel();
    let is_slow = Arc::new(AtomicBool::new(false));
    let slow = Arc::clone(&is_slow);
    let registered = first.on_pressure(fleet.memory, move |wanted| {
        // Relaxed: set before, by a thread that then charges.
        if slow.load(Ordering::Relaxed) {
            begun.send(()).expect("the test waits");
            // Less than others wait.
            thread::sleep(Duration::from_millis(30));
        }
        drop(held.split(wanted));
    });
    registered.set_score(1);
    // A look at all, which the next charge is served by.
    fleet.charge(1);
    fleet.asked();
    // Relaxed: see above.
    is_slow.store(true, Ordering::Relaxed);
    thread::scope(|scope| {
        let fleet = &fleet;
        scope.spawn(|| fleet.charge(10));
        has_begun.recv().expect("it is asked");
        fleet.charge(10);
    });
    has_begun.recv().expect("it is asked twice");
    assert_eq!(fleet.asked(), []);
    fleet.caches.clear();
}
