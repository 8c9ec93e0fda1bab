//! Counting for as long as a client listens.

use std::time::{Duration, Instant};

use serde_json::Value;

use super::{Connection, PATIENCE, World};
use crate::page::stat::COUNTS_MAX;

const CLOCK: &str = "/api/stat?e=task-clock&g=/acme/web&interval=200";

fn listen(world: &World) -> (u16, Connection) {
    let mut connection = world.connect();
    connection.send(&format!("POST {CLOCK} HTTP/1.1\r\nHost: localhost\r\nX-Submeter: 1\r\n\r\n"));
    let status = connection.head().status;
    (status, connection)
}

/// Returns the next totals; sizes of chunks are on lines of their own.
fn totals(connection: &mut Connection) -> Option<Value> {
    loop {
        let line = connection.line()?;
        if line.starts_with('{') {
            return Some(serde_json::from_str(&line).expect("an object a line"));
        }
    }
}

#[test]
fn totals_only_grow_and_say_where_intervals_end() {
    let world = World::start();
    let group = world.tenant("/acme/web");
    let (status, mut connection) = listen(&world);
    assert_eq!(status, 200);
    let (mut elapsed_ns, mut value, mut due) = (0, 0, 0);
    let since = Instant::now();
    while due < 3 || value == 0 {
        assert!(since.elapsed() < PATIENCE, "{due} intervals, {value} ns");
        // The work of this thread in the group is charged to it.
        let entered = group.enter();
        let work = Instant::now();
        while work.elapsed() < Duration::from_millis(5) {
            std::hint::spin_loop();
        }
        drop(entered);
        let now = totals(&mut connection).expect("the count goes on");
        let at = now["elapsed_ns"].as_u64().expect("a time");
        assert!(at > elapsed_ns, "{now}");
        elapsed_ns = at;
        if now["is_due"] == true {
            due += 1;
            assert!(at >= due * 200_000_000, "interval {due} ended early: {now}");
        }
        let counted = now["counts"][0]["value"].as_u64().unwrap_or(0);
        assert!(counted >= value, "{now} after {value}");
        value = counted;
    }
}

#[test]
fn one_count_too_many_is_refused_until_one_ends() {
    let world = World::start();
    world.tenant("/acme/web");
    let mut listeners: Vec<_> = (0..COUNTS_MAX).map(|_| listen(&world)).collect();
    assert!(listeners.iter().all(|(status, _)| *status == 200));
    let refused = world.request_with("POST", CLOCK, &["Host: localhost", "X-Submeter: 1"]);
    assert_eq!(refused.status, 503);
    let most = format!("{COUNTS_MAX} counts");
    assert!(refused.body.contains(&most) && refused.body.ends_with('\n'), "{}", refused.body);
    listeners.pop();
    // The server notices when it next writes.
    let since = Instant::now();
    while listen(&world).0 != 200 {
        assert!(since.elapsed() < PATIENCE, "a count outlives its listener");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_count_ends_with_the_server() {
    let mut world = World::start();
    world.tenant("/acme/web");
    let (_, mut connection) = listen(&world);
    totals(&mut connection).expect("the count goes on");
    world.stop();
    let since = Instant::now();
    while totals(&mut connection).is_some() {
        assert!(since.elapsed() < PATIENCE, "a count outlives its server");
    }
}

#[test]
fn what_is_asked_badly_is_refused_in_one_line() {
    let world = World::start();
    world.tenant("/acme/web");
    for (query, status, named) in [
        ("e=cylces&g=", 400, "cylces"),
        ("e=task-clock&g=/nobody", 404, "/nobody"),
        ("e=task-clock", 400, "g=/acme/web"),
        ("g=/acme/web", 400, "e=task-clock"),
        ("", 400, "e=task-clock"),
        ("interval=1&e=task-clock&g=", 400, "interval=\"1\""),
        ("interval=soon&e=task-clock&g=", 400, "soon"),
        ("e=task-clock&g=/%c3", 400, "%25"),
    ] {
        let target = format!("/api/stat?{query}");
        let answer = world.request_with("POST", &target, &["Host: localhost", "X-Submeter: 1"]);
        assert_eq!(answer.status, status, "{query}: {}", answer.body);
        assert!(answer.body.contains(named), "{query}: {}", answer.body);
        assert_eq!(answer.body.matches('\n').count(), 1, "{query}: {}", answer.body);
    }
}
