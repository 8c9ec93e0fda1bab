//! Redis with a replica that takes its place: what members may use together is counted by the
//! members, not by either server.

use std::net::TcpListener;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use submeter_bank::{Bank, Budget, Holder, InForce, Member, Outage, RedisBank, Use};

use crate::conformance::memory;
use crate::redis::Server;

const TTL: Duration = Duration::from_secs(1);
const LIMIT: u64 = 100;
/// Enough time until a learning server lends: it counts at most a tenth of a lease between two
/// exchanges.
const LEARNT: Duration = TTL.saturating_mul(6);

/// A primary and its replica.
struct Pair {
    primary: Server,
    replica: Server,
}

fn start() -> Option<Pair> {
    let free = TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr());
    let port = free.expect("a free port").port().to_string();
    let listen = ["--port", &port, "--bind", "127.0.0.1", "--repl-diskless-sync-delay", "0"];
    let primary = Server::start(&listen)?;
    let follow = ["--replicaof", "127.0.0.1", &port, "--repl-diskless-sync-delay", "0"];
    let pair = Pair { primary, replica: Server::start(&follow)? };
    pair.until_it_follows();
    Some(pair)
}

impl Pair {
    fn until_it_follows(&self) {
        let start = Instant::now();
        loop {
            let info = self.replica.query(&["INFO", "replication"]).unwrap_or_default();
            if info.contains("master_link_status:up") {
                return;
            }
            assert!(start.elapsed() < Duration::from_secs(60), "no replica: {info}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn promote(&self) {
        self.replica.query(&["REPLICAOF", "NO", "ONE"]);
    }
}

/// What a member may use, published for the others.
struct Uses<'a> {
    now: &'a AtomicU64,
    wishes: u64,
}

impl Member for Uses<'_> {
    fn set(&mut self, _: &Budget, amount: u64) -> Use {
        // SeqCst: a test's count.
        self.now.store(amount, Ordering::SeqCst);
        Use { used: amount.min(self.wishes), refused: self.wishes.saturating_sub(amount) }
    }
}

/// A member at one server, whose URL changes when another server becomes the primary.
struct Client<'a> {
    holder: Holder,
    uses: Uses<'a>,
    bank: RedisBank,
    last_error: String,
}

impl<'a> Client<'a> {
    fn new(epoch: u64, bank: RedisBank, now: &'a AtomicU64) -> Self {
        let mut holder = Holder::new("member", epoch);
        holder.add(memory("/"), 1, Outage::Strict);
        let uses = Uses { now, wishes: LIMIT };
        Self { holder, uses, bank, last_error: String::new() }
    }
}

fn bank(server: &Server, options: &str) -> RedisBank {
    let bank = RedisBank::new(&format!("{}{options}", server.url()), "test", TTL).expect("a URL");
    // If the server is away, it is set with the first exchange.
    let _ = bank.set_limit(&memory("/"), LIMIT, 0);
    bank
}

/// Lets members work for a while, and returns the most that they could use together.
fn work(clients: &mut [Client], counts: &[AtomicU64], start: Instant, time: Duration) -> u64 {
    let (began, mut most) = (Instant::now(), 0);
    while began.elapsed() < time {
        for client in &mut *clients {
            if client.holder.tick(start.elapsed(), &mut client.uses) {
                let request = client.holder.request(start.elapsed(), &mut client.uses);
                match client.bank.exchange(&request) {
                    Ok(answer) => {
                        client.holder.accept(start.elapsed(), &answer, &mut client.uses);
                    }
                    Err(error) => client.last_error = error.to_string(),
                }
            }
        }
        for client in &mut *clients {
            client.holder.tick(start.elapsed(), &mut client.uses);
        }
        // SeqCst: a test's count.
        most = counts.iter().map(|count| count.load(Ordering::SeqCst)).sum::<u64>().max(most);
        std::thread::sleep(Duration::from_millis(5));
    }
    most
}

fn counts() -> [AtomicU64; 2] {
    [AtomicU64::new(0), AtomicU64::new(0)]
}

fn leases(client: &Client) -> bool {
    client.holder.in_force(&memory("/")) == Some(InForce::Lease)
}

/// Runs each case on a thread of its own: cases wait for leases, which takes no CPU.
fn each<T: Copy + Send>(cases: &[T], run: impl Fn(T) + Sync) {
    std::thread::scope(|scope| {
        for &case in cases {
            let run = &run;
            scope.spawn(move || run(case));
        }
    });
}

/// A replica that takes the place of a killed primary grants nothing twice.
#[test]
fn a_promoted_replica_grants_nothing_twice() {
    each(&["", "?replicas=1"], |options| {
        let Some(mut pair) = start() else { return };
        let (counts, start) = (counts(), Instant::now());
        let [one, other] = &counts;
        let mut clients = [
            Client::new(1, bank(&pair.primary, options), one),
            Client::new(2, bank(&pair.primary, options), other),
        ];
        clients[0].uses.wishes = LIMIT / 10;
        let before = work(&mut clients[..1], &counts, start, LEARNT);
        assert!((1..LIMIT / 2).contains(&before), "{before}: {}", clients[0].last_error);
        if options.is_empty() {
            // From here on it never hears what is lent.
            pair.replica.query(&["REPLICAOF", "127.0.0.1", "1"]);
        }
        clients[0].uses.wishes = LIMIT;
        assert_eq!(work(&mut clients[..1], &counts, start, TTL), LIMIT);
        pair.primary.kill();
        pair.promote();
        // No replica is left to wait for.
        for client in &mut clients {
            client.bank = bank(&pair.replica, "");
        }
        // The member that has nothing asks first.
        let after = work(&mut clients[1..], &counts, start, TTL / 4);
        let after = work(&mut clients, &counts, start, LEARNT).max(after);
        assert!(after <= LIMIT, "{after} of {LIMIT} could be used{options}");
        assert!(clients.iter().all(leases), "both have leases of the new primary");
        let [one, other] = counts.map(AtomicU64::into_inner);
        assert!(one + other >= LIMIT / 10 * 9, "{one} and {other} of {LIMIT} are lent again");
    });
}

/// How a primary that was cut off, and is asked again, can tell that another has lent meanwhile.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Notices {
    Silence,
    MemberThatMetAnother,
    Following,
}

#[test]
fn a_primary_again_grants_nothing_twice() {
    let all = [Notices::Silence, Notices::MemberThatMetAnother, Notices::Following];
    each(&all, |notices| {
        let Some(pair) = start() else { return };
        let (counts, start) = (counts(), Instant::now());
        let [one, other] = &counts;
        // One address for whichever server is the primary.
        let directory = tempfile::tempdir().expect("a directory");
        let address = directory.path().join("primary");
        let point_at = |server: &Server| {
            // There is no link at first.
            let _ = std::fs::remove_file(&address);
            let socket = server.url().replace("unix://", "");
            std::os::unix::fs::symlink(socket, &address).expect("a link");
        };
        let to_address = || {
            let url = format!("unix://{}", address.display());
            RedisBank::new(&url, "test", TTL).expect("a URL")
        };
        point_at(&pair.primary);
        let mut clients =
            [Client::new(1, to_address(), one), Client::new(2, bank(&pair.primary, ""), other)];
        clients[0].uses.wishes = LIMIT / 10;
        work(&mut clients[..1], &counts, start, LEARNT);
        assert!(leases(&clients[0]), "{}", clients[0].last_error);

        // All members go to the replica, and the first primary hears of nothing.
        pair.promote();
        point_at(&pair.replica);
        pair.primary.query(&["CLIENT", "KILL", "TYPE", "normal"]);
        clients[1].bank = bank(&pair.replica, "");
        let most = work(&mut clients, &counts, start, LEARNT);
        assert!(most <= LIMIT && leases(&clients[1]), "{most}: {}", clients[1].last_error);

        // All go back, except the member that has nearly everything, and is cut off.
        if notices != Notices::Silence {
            pair.primary.query(&["HSET", "submeter:{test}", "followed", "0"]);
        }
        if notices == Notices::Following {
            pair.primary.query(&["REPLICAOF", "127.0.0.1", "1"]);
            pair.primary.query(&["REPLICAOF", "NO", "ONE"]);
        }
        point_at(&pair.primary);
        pair.replica.query(&["CLIENT", "KILL", "TYPE", "normal"]);
        if notices != Notices::MemberThatMetAnother {
            clients[0].bank = to_address();
        }
        clients[1].bank = RedisBank::new("redis://127.0.0.1:1", "test", TTL).expect("a URL");
        clients[0].uses.wishes = LIMIT;
        let most = work(&mut clients, &counts, start, LEARNT);
        assert!(most <= LIMIT, "{most} of {LIMIT} could be used: {notices:?}");
        let [one, other] = counts.map(AtomicU64::into_inner);
        assert_eq!((one, other), (LIMIT, 0), "all is lent again: {notices:?}");
    });
}

/// A replica is promoted while its primary lives, and each has a member. Returns the most that both
/// could use, and the first one's last error.
fn both_lend(options: &str) -> Option<(u64, String)> {
    let pair = start()?;
    let (counts, start) = (counts(), Instant::now());
    let [one, other] = &counts;
    let mut clients = [
        Client::new(1, bank(&pair.primary, options), one),
        Client::new(2, bank(&pair.replica, ""), other),
    ];
    assert_eq!(work(&mut clients[..1], &counts, start, LEARNT), LIMIT);
    pair.promote();
    clients[1].bank = bank(&pair.replica, "");
    let most = work(&mut clients, &counts, start, LEARNT);
    assert!(leases(&clients[1]), "{}", clients[1].last_error);
    Some((most, clients[0].last_error.clone()))
}

/// Two primaries grant nothing twice if exchanges wait for the replica.
#[test]
fn two_primaries_that_wait_grant_nothing_twice() {
    let Some((most, error)) = both_lend("?replicas=1") else { return };
    assert!(most <= LIMIT, "{most} of {LIMIT} could be used");
    assert!(error.contains("0 of 1 replicas have the exchange"), "{error}");
}

/// Two primaries each grant the limit if exchanges do not wait.
///
/// This is what the documentation of `RedisBank` says of Redis without `?replicas=N`.
#[test]
fn two_primaries_that_do_not_wait_grant_twice() {
    let Some((most, _)) = both_lend("") else { return };
    println!("{most} of {LIMIT} could be used");
    assert!(most > LIMIT && most <= LIMIT * 2, "{most} of {LIMIT} could be used");
}

#[test]
fn a_number_of_replicas_that_is_none_is_refused() {
    for wrong in ["?replicas=0", "?replicas=-1", "?replicas=x", "?replicas=1&db=0"] {
        let url = format!("redis://:sesame@h:1/0{wrong}");
        let error = RedisBank::new(&url, "test", TTL).expect_err("no number");
        assert!(error.is_refused() && error.to_string().contains("?replicas=1"), "{error}");
        assert!(!error.to_string().contains("sesame"), "{error}");
    }
}
