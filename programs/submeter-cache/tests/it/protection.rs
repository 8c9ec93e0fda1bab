//! Tests that no other tenant's items push a tenant below its protected memory.

use submeter::Group;
use submeter_cache::{Config, TenantLimits};

use crate::common::{Client, Running, start};

const VALUE: [u8; 1000] = [b'v'; 1000];

/// The maximum cost of an item of [`VALUE`] under a short key.
const ITEM: u64 = 1400;

const NONE: TenantLimits = TenantLimits {
    memory: None,
    rate: None,
    cpu: None,
    high: None,
    low: None,
    min: None,
    weight: None,
    mode: None,
};

fn low(bytes: u64) -> TenantLimits {
    TenantLimits { low: Some(bytes), ..NONE }
}

fn weight(weight: u32) -> TenantLimits {
    TenantLimits { weight: Some(weight), ..NONE }
}

fn min(bytes: u64) -> TenantLimits {
    TenantLimits { min: Some(bytes), ..NONE }
}

fn high(bytes: u64) -> TenantLimits {
    TenantLimits { high: Some(bytes), ..NONE }
}

fn named(limits: &[(&str, TenantLimits)]) -> Vec<(String, TenantLimits)> {
    limits.iter().map(|(path, limits)| ((*path).to_owned(), *limits)).collect()
}

fn server(memory_max: u64, limits: &[(&str, TenantLimits)]) -> Running {
    start(Config { memory_max, tenant_limits: named(limits), ..Config::default() })
}

fn fill(client: &mut Client, prefix: &str, items: usize) {
    for n in 0..items {
        assert_eq!(client.set(&format!("{prefix}{n}"), &VALUE), "STORED", "{prefix}{n}");
    }
}

/// Stores items until a tenant holds that much, but less than a whole item more.
fn fill_to(server: &Running, client: &mut Client, prefix: &str, path: &str, bytes: u64) -> usize {
    let mut items = 0;
    while items == 0 || held(server, path) < bytes {
        assert_eq!(client.set(&format!("{prefix}{items}"), &VALUE), "STORED");
        items += 1;
        assert!(items < 1000, "{path} stays at {} of {bytes}", held(server, path));
    }
    items
}

fn group(server: &Running, path: &str) -> Group {
    server.cache.tree().get(path).expect(path)
}

fn held(server: &Running, path: &str) -> u64 {
    group(server, path).usage(server.cache.metrics().memory).current
}

fn evictions(server: &Running, path: &str) -> u64 {
    group(server, path).sum(server.cache.metrics().evictions)
}

fn found(client: &mut Client, prefix: &str, items: usize) -> usize {
    (0..items).filter(|n| client.get(&format!("{prefix}{n}")).is_some()).count()
}

/// Runs a tenant with 350 kB of 500 kB beside one that stores ten times as much; returns what is
/// left of the first, and how many of its items.
fn beside_an_aggressor(limits: &[(&str, TenantLimits)]) -> (u64, usize) {
    let server = server(500_000, limits);
    let mut client = server.connect();
    let items = fill_to(&server, &mut client, "quiet:", "/quiet", 350_000);
    fill(&mut client, "loud:", 10 * items);
    assert!(held(&server, "/loud") > 100_000, "it has what is left");
    let (left, found) = (held(&server, "/quiet"), found(&mut client, "quiet:", items));
    assert_eq!(found as u64 + evictions(&server, "/quiet"), items as u64);
    (left, found)
}

/// A neighbour that stores ten times as much does not push a tenant below its `low`.
#[test]
fn ten_times_the_stores_leave_low_alone() {
    let (unprotected, _) = beside_an_aggressor(&[]);
    assert!(unprotected < 260_000, "without protection it has its fair share: {unprotected}");
    for limits in [low(340_000), min(340_000)] {
        let (left, items) = beside_an_aggressor(&[("/quiet", limits)]);
        assert!(left >= 340_000, "{left} of {items} items: {limits:?}");
    }
    // Its part above `low` is its fair share of all memory above protections: half of 350 kB.
    let (left, _) = beside_an_aggressor(&[("/quiet", low(150_000))]);
    assert!((310_000..335_000).contains(&left), "{left}");
}

/// A neighbour that stores from many connections does not push a tenant below its `low`.
#[test]
fn many_connections_leave_low_alone() {
    const THREADS: u64 = 4;
    let server = server(500_000, &[("/quiet", low(340_000))]);
    fill_to(&server, &mut server.connect(), "quiet:", "/quiet", 350_000);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let server = &server;
            scope.spawn(move || fill(&mut server.connect(), &format!("loud:{thread}-"), 700));
        }
    });
    // Each thread may have taken an item that just fitted when it looked.
    assert!(held(&server, "/quiet") >= 340_000 - THREADS * ITEM, "{}", held(&server, "/quiet"));
}

#[test]
fn a_tenant_below_its_low_grows_at_others_cost() {
    let server = server(300_000, &[("/quiet", low(200_000))]);
    let mut client = server.connect();
    for other in ["a", "b", "c"] {
        fill(&mut client, &format!("{other}:"), 150);
    }
    // More than its fair share, which is a quarter, and nothing of its own is dropped.
    let items = fill_to(&server, &mut client, "quiet:", "/quiet", 190_000);
    assert_eq!((found(&mut client, "quiet:", items), evictions(&server, "/quiet")), (items, 0));
    assert!(held(&server, "/") <= 300_000);
}

/// Memory below `low` goes only when nothing else is left.
#[test]
fn what_is_below_low_goes_last() {
    let server = server(300_000, &[("/a", low(200_000)), ("/b", low(200_000))]);
    let mut client = server.connect();
    fill(&mut client, "rest:", 80);
    fill_to(&server, &mut client, "a:", "/a", 150_000);
    let mut stored = 0;
    while evictions(&server, "/a") + evictions(&server, "/b") == 0 {
        assert_eq!(client.set(&format!("b:{stored}"), &VALUE), "STORED");
        stored += 1;
        assert!(stored < 1000, "they can never both have what is protected");
    }
    assert_eq!(held(&server, "/rest"), 0, "all of it went before");
    fill(&mut client, "b:more", 300);
    let [a, b] = ["/a", "/b"].map(|path| held(&server, path));
    assert!(a + b > 290_000 && a.min(b) > 130_000, "they share what there is: {a} {b}");
}

/// What `min` protects is never evicted for others, only for the tenant's own stores.
#[test]
fn min_protects_from_all_but_own_stores() {
    let server = server(200_000, &[("/kept", min(200_000))]);
    let mut client = server.connect();
    let mut items = 0;
    while evictions(&server, "/kept") == 0 {
        fill(&mut client, &format!("kept:{items}-"), 1);
        items += 1;
        assert!(items < 1000, "nothing of its own goes");
    }
    for n in 0..20 {
        let answer = client.set(&format!("other:{n}"), &VALUE);
        assert!(answer.starts_with("SERVER_ERROR out of memory"), "{answer}");
    }
    let left = (0..items).filter(|n| client.get(&format!("kept:{n}-0")).is_some()).count();
    assert_eq!((left, evictions(&server, "/kept")), (items - 1, 1));
    fill(&mut client, "kept:more", 50);
    assert_eq!(evictions(&server, "/kept"), 51);
}

#[test]
fn what_has_expired_goes_though_it_is_protected() {
    let server = server(200_000, &[("/kept", min(199_000))]);
    let mut client = server.connect();
    for n in 0..140 {
        let value = "v".repeat(1000);
        assert_eq!(client.ask(format!("set kept:{n} 0 1 1000\r\n{value}\r\n")), "STORED");
    }
    std::thread::sleep(std::time::Duration::from_millis(2100));
    fill(&mut client, "other:", 100);
    assert_eq!(evictions(&server, "/kept"), 0, "they expired");
}

/// A tenant over its own limit pays, whatever is protected of it.
#[test]
fn over_its_limit_a_tenant_pays_itself() {
    let limits = TenantLimits { memory: Some(100_000), min: Some(90_000), ..low(95_000) };
    let server = server(64 << 20, &[("/small", limits)]);
    let mut client = server.connect();
    fill(&mut client, "other:", 100);
    fill(&mut client, "small:", 300);
    assert!((100_000 - ITEM..=100_000).contains(&held(&server, "/small")));
    assert_eq!(evictions(&server, "/other"), 0);
}

#[test]
fn subtenants_share_their_parents_protection() {
    let server = server(400_000, &[("/p", low(250_000)), ("/p/x", low(100_000))]);
    let mut client = server.connect();
    fill_to(&server, &mut client, "p:x:", "/p/x", 110_000);
    fill_to(&server, &mut client, "p:y:", "/p/y", 150_000);
    fill(&mut client, "loud:", 2000);
    assert!(held(&server, "/p") >= 250_000, "{}", held(&server, "/p"));
    // The parent's own limit respects what its children claim.
    group(&server, "/p").set_limit(server.cache.metrics().memory, Some(255_000));
    fill(&mut client, "p:z:", 500);
    let [x, y] = ["/p/x", "/p/y"].map(|path| held(&server, path));
    assert!(x >= 100_000 && y < 100_000, "{x} {y}");
}

/// Among many tenants, what an earlier search found does not outlive a new protection.
#[test]
fn old_findings_do_not_outlive_protection() {
    let server = server(500_000, &[("/big", low(150_000))]);
    let mut client = server.connect();
    fill_to(&server, &mut client, "big:", "/big", 200_000);
    // So many that one visit to all of them serves for sixteen items.
    for n in 0..256 {
        fill(&mut client, &format!("t{n}:"), 1);
    }
    for n in 0..600 {
        assert_eq!(client.set(&format!("t{}:k{n}", n % 256), &VALUE), "STORED");
        let left = held(&server, "/big");
        assert!(left >= 150_000, "{left} after {n}");
    }
    assert!(held(&server, "/big") < 150_000 + 8 * ITEM, "it has no more above than others");
}

/// Above its `high` a tenant shrinks with its stores, and is never refused.
#[test]
fn above_high_a_tenant_shrinks() {
    let server = server(64 << 20, &[("/a", high(50_000))]);
    let mut client = server.connect();
    fill(&mut client, "other:", 100);
    for n in 0..200 {
        assert_eq!(client.set(&format!("a:{n}"), &VALUE), "STORED");
        assert!(held(&server, "/a") <= 50_000 + ITEM, "{n}");
    }
    let metrics = server.cache.metrics();
    let over = group(&server, "/a").sum(metrics.over_high);
    assert!((150..200).contains(&over) && evictions(&server, "/a") >= over, "{over}");
    assert_eq!(
        (evictions(&server, "/other"), group(&server, "/a").usage(metrics.memory).refused),
        { (0, 0) }
    );
    // An item that may be larger than everything it should hold is stored too.
    assert_eq!(client.set("a:large", &[b'v'; 100_000]), "STORED");

    // If lowered far, it takes several stores.
    let limits = named(&[("/b", high(50_000))]);
    fill(&mut client, "b:", 200);
    server.cache.set_limits(&limits).expect("sound");
    let before = held(&server, "/b");
    assert_eq!(client.set("b:next", &VALUE), "STORED");
    let after = held(&server, "/b");
    assert!(after < before && after > before - 4 * ITEM, "{before} {after}");
    fill(&mut client, "b:more", 300);
    assert!(held(&server, "/b") <= 50_000 + ITEM);
}

#[test]
fn without_evictions_a_high_drops_nothing() {
    let tenant_limits = named(&[("/a", high(50_000))]);
    let config = Config { evictions: false, tenant_limits, ..Config::default() };
    let server = start(config);
    let mut client = server.connect();
    fill(&mut client, "a:", 100);
    assert_eq!((found(&mut client, "a:", 100), evictions(&server, "/a")), (100, 0));
    assert!(group(&server, "/a").sum(server.cache.metrics().over_high) > 0);
}

#[test]
fn protection_ends_with_its_limits() {
    let server = server(500_000, &[("/quiet", low(340_000))]);
    let mut client = server.connect();
    fill_to(&server, &mut client, "quiet:", "/quiet", 350_000);
    server.cache.set_limits(&[]).expect("none is sound");
    fill(&mut client, "loud:", 2000);
    assert!(held(&server, "/quiet") < 260_000, "{}", held(&server, "/quiet"));
}

#[test]
fn limits_that_contradict_each_other_are_refused() {
    let config = |limits: &[(&str, TenantLimits)]| Config {
        memory_max: 1000,
        tenant_limits: named(limits),
        ..Config::default()
    };
    for (limits, said) in [
        (vec![("/a", TenantLimits { memory: Some(9), ..high(10) })], "high 10"),
        (vec![("/a", TenantLimits { memory: Some(9), ..low(10) })], "more than its limit 9"),
        (vec![("/a", min(0))], "min 0 of tenant \"/a\" does nothing"),
        (vec![("/", low(1))], "whole server"),
        (vec![("/", weight(1))], "whole server"),
        (vec![("/a", weight(0))], "weight 0 of tenant \"/a\" is out of range: use 1 to"),
        (vec![("/a", min(600)), ("/b", min(401))], "1001 bytes, more than memory_max 1000"),
    ] {
        let error = submeter_cache::Cache::new(config(&limits)).expect_err(said).to_string();
        assert!(error.contains(said) && !error.contains('\n'), "{error}");
    }
    let nested = [("/a", min(600)), ("/a/b", min(600)), ("/c", low(2000))];
    submeter_cache::Cache::new(config(&nested)).expect("none of it is out of reach");
}
