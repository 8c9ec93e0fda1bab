//! Servers that share tenants' limits: the bank, its operator, and members that lose it.

use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use submeter_program::{Running, text};

use crate::support::{FREE, SUBMETER, Server, get};

/// Long enough for any step on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// A directory of the test's own, removed when dropped.
pub(crate) struct Directory(pub(crate) PathBuf);

impl Directory {
    pub(crate) fn new(name: &str) -> Directory {
        let path = std::env::temp_dir().join(format!("sm-{name}-{}", std::process::id()));
        std::fs::create_dir(&path).expect("a new directory");
        Directory(path)
    }

    pub(crate) fn bank(&self) -> String {
        format!("unix:{}/bank", self.0.display())
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

pub(crate) fn bank(address: &str, more: &[&str]) -> Running {
    let mut bank = SUBMETER.start(&[&["fleet", "bank", "--listen", address][..], more].concat());
    bank.line_with("leases");
    bank
}

pub(crate) fn server(bank: &str, more: &[&str]) -> Server {
    server_at("127.0.0.1:0", bank, more)
}

/// Starts a server whose page is at an address.
pub(crate) fn server_at(page: &str, bank: &str, more: &[&str]) -> Server {
    let args = ["serve", "--listen", "127.0.0.1:0", "--http", page, "--bank", bank];
    Server::of(SUBMETER.start(&[&args[..], more].concat()))
}

impl Server {
    /// Returns the first row of a panel.
    fn row(&self, panel: &str) -> Vec<Value> {
        let tree = self.tree();
        let mut panels = tree["panels"].as_array().expect("a list").iter();
        let panel = panels.find(|it| it["key"] == panel).expect("it is shown");
        panel["rows"][0].as_array().expect("a row").clone()
    }

    pub(crate) fn rule(&self) -> String {
        self.row("fleet")[2].as_str().expect("a rule").to_owned()
    }

    /// Stores items of 10 KiB for a tenant, and returns how many were stored.
    pub(crate) fn store_large(&self, items: usize) -> usize {
        let value = "v".repeat(10 << 10);
        let set = |n| self.ask(&format!("set acme:{n} 0 0 {}\r\n{value}\r\n", value.len()));
        (0..items).filter(|n| set(*n) == "STORED").count()
    }
}

pub(crate) fn until(what: &str, mut is: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is() {
        assert!(start.elapsed() < PATIENCE, "never: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn status(bank: &str) -> Value {
    serde_json::from_str(&SUBMETER.prints(&["fleet", "status", "--json", "--bank", bank]))
        .expect("JSON")
}

const LIMIT: [&str; 2] = ["--limit-fleet", "/acme=memory=1m,rate=100k/s"];

/// Servers lease one limit and the operator sees who holds what.
#[test]
fn servers_lease_one_limit() {
    let directory = Directory::new("share");
    let address = directory.bank();
    let _bank = bank(&address, &["--lease", "2"]);
    let mut servers: Vec<Server> = ["web-1", "web-2"]
        .iter()
        .map(|name| server(&address, &[&LIMIT[..], &["--member", name]].concat()))
        .collect();
    until("both have leases", || servers.iter().all(|server| server.rule() == "lease"));
    until("both store what needs more than their first lease", || {
        servers.iter().all(|server| server.store_large(20) > 0)
    });
    let found = status(&address);
    assert_eq!(found["bank"], address.as_str());
    let limits = found["limits"].as_array().expect("a list");
    let names: Vec<_> = limits.iter().map(|limit| (&limit["resource"], &limit["limit"])).collect();
    assert_eq!(names, [(&"memory".into(), &(1 << 20).into()), (&"rate".into(), &100_000.into())]);
    for limit in limits {
        let leases = limit["leases"].as_array().expect("a list");
        let members: Vec<_> = leases.iter().map(|lease| &lease["member"]).collect();
        assert_eq!(members, ["web-1", "web-2"]);
        let sum: u64 = leases.iter().filter_map(|lease| lease["amount"].as_u64()).sum();
        assert_eq!(limit["lent"], sum);
        assert!(sum <= limit["limit"].as_u64().expect("a number"), "{limit}");
        for lease in leases {
            let ends_in = lease["ends_in_s"].as_f64().expect("a number");
            assert!(ends_in > 0.0 && ends_in <= 2.0, "{lease}");
        }
    }
    assert_eq!(found["learns"], false);
    let output = SUBMETER.run(&["fleet", "status", "--bank", &address]);
    let table = text(&output.stdout);
    assert!(!table.contains("learns"), "{table}");
    for part in ["memory of /acme", "1.00 MiB", "rate of /acme", "web-1", "web-2", "ends in"] {
        assert!(table.contains(part), "{part}: {table}");
    }

    // What it shows itself.
    let metrics = servers[0].metrics();
    for series in [
        "submeter_cache_fleet_limit{group=\"/acme\",resource=\"memory\"} ",
        "submeter_cache_fleet_lease_left_seconds{group=\"/acme\",resource=\"rate\"} ",
        "submeter_cache_fleet_rule{group=\"/acme\",resource=\"memory\",\
         submeter_cache_fleet_rule=\"lease\"} 1",
        "submeter_cache_fleet_rule{group=\"/acme\",resource=\"memory\",\
         submeter_cache_fleet_rule=\"strict\"} 0",
        "# TYPE submeter_cache_bank_answered_total counter",
    ] {
        assert!(metrics.contains(series), "{series}: {metrics}");
    }

    // What one server gives up, the other gets at once.
    servers.remove(0).signal("INT");
    until("the other holds all that is wanted", || {
        servers[0].store_large(90);
        let found = status(&address);
        let leases = found["limits"][0]["leases"].as_array().expect("a list");
        leases.len() == 1 && leases[0]["amount"].as_u64() > Some(900 << 10)
    });
}

/// The operator is told that a bank lends nothing yet.
#[test]
fn a_bank_that_lends_nothing_yet_says_so() {
    let directory = Directory::new("learns");
    let address = directory.bank();
    // As a bank leaves it that has lent for ten minutes.
    let lock = format!("{}.lock", address.trim_start_matches("unix:"));
    std::fs::write(lock, format!("{:020}\n", 600_000_000)).expect("written");
    let _bank = bank(&address, &["--lease", "2"]);
    let set = ["fleet", "set", "/acme", "memory=1m", "--bank", &address];
    assert_eq!(SUBMETER.run(&set).status.code(), Some(0));
    assert_eq!(status(&address)["learns"], true);
    let output = SUBMETER.run(&["fleet", "status", "--bank", &address]);
    let table = text(&output.stdout);
    assert!(table.contains("memory of /acme") && table.contains("lends nothing new"), "{table}");
    // A member reports it too, rather than only refusing.
    let member = server(&address, &["--limit-fleet", "/acme=memory=1m"]);
    let page = format!("http://{}", member.page);
    until("the page says it", || {
        get(member.page, "/api/tree").contains("is learning what was lent")
    });
    let output = SUBMETER.run(&["top", "--once", &page]);
    assert!(text(&output.stderr).contains("The bank was restarted and is learning"), "{output:?}");
}

/// A limit set by the operator overrides servers that say otherwise.
#[test]
fn what_the_operator_sets_holds_for_all_servers() {
    let directory = Directory::new("set");
    let address = directory.bank();
    let _bank = bank(&address, &["--lease", "1", "--limit", "/other=2m"]);
    let set = ["fleet", "set", "/acme", "memory=64k", "rate=500/s", "--bank", &address];
    let output = SUBMETER.run(&set);
    let said = text(&output.stdout);
    assert!(said.contains("memory of /acme: 64.0 KiB"), "{said}{}", text(&output.stderr));
    let server = server(&address, &LIMIT);
    until("there are leases", || server.rule() == "lease");
    until("it wants more than all", || {
        server.store_large(10);
        let found = status(&address);
        let limits = found["limits"].as_array().expect("a list");
        assert_eq!(limits.len(), 3, "{found}");
        assert_eq!(limits[0]["limit"], 64 << 10, "as it was set: {found}");
        assert!(limits[0]["lent"].as_u64() <= Some(64 << 10), "{found}");
        limits[0]["leases"][0]["wants"].as_u64() >= Some(64 << 10)
    });
    // Less than is held: items go before the next store.
    let less = ["fleet", "set", "/acme", "memory=16k", "--floors", "50%", "--bank", &address];
    assert_eq!(SUBMETER.run(&less).status.code(), Some(0));
    until("it holds half of the new limit at most", || {
        server.group("/acme")["values"]["memory"]["current"].as_u64() <= Some(8 << 10)
    });
}

/// A server that loses the bank does as it declared, and recovers by itself.
#[test]
fn a_server_survives_the_loss_of_its_bank() {
    let directory = Directory::new("lost");
    let address = directory.bank();
    let lender = bank(&address, &["--lease", "1"]);
    // Unlike what the servers say.
    let set = ["fleet", "set", "/acme", "memory=2m", "rate=100k/s", "--floors", "20%"];
    assert_eq!(SUBMETER.run(&[&set[..], &["--bank", &address]].concat()).status.code(), Some(0));
    let floor = server(&address, &[&LIMIT[..], &["--outage", "10%"]].concat());
    let strict = server(&address, &LIMIT);
    let open = server(&address, &[&LIMIT[..], &["--outage", "open"]].concat());
    let all = [&floor, &strict, &open];
    until("all have leases", || all.iter().all(|server| server.rule() == "lease"));
    // Killed, as it would be by a crash.
    drop(lender);
    let rules = ["floor", "strict", "open"];
    until("what was declared is in force", || {
        all.iter().zip(rules).all(|(server, rule)| server.rule() == rule)
    });
    assert_eq!(floor.row("fleet")[3]["value"], (1 << 20) / 10);
    assert_eq!((strict.row("fleet")[3]["value"].clone(), strict.store_large(5)), (0.into(), 0));
    assert!(floor.store_large(5) > 0, "within its floor");
    assert!(open.store_large(5) > 0, "idle as it was before");
    assert_eq!(strict.row("bank")[1], "away");
    let why = strict.row("bank")[5].as_str().expect("a text").to_owned();
    assert!(why.contains("start it, or wait for it"), "{why}");
    let rule = "submeter_cache_fleet_rule=\"strict\"} 1";
    assert!(strict.metrics().contains(rule));

    // The next bank knows nothing; it is told what the operator had set, including the floors.
    let _lender = bank(&address, &["--lease", "1"]);
    until("all have leases again", || all.iter().all(|server| server.rule() == "lease"));
    until("the strict one stores", || strict.store_large(1) == 1);
    let found = status(&address);
    for (resource, limit) in [(0, 2 << 20), (1, 100_000)] {
        let found = &found["limits"][resource];
        assert_eq!((&found["limit"], &found["floors"]), (&limit.into(), &(limit / 5).into()));
    }
}

/// A restarted bank learns the limits from its servers.
#[test]
fn a_restarted_bank_learns_the_limits() {
    let directory = Directory::new("again");
    let address = directory.bank();
    let lender = bank(&address, &["--lease", "1"]);
    let server = server(&address, &LIMIT);
    until("there are leases", || server.rule() == "lease" && server.store_large(1) == 1);
    drop(lender);
    until("they have ended", || server.rule() == "strict");
    let _lender = bank(&address, &["--lease", "1"]);
    until("it stores again", || server.store_large(1) == 1);
    let found = status(&address);
    let most = |n: usize| found["limits"][n]["limit"].as_u64();
    assert_eq!((most(0), most(1)), (Some(1 << 20), Some(100_000)), "{found}");
}

/// A bank with shorter leases than before waits until the old ones have ended.
#[test]
fn shorter_leases_wait_for_the_old_ones() {
    const BEFORE: Duration = Duration::from_secs(4);
    let directory = Directory::new("less");
    let address = directory.bank();
    let lender = bank(&address, &["--lease", "4"]);
    let gone = server(&address, &LIMIT);
    until("there are leases", || gone.rule() == "lease");
    drop((lender, gone));
    let start = Instant::now();
    let mut lender = SUBMETER.start(&["fleet", "bank", "--listen", &address, "--lease", "0.5"]);
    let said = lender.line_with("leases");
    let says = "last 0.5 s, and are lent in 4.0 s, when earlier leases have ended";
    assert!(said.contains(says), "{said}");
    let server = server(&address, &LIMIT);
    until("it lends", || server.store_large(1) == 1);
    assert!(start.elapsed() >= BEFORE, "lent again after {:?}", start.elapsed());
    // The next one need not wait that long.
    let lock = directory.0.join("bank.lock");
    until("it notes its own time", || {
        std::fs::read_to_string(&lock).expect("a lock") == format!("{:020}\n", 500_000)
    });
}

/// Redis, killed when dropped.
pub(crate) struct Service(pub(crate) Child);

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Returns whether the tested program was built without a bank's engine, and says so.
pub(crate) fn lacks(engine: &str) -> bool {
    let is_there = match engine {
        "etcd" => cfg!(feature = "etcd"),
        _ => cfg!(feature = "redis"),
    };
    if !is_there {
        println!("skipped: a bank in {engine}: cargo test -p submeter-cli --features {engine}");
    }
    !is_there
}

#[test]
fn redis_lends_and_shows_its_password_nowhere() {
    const SECRET: &str = "s3cr3t";
    if lacks("redis") {
        return;
    }
    let directory = Directory::new("redis");
    let socket = directory.0.join("redis");
    let mut redis = Command::new("redis-server");
    redis.args(["--port", "0", "--save", "", "--requirepass", SECRET, "--unixsocket"]);
    redis.arg(&socket).current_dir(&directory.0);
    let Ok(child) = redis.stdout(Stdio::null()).spawn() else {
        println!("skipped: a bank in Redis: apt-get install redis-server");
        return;
    };
    let _redis = Service(child);
    let place = format!("redis+unix://{}", socket.display());
    let address = format!("{place}?pass={SECRET}");
    let wrong = format!("{place}?pass={SECRET}-not");
    until("Redis listens", || socket.exists());
    let lease = ["--lease", "1"];
    let set = ["fleet", "set", "/acme", "memory=1m", "rate=100k/s", "--bank", &address];
    let output = SUBMETER.run(&[&set[..], &lease].concat());
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let server = server(&address, &[&LIMIT[..], &lease].concat());
    until("it has leases", || server.rule() == "lease" && server.store_large(1) == 1);
    let shown = server.tree().to_string() + &server.metrics();
    let output = SUBMETER.run(&[&["fleet", "status", "--bank", &address][..], &lease].concat());
    let table = text(&output.stdout);
    assert!(table.contains("memory of /acme"), "{table}{}", text(&output.stderr));
    let found =
        SUBMETER.run(&[&["fleet", "status", "--json", "--bank", &address][..], &lease].concat());
    let found = text(&found.stdout);
    assert!(found.contains(&place) && shown.contains(&place), "{found}");
    let said = server.end_by("INT");
    let refused = SUBMETER.run(&["fleet", "status", "--bank", &wrong]);
    assert_eq!(refused.status.code(), Some(2));
    let refused = text(&refused.stderr);
    let free = SUBMETER.run(&[&FREE[..], &["--bank", &wrong, "--limit-fleet", "/a=b=c"]].concat());
    let free = text(&free.stderr);
    // Each is reported once, although the bank is asked again.
    let asks = [&FREE[..], &LIMIT, &lease, &["--bank", &wrong, "--seconds", "1.5"]].concat();
    let warned = text(&SUBMETER.run(&asks).stderr);
    for once in ["cannot declare memory of /acme", "cannot declare rate of /acme", "no new leases"]
    {
        assert_eq!(warned.matches(once).count(), 1, "{once}: {warned}");
    }
    assert!(warned.contains("check the user and password"), "{warned}");
    for text in [shown, found, table, said, refused, free, warned] {
        assert!(!text.contains(SECRET), "{text}");
    }
}

/// etcd lends to servers, and keeps what it lent when it is killed.
#[test]
fn etcd_keeps_what_it_lent_when_killed() {
    if lacks("etcd") {
        return;
    }
    let directory = Directory::new("etcd");
    let free = || {
        let free = std::net::TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr());
        free.expect("a free port").port()
    };
    let (client, peer) = (free(), format!("http://127.0.0.1:{}", free()));
    let url = format!("http://127.0.0.1:{client}");
    let start = || {
        let mut etcd = Command::new("etcd");
        etcd.arg("--data-dir").arg(directory.0.join("data")).current_dir(&directory.0);
        etcd.args(["--listen-client-urls", &url, "--advertise-client-urls", &url]);
        etcd.args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer]);
        etcd.args(["--initial-cluster", &format!("default={peer}")]);
        let child = etcd.stdout(Stdio::null()).stderr(Stdio::null()).spawn().ok()?;
        until("etcd listens", || TcpStream::connect(("127.0.0.1", client)).is_ok());
        Some(Service(child))
    };
    let Some(etcd) = start() else {
        println!("skipped: a bank in etcd: apt-get install etcd-server");
        return;
    };
    let address = format!("etcd://127.0.0.1:{client}");
    let lease = ["--lease", "2"];
    let set = ["fleet", "set", "/acme", "memory=1m", "rate=100k/s", "--bank", &address];
    let output = SUBMETER.run(&[&set[..], &lease].concat());
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let server = server(&address, &[&LIMIT[..], &lease, &["--member", "web-1"]].concat());
    until("it has leases", || server.rule() == "lease" && server.store_large(1) == 1);
    let status = || SUBMETER.run(&[&["fleet", "status", "--bank", &address][..], &lease].concat());
    let table = text(&status().stdout);
    assert!(table.contains("memory of /acme") && table.contains("web-1"), "{table}");
    drop(etcd);
    let away = status();
    assert_eq!(away.status.code(), Some(2));
    assert!(text(&away.stderr).contains("start it, or wait for it"), "{}", text(&away.stderr));
    let _etcd = start().expect("it was there before");
    // The limits are kept, and so is who holds what of them.
    let table = text(&status().stdout);
    assert!(table.contains("memory of /acme"), "{table}");
    until("it has leases again", || server.rule() == "lease" && server.store_large(1) == 1);
}

#[test]
fn bad_input_is_one_line_with_the_remedy() {
    let directory = Directory::new("bad");
    let address = directory.bank();
    for command in [&["fleet", "status"][..], &["fleet", "set", "/acme", "memory=1m"]] {
        let at = |bank| [command, &["--bank", bank]].concat();
        SUBMETER.refuses(&at(&address), &["cannot ask the bank", "start it"]);
        let away = ["127.0.0.1:1", "start it, or wait for it"];
        if !lacks("redis") {
            SUBMETER.refuses(&at("redis://127.0.0.1:1"), &away);
        }
        if !lacks("etcd") {
            SUBMETER.refuses(&at("etcd://127.0.0.1:1"), &away);
            SUBMETER.refuses(&at("etcd://h"), &["etcd://h", "etcd://user:password@host:port"]);
        }
        for wrong in ["redis://u:100%@127.0.0.1:1", "ETCD://u:100%@127.0.0.1:1"] {
            SUBMETER.refuses(&at(wrong), &["://127.0.0.1:1: invalid percent escape", "--bank"]);
        }
        let named = ["http://bank", "unix:/PATH", "redis://HOST:PORT", "etcd://HOST:PORT"];
        SUBMETER.refuses(&at("http://bank"), &named);
        SUBMETER.refuses(&at("unix:bank"), &["unix:bank", "unix:/PATH"]);
        SUBMETER.refuses(command, &["--bank"]);
    }
    for (limits, named) in [
        (&["memory=0"][..], &["at least 1 byte"][..]),
        (&["rate=0/s"], &["the amount is 0"]),
        (&["rate=5"], &["\"5\" is not a rate"]),
        (&["disk=5"], &["\"disk\" is not a limit"]),
        (&["memory=1m", "memory=2m"], &["is a duplicate"]),
        (&["low=1m"], &["--tenant-limit"]),
        (&["memory=1m", "--floors", "101%"], &["101%", "1% to 100%"]),
    ] {
        let args = [&["fleet", "set", "/acme"][..], limits, &["--bank", &address]].concat();
        SUBMETER.refuses(&args, named);
    }
    for path in ["acme", "/a//b", "/a/"] {
        SUBMETER.refuses(&["fleet", "set", path, "memory=1m", "--bank", &address], &[path]);
    }
    SUBMETER.refuses(&["fleet", "bank"], &["--listen"]);
    SUBMETER.refuses(&["fleet", "bank", "--listen", "/run/x"], &["/run/x", "unix:/PATH"]);
    SUBMETER.refuses(&["fleet", "bank", "--listen", "unix:/no/such/bank"], &["/no/such/bank"]);
    SUBMETER.refuses(&["fleet", "bank", "--listen", &address, "--lease", "0.1"], &["--lease"]);
    let long = ["fleet", "bank", "--listen", &address, "--lease", "1e9"];
    SUBMETER.refuses(&long, &["--lease 1000000000", "3600 or less"]);
    let twice = ["fleet", "bank", "--listen", &address, "--limit", "/a=1m", "--limit", "/a=2m"];
    SUBMETER.refuses(&twice, &["memory of /a has two limits"]);
    let held = bank(&address, &[]);
    SUBMETER.refuses(&["fleet", "bank", "--listen", &address], &["another server uses it"]);
    drop(held);

    let serve = |more: &[&'static str]| {
        let free: [&'static str; 5] = FREE;
        [&free[..], more].concat()
    };
    SUBMETER.refuses(&serve(&["--limit-fleet", "/a=1m"]), &["--bank"]);
    SUBMETER.refuses(&serve(&["--bank", "unix:/x"]), &["--limit-fleet"]);
    let at = ["--bank", "unix:/x", "--limit-fleet"];
    SUBMETER.refuses(&serve(&[&at[..], &["/a"]].concat()), &["/PATH=LIMITS"]);
    SUBMETER.refuses(&serve(&[&at[..], &["/=1m"]].concat()), &["memory of /", "--memory"]);
    let twice = [&at[..], &["/a=1m", "--limit-fleet", "/a=2m"]].concat();
    SUBMETER.refuses(&serve(&twice), &["memory of /a has two limits"]);
    let own = [&at[..], &["/a=1m", "--tenant-limit", "/a=2m"]].concat();
    SUBMETER.refuses(&serve(&own), &["memory of /a", "leave one of them out"]);
    let soft = [&at[..], &["/a=1m", "--tenant-limit", "/a=mode=soft"]].concat();
    SUBMETER.refuses(&serve(&soft), &["memory of /a", "mode=soft", "leave one out"]);
    let outage = [&at[..], &["/a=1m", "--outage", "some"]].concat();
    SUBMETER.refuses(&serve(&outage), &["some", "strict, open"]);
}

/// A build without an engine says how to get one that has it.
#[test]
fn a_build_without_an_engine_says_how_to_get_one() {
    let (redis, etcd) = (cfg!(feature = "redis"), cfg!(feature = "etcd"));
    for (scheme, feature, is_there) in [
        ("redis", "--features redis", redis),
        ("redis+unix", "--features redis", redis),
        ("rediss", "--features redis", redis),
        ("valkey", "--features redis", redis),
        ("valkeys", "--features redis", redis),
        ("etcd", "--features etcd", etcd),
        ("etcds", "--features etcd", etcd),
    ] {
        if is_there {
            continue;
        }
        let bank = format!("{scheme}://:s3cr3t@h:1");
        let named = [&*format!("error: cannot ask {scheme}://h:1: this build has no "), feature];
        SUBMETER.refuses(&["fleet", "status", "--bank", &bank], &named);
        let serve = [&FREE[..], &["--limit-fleet", "/a=1m", "--bank", &bank]].concat();
        SUBMETER.refuses(&serve, &named);
    }
}

#[test]
fn a_file_of_flags_may_say_what_is_leased() {
    let directory = Directory::new("file");
    let address = directory.bank();
    let _bank = bank(&address, &[]);
    let file = directory.0.join("submeter.toml");
    let limits = "limit-fleet = [\"/acme=memory=1m\", \"/web=rate=5/s\"]";
    let lines = format!("bank = \"{address}\"\n{limits}\nmember = \"of-a-file\"\n");
    std::fs::write(&file, lines).expect("written");
    let args = [&FREE[..], &["--config", file.to_str().expect("UTF-8")]].concat();
    let mut server = SUBMETER.start(&args);
    assert!(server.line_with("  fleet  ").contains("of-a-file, with 2 limits from unix:"));
    until("it holds both", || {
        let found = status(&address);
        let limits = found["limits"].as_array().expect("a list");
        limits.len() == 2 && limits.iter().all(|limit| limit["leases"][0]["member"] == "of-a-file")
    });
}
