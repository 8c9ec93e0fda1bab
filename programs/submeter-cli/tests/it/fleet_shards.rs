//! A client of another project that divides its keys among the servers of a fleet.

use std::process::{Command, Stdio};

use serde_json::Value;
use submeter_program::text;

use crate::fleet::{Directory, bank, server, until};
use crate::support::Server;

/// Debian's Python, for which pymemcache is packaged, whichever comes first in PATH.
const PYTHON: &str = "/usr/bin/python3";

/// Stores, reads back and counts by server. The rendezvous hash of a `HashClient` moves only the
/// keys of a server that comes or goes.
const CLIENT: &str = r#"
import sys, json
from pymemcache.client.hash import HashClient
servers = [(host, int(port)) for host, port in (a.rsplit(":", 1) for a in sys.argv[1:])]
client = HashClient(servers, use_pooling=False, ignore_exc=False, default_noreply=False)
shards, stored, read = {}, 0, 0
from pymemcache.exceptions import MemcacheServerError
for n in range(1200):
    key, value = f"acme:{n}", (f"{n}:" + "v" * 4096)[:4096].encode()
    at = client.hasher.get_node(key)
    shards[at] = shards.get(at, 0) + 1
    try:
        stored += client.set(key, value)
    except MemcacheServerError:
        continue
    got = client.get(key)
    assert got == value, (key, at)
    read += 1
print(json.dumps({"shards": sorted(shards.values()), "stored": stored, "read": read}))
"#;

/// Returns what the tenant holds on a server, and its lease, in bytes.
fn held(server: &Server) -> (u64, u64) {
    let tree = server.tree();
    let groups = tree["groups"].as_array().expect("a list");
    let acme = groups.iter().find(|group| group["path"] == "/acme");
    let memory = acme.map_or(Value::Null, |group| group["values"]["memory"].clone());
    (memory["current"].as_u64().unwrap_or(0), memory["limit"].as_u64().unwrap_or(0))
}

/// A client that shards by key uses one limit on three servers.
#[test]
fn a_sharding_client_uses_one_limit_on_three() {
    let known = Command::new(PYTHON)
        .args(["-c", "import pymemcache"])
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success());
    if !known {
        eprintln!("skipped: a client that shards by key: apt-get install python3-pymemcache");
        return;
    }
    const LIMIT: u64 = 2 << 20;
    let directory = Directory::new("shards");
    let address = directory.bank();
    let _bank = bank(&address, &["--lease", "1"]);
    let servers: Vec<Server> = ["web-1", "web-2", "web-3"]
        .iter()
        .map(|name| server(&address, &["--limit-fleet", "/acme=memory=2m", "--member", name]))
        .collect();
    until("all have leases", || servers.iter().all(|server| server.rule() == "lease"));
    // Twice, so that leases have followed use the second time.
    let mut said = Value::Null;
    for _ in 0..2 {
        let mut client = Command::new(PYTHON);
        client
            .args(["-c", CLIENT])
            .args(servers.iter().map(|server| server.cache_address().to_string()));
        let output = client.output().expect("it starts");
        assert!(output.status.success(), "{}", text(&output.stderr));
        said = serde_json::from_str(&text(&output.stdout)).expect("JSON");
        let (used, leased) = servers
            .iter()
            .map(held)
            .fold((0, 0), |(used, leased), (more, lease)| (used + more, leased + lease));
        assert!(used <= LIMIT, "{used} bytes are held of {LIMIT}");
        // Each holds what it was lent; those numbers are not from one moment, and a lease that was
        // read first may have moved to another server since.
        assert!(leased <= 2 * LIMIT, "{leased} bytes are leased of {LIMIT}");
    }
    let shards = said["shards"].as_array().expect("a list");
    assert_eq!(shards.len(), 3, "each server has keys: {said}");
    assert!(shards[0].as_u64() >= Some(200), "a third each, or so: {said}");
    assert_eq!((&said["stored"], &said["read"]), (&1200.into(), &1200.into()), "{said}");
    // More than one server's equal share: there is one limit, however the keys are distributed.
    until("the fleet uses most of its limit", || {
        servers.iter().map(|server| held(server).0).sum::<u64>() * 10 >= LIMIT * 8
    });
}
