//! Deleting over HTTP, and the requests that are refused.

use super::super::wire::DeletionDoc;
use super::{Answer, World};

const HEADER: &str = "X-Submeter: 1";

fn delete(world: &World, target: &str, headers: &[&str]) -> Answer {
    world.request_with("DELETE", target, headers)
}

#[test]
fn a_group_is_deleted_with_all_below_it_and_its_counts_stay() {
    let world = World::start();
    drop(world.gets("/acme/web", 7));
    drop(world.gets("/acme/api", 5));
    let host = format!("Host: {}", world.addr);
    let own = format!("Origin: http://{}", world.addr);
    let answer = delete(&world, "/api/group?path=%2Facme%2Fweb", &[&host, HEADER, &own]);
    assert_eq!(answer.status, 200, "{answer:?}");
    let doc: DeletionDoc = serde_json::from_str(&answer.body).expect("JSON");
    assert_eq!((doc.path.as_str(), doc.groups, doc.items), ("/acme/web", 1, 0));
    assert!(world.cache.tree().get("/acme/web").is_none());
    let gets = world.cache.metrics().cmd_get;
    assert_eq!(world.tenant("/acme").sum(gets), 12);
    let answer = delete(&world, "/api/group?path=/acme", &[&host, HEADER]);
    assert_eq!(answer.status, 200, "{answer:?}");
    assert!(world.cache.tree().get("/acme").is_none());
    assert_eq!(world.cache.tree().root().sum(gets), 12);
    assert_eq!(world.deleted.deletions().count(), 2);
}

#[test]
fn what_cannot_be_deleted_says_why() {
    let world = World::start();
    for (target, status, named) in [
        ("/api/group", 400, "?path="),
        ("/api/group?path=", 400, "not a path"),
        ("/api/group?path=acme", 400, "\"acme\" is not a path"),
        ("/api/group?path=/", 400, "the whole server"),
        ("/api/group?path=/nobody", 404, "\"/nobody\""),
    ] {
        let answer = delete(&world, target, &["Host: localhost", HEADER]);
        assert_eq!(answer.status, status, "{target}: {answer:?}");
        assert!(answer.body.contains(named), "{target}: {answer:?}");
    }
    assert_eq!(world.deleted.deletions().count(), 0);
}
