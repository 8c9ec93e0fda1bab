//! What tenants and the operator see: items, refusals, a deletion, and clients that do not read.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::thread::{available_parallelism, sleep};
use std::time::Duration;

use submeter_program::{Program, Running};

const SERVER: Program = Program::new(env!("CARGO_BIN_EXE_line-protocol"));

/// Longer than any answer takes on a loaded machine.
const PATIENCE: Duration = Duration::from_secs(60);

struct Server {
    _running: Running,
    clients: SocketAddr,
    operator: SocketAddr,
}

struct Client(BufReader<TcpStream>);

impl Server {
    fn start() -> Server {
        let mut running = SERVER.start(&["127.0.0.1:0", "127.0.0.1:0"]);
        let clients = running.address_after("lines at ");
        let operator = running.address_after("page at http://");
        Server { _running: running, clients, operator }
    }

    fn client(&self, tenant: &str) -> Client {
        let stream = TcpStream::connect(self.clients).expect("it listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("a time");
        let mut client = Client(BufReader::new(stream));
        client.send(&format!("auth {tenant}\n"));
        client
    }

    fn operate(&self, method: &str, path: &str) -> String {
        let mut stream = TcpStream::connect(self.operator).expect("it listens");
        write!(stream, "{method} {path} HTTP/1.0\r\nHost: localhost\r\nX-Submeter: 1\r\n\r\n")
            .expect("it reads");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("text");
        answer
    }

    /// Returns the sum of a figure in `/metrics` over the groups whose path begins so.
    fn metric(&self, metric: &str, path: &str) -> u64 {
        let (text, name) =
            (self.operate("GET", "/metrics"), format!("lines_{metric}{{group=\"{path}"));
        let lines = text.lines().filter(|line| line.starts_with(&name));
        let values = lines.filter_map(|line| line.rsplit_once(' '));
        values.map(|(_, value)| value.parse::<u64>().expect("a number")).sum()
    }
}

impl Client {
    fn send(&mut self, text: &str) {
        self.0.get_mut().write_all(text.as_bytes()).expect("it reads");
    }

    fn ask(&mut self, line: &str) -> String {
        self.send(&format!("{line}\n"));
        let mut answer = String::new();
        self.0.read_line(&mut answer).expect("an answer in time");
        answer.trim_end().to_owned()
    }
}

/// Each tenant has its own items, and what it moves is counted to the byte.
#[test]
fn tenants_have_items_of_their_own() {
    let server = Server::start();
    let [mut acme, mut trial] = ["acme", "trial"].map(|tenant| server.client(tenant));
    assert_eq!(acme.ask("set a hello world"), "+OK");
    assert_eq!((acme.ask("get a"), trial.ask("get a")), ("+hello world".into(), "-".into()));
    assert_eq!(server.metric("received_bytes_total", "/acme"), 10 + 18 + 6);
    assert_eq!(server.metric("sent_bytes_total", "/acme"), 4 + 13);
    assert_eq!(server.metric("memory_bytes", "/acme"), 12);
    assert_eq!((acme.ask("del a"), acme.ask("get a")), ("+OK".into(), "-".into()));
    assert_eq!(server.metric("memory_bytes", "/acme"), 0);
    assert!(server.client("nobody").ask("get a").starts_with("-ERR begin with"));
    assert!(server.client("").ask("get a").starts_with("-ERR begin with"));
}

/// Limit and rate refuse in the tenant's own words; an item at the limit can be replaced.
#[test]
fn what_exceeds_a_limit_or_a_rate_is_refused() {
    let server = Server::start();
    let mut trial = server.client("trial");
    let [one, other] = ["1", "2"].map(|digit| digit.repeat(1023));
    assert_eq!(trial.ask(&format!("set k {one}")), "+OK");
    assert_eq!(trial.ask(&format!("set k {other}")), "+OK", "in the room of the first");
    let refused = "-ERR 1 more of memory would exceed the limit: 1024 of 1024 held";
    assert_eq!(trial.ask(&format!("set k {one}1")), refused);
    assert_eq!(trial.ask("get k"), format!("+{other}"), "it is as it was");
    let mut asked = (0..1_000).map(|_| trial.ask("get nothing"));
    let refused = asked.find(|answer| answer != "-").expect("ten a minute");
    let rate = "-ERR 1 more of requests would exceed the rate: 10 per 60s, burst 10; retry after ";
    assert!(refused.starts_with(rate), "{refused}");
}

/// Clients that do not read hold no place, and end with their tenant.
#[test]
fn clients_that_do_not_read_hold_no_place() {
    let server = Server::start();
    let places = available_parallelism().expect("a number").get();
    let mut slow: Vec<Client> = (0..(places + 1).min(100)).map(|_| server.client("acme")).collect();
    assert_eq!(slow[0].ask(&format!("set a {}", "x".repeat(1 << 19))), "+OK");
    for client in &mut slow {
        client.send(&"get a\n".repeat(100)); // more than sockets hold
    }
    while server.metric("in_flight", "/acme") < slow.len() as u64 {
        sleep(Duration::from_millis(10));
    }
    assert_eq!(server.client("trial").ask("get a"), "-");

    let answer = server.operate("DELETE", "/api/group?path=/acme");
    assert!(answer.ends_with("\r\n\r\ndeleted /acme\n"), "{answer}");
    for client in &mut slow {
        // What was on its way, and then the end.
        let _ = client.0.read_to_end(&mut Vec::new());
        assert_eq!(client.0.read(&mut [0]).expect("the end, in time"), 0);
    }
    assert_eq!((server.metric("memory_bytes", "/"), server.metric("in_flight", "/")), (0, 0));
    assert!(server.client("acme").ask("get a").starts_with("-ERR begin with"));
    assert!(server.operate("DELETE", "/api/group?path=/acme").ends_with("no group \"/acme\"\n"));
}
