//! Threads that a forked child does not have. What owns them does nothing there, does not wait, and
//! leaves its parent's alone.
//!
//! Needs a process of its own: its children must find no lock held by a test beside it.
#![cfg(unix)]
#![expect(unsafe_code, reason = "it forks")]

use std::sync::Arc;
use std::time::Duration;

use submeter::{Bytes, Schema, Tree};
use submeter_bank::{Budget, InForce, MemoryBank, Operate, Outage, SocketBank, SocketServer};
use submeter_fleet::{Driver, Exchanges};
use submeter_otlp::Exporter;

#[path = "common/fork.rs"]
mod fork;

fn tree() -> Tree {
    Tree::new(Schema::builder().build().expect("a schema")).expect("a tree")
}

/// Each is one test, since a fork must find no other test's locks held.
#[test]
fn a_child_leaves_its_parents_threads_alone() {
    flusher();
    fleet();
    exporter();
    bank();
}

fn flusher() {
    let flusher = tree().flusher().period(Duration::from_millis(1)).start().expect("a thread");
    let mut copy = Some(flusher);
    assert!(fork::in_a_fork(|| copy.take().is_some()));
    let flusher = copy.expect("the parent's");
    let seen = flusher.flushes();
    while flusher.flushes() < seen + 3 {
        std::thread::yield_now();
    }
}

fn fleet() {
    let bank = MemoryBank::new(Duration::from_secs(15));
    let budget = Budget::new("/acme", "memory").expect("names");
    bank.set_limit(&budget, 1000, 100).expect("a limit");
    let mut schema = Schema::builder();
    let memory = schema.quota::<Bytes>("memory", "Memory held");
    let tree = Tree::new(schema.build().expect("a schema")).expect("a tree");
    let mut driver = Driver::new(&tree, "web-1");
    driver.add_level(&budget, memory, 50, Outage::Floor(10)).expect("a level");
    let mut fleet = Some(driver.start(bank).expect("threads"));
    assert!(fork::in_a_fork(|| {
        let copy = fleet.take().expect("a copy");
        copy.refused();
        !copy.learns() && copy.status().is_empty() && copy.exchanges() == Exchanges::default()
    }));
    let fleet = fleet.expect("the parent's");
    while fleet.status()[0].in_force != InForce::Lease {
        std::thread::yield_now();
    }
}

fn exporter() {
    let exporter = Exporter::builder(&tree()).endpoint("http://127.0.0.1:9");
    let mut exporter = Some(exporter.timeout(Duration::from_millis(1)).start().expect("a thread"));
    assert!(fork::in_a_fork(|| {
        let copy = exporter.take().expect("a copy");
        let _ = copy.stats();
        let errors = [copy.export(), copy.shutdown()].map(|result| result.expect_err("no thread"));
        errors.iter().all(|error| error.to_string().contains("start another exporter"))
    }));
    // Its tree is empty, so that it sends nothing.
    exporter.expect("the parent's").export().expect("a thread");
}

fn bank() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("bank");
    let bank = Arc::new(MemoryBank::new(Duration::from_secs(15)));
    let mut server = Some(SocketServer::start(&path, 0o600, bank).expect("a new path"));
    assert!(fork::in_a_fork(|| server.take().is_some()));
    SocketBank::new(&path).learns().expect("served");
}
