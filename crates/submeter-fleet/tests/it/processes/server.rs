//! A real server as the bank, Redis or etcd, behind a proxy for each member.

mod proxy;

use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use submeter_bank::{Bank, Budget, EtcdBank, Lent, Limit, Operate, RedisBank};
use tempfile::TempDir;

use self::proxy::Proxy;
use super::engine::{Client, Engine, assert_lent};
use super::{FLOORS, LIMITS, MEMBERS, TTL, end, run, stop_for};
use crate::world::{memory_of, until};

/// A function that returns who holds what of a budget.
type Holders = Box<dyn Fn(&Budget) -> Vec<Lent> + Send>;

#[derive(Clone, Copy)]
pub(super) enum Kind {
    Redis,
    Etcd,
}

pub(super) struct Server {
    kind: Kind,
    address: SocketAddr,
    directory: TempDir,
    child: Child,
    proxies: [Proxy; MEMBERS],
    ends: Arc<AtomicBool>,
    /// Watches what is lent, and returns the most of each limit.
    looks: Option<JoinHandle<[u64; LIMITS.len()]>>,
}

/// Returns a client of the server at a URL, or `None` for a socket's path.
pub(super) fn client(url: &str) -> Option<Client> {
    if url.starts_with("redis:") {
        let bank = RedisBank::new(url, "test", TTL).expect("a URL");
        for (path, limit) in LIMITS {
            // If the server is away, the first exchange sets it later.
            let _ = bank.set_limit(&memory_of(path), limit, FLOORS);
        }
        return Some(Box::new(move |request| bank.exchange(request).ok()));
    }
    if url.starts_with("etcd:") {
        let bank = EtcdBank::new(url, "test", TTL).expect("a URL");
        return Some(Box::new(move |request| bank.exchange(request).ok()));
    }
    None
}

fn free_address() -> SocketAddr {
    let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|free| free.local_addr());
    free.expect("a free port")
}

impl Kind {
    fn url(self, address: SocketAddr) -> String {
        match self {
            Kind::Redis => format!("redis://{address}"),
            Kind::Etcd => format!("etcd://{address}"),
        }
    }

    /// Starts one and waits until it listens, or says why not.
    fn spawn(self, address: SocketAddr, directory: &TempDir) -> Option<Child> {
        let port = address.port().to_string();
        let (mut command, package) = match self {
            Kind::Redis => {
                let mut command = Command::new("redis-server");
                command.args(["--port", &port, "--save", "", "--appendonly", "no"]);
                (command, "redis-server")
            }
            Kind::Etcd => {
                let (client, peer) = (format!("http://{address}"), "http://127.0.0.1:0");
                let mut command = Command::new("etcd");
                command.args(["--listen-client-urls", &client, "--advertise-client-urls", &client]);
                // It has no peers.
                command.args(["--listen-peer-urls", peer, "--data-dir", "data"]);
                (command, "etcd-server")
            }
        };
        command.current_dir(directory.path());
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let Ok(child) = command.spawn() else {
            println!("skipped: a fleet of processes: apt-get install {package}");
            return None;
        };
        until("the bank listens", || TcpStream::connect(address).is_ok());
        Some(child)
    }

    /// Makes it keep the limits, and returns the function that reads who holds what.
    fn operate(self, address: SocketAddr) -> Holders {
        let url = self.url(address);
        match self {
            Kind::Redis => operated(RedisBank::new(&url, "test", TTL).expect("a URL")),
            Kind::Etcd => operated(EtcdBank::new(&url, "test", TTL).expect("a URL")),
        }
    }
}

fn operated(bank: impl Operate + Send + 'static) -> Holders {
    for (path, most) in LIMITS {
        let budget = memory_of(path);
        let limit = Limit { budget, most, floors: FLOORS, per_member: None };
        until("a limit is set", || bank.set(&limit).is_ok());
    }
    Box::new(move |budget| bank.holders(budget).unwrap_or_default())
}

impl Server {
    pub(super) fn start(kind: Kind) -> Option<Server> {
        let (address, directory) = (free_address(), tempfile::tempdir().expect("a directory"));
        let child = kind.spawn(address, &directory)?;
        let holders = kind.operate(address);
        let proxies = [(); MEMBERS].map(|()| Proxy::start(address));
        let ends = Arc::new(AtomicBool::new(false));
        let ended = Arc::clone(&ends);
        let looks = std::thread::spawn(move || {
            let mut most = [0; LIMITS.len()];
            // SeqCst: a test's switch.
            while !ended.load(Ordering::SeqCst) {
                for ((path, _), most) in LIMITS.into_iter().zip(&mut most) {
                    let lent = holders(&memory_of(path));
                    *most = lent.iter().map(|lent| lent.amount).sum::<u64>().max(*most);
                }
                std::thread::sleep(Duration::from_millis(10));
            }
            most
        });
        Some(Server { kind, address, directory, child, proxies, ends, looks: Some(looks) })
    }
}

impl Engine for Server {
    fn url(&self, member: usize) -> String {
        self.kind.url(self.proxies[member].address())
    }

    fn stop_for(&mut self, time: Duration) {
        stop_for(&self.child, time);
    }

    fn restart(&mut self, after: Duration) {
        end(&mut self.child);
        std::thread::sleep(after);
        self.child = self.kind.spawn(self.address, &self.directory).expect("it was there before");
    }

    fn cut_off(&mut self, member: usize, time: Duration) {
        self.proxies[member].drops(true);
        // Long enough for the member's leases to end and be lent to others.
        std::thread::sleep(time + TTL);
        self.proxies[member].drops(false);
    }

    fn assert_no_excess(&mut self) {
        // SeqCst: a test's switch.
        self.ends.store(true, Ordering::SeqCst);
        if let Some(looks) = self.looks.take() {
            assert_lent(looks.join().expect("it only looks"));
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

#[test]
fn a_fleet_on_redis_never_exceeds_its_limits() {
    let Some(engine) = Server::start(Kind::Redis) else { return };
    run(engine, 17);
}

#[test]
fn a_fleet_on_etcd_never_exceeds_its_limits() {
    let Some(engine) = Server::start(Kind::Etcd) else { return };
    run(engine, 18);
}
