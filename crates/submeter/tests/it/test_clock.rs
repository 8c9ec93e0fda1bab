//! A clock that a test advances: whatever depends on time acts as if that time had passed.

use std::thread;
use std::time::Duration;

use submeter::{Count, Counter, Rate, RateLimit, Schema, TestClock, Tolerance, Tree};

const SECOND: Duration = Duration::from_secs(1);

fn by(clock: &TestClock) -> (Tree, Counter<Count>, RateLimit<Count>) {
    let mut schema = Schema::builder();
    let requests = schema.counter("requests", "Requests");
    let rate = schema.rate_limit("rate", "Requests per time");
    let schema = schema.build().expect("valid");
    let tree = Tree::builder(schema).test_clock(clock).build().expect("address space");
    (tree, requests, rate)
}

/// A rate earns by the test's clock, to the nanosecond, in groups made before and after.
#[test]
fn a_rate_earns_by_it() {
    let clock = TestClock::new();
    let (tree, _, rate) = by(&clock);
    tree.root().set_rate(rate, Some(Rate::new(1000, SECOND))).expect("it can be kept");
    let web = tree.create("/web").expect("room");
    web.try_take(rate, 1000).expect("a burst");
    clock.advance(SECOND - Duration::from_nanos(1));
    let refused = web.try_take(rate, 1000).expect_err("a nanosecond is missing");
    assert_eq!(refused.retry_after(), Some(Duration::from_nanos(1)));
    clock.advance(Duration::from_nanos(1));
    web.try_take(rate, 1000).expect("earned");
    assert_eq!(tree.root().balance(rate), Some(0));
    clock.advance(365 * 86_400 * SECOND);
    assert_eq!(tree.root().balance(rate), Some(1000), "a burst and no more");
}

#[test]
fn a_debt_is_earned_by_it() {
    let clock = TestClock::new();
    let (tree, _, rate) = by(&clock);
    let web = tree.create("/web").expect("room");
    web.set_rate(rate, Some(Rate::new(10, SECOND))).expect("it can be kept");
    web.spend(rate, 30);
    assert_eq!(web.balance(rate), Some(-20));
    clock.advance(2 * SECOND);
    assert_eq!(web.balance(rate), Some(0));
    assert!(web.try_admit(rate).is_err());
    clock.advance(SECOND);
    web.try_admit(rate).expect("earned");
}

#[test]
fn a_reading_ages_by_it() {
    let clock = TestClock::new();
    let (tree, requests, _) = by(&clock);
    tree.root().inc(requests);
    tree.flush();
    thread::sleep(Duration::from_millis(2));
    assert_eq!(tree.root().read(requests).age, Duration::ZERO);
    clock.advance(5 * SECOND);
    assert_eq!(tree.root().read(requests).age, 5 * SECOND);
    tree.root().inc(requests);
    let fresh = Tolerance::ANY.max_age(4 * SECOND);
    assert_eq!(tree.root().read_within(requests, fresh).age, Duration::ZERO);
}

/// Before its first flush a tree is as old as itself, not as its clock.
#[test]
fn a_tree_made_late_is_not_old() {
    let clock = TestClock::new();
    clock.advance(5 * SECOND);
    let (tree, requests, _) = by(&clock);
    assert_eq!(tree.root().read(requests).age, Duration::ZERO);
    clock.advance(SECOND);
    assert_eq!(tree.root().read(requests).age, SECOND);
}

/// Another tree goes by its own clock, because a program's tests run concurrently.
#[test]
fn another_tree_goes_by_its_own() {
    let (clock, other) = (TestClock::new(), TestClock::new());
    let [(tree, _, rate), (beside, _, same)] = [&clock, &other].map(by);
    for (tree, rate) in [(&tree, rate), (&beside, same)] {
        tree.root().set_rate(rate, Some(Rate::new(10, SECOND))).expect("it can be kept");
        tree.root().try_take(rate, 10).expect("a burst");
    }
    clock.clone().advance(SECOND);
    let left = [tree.root().balance(rate), beside.root().balance(same)];
    assert_eq!(left, [Some(10), Some(0)]);
    assert_eq!([clock.elapsed(), other.elapsed()], [SECOND, Duration::ZERO]);
}
