//! Stalls and reclaimed amounts as Prometheus sees them: they only grow, and are not summed over
//! groups.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use submeter::Group;
use submeter::export::Export;

use crate::export::{Server, World, samples, value, world};

/// Makes a charge of a group wait in vain.
fn stall(w: &World, group: &Group) {
    w.tree.root().set_limit(w.memory, Some(1));
    let held = w.tree.root().try_charge(w.memory, 1).expect("room");
    let late = group.charge_blocking(w.memory, 1, Duration::from_millis(1));
    late.expect_err("no room");
    drop(held);
    w.tree.root().set_limit(w.memory, None);
}

const STALLS: [&str; 2] =
    ["app_memory_pressure_some_seconds_total", "app_memory_pressure_full_seconds_total"];

fn stalls(text: &str, group: &str) -> [Option<f64>; 2] {
    STALLS.map(|name| value(text, &format!("{name}{{group=\"{group}\"}}")))
}

/// A group that never waited has no series of stalls; one that waits begins at zero.
#[test]
fn stall_series_begin_at_zero_with_a_wait() {
    let w = world();
    let export = Export::new("app").scrapers(2);
    let web = w.tree.get_or_create("/acme/web").expect("room");
    web.add(w.requests, 1);
    w.add("/idle", 1);
    let text = w.text(&export);
    assert!(samples(&text).all(|(series, _)| !series.contains("pressure")), "{text}");
    stall(&w, &web);
    for _ in 0..2 {
        assert_eq!(stalls(&w.text(&export), "/acme/web"), [Some(0.0); 2], "for each scraper");
    }
    let text = w.text(&export);
    let total = web.pressure(w.memory);
    let expected = [total.some, total.full].map(|stall| Some(stall.total.as_secs_f64()));
    assert_eq!((stalls(&text, "/acme/web"), stalls(&text, "/idle")), (expected, [None; 2]));
    // Less than the timeout where the thread was off its CPU before it began to wait.
    assert!(expected[1] > Some(0.0), "{expected:?}");
    assert_eq!(stalls(&text, "/")[1], Some(0.0), "others held what it waited for");
    assert!(stalls(&text, "/acme") >= stalls(&text, "/acme/web"), "with descendants: {text}");
    assert!(!text.contains("pressure_some_seconds_total{group=\"//other"), "{text}");
}

/// Stalls never fall, and a name that is created again continues them.
#[test]
fn stalls_never_fall_when_a_name_returns() {
    let w = world();
    let export = Export::new("app").scrapers(1);
    let mut server = Server::default();
    let stall_once = || {
        let group = w.tree.get_or_create("/acme").expect("room");
        stall(&w, &group);
        group.pressure(w.memory).full.total.as_secs_f64()
    };
    // The first scrape has everything counted so far, as with other counters.
    let first = stall_once();
    let text = w.text(&export);
    assert_eq!(stalls(&text, "/acme")[1], Some(first), "{text}");
    server.scrape(&text);
    w.kill("/acme");
    let second = stall_once();
    server.scrape(&w.text(&export));
    let sum = server.of(&format!("{}{{group=\"/acme\"}}", STALLS[1]));
    assert!((sum - second).abs() < 1e-9, "{sum}: {second}, which is of another group");
    w.kill("/acme");
    server.scrape(&w.text(&export));
    assert_eq!(stalls(&w.text(&export), "/acme"), [None; 2], "it has ended");
    assert_eq!(server.resets, 0);
}

/// Stalls from before a group was shown are not taken for new ones.
#[test]
fn stalls_before_the_first_scrape_are_not_new() {
    let w = world();
    let export = Export::new("app").top(1, w.requests).scrapers(1);
    let (shown, hidden) = (w.tree.create("/a").expect("room"), w.tree.create("/b").expect("room"));
    shown.add(w.requests, 10);
    hidden.add(w.requests, 1);
    stall(&w, &hidden);
    let old = hidden.pressure(w.memory).full.total;
    w.text(&export);
    hidden.add(w.requests, 100);
    assert_eq!(stalls(&w.text(&export), "/b"), [None; 2], "it has not stalled since");
    stall(&w, &hidden);
    assert_eq!(stalls(&w.text(&export), "/b"), [Some(0.0); 2]);
    let new = (hidden.pressure(w.memory).full.total - old).as_secs_f64();
    let [_, full] = stalls(&w.text(&export), "/b");
    assert!(full.is_some_and(|full| (full - new).abs() < 1e-9), "{full:?} and {new}");
}

#[test]
fn a_group_that_only_waited_is_not_idle() {
    let w = world();
    let waits = w.tree.create("/waits").expect("room");
    stall(&w, &waits);
    assert_eq!(waits.usage(w.memory).refused, 0);
    let text = w.text(&Export::new("app"));
    assert!(stalls(&text, "/waits")[1] > Some(0.0), "{text}");
}

const RECLAIMED: [&str; 2] = ["app_memory_reclaimed_bytes_total", "app_memory_reclaimed_low_total"];

fn reclaimed(text: &str, group: &str) -> [Option<f64>; 2] {
    RECLAIMED.map(|name| value(text, &format!("{name}{{group=\"{group}\"}}")))
}

/// Makes a group give back `n`, all of which its `low` protects.
fn reclaim(w: &World, group: &Group, n: u64) {
    let held = Arc::new(Mutex::new(Some(group.try_charge(w.memory, n).expect("room"))));
    group.set_low(w.memory, Some(n));
    let freed = Arc::clone(&held);
    let registered = group.on_reclaim(w.memory, move |_| drop(freed.lock().unwrap().take()));
    w.tree.root().set_limit(w.memory, Some(n));
    let other = w.tree.get_or_create("/other").expect("room");
    drop(other.charge_reclaiming(w.memory, n).expect("it is given back"));
    w.tree.root().set_limit(w.memory, None);
    drop(registered);
}

/// The reclaimed amount begins at zero, and continues under its name.
#[test]
fn reclaimed_begins_at_zero_and_continues() {
    let w = world();
    let export = Export::new("app").scrapers(1);
    let cache = w.tree.get_or_create("/cache").expect("room");
    cache.add(w.requests, 1);
    let text = w.text(&export);
    assert!(samples(&text).all(|(series, _)| !series.contains("reclaimed")), "{text}");
    reclaim(&w, &cache, 4096);
    assert_eq!(reclaimed(&w.text(&export), "/cache"), [Some(0.0); 2]);
    assert_eq!(reclaimed(&w.text(&export), "/cache"), [Some(4096.0), Some(1.0)]);
    assert_eq!(stalls(&w.text(&export), "/cache"), [None; 2], "it did not wait");
    cache.kill().expect("no children");
    drop(cache);
    let again = w.tree.get_or_create("/cache").expect("room");
    reclaim(&w, &again, 100);
    reclaim(&w, &again, 100);
    let text = w.text(&export);
    assert_eq!(reclaimed(&text, "/cache"), [Some(4296.0), Some(3.0)], "{text}");
    assert_eq!(reclaimed(&text, "/other"), [None; 2], "it only asked: {text}");
    assert_eq!(reclaimed(&text, "/"), [None; 2], "{text}");
}
