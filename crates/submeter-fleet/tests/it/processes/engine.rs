//! The banks of the fleets.

use std::fs;
use std::io::Write;
use std::path::PathBuf;
use std::process::Child;
use std::sync::Arc;
use std::time::Duration;

use submeter_bank::{Answer, Bank, Ledger, MemoryBank, Past, Request, SocketBank, SocketServer};
use tempfile::TempDir;

use super::{FLOORS, LIMITS, TTL, again, end, stop_for};
use crate::world::{memory_of, until};

pub(super) trait Engine {
    /// Returns the URL that the member connects to.
    fn url(&self, member: usize) -> String;

    fn stop_for(&mut self, time: Duration);

    /// Kills it, and starts it again after a while.
    fn restart(&mut self, after: Duration);

    /// Drops all traffic between it and one member.
    fn cut_off(&mut self, member: usize, time: Duration);

    /// Asserts that it never counted more than there is, and that it lent most of it.
    fn assert_no_excess(&mut self);
}

/// A function that asks a bank.
pub(super) type Client = Box<dyn Fn(&Request) -> Option<Answer>>;

/// Returns a client of the bank at a URL.
pub(super) fn client(url: &str) -> Client {
    #[cfg(all(feature = "etcd", feature = "redis"))]
    if let Some(client) = super::server::client(url) {
        return client;
    }
    let bank = SocketBank::new(url);
    Box::new(move |request| bank.exchange(request).ok())
}

/// Asserts that the most ever lent of each limit is within it, and most of it.
pub(super) fn assert_lent(most: [u64; LIMITS.len()]) {
    for ((path, limit), most) in LIMITS.into_iter().zip(most) {
        assert!(most <= limit - FLOORS, "{most} were lent of {path}");
        assert!(most >= limit / 2, "only {most} were lent of {path}");
    }
}

const TEST: &str = "processes::engine::bank_of_a_fleet";
const VARIABLE: &str = "SUBMETER_FLEET_BANK";

/// The memory engine, in a process of its own.
pub(super) struct Host {
    directory: TempDir,
    child: Child,
}

impl Host {
    pub(super) fn start() -> Host {
        let directory = tempfile::tempdir().expect("a directory");
        let child = Self::spawn(&directory);
        Host { directory, child }
    }

    fn spawn(directory: &TempDir) -> Child {
        let path = directory.path().display().to_string();
        let child = again(TEST, VARIABLE, &path).spawn().expect("the test's own program");
        let socket = directory.path().join("bank");
        until("the bank is served", || std::os::unix::net::UnixStream::connect(&socket).is_ok());
        child
    }
}

impl Engine for Host {
    fn url(&self, _: usize) -> String {
        self.directory.path().join("bank").display().to_string()
    }

    fn stop_for(&mut self, time: Duration) {
        stop_for(&self.child, time);
    }

    fn restart(&mut self, after: Duration) {
        end(&mut self.child);
        std::thread::sleep(after);
        self.child = Self::spawn(&self.directory);
    }

    /// There is nothing between a process and a socket of its host, so the bank is stopped.
    fn cut_off(&mut self, _: usize, time: Duration) {
        self.stop_for(time);
    }

    fn assert_no_excess(&mut self) {
        let log = fs::read_to_string(self.directory.path().join("log")).expect("a log");
        let most = LIMITS.map(|(path, _)| {
            let lent = log.lines().filter_map(|line| line.strip_prefix(path)?.strip_prefix(' '));
            lent.map(|lent| lent.parse().expect("a number")).max().unwrap_or(0)
        });
        assert_lent(most);
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        // Fails if it has already ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs the bank's process if the variable is set, and does nothing otherwise.
#[test]
fn bank_of_a_fleet() {
    let Some(directory) = std::env::var_os(VARIABLE).map(PathBuf::from) else { return };
    // What the previous process lent is unknown.
    let mut ledger = Ledger::new(TTL, Past::Unknown);
    for (path, limit) in LIMITS {
        ledger.set_limit(&memory_of(path), limit, FLOORS).expect("floors below the limit");
    }
    let bank = Arc::new(MemoryBank::from(ledger));
    let served = SocketServer::start(directory.join("bank"), 0o600, Arc::clone(&bank));
    let _server = served.expect("nobody else has it");
    let log = fs::File::options().create(true).append(true).open(directory.join("log"));
    let mut log = log.expect("a log");
    loop {
        for (path, _) in LIMITS {
            let lent: u64 = bank.lent(&memory_of(path)).iter().map(|lent| lent.amount).sum();
            if writeln!(log, "{path} {lent}").is_err() {
                return;
            }
        }
        std::thread::sleep(Duration::from_millis(5));
        // The test has ended, or was killed.
        if !directory.exists() {
            return;
        }
    }
}
