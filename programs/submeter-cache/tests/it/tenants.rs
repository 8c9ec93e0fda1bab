//! Deleting tenants while they are in use.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::common::{PATIENCE, Running, start, start_default};
use submeter::refs::pin;
use submeter_cache::{Config, DeleteError, Deletion};

/// One tenant's traffic, as its client counts it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counted {
    gets: u64,
    sets: u64,
    bytes_in: u64,
    bytes_out: u64,
}

impl Counted {
    fn add(&mut self, other: Counted) {
        self.gets += other.gets;
        self.sets += other.sets;
        self.bytes_in += other.bytes_in;
        self.bytes_out += other.bytes_out;
    }
}

fn read(server: &Running, path: &str) -> Counted {
    let m = server.cache.metrics();
    let snapshot = server.cache.tree().snapshot();
    let group = snapshot.get(path).expect(path);
    Counted {
        gets: group.counter(m.cmd_get),
        sets: group.counter(m.cmd_set),
        bytes_in: group.counter(m.bytes_in),
        bytes_out: group.counter(m.bytes_out),
    }
}

fn delete(server: &Running, path: &str, patience: Duration) -> Result<Deletion, DeleteError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(server.cache.delete_tenant(path, patience))
}

/// Waits until the groups whose release takes an epoch are gone.
fn groups(server: &Running, expected: usize) {
    for _ in 0..30_000 {
        pin().flush();
        server.cache.tree().flush();
        if server.cache.tree().group_count() == expected {
            return;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    panic!("{} groups, not {expected}", server.cache.tree().group_count());
}

/// Sets and gets keys of three tenants in small pipelines until `stop` is set, and counts.
fn hammer(server: &Running, seed: u64, stop: &AtomicBool) -> [Counted; 3] {
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut client = server.connect();
    let mut counted = [Counted::default(); 3];
    // Relaxed: when exactly it is seen does not matter.
    while !stop.load(Ordering::Relaxed) {
        let mut requests = String::new();
        let mut sent = Vec::new();
        for _ in 0..1 + rng.usize(..8) {
            let tenant = rng.usize(..3);
            let key = format!("p:{}:k{}", ["a", "b", "c"][tenant], rng.usize(..200));
            let value = "v".repeat(rng.usize(1..300));
            let set = rng.bool();
            let request = match set {
                true => format!("set {key} 0 0 {}\r\n{value}\r\n", value.len()),
                false => format!("get {key}\r\n"),
            };
            requests.push_str(&request);
            sent.push((tenant, set, request.len()));
        }
        client.send(&requests);
        for (tenant, set, len) in sent {
            let mut answer = 0;
            loop {
                let line = client.line();
                answer += line.len() + 2;
                if set || line == "END" {
                    assert!(!set || line == "STORED", "{line}");
                    break;
                }
            }
            counted[tenant].add(Counted {
                gets: u64::from(!set),
                sets: u64::from(set),
                bytes_in: len as u64,
                bytes_out: answer as u64,
            });
        }
    }
    counted
}

#[test]
fn fifty_deletions_under_load_lose_no_count() {
    let server = start_default();
    let stop = AtomicBool::new(false);
    let (mut counted, mut dropped) = ([Counted::default(); 3], 0);
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..4)
            .map(|seed| {
                let (server, stop) = (&server, &stop);
                scope.spawn(move || hammer(server, seed, stop))
            })
            .collect();
        let mut deleted = 0;
        for _ in 0..600_000 {
            match delete(&server, "/p/b", PATIENCE) {
                Ok(deletion) => {
                    assert_eq!((deletion.path.as_str(), deletion.groups), ("/p/b", 1));
                    assert_eq!(deletion.items == 0, deletion.bytes == 0);
                    dropped += deletion.items;
                    deleted += 1;
                }
                // The workers have not asked for it again yet.
                Err(DeleteError::NotFound(_)) => std::thread::sleep(Duration::from_micros(100)),
                Err(error) => panic!("after {deleted}: {error}"),
            }
            if deleted == 50 {
                break;
            }
        }
        // Relaxed: see `hammer`.
        stop.store(true, Ordering::Relaxed);
        assert_eq!(deleted, 50);
        for worker in workers {
            let own = worker.join().expect("no client failed");
            counted.iter_mut().zip(own).for_each(|(all, own)| all.add(own));
        }
    });
    assert!(dropped > 0, "nothing was stored between the deletions");
    let mut all = counted[0];
    all.add(counted[1]);
    all.add(counted[2]);
    assert_eq!(read(&server, "/p"), all);
    assert_eq!(read(&server, "/p/a"), counted[0]);
    assert_eq!(read(&server, "/p/c"), counted[2]);

    // With the last one deleted, the parent is the sum of its children and of what was deleted.
    let last = delete(&server, "/p/b", PATIENCE);
    assert!(matches!(last, Ok(_) | Err(DeleteError::NotFound(_))), "{last:?}");
    assert_eq!(read(&server, "/p"), all);
    let (m, tree) = (server.cache.metrics(), server.cache.tree());
    let held = |path: &str| {
        let group = tree.get(path).expect(path);
        (group.sum(m.items), group.usage(m.memory).current)
    };
    let (p, a, c) = (held("/p"), held("/p/a"), held("/p/c"));
    assert_eq!(p, (a.0 + c.0, a.1 + c.1), "nothing of the deleted is held");
    groups(&server, 4);
}

#[test]
fn a_subtree_goes_and_its_places_come_back() {
    let server = start(Config { tenants_max: 5, ..Config::default() });
    let mut client = server.connect();
    for round in 0..3 {
        for key in ["acme:web:1", "acme:web:2", "acme:api:1", "acme:1", "q:1"] {
            assert_eq!(client.set(key, b"some value"), "STORED");
        }
        assert!(server.cache.tree().get("/q").is_some(), "round {round}: there is a place for it");
        let before =
            server.cache.tree().get("/acme").expect("set").usage(server.cache.metrics().memory);
        let deletion = delete(&server, "/acme", PATIENCE).expect("nobody holds it");
        assert_eq!((deletion.groups, deletion.items), (3, 4));
        assert_eq!(deletion.bytes, before.current);
        assert!(server.cache.tree().get("/acme").is_none());
        assert_eq!(server.cache.tree().root().sum(server.cache.metrics().items), 1);
        assert!(client.get("q:1").is_some());
        // The connection is idle from here on, and holds nothing.
        groups(&server, 2);
    }
    assert_eq!(client.get("acme:web:1"), None);
}

#[test]
fn what_is_not_there_is_not_deleted() {
    let server = start_default();
    for path in ["", "/", "acme"] {
        let error = delete(&server, path, PATIENCE).expect_err(path);
        assert!(matches!(error, DeleteError::Path(_)), "{error}");
    }
    let error = delete(&server, "/acme", PATIENCE).expect_err("nobody asked for it");
    assert!(matches!(error, DeleteError::NotFound(_)) && error.to_string().contains("/acme"));
}

/// A holder of a deleted tenant is named, and sees it emptied.
#[test]
fn a_deleted_tenants_holder_sees_it_emptied() {
    let server = start_default();
    let mut client = server.connect();
    assert_eq!(client.set("acme:web:k", b"some value"), "STORED");
    let held = server.cache.tree().get("/acme/web").expect("set");
    // Long enough for all other holders to release it, even on a busy machine.
    let error = delete(&server, "/acme/web", Duration::from_secs(3)).expect_err("it is held");
    assert!(error.to_string().contains("/acme/web"), "{error}");
    let DeleteError::StillHeldError { done, held: holders } = error else { panic!("{error}") };
    assert_eq!((done.items, holders.len()), (1, 1));
    assert_eq!(holders[0].references(), Some(1));
    assert_eq!(held.usage(server.cache.metrics().memory).current, 0);
    // Its later counts go to the parent.
    held.add(server.cache.metrics().cmd_get, 7);
    drop(held);
    assert_eq!(read(&server, "/acme"), Counted { gets: 7, ..read(&server, "/acme") });
    groups(&server, 2);
}

/// A value on its way to a slow client is waited for.
#[test]
fn a_value_on_its_way_is_waited_for() {
    let server = start_default();
    let value = vec![b'v'; 1 << 20].into_boxed_slice();
    let mut client = server.connect();
    assert_eq!(client.set("acme:k", &value[..1_000_000]), "STORED");
    let mut slow = server.connect();
    // Far more than sockets buffer: an answer stays in flight until the client reads.
    slow.send("get acme:k\r\n".repeat(40));
    let m = server.cache.metrics();
    while server.cache.tree().get("/acme").expect("set").sum(m.cmd_get) == 0 {
        std::thread::yield_now();
    }
    std::thread::scope(|scope| {
        let deleting = scope.spawn(|| delete(&server, "/acme", PATIENCE));
        let mut answered = 0;
        for _ in 0..40 {
            if slow.line().starts_with("VALUE") {
                assert_eq!(slow.bytes(1_000_002).len(), 1_000_002);
                assert_eq!(slow.line(), "END");
                answered += 1;
            }
        }
        assert!(answered > 0);
        let deletion = deleting.join().expect("no panic").expect("the client has read it all");
        assert_eq!(deletion.items, 1);
    });
    assert_eq!(server.cache.tree().root().usage(m.memory).current, 0);
}
