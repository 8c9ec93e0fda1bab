//! Redis as the ledger, compared with the ledger in memory, and what it refuses.
//!
//! Each test has a server of its own, on a socket in a directory that is removed.

use std::collections::BTreeMap;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use fastrand::Rng;
use submeter_bank::{Answer, Bank, Budget, Lease, Ledger, Past, RedisBank, Request, Want};
use tempfile::TempDir;

use crate::conformance::{memory, request, until_it_lends, want};

const TTL: Duration = Duration::from_secs(2);
/// Short enough that leases end between random requests.
const SHORT: Duration = Duration::from_millis(200);
/// Number of random requests.
const STEPS: u32 = 1_200;
const PATHS: [&str; 4] = ["/", "/a", "/a/b", "/c"];

pub(crate) struct Server {
    directory: TempDir,
    child: Child,
}

impl Server {
    /// Starts one, or says why not.
    pub(crate) fn start(options: &[&str]) -> Option<Server> {
        let directory = tempfile::tempdir().expect("a directory");
        let child = spawn(&directory, options)?;
        Some(Server { directory, child })
    }

    pub(crate) fn url(&self) -> String {
        format!("unix://{}/redis", self.directory.path().display())
    }

    fn bank(&self) -> RedisBank {
        RedisBank::new(&self.url(), "test", TTL).expect("a URL")
    }

    pub(crate) fn query(&self, words: &[&str]) -> Option<String> {
        let client = redis::Client::open(self.url()).expect("a URL");
        let mut connection = client.get_connection().expect("it runs");
        redis::cmd(words[0]).arg(&words[1..]).query(&mut connection).expect("an answer")
    }

    pub(crate) fn kill(&mut self) {
        self.child.kill().expect("a child");
        self.child.wait().expect("a child");
    }

    fn restart(&mut self) {
        self.kill();
        self.child = spawn(&self.directory, &[]).expect("it was there before");
    }
}

fn spawn(directory: &TempDir, options: &[&str]) -> Option<Child> {
    let socket = directory.path().join("redis");
    let mut command = Command::new("redis-server");
    command.args(["--port", "0", "--save", "", "--appendonly", "no", "--unixsocket"]);
    command.arg(&socket).args(options).current_dir(directory.path());
    let Ok(child) = command.stdout(Stdio::null()).stdin(Stdio::null()).spawn() else {
        println!("skipped: tests against Redis: apt-get install redis-server");
        return None;
    };
    let start = Instant::now();
    while std::os::unix::net::UnixStream::connect(&socket).is_err() {
        assert!(start.elapsed() < Duration::from_secs(60), "redis-server does not listen");
        std::thread::sleep(Duration::from_millis(5));
    }
    Some(child)
}

impl Drop for Server {
    fn drop(&mut self) {
        // Fails if it has already ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Repeats a request until it is answered, which changes nothing if it was already answered.
pub(crate) fn patiently(bank: &RedisBank, request: &Request) -> Answer {
    let answer = (0..60).find_map(|_| bank.exchange(request).ok());
    answer.expect("an answer in a minute")
}

/// Both ledgers; the one in memory gets the other's time.
struct Pair {
    server: Server,
    redis: RedisBank,
    /// Each holder's own bank, which sends what has changed since its last exchange.
    holders: BTreeMap<(String, u64), RedisBank>,
    /// Number of lists that were of changes.
    changes: u32,
    memory: Ledger,
    limits: Vec<(Budget, u64, Option<u64>)>,
}

fn ledger() -> Ledger {
    Ledger::new(SHORT, Past::Unknown).on_wall_clock()
}

impl Pair {
    fn new(server: Server) -> Pair {
        let redis = RedisBank::new(&server.url(), "test", SHORT).expect("a URL");
        let (limits, holders) = (Vec::new(), BTreeMap::new());
        Pair { redis, server, memory: ledger(), limits, holders, changes: 0 }
    }

    fn now(&self) -> Duration {
        let seen = self.server.query(&["HGET", "submeter:{test}", "seen"]).expect("a time");
        Duration::from_micros(seen.parse().expect("a number"))
    }

    fn limit(&mut self, path: &str, limit: u64, most: Option<u64>) {
        let budget = memory(path);
        self.redis.set_limit(&budget, limit, 0).expect("it runs");
        self.redis.set_limit_per_member(&budget, most).expect("it runs");
        self.limits.retain(|(other, ..)| *other != budget);
        self.limits.push((budget, limit, most));
        self.apply();
    }

    fn apply(&mut self) {
        for (budget, limit, most) in &self.limits {
            self.memory.set_limit(budget, *limit, 0).expect("no floors");
            self.memory.set_limit_per_member(budget, *most);
        }
    }

    /// Makes Redis believe that it was restarted.
    fn forget(&mut self) {
        self.server.query(&["HSET", "submeter:{test}", "run", "0"]);
        self.memory = ledger();
        self.apply();
    }

    /// Returns whether a holder's last list was of changes.
    fn listed_changes(&self, request: &Request) -> bool {
        const BASE: &str = "return string.sub(redis.call('HGET', KEYS[1], '') or '', 33, 48)";
        let key = format!("submeter:{{test}}:holder:{}\0{:016x}", request.member, request.epoch);
        let base = self.server.query(&["EVAL", BASE, "1", &key]).expect("a base");
        !base.trim().is_empty()
    }

    /// Compares who currently has how much.
    fn agree(&mut self, path: &str) {
        let budget = memory(path);
        let lent = self.redis.lent(&budget).expect("it runs");
        let mut lent: Vec<_> =
            lent.into_iter().map(|one| (one.member, one.epoch, one.amount, one.wants)).collect();
        lent.sort();
        self.memory.advance(self.now());
        let most = (1 << 53) - 1;
        let expected = self.memory.lent(&budget);
        let expected: Vec<_> =
            expected.map(|one| (one.member, one.epoch, one.amount, one.wants.min(most))).collect();
        assert_eq!(lent, expected, "{path}");
    }

    /// Returns what was lent, or `None` if the request was refused.
    fn exchange(&mut self, request: &Request) -> Option<Answer> {
        self.agree("/");
        let began = self.now();
        let holder = (request.member.clone(), request.epoch);
        let new = || RedisBank::new(&self.server.url(), "test", SHORT).expect("a URL");
        let own = self.holders.entry(holder).or_insert_with(new);
        // As if an answer were lost: the holder's own bank has an older one, and this one has none.
        let in_redis = match request.sequence % 7_000 {
            0 => new().exchange(request),
            _ => own.exchange(request),
        };
        let now = self.now();
        // An exchange may read the clock twice, and each time at most a tenth of a lease passes. If
        // a busy machine took longer, both start over.
        if now.saturating_sub(began) >= SHORT / 10 {
            println!("an exchange took {:?}", now.saturating_sub(began));
            self.forget();
            return None;
        }
        let in_memory = self.memory.exchange(now, request);
        match (&in_redis, &in_memory) {
            (Ok(in_redis), Ok(in_memory)) => assert_eq!(in_redis, in_memory, "{request:?}"),
            (Err(in_redis), Err(in_memory)) => {
                assert!(in_redis.to_string().ends_with(&in_memory.to_string()), "{in_redis}");
            }
            _ => panic!("{request:?}: {in_redis:?} {in_memory:?}"),
        }
        self.changes += u32::from(in_redis.is_ok() && self.listed_changes(request));
        for path in PATHS {
            self.agree(path);
        }
        in_memory.ok()
    }
}

/// An operator sets limits in Redis, and sees who holds what.
#[test]
fn an_operator_sets_limits_of_redis() {
    let Some(server) = Server::start(&[]) else { return };
    crate::operate::check(&server.bank());
}

#[test]
fn redis_answers_as_a_ledger_in_memory_does() {
    let Some(server) = Server::start(&[]) else { return };
    crate::conformance::check(|fleet| {
        RedisBank::new(&server.url(), fleet, crate::conformance::TTL).expect("a URL")
    });
}

/// What a holder may ask for next: usually the same of most budgets as in the exchange before, of
/// which it has what was lent, or what it had.
fn wants_after(before: Option<&(Request, Vec<Lease>)>, rng: &mut Rng) -> Vec<Want> {
    let number = |rng: &mut Rng| match rng.u8(0..12) {
        0 => 0,
        1 => u64::MAX,
        _ => rng.u64(0..90),
    };
    let mut wants = Vec::new();
    for path in PATHS {
        let same = before.and_then(|(before, leases)| {
            let lease = leases.iter().find(|lease| lease.budget == memory(path))?;
            let wanted = before.wants.iter().find(|want| want.budget == memory(path))?;
            let has = if rng.u8(0..3) == 0 { wanted.has } else { lease.amount };
            Some(want(path, has, wanted.wants))
        });
        match (rng.u8(0..8), same) {
            (0..6, same) => wants.extend(same),
            (6, _) => {}
            _ => wants.push(want(path, number(rng), number(rng))),
        }
    }
    wants
}

/// Redis answers as the ledger in memory does, while time passes.
#[test]
fn redis_answers_as_the_ledger_in_memory_does() {
    let Some(server) = Server::start(&[]) else { return };
    let mut rng = Rng::with_seed(16);
    let mut pair = Pair::new(server);
    let (mut sequence, mut lent) = (0, 0);
    pair.limit("/", 100, None);
    let mut last = BTreeMap::new();
    for step in 0..STEPS {
        match rng.u8(0..40) {
            0 => {
                let most = (rng.u8(0..3) == 0).then(|| rng.u64(0..80));
                // One path never has a limit.
                let path = PATHS[rng.usize(..3)];
                pair.limit(path, rng.u64(1..600), most);
            }
            1 => std::thread::sleep(Duration::from_millis(rng.u64(0..40))),
            2 if step % 5 == 0 => pair.forget(),
            _ => {}
        }
        let (member, epoch) = (["a", "ab", "b c"][rng.usize(..3)], rng.u64(0..3));
        let before: Option<&(Request, Vec<Lease>)> = last.get(&(member, epoch));
        let wants = wants_after(before, &mut rng);
        // Spaced, so that only repeated requests have the same number.
        sequence += 1_000;
        let asked = match (rng.u8(0..20), before) {
            (0, Some((before, _))) => before.clone(),
            (1, Some((before, _))) => {
                request(member, epoch, before.sequence - rng.u64(1..1_000), wants)
            }
            _ => request(member, epoch, sequence, wants),
        };
        if let Some(answer) = pair.exchange(&asked) {
            lent += u32::from(answer.leases.iter().any(|lease| lease.amount > 0));
            if asked.sequence == sequence {
                last.insert((member, epoch), (asked, answer.leases));
            }
        }
    }
    let changes = pair.changes;
    println!("of {STEPS} exchanges {lent} lent something, and {changes} listed changes");
    assert!(lent > STEPS / 5, "only {lent} exchanges lent something");
    assert!(changes > STEPS / 5, "only {changes} exchanges listed changes");
}

#[test]
fn what_is_below_a_scarce_budget_is_looked_at() {
    let Some(server) = Server::start(&[]) else { return };
    let mut pair = Pair::new(server);
    for (path, limit) in [("/", 100), ("/a", 1_000), ("/c", 1_000)] {
        pair.limit(path, limit, None);
    }
    let mut sequence = 0;
    let mut ask = |member: &str, root: u64, first: u64, second: u64| {
        sequence += 1;
        let wants = [("/", root), ("/a", first), ("/c", second)];
        let wants = wants.map(|(path, wants)| want(path, 0, wants)).into();
        let answer = pair.exchange(&request(member, 7, sequence, wants));
        answer.filter(|answer| !answer.learns)
    };
    while ask("web", 60, 50, 60).is_none() {
        std::thread::sleep(Duration::from_millis(10));
    }
    ask("web", 60, 50, 60).expect("an answer");
    ask("web", 60, 50, 60).expect("an answer");
    ask("other", 60, 0, 0).expect("an answer");
    // Lists the second budget and the root.
    let answer = ask("web", 60, 51, 60).expect("an answer");
    assert!(answer.leases.iter().all(|lease| lease.amount == 50), "{answer:?}");
}

/// An unchanged value is looked at again while the server learns.
#[test]
fn the_unchanged_is_looked_at_by_who_learns() {
    let Some(server) = Server::start(&[]) else { return };
    let bank = server.bank();
    bank.set_limit(&memory("/"), 100, 0).expect("it runs");
    until_it_lends(&bank);
    for (sequence, amount) in [(1, 70), (2, 70)] {
        let asked = request("web", 7, sequence, vec![want("/", 0, 70)]);
        assert_eq!(patiently(&bank, &asked).leases[0].amount, amount);
    }
    // As if it was away while another server lent.
    server.query(&["HINCRBY", "submeter:{test}", "learns_until", "60000000"]);
    let answer = patiently(&bank, &request("web", 7, 3, vec![want("/", 0, 70)]));
    assert!(answer.learns);
    assert_eq!(answer.leases[0].amount, 0, "no more than it has");
}

/// Use beyond a lease is counted once there is room.
#[test]
fn what_is_beyond_a_lease_counts_once_it_fits() {
    let Some(server) = Server::start(&[]) else { return };
    let [holds, bank] = [server.bank(), server.bank()];
    bank.set_limit(&memory("/"), 10, 0).expect("it runs");
    until_it_lends(&bank);
    let ask = |bank: &RedisBank, member, sequence, has, wants| {
        let asked = request(member, 7, sequence, vec![want("/", has, wants)]);
        patiently(bank, &asked).leases[0].amount
    };
    assert_eq!(ask(&bank, "first", 1, 0, 7), 7);
    assert_eq!(ask(&holds, "holds", 1, 10, 0), 0, "3 of what it holds are counted");
    assert_eq!(ask(&bank, "first", 2, 0, 0), 0);
    assert_eq!(ask(&holds, "holds", 2, 10, 0), 0, "all of it now");
    assert_eq!(ask(&bank, "first", 3, 0, 7), 0, "it is held");
}

#[test]
fn what_does_not_change_is_not_sent_again() {
    let Some(server) = Server::start(&[]) else { return };
    let bank = server.bank();
    let paths: Vec<_> = (0..500).map(|at| format!("/{at}")).collect();
    for path in &paths {
        bank.set_limit(&memory(path), 100, 0).expect("it runs");
    }
    until_it_lends(&bank);
    let received = || -> u64 {
        let info = server.query(&["INFO", "stats"]).expect("it runs");
        let line = info.lines().find_map(|line| line.strip_prefix("total_net_input_bytes:"));
        line.expect("a line").parse().expect("a number")
    };
    let sent = |sequence: u64, changed: usize| {
        let wants = paths
            .iter()
            .enumerate()
            .map(|(at, path)| want(path, 60, if at < changed { 60 + sequence } else { 60 }));
        let asked = request("web", 7, sequence, wants.collect());
        let before = received();
        let answer = patiently(&bank, &asked);
        let lent: BTreeMap<_, _> =
            answer.leases.iter().map(|lease| (&lease.budget, lease.amount)).collect();
        assert!(asked.wants.iter().all(|want| lent[&want.budget] == want.wants));
        received() - before
    };
    let whole = sent(1, 0);
    // Granted amounts are reported once, and are then no news.
    let few = [sent(2, 5), sent(3, 5), sent(4, 5)];
    assert!(few.iter().all(|few| few * 10 < whole), "{few:?} of {whole} bytes");
    // With a budget that is scarce, and listed as such.
    bank.set_limit(&memory("/0"), 50, 0).expect("it runs");
    let ask = |sequence| {
        let wants = |path: &String| want(path, 50, if path == "/0" { 60 } else { 50 });
        let asked = request("web", 7, sequence, paths.iter().map(wants).collect());
        let before = received();
        patiently(&bank, &asked);
        received() - before
    };
    // Once in full, as limits were set.
    ask(5);
    let few = [ask(6), ask(7)];
    assert!(few.iter().all(|few| few * 10 < whole), "{few:?} of {whole} bytes");
}

#[test]
fn a_thousand_budgets_are_one_exchange() {
    let Some(server) = Server::start(&[]) else { return };
    let bank = server.bank();
    let paths: Vec<_> = (0..1_200).map(|at| format!("/{at}")).collect();
    for path in &paths {
        bank.set_limit(&memory(path), 100, 0).expect("it runs");
    }
    until_it_lends(&bank);
    for sequence in 1..4 {
        let wants = paths.iter().map(|path| want(path, 60, 60)).collect();
        let answer = patiently(&bank, &request("web", 7, sequence, wants));
        assert_eq!(answer.leases.len(), 1_200);
        assert!(answer.leases.iter().all(|lease| lease.amount == 60));
        let asked = request("other", 8, sequence, vec![want("/7", 40, 40)]);
        assert_eq!(patiently(&bank, &asked).leases[0].amount, 40);
    }
    let last = request("web", 7, 9, Vec::new());
    assert!(patiently(&bank, &last).leases.is_empty());
    assert!(bank.lent(&memory("/3")).expect("it runs").is_empty());
}

#[test]
fn a_restarted_server_learns_before_it_lends() {
    let Some(mut server) = Server::start(&[]) else { return };
    let bank = server.bank();
    bank.set_limit(&memory("/"), 100, 0).expect("it runs");
    until_it_lends(&bank);
    let asked = request("web", 7, 1, vec![want("/", 0, 70)]);
    assert_eq!(bank.exchange(&asked).expect("an answer").leases[0].amount, 70);
    server.restart();
    bank.exchange(&request("web", 7, 2, Vec::new())).expect_err("the connection has ended");
    // It has forgotten the limits, which this process knows.
    let asked = request("web", 7, 3, vec![want("/", 70, 90)]);
    let answer = bank.exchange(&asked).expect("an answer");
    assert_eq!((answer.learns, answer.leases[0].amount), (true, 70));
    let asked = request("new", 8, 1, vec![want("/", 0, 30)]);
    assert_eq!(bank.exchange(&asked).expect("an answer").leases[0].amount, 0);
    // Another process does not know them.
    server.restart();
    let stranger = server.bank();
    let error = stranger.exchange(&asked).expect_err("nothing to lend");
    assert!(error.is_refused() && error.to_string().contains("has no limits"), "{error}");
}

/// A server that forgets while it learns starts to learn again, for the longest lease.
#[test]
fn forgetting_while_learning_learns_longest() {
    let Some(server) = Server::start(&[]) else { return };
    let bank = server.bank();
    bank.set_limit(&memory("/"), 100, 0).expect("it runs");
    until_it_lends(&bank);
    let began = Instant::now();
    let asked = request("gone", 7, 1, vec![want("/", 0, 100)]);
    assert_eq!(bank.exchange(&asked).expect("an answer").leases[0].amount, 100);
    let shorter = RedisBank::new(&server.url(), "test", TTL / 4).expect("a URL");
    for sequence in 1.. {
        // Twice, by the run of another server.
        if sequence < 3 {
            server.query(&["HSET", "submeter:{test}", "run", "0"]);
        }
        let asked = request("next", 8, sequence, vec![want("/", 0, 100)]);
        if patiently(&shorter, &asked).leases[0].amount > 0 {
            break;
        }
        assert!(began.elapsed() < TTL + Duration::from_secs(30), "it never stops learning");
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(began.elapsed() >= TTL, "lent twice after {:?}", began.elapsed());
}

#[test]
fn members_of_another_lease_time_are_refused() {
    let Some(server) = Server::start(&[]) else { return };
    let bank = server.bank();
    bank.set_limit(&memory("/"), 100, 0).expect("it runs");
    until_it_lends(&bank);
    let longer = RedisBank::new(&server.url(), "test", TTL * 2).expect("a URL");
    let error = longer.exchange(&request("web", 7, 1, Vec::new())).expect_err("another ttl");
    assert!(error.to_string().contains("last 2000000 us, but this member's 4000000"), "{error}");
    // Another fleet on the same server is independent of it.
    let apart = RedisBank::new(&server.url(), "apart", TTL * 2).expect("a URL");
    apart.set_limit(&memory("/"), 100, 0).expect("it runs");
    apart.exchange(&request("web", 7, 1, Vec::new())).expect("an answer");
    assert!(apart.lent(&memory("/")).expect("it runs").is_empty());
}

#[test]
fn a_server_that_may_evict_leases_is_refused() {
    let Some(server) = Server::start(&["--maxmemory-policy", "allkeys-lru"]) else { return };
    let error = server.bank().set_limit(&memory("/"), 100, 0).expect_err("it may evict");
    assert!(error.to_string().contains("allkeys-lru") && error.is_refused(), "{error}");
}

/// Each cause that keeps Redis from lending has its own remedy, and is no refusal: it may end by
/// itself.
#[test]
fn each_trouble_of_redis_has_its_remedy() {
    let Some(server) = Server::start(&["--maxmemory", "100mb"]) else { return };
    let bank = server.bank();
    bank.set_limit(&memory("/"), 100, 0).expect("it has room");
    for (trouble, remedy) in [
        (&["CONFIG", "SET", "maxmemory", "1"][..], "raise its maxmemory"),
        (&["CLIENT", "PAUSE", "1500"], "no answer in time"),
    ] {
        server.query(trouble);
        let error = bank.set_limit(&memory("/"), 100, 0).expect_err(remedy);
        assert!(error.to_string().contains(remedy) && !error.is_refused(), "{error}");
        // Waits for the end of a pause.
        server.query(&["CONFIG", "SET", "maxmemory", "100mb"]);
    }
    bank.set_limit(&memory("/"), 100, 0).expect("it goes on");
}

/// Returns everything that is shown of an error.
pub(crate) fn shown(error: &submeter_bank::RedisError) -> String {
    let cause = std::error::Error::source(error).map(ToString::to_string);
    format!("{error} {error:?} {cause:?}")
}

#[test]
fn passwords_are_used_and_never_shown() {
    let Some(server) = Server::start(&["--requirepass", "open-sesame"]) else { return };
    let url = |password: &str| format!("{}?pass={password}", server.url());
    let bank = RedisBank::new(&url("open-sesame"), "test", TTL).expect("a URL");
    bank.set_limit(&memory("/"), 100, 0).expect("the password is right");
    assert!(!format!("{bank:?}").contains("sesame"), "{bank:?}");
    let bank = RedisBank::new(&url("shut-sesame"), "test", TTL).expect("a URL");
    let error = bank.set_limit(&memory("/"), 100, 0).expect_err("the password is wrong");
    assert!(!shown(&error).contains("sesame"), "{error:?}");
    assert!(error.is_refused(), "to ask again is no use");
    assert!(error.to_string().contains("check the user and password in the URL"), "{error}");
    let bank = RedisBank::new(&server.url(), "test", TTL).expect("a URL");
    let error = bank.exchange(&request("web", 1, 1, Vec::new())).expect_err("it has none");
    assert!(error.is_refused() && error.to_string().contains("password"), "{error}");
}

#[test]
fn a_bad_redis_url_is_refused_without_password() {
    for (wrong, why) in [
        ("redis://:sesame@host:port/0", "use redis://"),
        ("http://:sesame@host", "use redis://"),
        ("redis://u:sesame@h/x", "use redis://"),
        ("redis://u:sesame%@h", "invalid percent escape"),
        ("redis://u:sesame%ff@h", "UTF-8"),
        ("sesame", "use redis://"),
    ] {
        let error = RedisBank::new(wrong, "test", TTL).expect_err("no URL");
        assert!(error.to_string().contains(why), "{wrong}: {error}");
        assert!(!shown(&error).contains("sesame"), "{error:?}");
    }
}

#[test]
fn an_unreachable_server_is_named_with_a_remedy() {
    let bank = RedisBank::new("redis://:sesame@127.0.0.1:1/0", "test", TTL).expect("a URL");
    let error = bank.exchange(&request("web", 1, 1, Vec::new())).expect_err("nobody listens");
    assert_eq!(error.to_string(), "cannot ask 127.0.0.1:1: start it, or wait for it");
    assert!(!shown(&error).contains("sesame"), "{error:?}");
    for (fleet, ttl) in [("", TTL), ("a{b}", TTL), ("a", SHORT / 2), ("a", Duration::MAX)] {
        assert!(RedisBank::new("redis://localhost", fleet, ttl).is_err(), "{fleet} {ttl:?}");
    }
}
