//! Limits: they are never exceeded, and reaching one evicts the right tenant's items.

use crate::common::{Client, Running, start};
use submeter_cache::Config;

const VALUE: [u8; 1000] = [b'v'; 1000];

/// The maximum cost of an item of [`VALUE`] under a short key.
const ITEM: u64 = 1400;

fn server(memory_max: u64, limits: &[(&str, u64)]) -> Running {
    let tenant_limits =
        limits.iter().map(|(path, bytes)| ((*path).to_owned(), (*bytes).into())).collect();
    start(Config { memory_max, tenant_limits, ..Config::default() })
}

fn fill(client: &mut Client, prefix: &str, items: usize) {
    for n in 0..items {
        assert_eq!(client.set(&format!("{prefix}{n}"), &VALUE), "STORED", "{prefix}{n}");
    }
}

/// Counts the items that are still there.
fn held(client: &mut Client, prefix: &str, items: usize) -> usize {
    (0..items).filter(|n| client.get(&format!("{prefix}{n}")).is_some()).count()
}

/// A tenant's memory, its peak and its evictions.
fn state(server: &Running, path: &str) -> (u64, u64, u64) {
    let metrics = server.cache.metrics();
    let group = server.cache.tree().get(path).expect(path);
    let usage = group.usage(metrics.memory);
    (usage.current, usage.peak, group.sum(metrics.evictions))
}

#[test]
fn a_tenant_over_its_limit_loses_only_its_own() {
    let server = server(64 << 20, &[("/small", 100_000)]);
    let mut client = server.connect();
    fill(&mut client, "other:", 300);
    fill(&mut client, "small:", 1000);
    let (current, peak, evictions) = state(&server, "/small");
    assert!(current <= 100_000 && peak <= 100_000, "{current} {peak}");
    assert!(current > 100_000 - ITEM, "no more than needed is dropped: {current}");
    let left = held(&mut client, "small:", 1000);
    assert_eq!(left as u64 + evictions, 1000);
    assert_eq!(held(&mut client, "other:", 300), 300);
    assert_eq!(state(&server, "/other").2, 0);
}

/// A tenant whose limit was lowered shrinks before its next store.
#[test]
fn a_lowered_limit_shrinks_before_the_next_store() {
    let server = server(64 << 20, &[]);
    let mut client = server.connect();
    fill(&mut client, "other:", 100);
    // More than is dropped at a time.
    fill(&mut client, "large:", 3000);
    let large = server.cache.tree().get("/large").expect("it has items");
    large.set_limit(server.cache.metrics().memory, Some(100_000));
    server.cache.shrink("/large");
    let (current, ..) = state(&server, "/large");
    assert!(current <= 100_000, "{current}");
    assert!(current > 100_000 - ITEM, "no more than needed is dropped: {current}");
    assert_eq!(held(&mut client, "other:", 100), 100);
    server.cache.shrink("/none");
}

/// A lowered limit costs its excess once, however many threads make room.
#[test]
fn a_lowered_limit_costs_its_excess_once() {
    let (server, most) = (server(64 << 20, &[]), 2 << 20);
    let mut clients: Vec<Client> = (0..6).map(|_| server.connect()).collect();
    fill(&mut clients[0], "large:", 5000);
    let large = server.cache.tree().get("/large").expect("it has items");
    large.set_limit(server.cache.metrics().memory, Some(most));
    std::thread::scope(|scope| {
        for (at, client) in clients.iter_mut().enumerate() {
            scope.spawn(move || fill(client, &format!("large:new{at}"), 1));
            scope.spawn(|| server.cache.shrink("/large"));
        }
    });
    let (current, ..) = state(&server, "/large");
    assert!(current <= most, "{current}");
    // Each drops 64 KiB at a time, including the last item that crosses it.
    assert!(current > most - 12 * ((64 << 10) + ITEM), "{current} of {most} are left");
}

#[test]
fn the_server_never_holds_more_than_its_limit() {
    let server = server(500_000, &[]);
    std::thread::scope(|scope| {
        for tenant in 0..4 {
            let server = &server;
            scope.spawn(move || fill(&mut server.connect(), &format!("t{tenant}:"), 500));
        }
    });
    let (current, peak, evictions) = state(&server, "/");
    assert!(peak <= 500_000 && current > 400_000, "{current} {peak}");
    assert!(evictions >= 2000 - 500_000 / 1000);
    let metrics = server.cache.metrics();
    assert_eq!(server.cache.tree().root().sum(metrics.store_failures), 0);
}

#[test]
fn what_is_used_stays() {
    let server = server(64 << 20, &[("/a", 100_000)]);
    let mut client = server.connect();
    assert_eq!(client.set("a:hot", b"hot"), "STORED");
    for n in 0..2000 {
        assert_eq!(client.set(&format!("a:cold{n}"), &VALUE), "STORED");
        assert!(client.get("a:hot").is_some(), "evicted after {n}");
    }
}

#[test]
fn the_expired_go_first() {
    let server = server(64 << 20, &[("/a", 20 * ITEM)]);
    let mut client = server.connect();
    fill(&mut client, "a:", 5);
    let group = server.cache.tree().get("/a").expect("it has a limit");
    let metrics = server.cache.metrics();
    let live = group.usage(metrics.memory).current;
    for n in 0..5 {
        let request = format!("set a:dead{n} 0 -1 1000\r\n{}\r\n", "v".repeat(1000));
        assert_eq!(client.ask(request), "STORED");
    }
    // Few enough for each choice to see all items. The limit does not follow the current usage: the
    // dead may have been swept already. Room for ten items, with some bytes for longer keys.
    group.set_limit(metrics.memory, Some(2 * live + 40));
    for n in 0..5 {
        assert_eq!(client.set(&format!("a:new{n}"), &VALUE), "STORED");
    }
    assert_eq!(held(&mut client, "a:", 5), 5);
    assert_eq!((group.sum(metrics.expired), group.sum(metrics.evictions)), (5, 0));
}

#[test]
fn what_can_never_fit_is_refused() {
    let server = server(64 << 20, &[("/tiny", 1000)]);
    let mut client = server.connect();
    assert_eq!(client.set("tiny:k", b"small"), "STORED");
    assert_eq!(client.set("tiny:k", &VALUE), "SERVER_ERROR out of memory storing object");
    assert_eq!(client.get("tiny:k"), None, "the value that was to be replaced is gone");
    assert_eq!(client.set("tiny:j", b"small"), "STORED", "small ones still fit");
    let request = format!("ms tiny:k 1000\r\n{}\r\n", "v".repeat(1000));
    assert_eq!(client.ask(request), "SERVER_ERROR out of memory storing object");
    let metrics = server.cache.metrics();
    let tiny = server.cache.tree().get("/tiny").expect("it has a limit");
    assert_eq!(tiny.sum(metrics.store_failures), 2);
    assert_eq!(tiny.sum(metrics.cmd_set), 4);
    assert!(client.get("tiny:j").is_some(), "what can never fit pushes nobody out");
}

/// A tenant that may have no memory is told so, not that memory is short.
#[test]
fn a_limit_of_nothing_is_told_as_such() {
    let server = server(64 << 20, &[("/none", 1000)]);
    // As a tenant of a fleet without a lease.
    let none = server.cache.tree().get("/none").expect("it has a limit");
    none.set_limit(server.cache.metrics().memory, Some(0));
    let mut client = server.connect();
    for request in ["set none:n 0 0 1\r\nx\r\n", "ms none:n 1\r\nx\r\n"] {
        assert_eq!(client.ask(request), "SERVER_ERROR no memory is granted for now");
    }
}

/// Without evictions, a store that finds no room is refused.
#[test]
fn without_evictions_a_store_can_be_refused() {
    let server = start(Config {
        evictions: false,
        memory_max: 64 << 20,
        tenant_limits: vec![("/a".to_owned(), (20 * ITEM).into())],
        ..Config::default()
    });
    let mut client = server.connect();
    let refused = "SERVER_ERROR out of memory storing object";
    let stored =
        (0..).take_while(|n| client.set(&format!("a:{n}"), &VALUE) == "STORED").take(100).count();
    assert!((20..100).contains(&stored), "{stored}");
    assert_eq!(client.set("a:more", &VALUE), refused);
    assert_eq!(held(&mut client, "a:", stored), stored, "nothing made room for it");
    assert_eq!(state(&server, "/a").2, 0);
    // The old value must be gone after a refused overwrite, and expired items make room.
    assert_eq!(client.set("a:0", &[b'v'; 3000]), refused);
    assert_eq!(client.get("a:0"), None);
    assert_eq!(client.set("a:more", &VALUE), "STORED");
    assert_eq!(client.ask("touch a:1 -1\r\n"), "TOUCHED");
    assert_eq!(client.set("a:last", &VALUE), "STORED");
    let stats = client.talk("stats\r\nstats settings\r\n");
    for line in ["STAT store_no_memory 3\r\n", "STAT evictions 0\r\n", "STAT evictions off\r\n"] {
        assert!(stats.contains(line), "{line:?} in {stats}");
    }
}

#[test]
fn growing_in_place_makes_room_too() {
    let server = server(64 << 20, &[("/a", 10 * ITEM)]);
    let mut client = server.connect();
    assert_eq!(client.set("a:grow", b"g"), "STORED");
    fill(&mut client, "a:", 9);
    for _ in 0..6 {
        let request = format!("append a:grow 0 0 1000\r\n{}\r\n", "g".repeat(1000));
        assert_eq!(client.ask(request), "STORED");
        assert!(client.get("a:grow").is_some());
    }
    assert_eq!(client.get("a:grow").map(|value| value.len()), Some(6001));
    let (current, peak, evictions) = state(&server, "/a");
    assert!(current <= 10 * ITEM && peak <= 10 * ITEM && evictions > 0);
    let request = format!("append a:grow 0 0 20000\r\n{}\r\n", "g".repeat(20_000));
    assert_eq!(client.ask(request), "SERVER_ERROR out of memory storing object");
    assert_eq!(client.get("a:grow").map(|value| value.len()), Some(6001), "it is unharmed");
    assert_eq!(
        client.talk("set a:n 0 0 1\r\n9\r\nincr a:n 1\r\nget a:n\r\n"),
        "STORED\r\n10\r\nVALUE a:n 0 2\r\n10\r\nEND\r\n"
    );
}

#[test]
fn a_shared_limit_falls_on_the_largest_holder() {
    let server = server(64 << 20, &[("/p", 200_000)]);
    let mut client = server.connect();
    fill(&mut client, "outside:", 50);
    fill(&mut client, "p:big:", 300);
    let (before, ..) = state(&server, "/p/big");
    assert!(before > 150_000);
    // A new tenant is not restricted to one item: it gets its share, at the large one's expense.
    fill(&mut client, "p:new:", 40);
    assert_eq!(held(&mut client, "p:new:", 40), 40);
    assert_eq!(state(&server, "/p/new").2, 0);
    // Once it has its share, the tenant evicts its own items.
    fill(&mut client, "p:new:", 400);
    let (big, ..) = state(&server, "/p/big");
    let (new, ..) = state(&server, "/p/new");
    assert!(big > 80_000 && new > 80_000, "{big} {new}");
    let (current, peak, _) = state(&server, "/p");
    assert!(current <= 200_000 && peak <= 200_000);
    assert_eq!(held(&mut client, "outside:", 50), 50);
    assert_eq!(state(&server, "/outside").2, 0);
}

#[test]
fn the_roots_own_keys_take_part() {
    let server = server(100_000, &[]);
    let mut client = server.connect();
    fill(&mut client, "own", 200);
    fill(&mut client, "t:", 200);
    fill(&mut client, "own", 200);
    let (current, peak, _) = state(&server, "/");
    assert!(current > 90_000 && peak <= 100_000);
    assert!(held(&mut client, "t:", 200) > 20);
    assert!(held(&mut client, "own", 200) > 20);
}

#[test]
fn a_lowered_limit_acts_with_the_next_store() {
    let server = server(64 << 20, &[]);
    let mut client = server.connect();
    fill(&mut client, "a:", 100);
    let metrics = server.cache.metrics();
    let group = server.cache.tree().get("/a").expect("it was stored for");
    let excess = group.set_limit(metrics.memory, Some(20_000)).excess();
    assert!(excess > 80_000);
    assert_eq!(client.set("a:one", &VALUE), "STORED");
    assert!(group.usage(metrics.memory).current <= 20_000);
}

#[test]
fn a_killed_tenants_items_are_read_and_evicted() {
    let server = server(64 << 20, &[("/p", 100_000)]);
    let mut client = server.connect();
    fill(&mut client, "p:old:", 50);
    let old = server.cache.tree().get("/p/old").expect("it was stored for");
    old.kill().expect("it has no children");
    assert_eq!(held(&mut client, "p:old:", 50), 50, "a killed tenant's items can be read");
    fill(&mut client, "p:other:", 200);
    let metrics = server.cache.metrics();
    assert!(old.usage(metrics.memory).current < 50 * 1000, "they were evicted like any others");
    let (current, peak, _) = state(&server, "/p");
    assert!(current <= 100_000 && peak <= 100_000);
    // A new tenant of that name starts from zero.
    let new = server.cache.tree().get("/p/old").expect("it was asked for");
    assert_eq!(new.sum(metrics.cmd_get), 50);
    assert_eq!(new.sum(metrics.cmd_set), 0);
}

#[test]
fn many_tenants_share_a_server() {
    let server = server(300_000, &[]);
    let mut client = server.connect();
    for round in 0..3 {
        for tenant in 0..200 {
            let key = format!("t{tenant}:k{round}");
            assert_eq!(client.set(&key, &VALUE), "STORED");
            assert!(client.get(&key).is_some(), "what was just stored is there");
        }
    }
    let (current, peak, evictions) = state(&server, "/");
    assert!(current > 250_000 && peak <= 300_000, "{current} {peak}");
    assert!(evictions > 300);
}

/// Items of a killed tenant make room, though the tenant is not requested again.
#[test]
fn a_killed_tenants_items_make_room() {
    let server = server(64 << 20, &[("/p", 100_000)]);
    let mut client = server.connect();
    fill(&mut client, "p:old:", 80);
    let old = server.cache.tree().get("/p/old").expect("it was stored for");
    old.kill().expect("it has no children");
    fill(&mut client, "p:new:", 400);
    let metrics = server.cache.metrics();
    assert!(old.usage(metrics.memory).current < 60_000, "they were evicted like any others");
    assert!(server.cache.tree().get("/p/old").is_none());
}
