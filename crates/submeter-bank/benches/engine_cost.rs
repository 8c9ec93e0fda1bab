//! The cost of the engines: how long a first grant takes, how much of a limit can be used when load
//! moves, and how much of Redis' CPU a fleet takes.
//!
//! `cargo bench -p submeter-bank --bench engine_cost -- 1000 1000` is a fleet of a thousand members
//! with a thousand budgets each, 5 % of which change from one exchange to the next.

use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use submeter_bank::{
    Bank, Budget, EtcdBank, Holder, Ledger, Limit, Member, MemoryBank, Operate, Outage, Past,
    RedisBank, SocketBank, SocketServer, Use,
};

#[path = "../tests/it/demand.rs"]
mod demand;

use demand::Demand;

/// How long leases last, and how long an engine that has just started learns before it lends.
const TTL: Duration = Duration::from_secs(15);
const GRANTS: u64 = 1_000;
/// The interval between a member's requests at that time to live.
const PERIOD: Duration = Duration::from_secs(5);

/// How long leases last while load moves.
const SHORT: Duration = Duration::from_secs(3);
const LIMIT: u64 = 100_000;

/// A member that uses as much as it likes.
struct Uses(Vec<(Budget, u64)>);

impl Member for Uses {
    fn set(&mut self, budget: &Budget, amount: u64) -> Use {
        let used = self.0.iter().find(|(other, _)| other == budget);
        Use { used: used.map_or(10, |(_, used)| *used).min(amount), refused: 0 }
    }
}

fn main() {
    let mut counts =
        std::env::args().skip(1).filter(|it| it != "--bench").map(|n| n.parse().expect("a number"));
    let (members, budgets) = (counts.next().unwrap_or(100), counts.next().unwrap_or(1_000));
    let directory = tempfile::tempdir().expect("a directory");
    let budget = Budget::new("/first", "memory").expect("a name");

    let mut ledger = Ledger::new(TTL, Past::None);
    ledger.set_limit(&budget, 1 << 40, 0).expect("no floors");
    let path = directory.path().join("bank");
    let bank = Arc::new(MemoryBank::from(ledger));
    let server = SocketServer::start(&path, 0o600, bank).expect("a new path");
    first_grants("socket", &budget, || SocketBank::new(&path));
    drop(server);
    let bank = Arc::new(MemoryBank::new(SHORT));
    let server = SocketServer::start(&path, 0o600, bank).expect("a new path");
    skewed("socket", || SocketBank::new(&path));
    drop(server);
    etcd(&budget);

    let socket = directory.path().join("redis");
    let mut redis = Command::new("redis-server");
    redis.args(["--port", "0", "--save", "", "--maxclients", "15000", "--unixsocket"]).arg(&socket);
    let Ok(redis) = redis.stdout(Stdio::null()).stderr(Stdio::null()).spawn() else {
        println!("skipped: Redis: apt-get install redis-server");
        return;
    };
    let _redis = Server(redis);
    while std::os::unix::net::UnixStream::connect(&socket).is_err() {
        std::thread::sleep(Duration::from_millis(5));
    }
    let url = format!("unix://{}", socket.display());
    let new = || RedisBank::new(&url, "cost", TTL).expect("a URL");
    new().set_limit(&budget, 1 << 40, 0).expect("it runs");
    until_it_lends(&new(), &budget);
    first_grants("redis", &budget, new);
    skewed("redis", || RedisBank::new(&url, "skew", SHORT).expect("a URL"));
    fleet(new, &url, members, budgets);
}

/// Its disk is a directory beside the others'.
fn etcd(budget: &Budget) {
    let directory = tempfile::tempdir().expect("a directory");
    let port = || {
        let free = std::net::TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr());
        free.expect("a free port").port()
    };
    let (client, peer) = (port(), format!("http://127.0.0.1:{}", port()));
    let url = format!("http://127.0.0.1:{client}");
    let mut etcd = Command::new("etcd");
    etcd.arg("--data-dir").arg(directory.path());
    etcd.args(["--listen-client-urls", &url, "--advertise-client-urls", &url]);
    etcd.args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer]);
    etcd.args(["--initial-cluster", &format!("default={peer}")]);
    let Ok(etcd) = etcd.stdout(Stdio::null()).stderr(Stdio::null()).spawn() else {
        println!("skipped: etcd: apt-get install etcd-server");
        return;
    };
    let _etcd = Server(etcd);
    while std::net::TcpStream::connect(("127.0.0.1", client)).is_err() {
        std::thread::sleep(Duration::from_millis(5));
    }
    let url = format!("etcd://127.0.0.1:{client}");
    let new = |fleet| EtcdBank::new(&url, fleet, SHORT).expect("a URL");
    let limit = Limit { budget: budget.clone(), most: 1 << 40, floors: 0, per_member: None };
    new("cost").set(&limit).expect("it runs");
    until_it_lends(&new("cost"), budget);
    first_grants("etcd", budget, || new("cost"));
    // Hundreds of processes share that one's value. Of a hundred fleets, few processes share each.
    let fleets: Vec<_> = (0..100).map(|at| format!("cost-{at}")).collect();
    fleets.iter().for_each(|fleet| new(fleet).set(&limit).expect("it runs"));
    std::thread::scope(|scope| {
        for fleet in &fleets {
            scope.spawn(|| until_it_lends(&new(fleet), budget));
        }
    });
    let next = std::cell::Cell::new(0);
    first_grants("etcd, a hundred fleets", budget, || {
        new(&fleets[next.replace(next.get() + 1) % fleets.len()])
    });
    skewed("etcd", || new("skew"));
}

/// Two members want nine tenths and one tenth of a limit, and then change places. Prints how much
/// of the limit is used two periods later.
fn skewed<B: Operate>(engine: &str, new: impl Fn() -> B) {
    let budget = Budget::new("/skew", "requests").expect("a name");
    let limit = Limit { budget: budget.clone(), most: LIMIT, floors: 0, per_member: None };
    new().set(&limit).expect("it runs");
    let start = Instant::now();
    let mut members: Vec<_> = (0..2)
        .map(|epoch| {
            let mut holder = Holder::new("member", epoch);
            holder.add(budget.clone(), 100, Outage::Strict);
            (holder, Demand::default(), new())
        })
        .collect();
    let mut pass = |hot: usize, time: Duration| {
        let began = Instant::now();
        while began.elapsed() < time {
            for (at, (holder, demand, bank)) in members.iter_mut().enumerate() {
                demand.wished = if at == hot { LIMIT / 10 * 9 } else { LIMIT / 10 };
                demand.refused = demand.wished.saturating_sub(demand.limit);
                if demand.refused > 0 {
                    holder.refused(&budget);
                }
                if holder.tick(start.elapsed(), demand) {
                    let request = holder.request(start.elapsed(), demand);
                    if let Ok(answer) = bank.exchange(&request) {
                        holder.accept(start.elapsed(), &answer, demand);
                    }
                }
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        members.iter().map(|(_, demand, _)| demand.wished.min(demand.limit)).sum::<u64>()
    };
    // Until an engine that learns lends.
    pass(0, SHORT * 5);
    let used = [1, 0, 1].map(|hot| pass(hot, SHORT / 3 * 2) * 1000 / LIMIT);
    println!("{engine}: {used:?} of 1000 used, two periods after nine tenths of the load moved");
}

/// Ends with the program, however that ends.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        // Fails if it has already ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Waits while an engine that has just started learns.
fn until_it_lends(bank: &impl Bank, budget: &Budget) {
    let mut holder = Holder::new("waits", 0);
    holder.add(budget.clone(), 10, Outage::Strict);
    loop {
        let mut uses = Uses(Vec::new());
        let answer = bank.exchange(&holder.request(Duration::ZERO, &mut uses)).expect("an answer");
        if !answer.learns && answer.leases[0].amount > 0 {
            break;
        }
        holder.accept(Duration::ZERO, &answer, &mut uses);
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// The time of a process that has just started, from its first look to its lease, including
/// connecting.
fn first_grants<B: Bank>(engine: &str, budget: &Budget, new: impl Fn() -> B) {
    let mut took: Vec<_> = (0..GRANTS)
        .map(|epoch| {
            let (bank, mut uses) = (new(), Uses(Vec::new()));
            let start = Instant::now();
            let mut holder = Holder::new("member", epoch);
            holder.add(budget.clone(), 10, Outage::Strict);
            let request = holder.request(Duration::ZERO, &mut uses);
            let answer = bank.exchange(&request).expect("an answer");
            assert!(answer.leases.iter().all(|lease| lease.amount == 10), "{answer:?}");
            assert!(holder.accept(Duration::ZERO, &answer, &mut uses));
            start.elapsed()
        })
        .collect();
    took.sort_unstable();
    let [p50, p99] = [50, 99].map(|percent| took[took.len() * percent / 100]);
    println!("{engine}: first grant {p50:?} p50, {p99:?} p99, {GRANTS} processes");
}

/// The CPU time that the server has used so far.
fn cpu(url: &str) -> f64 {
    let client = redis::Client::open(url).expect("a URL");
    let mut connection = client.get_connection().expect("it runs");
    let info: String = redis::cmd("INFO").arg("cpu").query(&mut connection).expect("an answer");
    let part = |name: &str| -> f64 {
        let line = info.lines().find_map(|line| line.strip_prefix(name));
        line.expect("a line").parse().expect("a number")
    };
    part("used_cpu_sys:") + part("used_cpu_user:")
}

/// Measures a fleet with one bank for each member, as each is a process.
fn fleet(new: impl Fn() -> RedisBank, url: &str, members: u64, budgets: u64) {
    let names: Vec<_> = (0..budgets)
        .map(|at| Budget::new(&format!("/tenant-{at}"), "memory").expect("a name"))
        .collect();
    let bank = new();
    for budget in &names {
        bank.set_limit(budget, 1 << 40, 0).expect("it runs");
    }
    let mut rng = fastrand::Rng::with_seed(16);
    let mut fleet: Vec<_> = (0..members)
        .map(|epoch| {
            // Different ones from those that got the first grants.
            let mut holder = Holder::new("member", GRANTS + epoch);
            names.iter().for_each(|name| holder.add(name.clone(), 10, Outage::Strict));
            (holder, Uses(Vec::new()), new())
        })
        .collect();
    for round in 0..6 {
        let (before, start) = (cpu(url), Instant::now());
        for (holder, uses, bank) in &mut fleet {
            let changed = (0..budgets / 20).map(|_| {
                let budget = names[rng.usize(..names.len())].clone();
                (budget, rng.u64(1..1000))
            });
            uses.0 = changed.collect();
            let request = holder.request(Duration::ZERO, uses);
            // Busy machines answer late: the same request again is the same exchange.
            let answer = (0..60).find_map(|_| bank.exchange(&request).ok());
            holder.accept(Duration::ZERO, &answer.expect("an answer"), uses);
        }
        let each = (cpu(url) - before) / members as f64;
        println!(
            "redis: {members} members with {budgets} budgets each, round {round}: {:.2} ms of CPU \
             for each exchange, {:.2} of a CPU at one exchange of each in {PERIOD:?}; {:?} in all",
            each * 1e3,
            each * members as f64 / PERIOD.as_secs_f64(),
            start.elapsed(),
        );
    }
}
