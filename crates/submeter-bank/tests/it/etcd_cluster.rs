//! Three etcds, one of which is stopped and another killed.

use std::process::{Child, Command};
use std::time::{Duration, Instant};

use submeter_bank::{Answer, Bank, EtcdBank, Operate};
use tempfile::TempDir;

use crate::conformance::{TTL, limit, memory, request, until_it_lends, want};
use crate::etcd::{PATIENCE, begin, free_port, post};

struct Node {
    child: Child,
    port: u16,
    _directory: TempDir,
}

impl Node {
    fn signal(&self, signal: &str) {
        let sent = Command::new("kill").args([signal, &self.child.id().to_string()]).status();
        assert!(sent.expect("kill").success());
    }

    /// Returns whether this member leads, by its own answer.
    fn leads(&self) -> bool {
        let answer = post(self.port, "maintenance/status", "{}");
        let number = |name: &str| {
            let (_, rest) = answer.split_once(&format!("\"{name}\":\""))?;
            Some(rest.split_once('"')?.0.to_owned())
        };
        let leader = number("leader").expect("who leads");
        leader == number("member_id").expect("who it is")
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        // Fails if it has already ended. A stopped one ends, too.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Starts a cluster, or says why not.
fn cluster() -> Option<Vec<Node>> {
    let start = Instant::now();
    loop {
        let ports: Vec<_> = (0..3).map(|_| [free_port(), free_port()]).collect();
        let names = ports.iter().enumerate();
        let all: Vec<_> =
            names.map(|(at, [_, peer])| format!("n{at}=http://127.0.0.1:{peer}")).collect();
        let mut begun = Vec::new();
        for (at, ports) in ports.iter().enumerate() {
            let directory = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir());
            let directory = directory.expect("a directory");
            let options = ["--election-timeout", "1000", "--heartbeat-interval", "100"];
            let options = options.map(str::to_owned);
            begun.push((
                begin(&format!("n{at}"), &directory, *ports, &all.join(","), &options)?,
                ports[0],
                directory,
            ));
        }
        let nodes = begun.into_iter().filter_map(|(begun, port, directory)| {
            Some(Node { child: begun.ready()?, port, _directory: directory })
        });
        let nodes: Vec<_> = nodes.collect();
        // Another process may have taken a port meanwhile.
        if nodes.len() == 3 {
            return Some(nodes);
        }
        assert!(start.elapsed() < PATIENCE, "a member ends each time the cluster is started");
    }
}

/// Repeats a request until it is answered, which changes nothing if it was already answered.
fn patiently(bank: &EtcdBank, wanted: u64, member: &str, has: u64, sequence: u64) -> Answer {
    let start = Instant::now();
    loop {
        let asked = request(member, 7, sequence, vec![want("/", has, wanted)]);
        match bank.exchange(&asked) {
            Ok(answer) => return answer,
            Err(error) => assert!(start.elapsed() < PATIENCE, "{member}: {error}"),
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// A cluster grants nothing twice when its leader is stopped and another member killed.
///
/// A stopped member answers nothing and closes no connection; when it continues, it takes itself
/// for the leader for a moment. Neither grants anything twice.
#[test]
fn failures_of_members_grant_nothing_twice() {
    let Some(mut nodes) = cluster() else { return };
    let hosts = |nodes: &[Node]| {
        let hosts = nodes.iter().map(|node| format!("127.0.0.1:{}", node.port));
        hosts.collect::<Vec<_>>().join(",")
    };
    let bank = |hosts: &str| EtcdBank::new(&format!("etcd://{hosts}"), "test", TTL).expect("a URL");
    let leader = nodes.iter().position(Node::leads).expect("one leads");
    let leader = nodes.remove(leader);
    // The leader is asked first.
    let all = bank(&format!("127.0.0.1:{},{}", leader.port, hosts(&nodes)));
    all.set(&limit("/", 100)).expect("a limit");
    until_it_lends(&all);
    assert_eq!(patiently(&all, 70, "web", 0, 1).leases[0].amount, 70);

    leader.signal("-STOP");
    let stopped = Instant::now();
    let new = patiently(&all, 100, "new", 0, 1);
    println!("answered {:?} after the leader was stopped", stopped.elapsed());
    // Learning is not needed: the others know what was lent.
    assert!(!new.learns);
    assert!(new.leases[0].amount <= 30, "what web has not: {new:?}");
    patiently(&all, 70, "web", 70, 2);

    leader.signal("-CONT");
    // Asked alone, it knows what was lent without it.
    let alone = bank(&format!("127.0.0.1:{}", leader.port));
    let late = patiently(&alone, 100, "late", 0, 1);
    let holders = alone.holders(&memory("/")).expect("a list");
    let sum: u64 = holders.iter().map(|lent| lent.amount).sum();
    assert!(sum <= 100, "{late:?}: {holders:?}");
    assert!(holders.iter().any(|lent| lent.member == "web" && lent.amount == 70), "{holders:?}");

    // Two of three continue.
    drop(nodes.pop());
    patiently(&all, 70, "web", 70, 3);
    let holders = all.holders(&memory("/")).expect("a list");
    let sum: u64 = holders.iter().map(|lent| lent.amount).sum();
    assert!(sum <= 100, "{holders:?}");
    // One of three grants nothing.
    drop(nodes.pop());
    let asked = request("web", 7, 4, vec![want("/", 70, 70)]);
    alone.exchange(&asked).expect_err("no majority");
}
