//! Totals are exact: the tree agrees with what clients counted, and parents are the sum of their
//! children.

use std::collections::BTreeMap;

use crate::common::{Client, Running, start};
use submeter::{MetricKind, Value};
use submeter_cache::Config;

/// One tenant's traffic, as its client counts it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Counted {
    gets: u64,
    hits: u64,
    sets: u64,
    deletes: u64,
    touches: u64,
    counts: u64,
    bytes_in: u64,
    bytes_out: u64,
    requests: u64,
}

type Books = BTreeMap<String, Counted>;

/// Sends a request of one tenant and counts it.
fn ask(client: &mut Client, books: &mut Books, path: &str, request: &str) -> String {
    let answer = client.talk(request);
    let counted = books.entry(path.to_owned()).or_default();
    counted.bytes_in += request.len() as u64;
    counted.bytes_out += answer.len() as u64;
    counted.requests += 1;
    // The `mn` after each request belongs to the root.
    let root = books.entry("/".to_owned()).or_default();
    root.bytes_in += 4;
    root.bytes_out += 4;
    root.requests += 1;
    answer
}

/// The mixed traffic of one client over a few tenants.
fn traffic(server: &Running, seed: u64, steps: usize) -> Books {
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut client = server.connect();
    let mut books = Books::new();
    for _ in 0..steps {
        let (path, prefix) = [
            ("/p/a", "p:a:"),
            ("/p/b", "p:b:"),
            ("/p", "p:"),
            ("/q", "q:"),
            ("/", ""),
            ("/p/:other", "p::"),
        ][rng.usize(..6)];
        let key = format!("{prefix}k{}", rng.usize(..50));
        let value = "7".repeat(1 + rng.usize(..15));
        let len = value.len();
        let request = match rng.u8(..9) {
            0 | 1 => format!("get {key}\r\n"),
            2 => format!("set {key} 0 0 {len}\r\n{value}\r\n"),
            3 => format!("append {key} 0 0 {len}\r\n{value}\r\n"),
            4 => format!("incr {key} 1\r\n"),
            5 => format!("delete {key}\r\n"),
            6 => format!("touch {key} 1000\r\n"),
            7 => format!("mg {key} v\r\n"),
            _ => format!("ms {key} {len}\r\n{value}\r\n"),
        };
        let answer = ask(&mut client, &mut books, path, &request);
        let counted = books.entry(path.to_owned()).or_default();
        match request.as_bytes() {
            [b'g', ..] | [b'm', b'g', ..] => {
                counted.gets += 1;
                counted.hits += u64::from(answer.starts_with("VA"));
            }
            [b's' | b'a', ..] | [b'm', b's', ..] => counted.sets += 1,
            [b'i', ..] => counted.counts += 1,
            [b'd', ..] => counted.deletes += 1,
            _ => counted.touches += 1,
        }
    }
    books
}

fn merge(into: &mut Books, from: Books) {
    for (path, counted) in from {
        let sum = into.entry(path).or_default();
        sum.gets += counted.gets;
        sum.hits += counted.hits;
        sum.sets += counted.sets;
        sum.deletes += counted.deletes;
        sum.touches += counted.touches;
        sum.counts += counted.counts;
        sum.bytes_in += counted.bytes_in;
        sum.bytes_out += counted.bytes_out;
        sum.requests += counted.requests;
    }
}

/// The totals of a tenant and everything below it.
fn total(books: &Books, path: &str) -> Counted {
    let prefix = format!("{}/", path.trim_end_matches('/'));
    let mut sum = Books::new();
    for (at, counted) in books {
        if at == path || at.starts_with(&prefix) {
            merge(&mut sum, Books::from([("sum".to_owned(), counted.clone())]));
        }
    }
    sum.remove("sum").unwrap_or_default()
}

/// The totals in the tree.
fn read(server: &Running, path: &str) -> Counted {
    let metrics = server.cache.metrics();
    let snapshot = server.cache.tree().snapshot();
    let group = snapshot.get(path).expect(path);
    Counted {
        gets: group.counter(metrics.cmd_get),
        hits: group.counter(metrics.get_hits),
        sets: group.counter(metrics.cmd_set),
        deletes: group.counter(metrics.cmd_delete),
        touches: group.counter(metrics.cmd_touch),
        counts: group.counter(metrics.cmd_arithmetic),
        bytes_in: group.counter(metrics.bytes_in),
        bytes_out: group.counter(metrics.bytes_out),
        requests: group.histogram(metrics.latency).count(),
    }
}

/// Checks that every metric of every parent without traffic of its own is the sum of its children.
fn parents_are_sums(server: &Running, own: impl Fn(&str) -> bool) {
    let snapshot = server.cache.tree().snapshot();
    for (index, group) in snapshot.groups().iter().enumerate() {
        let children: Vec<_> =
            snapshot.groups().iter().filter(|child| child.parent() == Some(index)).collect();
        if children.is_empty() || own(group.path()) {
            continue;
        }
        // Connections belong to no tenant.
        let all = snapshot.schema().metrics().iter();
        for metric in all.filter(|metric| metric.name() != "connections") {
            let number = |value: Value| match value {
                Value::Counter(n) => vec![i128::from(n)],
                Value::Gauge(n) => vec![i128::from(n)],
                Value::Histogram(h) => {
                    let sum = i128::from(h.sum());
                    h.counts().iter().map(|n| i128::from(*n)).chain([sum]).collect()
                }
                Value::Quota(usage) => vec![i128::from(usage.current)],
                other => panic!("unknown kind of value: {other:?}"),
            };
            let mut sum = number(group.value(metric));
            for child in &children {
                for (sum, n) in sum.iter_mut().zip(number(child.value(metric))) {
                    *sum -= n;
                }
            }
            assert!(
                sum.iter().all(|n| *n == 0),
                "{} of {}: {sum:?} too much",
                metric.name(),
                group.path()
            );
        }
    }
    let has_all =
        [MetricKind::Counter, MetricKind::Gauge, MetricKind::Histogram, MetricKind::Quota]
            .into_iter()
            .all(|kind| snapshot.schema().metrics().iter().any(|metric| metric.kind() == kind));
    assert!(has_all, "nothing was left out of the comparison");
}

#[test]
fn totals_are_what_concurrent_clients_counted() {
    let server = start(Config { memory_max: 25_000, ..Config::default() });
    let mut books = Books::new();
    std::thread::scope(|scope| {
        let clients: Vec<_> = (0..6)
            .map(|seed| {
                let server = &server;
                scope.spawn(move || traffic(server, seed, 800))
            })
            .collect();
        for client in clients {
            merge(&mut books, client.join().expect("no client failed"));
        }
    });
    for path in ["/", "/p", "/p/a", "/p/b", "/p/:other", "/q"] {
        assert_eq!(read(&server, path), total(&books, path), "{path}");
    }
    let metrics = server.cache.metrics();
    let root = server.cache.tree().root();
    assert!(root.sum(metrics.evictions) > 0, "the test is to be under pressure");
    assert_eq!(root.sum(metrics.get_misses), read(&server, "/").gets - read(&server, "/").hits);
    assert!(root.sum(metrics.cpu) > 0);
    // Items can be counted by fetching them.
    let mut client = server.connect();
    let stats = client.talk("stats\r\n");
    assert!(stats.contains(&format!("STAT curr_items {}\r\n", root.sum(metrics.items))));
    client.talk("flush_all\r\n");
    assert_eq!(root.sum(metrics.items), 0);
    assert_eq!(root.usage(metrics.memory).current, 0);
}

#[test]
fn parents_are_the_sum_of_their_children() {
    let server = start(Config { memory_max: 100_000, ..Config::default() });
    std::thread::scope(|scope| {
        for tenant in 0..4 {
            let server = &server;
            scope.spawn(move || {
                let mut client = server.connect();
                for n in 0..500 {
                    let key = format!("load:t{tenant}:k{n}");
                    assert_eq!(client.set(&key, &[b'v'; 200]), "STORED");
                    client.get(&key);
                    client.ask(format!("incr {key} 1\r\n"));
                    client.send(format!("get load:t{}:k{n} {key}\r\n", (tenant + 1) % 4));
                    while client.line() != "END" {}
                }
            });
        }
    });
    // No request was for a key of the root or of the parent itself.
    parents_are_sums(&server, |_| false);
    let metrics = server.cache.metrics();
    let load = server.cache.tree().get("/load").expect("it was asked for");
    assert_eq!(load.sum(metrics.cmd_get), 4 * 500 * 3);
    assert_eq!(load.sum(metrics.cmd_set), 4 * 500);
    assert_eq!(load.sum(metrics.cmd_arithmetic), 4 * 500);
}

/// A retrieval from more tenants than a batch remembers charges each once.
#[test]
fn a_wide_retrieval_charges_each_once() {
    let server = start(Config::default());
    let mut client = server.connect();
    let keys: Vec<String> = (0..700).map(|n| format!("t{n}:k")).collect();
    let request = format!("get {}\r\n", keys.join(" "));
    client.send(&request);
    assert_eq!(client.line(), "END");
    let m = server.cache.metrics();
    let snapshot = server.cache.tree().snapshot();
    for n in 0..700 {
        let group = snapshot.get(&format!("/t{n}")).expect("it was asked for");
        assert_eq!((group.counter(m.cmd_get), group.counter(m.get_misses)), (1, 1), "t{n}");
        assert_eq!(group.histogram(m.latency).count(), 1, "t{n}");
    }
    let root = snapshot.get("/").expect("there is a root");
    assert_eq!(root.counter(m.bytes_in), request.len() as u64);
    assert_eq!(root.counter(m.bytes_out), "END\r\n".len() as u64);
}

#[test]
fn a_retrieval_of_several_tenants_keys_is_split() {
    let server = start(Config::default());
    let mut client = server.connect();
    client.set("a:k", b"aaaa");
    client.set("b:k", b"bb");
    let before = |path: &str| read(&server, path);
    let (a, b) = (before("/a"), before("/b"));
    client.send("get a:k b:k b:no\r\n");
    let answer = b"VALUE a:k 0 4\r\naaaa\r\nVALUE b:k 0 2\r\nbb\r\nEND\r\n";
    assert_eq!(client.bytes(answer.len()), answer);
    let (a2, b2) = (read(&server, "/a"), read(&server, "/b"));
    assert_eq!((a2.gets - a.gets, b2.gets - b.gets), (1, 2));
    assert_eq!((a2.hits - a.hits, b2.hits - b.hits), (1, 1));
    // The first key is charged the command and the line's end, the last one the end of the answer.
    assert_eq!(a2.bytes_in - a.bytes_in, "get a:k\r\n".len() as u64);
    assert_eq!(b2.bytes_in - b.bytes_in, " b:k b:no".len() as u64);
    assert_eq!(a2.bytes_out - a.bytes_out, "VALUE a:k 0 4\r\naaaa\r\n".len() as u64);
    assert_eq!(b2.bytes_out - b.bytes_out, "VALUE b:k 0 2\r\nbb\r\nEND\r\n".len() as u64);
    assert_eq!((a2.requests - a.requests, b2.requests - b.requests), (1, 2));
}

#[test]
fn a_killed_tenants_totals_stay_in_its_parent() {
    let server = start(Config::default());
    let mut books = Books::new();
    let mut client = server.connect();
    for round in 0..5 {
        for n in 0..20 {
            ask(&mut client, &mut books, "/p/a", &format!("set p:a:k{n} 0 0 1\r\n{round}\r\n"));
        }
        server.cache.tree().get("/p/a").expect("it was asked for").kill().expect("no children");
    }
    let metrics = server.cache.metrics();
    let parent = server.cache.tree().get("/p").expect("it was asked for");
    assert_eq!(parent.sum(metrics.cmd_set), 100);
    assert_eq!(parent.sum(metrics.items), 20);
    assert_eq!(read(&server, "/").bytes_in, total(&books, "/").bytes_in);
}

#[test]
fn without_metering_only_memory_is_charged() {
    let server = start(Config { metering: false, memory_max: 50_000, ..Config::default() });
    let mut client = server.connect();
    for n in 0..200 {
        assert_eq!(client.set(&format!("a:k{n}"), &[b'v'; 1000]), "STORED");
    }
    assert!(client.get("a:k199").is_some());
    let metrics = server.cache.metrics();
    let root = server.cache.tree().root();
    let usage = root.usage(metrics.memory);
    assert!(usage.current > 40_000 && usage.peak <= 50_000);
    for metric in [metrics.cmd_get, metrics.cmd_set, metrics.get_hits, metrics.evictions] {
        assert_eq!(root.sum(metric), 0);
    }
    assert_eq!(root.sum(metrics.items), 0);
    assert_eq!(root.sum(metrics.bytes_in), 0);
    assert_eq!(root.sum_histogram(metrics.latency).count(), 0);
}
