//! Expired items are dropped before live ones are evicted, even if they are never requested.

use crate::common::{Client, eventually, start};
use submeter_cache::Config;

const VALUE: &str =
    "vvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvv";

/// Stores items in one pipeline; with an expiry of -1 they have expired when they arrive.
fn store(client: &mut Client, prefix: &str, items: usize, exptime: &str) {
    let set = |n| format!("set {prefix}{n} 0 {exptime} {} noreply\r\n{VALUE}\r\n", VALUE.len());
    assert_eq!(client.talk((0..items).map(set).collect::<String>()), "");
}

fn held(client: &mut Client, prefix: &str, items: usize) -> usize {
    let keys: String = (0..items).map(|n| format!(" {prefix}{n}")).collect();
    client.talk(format!("get{keys}\r\n")).matches("VALUE ").count()
}

/// Live and expired items: expired ones are so few that ten items chosen at random rarely include
/// one.
const LIVING: usize = 2000;
const EXPIRED: usize = 20;

/// Fills a group with `living` items, then stores a few `dead` ones, already expired, and as many
/// `new` ones, which fit only in place of the dead. Everything is in one pipeline, so that neither
/// the background nor a retrieval finds the dead first.
fn fill(limited: &str, living: &str, dead: &str, new: &str) {
    let server = start(Config::default());
    let mut client = server.connect();
    store(&mut client, living, LIVING, "0");
    let metrics = server.cache.metrics();
    let group = server.cache.tree().get(limited).expect(limited);
    let now = group.usage(metrics.memory).current;
    let one = now / LIVING as u64 + 16;
    group.set_limit(metrics.memory, Some(now + one * EXPIRED as u64));
    let set = |prefix: &str, n, exptime| {
        format!("set {prefix}{n} 0 {exptime} {} noreply\r\n{VALUE}\r\n", VALUE.len())
    };
    let dead = (0..EXPIRED).map(|n| set(dead, n, "-1"));
    let stored = (0..EXPIRED).map(|n| set(new, n, "0"));
    assert_eq!(client.talk(dead.chain(stored).collect::<String>()), "");
    assert_eq!(server.cache.tree().root().sum(metrics.evictions), 0);
    assert_eq!(held(&mut client, living, LIVING), LIVING);
    assert_eq!(held(&mut client, new, EXPIRED), EXPIRED);
}

#[test]
fn the_few_expired_among_many_go_first() {
    fill("/a", "a:live", "a:dead", "a:new");
}

#[test]
fn others_expired_go_before_what_lives() {
    fill("/", "big:live", "small:dead", "big:new");
    fill("/p", "p:big:live", "p:small:dead", "p:big:new");
}

/// A touch in either direction decides when an item goes.
#[test]
fn a_touch_decides_when_an_item_goes() {
    let server = start(Config::default());
    let mut client = server.connect();
    store(&mut client, "never", 1, "0");
    store(&mut client, "later", 1, "1");
    store(&mut client, "sooner", 1, "1000");
    store(&mut client, "now", 1, "0");
    assert_eq!(client.ask("touch later0 1000\r\n"), "TOUCHED");
    assert_eq!(client.ask("mg sooner0 T-1\r\n"), "HD");
    assert_eq!(client.ask("gat -1 now0\r\n"), format!("VALUE now0 0 {}", VALUE.len()));
    client.talk("");
    let items = server.cache.metrics().items;
    let left = || server.cache.tree().root().sum(items);
    eventually("two go", || left() == 2);
    // Longer than its first time to live.
    std::thread::sleep(std::time::Duration::from_millis(1500));
    assert_eq!(left(), 2);
    assert_eq!(client.ask("touch later0 -1\r\n"), "TOUCHED");
    eventually("one more goes", || left() == 1);
    assert_eq!(held(&mut client, "never", 1), 1);
}

#[test]
fn many_that_expire_at_once_go_unasked() {
    let server = start(Config::default());
    let mut client = server.connect();
    store(&mut client, "t:", 5000, "1");
    let group = server.cache.tree().get("/t").expect("it was stored for");
    let metrics = server.cache.metrics();
    eventually("all go", || group.usage(metrics.memory).current == 0);
    assert_eq!((group.sum(metrics.expired), group.sum(metrics.evictions)), (5000, 0));
}
