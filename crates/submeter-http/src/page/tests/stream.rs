//! The stream of events.

use std::collections::HashSet;
use std::io::Read;
use std::time::Instant;

use futures_util::StreamExt;
use serde_json::Value;

use super::super::events;
use super::super::sampler::Sampler;
use super::{Connection, PATIENCE, Program, World};

/// Reads events from a chunked answer.
pub(super) struct Events {
    connection: Connection,
    /// Bytes that arrived and are not yet read as lines.
    pending: Vec<u8>,
}

impl Events {
    pub(super) fn join(world: &World) -> Events {
        let mut connection = world.connect();
        connection.send("GET /api/events HTTP/1.1\r\nHost: localhost\r\n\r\n");
        let head = connection.head();
        assert_eq!(head.status, 200);
        assert_eq!(head.header("content-type"), Some("text/event-stream"));
        Events { connection, pending: Vec::new() }
    }

    /// Returns the next event's name and data; `None` when the stream has ended.
    pub(super) fn next(&mut self) -> Option<(String, Value)> {
        let mut name = None;
        loop {
            let line = self.line()?;
            if let Some(event) = line.strip_prefix("event: ") {
                name = Some(event.to_owned());
            } else if let Some(data) = line.strip_prefix("data: ") {
                let value = serde_json::from_str(data).expect("an event's data is JSON");
                return Some((name.expect("a name before the data"), value));
            }
        }
    }

    /// Returns the next line of the body, whose chunks end anywhere; `None` at the stream's end.
    fn line(&mut self) -> Option<String> {
        loop {
            if let Some(end) = self.pending.iter().position(|&byte| byte == b'\n') {
                let line = self.pending.drain(..=end).collect();
                let line = String::from_utf8(line).expect("UTF-8");
                return Some(line.trim_end().to_owned());
            }
            let size = self.connection.line()?;
            let size = usize::from_str_radix(&size, 16).expect("the size of a chunk");
            if size == 0 {
                return None;
            }
            let mut chunk = vec![0; size + 2];
            self.connection.reader.read_exact(&mut chunk).expect("a whole chunk");
            self.pending.extend_from_slice(&chunk[..size]);
        }
    }

    /// Waits for an event for which `wanted` returns something.
    pub(super) fn find<T>(&mut self, mut wanted: impl FnMut(&str, &Value) -> Option<T>) -> T {
        let start = Instant::now();
        while start.elapsed() < PATIENCE {
            let (name, data) = self.next().expect("the stream goes on");
            if let Some(found) = wanted(&name, &data) {
                return found;
            }
        }
        panic!("no such event within {PATIENCE:?}");
    }
}

/// Returns the id by which an event lists a group, existing or new.
fn id_of(list: &Value, name: &str) -> Option<u64> {
    let group = list.as_array()?.iter().find(|group| group[2] == name)?;
    group[0].as_u64()
}

/// The first event is everything, and the next the changes.
#[test]
fn the_first_event_is_everything() {
    let world = World::start();
    let mut events = Events::join(&world);
    let (name, full) = events.next().expect("an event");
    assert_eq!(name, "full");
    assert_eq!(full["server"]["listen"], "program");
    assert_eq!(full["groups"][0][1], Value::Null, "the root has no parent");
    let number = full["number"].as_u64().expect("a number");

    world.jobs("/acme", 10);
    let jobs = full["views"].as_array().expect("views");
    let jobs = jobs.iter().position(|view| view["key"] == "jobs_per_s").expect("a view");
    // Not necessarily in one event: a sample may fall between a group's creation and its counts.
    let (mut id, mut rate) = (None, None);
    let (id, rate) = events.find(|name, tick| {
        assert_eq!(name, "tick");
        id = id.or_else(|| id_of(&tick["new"], "acme"));
        let root = tick["rows"].as_array()?.iter().find(|row| row[0] == full["groups"][0][0]);
        rate = rate.or_else(|| root?[1][jobs].as_f64().filter(|&rate| rate > 0.0));
        id.zip(rate)
    });
    assert!(rate > 0.0, "the root sums its children: {rate}");

    world.tenant("/acme").kill().expect("a leaf");
    let gone = events.find(|_, tick| {
        let next = tick["number"].as_u64().expect("a number");
        assert!(next > number, "sample {next} after {number}");
        tick["gone"].as_array().filter(|gone| !gone.is_empty()).cloned()
    });
    assert_eq!(gone, [id]);
}

/// All rows that changed come once, in parts: a page would parse all in one long pause.
#[tokio::test]
async fn rows_of_many_tenants_come_in_parts() {
    const TENANTS: usize = 2_500;
    let program = Program::new();
    let sampler = Sampler::new(program.shown());
    let path = |n| format!("/tenant{n}");
    let make = |n| program.tree.create(&path(n)).expect("room");
    let tenants: Vec<_> = (0..TENANTS).map(make).collect();
    sampler.tick();
    let mut ticks = sampler.subscribe().expect("not closed");
    for tenant in &tenants {
        tenant.add(program.jobs, 1);
    }
    sampler.tick();
    let event = ticks.recv().await.expect("a tick").event.expect("the same metrics");
    let parts = events::parts(event).map(|part| part.expect("not withdrawn"));
    let text = parts.collect::<Vec<_>>().await.concat();
    let text = String::from_utf8(text).expect("UTF-8");
    let of = |event: &str| {
        let (name, data) = event.split_once("\ndata: ").expect("data");
        let data: Value = serde_json::from_str(data).expect("JSON");
        let rows = if name == "event: tick" { data["rows"].clone() } else { data };
        let rows = rows.as_array().expect("rows").clone();
        (name.to_owned(), rows.into_iter().map(|row| row[0].as_u64()).collect::<Vec<_>>())
    };
    let events: Vec<_> = text.trim_end().split("\n\n").map(of).collect();
    let sizes: Vec<_> = events.iter().map(|(name, rows)| (name.as_str(), rows.len())).collect();
    // And the root.
    assert_eq!(sizes, [("event: rows", 1000), ("event: rows", 1000), ("event: tick", 501)]);
    let ids: HashSet<_> = events.iter().flat_map(|(_, rows)| rows).collect();
    assert_eq!(ids.len(), TENANTS + 1);
}

#[test]
fn a_client_that_does_not_read_delays_nobody() {
    let world = World::start();
    for n in 0..500 {
        world.tenant(&format!("/tenant{n}"));
    }
    // These clients never read, and their events are large.
    let _stalled: Vec<Events> = (0..8).map(|_| Events::join(&world)).collect();
    let mut events = Events::join(&world);
    let (_, first) = events.next().expect("an event");
    let first = first["number"].as_u64().expect("a number");
    for n in 0..3u64 {
        world.jobs("/tenant0", n + 1);
        let number = events.find(|_, tick| tick["number"].as_u64());
        assert!(number > first + n, "{number} after {first}");
    }
}

#[test]
fn a_stream_ends_with_the_server() {
    let mut world = World::start();
    let mut events = Events::join(&world);
    assert!(events.next().is_some());
    world.stop();
    let start = Instant::now();
    while events.next().is_some() {
        assert!(start.elapsed() < PATIENCE, "the stream outlives its server");
    }
}
