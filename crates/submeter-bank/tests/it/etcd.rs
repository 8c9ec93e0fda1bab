//! A real etcd as the ledger: what a fail-over, a pause or a race must never grant twice.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use submeter_bank::{
    Bank, Budget, EtcdBank, EtcdError, Holder, Member, Operate, Outage, Use, Want,
};
use tempfile::TempDir;

use crate::conformance::{TTL, limit, memory, request, until_it_lends, want};

pub(crate) struct Server {
    directory: TempDir,
    ports: [u16; 2],
    options: Vec<String>,
    child: Child,
}

/// Long enough for any start on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) fn free_port() -> u16 {
    let free = TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr());
    free.expect("a free port").port()
}

impl Server {
    /// Starts one, or says why not.
    pub(crate) fn start(options: &[String]) -> Option<Server> {
        let start = Instant::now();
        loop {
            // On a disk shared with others, agreement takes longer than leases last.
            let directory = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir());
            let directory = directory.expect("a directory");
            let (ports, options) = ([free_port(), free_port()], options.to_owned());
            // Something else may have taken a port meanwhile, such as a connection of another test.
            if let Some(child) = spawn(&directory, ports, &options)? {
                return Some(Server { directory, ports, options, child });
            }
            assert!(start.elapsed() < PATIENCE, "etcd ends each time it is started");
        }
    }

    pub(crate) fn port(&self) -> u16 {
        self.ports[0]
    }

    fn bank(&self, fleet: &str) -> EtcdBank {
        let url = format!("etcd://127.0.0.1:{}", self.port());
        EtcdBank::new(&url, fleet, TTL).expect("a URL")
    }

    fn kill(&mut self) {
        self.child.kill().expect("a child");
        self.child.wait().expect("a child");
    }

    fn start_again(&mut self) {
        let start = Instant::now();
        self.child = loop {
            let child = spawn(&self.directory, self.ports, &self.options);
            if let Some(child) = child.expect("it was there before") {
                break child;
            }
            // Its port may be in use for a moment, as above.
            assert!(start.elapsed() < PATIENCE, "etcd ends each time it is started again");
        };
    }

    /// Sends it a request that no bank sends.
    fn post(&self, path: &str, body: &str) -> String {
        post(self.port(), path, body)
    }
}

/// Sends a request to the server at a port.
pub(crate) fn post(port: u16, path: &str, body: &str) -> String {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("it listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a time");
    let head = format!("POST /v3/{path} HTTP/1.0\r\nContent-Length: {}\r\n\r\n", body.len());
    stream.write_all(format!("{head}{body}").as_bytes()).expect("sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    assert!(answer.contains(" 200 OK"), "{path}: {answer}");
    answer
}

/// Starts one and waits until it listens. Returns `None` if there is no etcd, and `Some(None)` if
/// the server has ended instead.
fn spawn(
    directory: &TempDir,
    [client, peer]: [u16; 2],
    options: &[String],
) -> Option<Option<Child>> {
    let cluster = format!("default=http://127.0.0.1:{peer}");
    let child = begin("default", directory, [client, peer], &cluster, options)?;
    Some(child.ready())
}

/// A server that was just started.
pub(crate) struct Begun {
    child: Child,
    told: mpsc::Receiver<()>,
}

/// Starts a member of a cluster. Returns nothing if there is no etcd.
pub(crate) fn begin(
    name: &str,
    directory: &TempDir,
    [client, peer]: [u16; 2],
    cluster: &str,
    options: &[String],
) -> Option<Begun> {
    let scheme =
        if options.iter().any(|option| option == "--cert-file") { "https" } else { "http" };
    let client_url = format!("{scheme}://127.0.0.1:{client}");
    let peer_url = format!("http://127.0.0.1:{peer}");
    let mut command = Command::new("etcd");
    command.args(["--name", name, "--data-dir"]).arg(directory.path());
    command.args(["--listen-client-urls", &client_url, "--advertise-client-urls", &client_url]);
    command.args(["--listen-peer-urls", &peer_url, "--initial-advertise-peer-urls", &peer_url]);
    command.args(["--initial-cluster", cluster]).args(options);
    let Ok(mut child) = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn() else {
        println!("skipped: tests against etcd: apt-get install etcd-server");
        return None;
    };
    // Not by a connection, which whatever has taken the port may accept.
    let (tell, told) = mpsc::channel();
    let log = BufReader::new(child.stderr.take().expect("it is piped"));
    std::thread::spawn(move || {
        for line in log.lines().map_while(Result::ok) {
            if line.contains("ready to serve") {
                let _ = tell.send(());
            }
        }
    });
    Some(Begun { child, told })
}

impl Begun {
    /// Waits until it listens; returns nothing if the server has ended instead.
    pub(crate) fn ready(mut self) -> Option<Child> {
        match self.told.recv_timeout(PATIENCE) {
            Ok(()) => Some(self.child),
            Err(RecvTimeoutError::Disconnected) => {
                self.child.wait().expect("a child");
                None
            }
            Err(RecvTimeoutError::Timeout) => {
                // Otherwise it would outlive the test.
                let _ = self.child.kill();
                panic!("etcd is not ready");
            }
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Fails if it has already ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Asks for one lease, and returns how much was lent, and whether the bank learns.
fn ask(bank: &EtcdBank, member: &str, sequence: u64, want: Want) -> (u64, bool) {
    let asked = request(member, 7, sequence, vec![want]);
    // A busy machine answers late: the same request again is the same exchange.
    let answer = (0..30).find_map(|_| bank.exchange(&asked).ok()).expect("an answer in a minute");
    (answer.leases[0].amount, answer.learns)
}

/// An operator sets limits in etcd, and sees who holds what.
#[test]
fn an_operator_sets_limits_of_etcd() {
    let Some(server) = Server::start(&[]) else { return };
    crate::operate::check(&server.bank("test"));
}

#[test]
fn etcd_answers_as_a_ledger_in_memory_does() {
    let Some(server) = Server::start(&[]) else { return };
    crate::conformance::check(|fleet| server.bank(fleet));
}

/// A killed etcd forgets nothing, and need not learn.
#[test]
fn a_killed_etcd_forgets_nothing() {
    let Some(mut server) = Server::start(&[]) else { return };
    let bank = server.bank("test");
    bank.set(&limit("/", 100)).expect("a limit");
    until_it_lends(&bank);
    assert_eq!(ask(&bank, "web", 1, want("/", 0, 70)), (70, false));
    server.kill();
    let asked = request("web", 7, 2, vec![want("/", 70, 90)]);
    let error = bank.exchange(&asked).expect_err("it is away");
    assert!(error.to_string().ends_with("start it, or wait for it"), "{error}");
    assert!(!error.is_refused());
    server.start_again();
    assert_eq!(ask(&bank, "new", 1, want("/", 0, 100)), (30, false), "the rest, and at once");
    // What it holds beyond its fair part counts until it reports that it uses less.
    ask(&bank, "web", 3, want("/", 70, 90));
    let held = bank.holders(&memory("/")).expect("a list");
    assert_eq!(held.iter().map(|lent| lent.amount).collect::<Vec<_>>(), [30, 70]);
}

/// The part of a member that is gone is free after its lease, not before.
#[test]
fn a_gone_members_part_is_free_after_its_lease() {
    let Some(server) = Server::start(&[]) else { return };
    let bank = server.bank("test");
    bank.set(&limit("/", 100)).expect("a limit");
    until_it_lends(&bank);
    let start = Instant::now();
    assert_eq!(ask(&bank, "gone", 1, want("/", 0, 100)).0, 100);
    let mut renewed = start;
    for sequence in 1.. {
        let (amount, _) = ask(&bank, "next", sequence, want("/", 0, 100));
        let passed = renewed.elapsed();
        if amount > 0 {
            assert!(passed >= TTL, "free after {passed:?}");
            break;
        }
        if sequence == 10 {
            // The same request again is answered, and prolongs nothing that counts for longer.
            assert_eq!(ask(&bank, "gone", 1, want("/", 0, 100)).0, 100);
            let newer = Instant::now();
            ask(&bank, "gone", 2, want("/", 100, 100));
            renewed = newer;
        }
        assert!(passed < TTL + Duration::from_secs(30), "it is never free");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// A cluster without the ledger learns before it lends.
#[test]
fn a_cluster_without_the_ledger_learns_first() {
    let Some(server) = Server::start(&[]) else { return };
    let bank = server.bank("test");
    let asked = request("web", 7, 1, vec![want("/", 0, 70)]);
    let error = bank.exchange(&asked).expect_err("no limits");
    assert!(error.is_refused() && error.to_string().contains("has no limits"), "{error}");
    bank.set(&limit("/", 100)).expect("a limit");
    until_it_lends(&bank);
    assert_eq!(ask(&bank, "web", 2, want("/", 0, 70)), (70, false));
    // All keys, since a cluster that others use also has other keys.
    server.post("kv/deleterange", r#"{"key":"AA==","range_end":"AA=="}"#);
    bank.set_if_none(&limit("/", 100)).expect("a limit");
    assert_eq!(ask(&bank, "new", 1, want("/", 0, 30)), (0, true));
    assert_eq!(ask(&bank, "web", 3, want("/", 70, 90)), (70, true));
    until_it_lends(&bank);
    assert_eq!(ask(&bank, "new", 2, want("/", 0, 30)), (30, false));
}

/// The value of a fleet is lost while leases of [`TTL`] are alive, and members with leases of half
/// of it ask. Returns how much later than the leases began the whole limit is lent again.
fn lent_again_after(fleet: &str, lose: impl Fn(&Server, &str)) -> Option<Duration> {
    let server = Server::start(&[])?;
    let bank = server.bank(fleet);
    bank.set(&limit("/", 100)).expect("a limit");
    until_it_lends(&bank);
    let began = Instant::now();
    assert_eq!(ask(&bank, "gone", 1, want("/", 0, 100)).0, 100);
    lose(&server, fleet);
    let url = format!("etcd://127.0.0.1:{}", server.port());
    let shorter = EtcdBank::new(&url, fleet, TTL / 2).expect("a URL");
    shorter.set(&limit("/", 100)).expect("a limit");
    for sequence in 1.. {
        let (amount, learns) = ask(&shorter, "next", sequence, want("/", 0, 100));
        if amount > 0 {
            assert!(!learns);
            break;
        }
        assert!(began.elapsed() < TTL + Duration::from_secs(30), "it never stops learning");
        std::thread::sleep(Duration::from_millis(20));
    }
    Some(began.elapsed())
}

/// Holders of a lost value are waited for, however long their leases are.
#[test]
fn holders_of_a_lost_value_are_waited_for() {
    let passed = lent_again_after("lost", |server, fleet| {
        let key = STANDARD.encode(format!("submeter/{fleet}/ledger"));
        server.post("kv/deleterange", &format!(r#"{{"key":"{key}"}}"#));
    });
    assert!(passed.is_none_or(|passed| passed >= TTL), "lent twice after {passed:?}");
}

#[test]
fn another_clusters_value_says_how_long_it_lent() {
    let passed = lent_again_after("moved", |server, fleet| {
        let [key, holders, end] = ["ledger", "holder/", "holder0"]
            .map(|name| STANDARD.encode(format!("submeter/{fleet}/{name}")));
        let answer = server.post("kv/range", &format!(r#"{{"key":"{key}"}}"#));
        let (_, value) = answer.split_once("\"value\":\"").expect("a value");
        let value = STANDARD.decode(value.split('"').next().expect("a value")).expect("base 64");
        let value = String::from_utf8(value).expect("JSON");
        let (cluster, rest) = value.split_once(',').expect("several fields");
        assert!(cluster.starts_with(r#"{"cluster":"#), "{value}");
        // As in a restored snapshot: its leases have ended by then.
        let other = STANDARD.encode(format!(r#"{{"cluster":1,{rest}"#));
        server.post("kv/put", &format!(r#"{{"key":"{key}","value":"{other}"}}"#));
        server.post("kv/deleterange", &format!(r#"{{"key":"{holders}","range_end":"{end}"}}"#));
    });
    assert!(passed.is_none_or(|passed| passed >= TTL), "lent twice after {passed:?}");
}

/// Members with another lease time are refused while others live.
#[test]
fn another_lease_time_is_refused() {
    let Some(server) = Server::start(&[]) else { return };
    let bank = server.bank("test");
    bank.set(&limit("/", 100)).expect("a limit");
    bank.exchange(&request("web", 7, 1, Vec::new())).expect("an answer");
    let url = format!("etcd://127.0.0.1:{}", server.port());
    let longer = EtcdBank::new(&url, "test", TTL * 2).expect("a URL");
    let asked = request("other", 8, 1, Vec::new());
    let error = longer.exchange(&asked).expect_err("another ttl");
    let (one, other) = (TTL.as_micros(), (TTL * 2).as_micros());
    let why = format!("last {one} us, but this member's {other}");
    assert!(error.is_refused() && error.to_string().contains(&why), "{error}");
    // Another fleet of the same cluster is independent of it.
    let apart = EtcdBank::new(&url, "apart", TTL * 2).expect("a URL");
    apart.set(&limit("/", 100)).expect("a limit");
    apart.exchange(&asked).expect("an answer");
    assert_eq!(apart.holders(&memory("/")).expect("a list"), []);
}

#[test]
fn leases_beyond_one_value_are_refused_by_name() {
    let Some(server) = Server::start(&[]) else { return };
    let bank = server.bank("test");
    bank.set(&limit("/", 100)).expect("a limit");
    let long = "a".repeat(1000);
    let wants = (0..1100).map(|at| want(&format!("/{at}{long}"), 0, 1)).collect();
    let error = bank.exchange(&request("web", 7, 1, wants)).expect_err("too much");
    assert!(error.is_refused() && error.to_string().contains("split it into fleets"), "{error}");
    bank.exchange(&request("web", 7, 2, vec![want("/", 0, 1)])).expect("nothing has changed");
}

/// The sum of what members may use at this moment: each reports before it may use more, and after
/// it uses less.
struct Sum(Mutex<Vec<u64>>);

impl Sum {
    fn say(&self, at: usize, amount: u64, most: u64) {
        let mut amounts = self.0.lock().expect("no panic");
        amounts[at] = amount;
        let sum: u64 = amounts.iter().sum();
        assert!(sum <= most, "{amounts:?} are more than {most}");
    }
}

struct Counted<'a> {
    sum: &'a Sum,
    at: usize,
    limit: u64,
}

impl Member for Counted<'_> {
    fn set(&mut self, _: &Budget, amount: u64) -> Use {
        self.limit = amount;
        self.sum.say(self.at, amount, 100);
        // It wants more at times, and less at others.
        Use { used: amount, refused: fastrand::u64(0..40) }
    }
}

/// Racing clients are all served, and are never lent more than there is.
#[test]
fn racing_clients_are_served_within_the_limit() {
    const CLIENTS: usize = 6;
    const EXCHANGES: u64 = 25;
    let Some(server) = Server::start(&[]) else { return };
    let bank = server.bank("test");
    bank.set(&limit("/", 100)).expect("a limit");
    until_it_lends(&bank);
    let sum = Sum(Mutex::new(vec![0; CLIENTS]));
    let answered = std::thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS)
            .map(|at| {
                let (sum, bank) = (&sum, server.bank("test"));
                scope.spawn(move || {
                    let mut member = Counted { sum, at, limit: 0 };
                    let start = Instant::now();
                    let mut holder = Holder::new("racer", at as u64);
                    holder.add(memory("/"), 10, Outage::Strict);
                    let mut answered = 0;
                    for _ in 0..EXCHANGES {
                        let request = holder.request(start.elapsed(), &mut member);
                        if let Ok(answer) = bank.exchange(&request) {
                            holder.accept(start.elapsed(), &answer, &mut member);
                            answered += 1;
                        }
                    }
                    answered
                })
            })
            .collect();
        clients.into_iter().map(|client| client.join().expect("no excess")).sum::<u64>()
    });
    let asked = CLIENTS as u64 * EXCHANGES;
    println!("{answered} of {asked} exchanges of {CLIENTS} clients at once were answered");
    assert!(answered > asked * 9 / 10, "only {answered} of {asked} were answered");
    let lent: u64 = sum.0.lock().expect("no panic").iter().sum();
    assert!(lent >= 50, "only {lent} of 100 are lent");
}

/// Returns everything that is shown of an error.
pub(crate) fn shown(error: &EtcdError) -> String {
    let cause = std::error::Error::source(error).map(ToString::to_string);
    format!("{error} {error:?} {cause:?}")
}

#[test]
fn passwords_of_etcd_are_used_and_never_shown() {
    let options = ["--auth-token-ttl", "1"].map(str::to_owned);
    let Some(server) = Server::start(&options) else { return };
    server.post("auth/user/add", r#"{"name":"root","password":"open-sesame"}"#);
    server.post("auth/user/grant", r#"{"user":"root","role":"root"}"#);
    server.post("auth/enable", "{}");
    let bank = |user: &str| {
        let url = format!("etcd://{user}127.0.0.1:{}", server.port());
        EtcdBank::new(&url, "test", TTL).expect("a URL")
    };
    let right = bank("root:open-sesame@");
    right.set(&limit("/", 100)).expect("the password is right");
    right.exchange(&request("web", 1, 1, vec![want("/", 0, 1)])).expect("an answer");
    assert!(!format!("{right:?}").contains("sesame"), "{right:?}");
    for user in ["root:shut-sesame@", ""] {
        let error = bank(user).set(&limit("/", 100)).expect_err("not that user");
        assert!(error.is_refused() && !shown(&error).contains("sesame"), "{error:?}");
    }
    // A token expires after a second without a request, and etcd checks every second.
    std::thread::sleep(Duration::from_millis(2_500));
    right.exchange(&request("web", 1, 2, vec![want("/", 0, 1)])).expect("a new token");
}

#[test]
fn user_and_password_of_etcd_are_decoded() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let url = format!("etcd://b%61nk:p%40ss%2F%25@{}", listener.local_addr().expect("bound"));
    let asked = std::thread::spawn(move || {
        let mut stream = listener.accept().expect("a client").0;
        let mut request = Vec::new();
        // The head, and an object without another one in it.
        while !request.ends_with(b"}") {
            let mut part = [0; 1024];
            let n = std::io::Read::read(&mut stream, &mut part).expect("a request");
            request.extend_from_slice(&part[..n]);
        }
        String::from_utf8(request).expect("text")
    });
    let bank = EtcdBank::new(&url, "test", TTL).expect("a URL");
    bank.limits().expect_err("it hangs up");
    let request = asked.join().expect("no panic");
    assert!(request.contains(r#""name":"bank","password":"p@ss/%""#), "{request}");
    for (wrong, why) in
        [("100%", "invalid percent escape"), ("%zz", "invalid percent escape"), ("%ff", "UTF-8")]
    {
        let error = EtcdBank::new(&format!("etcd://u:sesame{wrong}@h:1"), "test", TTL);
        let error = error.expect_err("no password");
        assert!(error.to_string().contains(why) && !shown(&error).contains("sesame"), "{error:?}");
    }
}

#[test]
fn a_bad_url_is_refused_without_its_password() {
    for wrong in [
        "http://:sesame@h:1",
        "etcd://u:sesame@h",
        "etcd://u:sesame@h:1/x",
        "etcd://u:sesame@h:1?x",
        "etcd://sesame@h:1",
    ] {
        let error = EtcdBank::new(wrong, "test", TTL).expect_err("no URL");
        assert!(error.is_refused() && !shown(&error).contains("sesame"), "{error:?}");
    }
    for (fleet, ttl) in [("", TTL), ("a/b", TTL), ("a", TTL / 100), ("a", Duration::MAX)] {
        assert!(EtcdBank::new("etcd://h:1", fleet, ttl).is_err(), "{fleet} {ttl:?}");
    }
    let bank = EtcdBank::new("etcd://u:sesame@127.0.0.1:1,127.0.0.1:2", "a", TTL).expect("a URL");
    let error = bank.limits().expect_err("nobody listens");
    assert_eq!(error.to_string(), "cannot ask 127.0.0.1:1,127.0.0.1:2: start it, or wait for it");
    assert!(!shown(&error).contains("sesame"), "{error:?}");
}

/// A member of the cluster that is away is skipped.
#[test]
fn a_member_that_is_away_is_passed_over() {
    let Some(server) = Server::start(&[]) else { return };
    let url = format!("etcd://127.0.0.1:1,127.0.0.1:{}", server.port());
    let bank = EtcdBank::new(&url, "test", TTL).expect("a URL");
    bank.set(&limit("/", 100)).expect("the second answers");
}
