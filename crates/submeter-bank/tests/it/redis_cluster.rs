//! A cluster of real Redis servers, one of which has the fleet's keys.

use std::time::{Duration, Instant};

use submeter_bank::{Bank, RedisBank};

use crate::conformance::{memory, request, until_it_lends, want};
use crate::etcd::free_port;
use crate::redis::{Server, patiently};

const TTL: Duration = Duration::from_secs(2);
const SLOTS: [&str; 2] = ["0", "16383"];

struct Node {
    server: Server,
    ports: [String; 2],
}

impl Node {
    fn start() -> Option<Node> {
        let ports = [free_port(), free_port()].map(|port| port.to_string());
        let cluster =
            ["--cluster-enabled", "yes", "--port", &ports[0], "--cluster-port", &ports[1]];
        // The remaining part of it answers for its own slots.
        let cluster = [&cluster[..], &["--cluster-require-full-coverage", "no"]].concat();
        Some(Node { server: Server::start(&cluster)?, ports })
    }

    fn meet(&self, other: &Node) {
        let [port, bus] = other.ports.each_ref().map(String::as_str);
        self.server.query(&["CLUSTER", "MEET", "127.0.0.1", port, bus]);
    }

    fn name(&self) -> String {
        self.server.query(&["CLUSTER", "MYID"]).expect("a name")
    }

    fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.ports[0])
    }

    fn knows(&self, part: &str) -> bool {
        self.server.query(&["CLUSTER", "INFO"]).is_some_and(|info| info.contains(part))
    }
}

fn until(what: &str, mut is: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is() {
        assert!(start.elapsed() < Duration::from_secs(60), "never: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn any_node_says_which_has_the_fleets_keys() {
    let (Some(asked), Some(mut has)) = (Node::start(), Node::start()) else { return };
    has.server.query(&["CLUSTER", "ADDSLOTSRANGE", SLOTS[0], SLOTS[1]]);
    asked.meet(&has);
    until("the cluster is whole", || [&asked, &has].iter().all(|n| n.knows("cluster_state:ok")));
    let bank = |fleet| RedisBank::new(&asked.url(), fleet, TTL).expect("a URL");
    crate::operate::check(&bank("test"));

    let [first, second] = [bank("moves"), bank("moves")];
    first.set_limit(&memory("/"), 100, 0).expect("it runs");
    until_it_lends(&first);
    let ask = |bank: &RedisBank, member, sequence, has| {
        patiently(bank, &request(member, 7, sequence, vec![want("/", has, 70)]))
    };
    assert_eq!(ask(&first, "first", 1, 0).leases[0].amount, 70);
    assert_eq!(ask(&second, "second", 1, 0).leases[0].amount, 30, "of one ledger");

    // Everything moves to the node that was asked first.
    let slot = asked.server.query(&["CLUSTER", "KEYSLOT", "submeter:{moves}"]).expect("a slot");
    let (from, to) = (has.name(), asked.name());
    asked.server.query(&["CLUSTER", "SETSLOT", &slot, "IMPORTING", &from]);
    has.server.query(&["CLUSTER", "SETSLOT", &slot, "MIGRATING", &to]);
    // Names have line feeds in them.
    const LIST: &str = "local keys = redis.call('CLUSTER', 'GETKEYSINSLOT', ARGV[1], 1000) \
                        return table.concat(keys, '\\1')";
    let keys = has.server.query(&["EVAL", LIST, "0", &slot]).expect("its keys");
    for key in keys.split('\u{1}') {
        has.server.query(&["MIGRATE", "127.0.0.1", &asked.ports[0], key, "0", "5000"]);
    }
    for node in [&asked, &has] {
        node.server.query(&["CLUSTER", "SETSLOT", &slot, "NODE", &to]);
    }
    let answer = second.exchange(&request("second", 7, 2, vec![want("/", 30, 70)]));
    let answer = answer.expect("it follows");
    assert_eq!((answer.learns, answer.leases[0].amount), (true, 30), "another server learns");
    // The first client has a connection to the node that had the keys.
    has.server.kill();
    assert_eq!(ask(&first, "first", 2, 70).leases[0].amount, 50, "its part of what is wished");
}
