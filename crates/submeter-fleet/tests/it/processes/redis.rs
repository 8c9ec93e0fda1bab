//! A real Redis as the bank, behind a proxy for each member.

use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use submeter_bank::RedisBank;
use tempfile::TempDir;

use super::engine::{Engine, assert_lent};
use super::proxy::Proxy;
use super::{LIMITS, MEMBERS, TTL, end, stop_for};
use crate::world::{memory_of, until};

pub(super) struct Server {
    directory: TempDir,
    child: Child,
    proxies: [Proxy; MEMBERS],
    ends: Arc<AtomicBool>,
    /// Looks at what is lent, and returns the most of each limit.
    looks: Option<JoinHandle<[u64; LIMITS.len()]>>,
}

impl Server {
    /// Starts one, or says why not.
    pub(super) fn start() -> Option<Server> {
        let directory = tempfile::tempdir().expect("a directory");
        let child = spawn(&directory)?;
        let socket = directory.path().join("redis");
        let proxies = [(); MEMBERS].map(|()| Proxy::start(&socket));
        let ends = Arc::new(AtomicBool::new(false));
        let (url, ended) = (format!("unix://{}", socket.display()), Arc::clone(&ends));
        let looks = std::thread::spawn(move || {
            let bank = RedisBank::new(&url, "test", TTL).expect("a URL");
            let mut most = [0; LIMITS.len()];
            // SeqCst: a test's switch.
            while !ended.load(Ordering::SeqCst) {
                for ((path, _), most) in LIMITS.into_iter().zip(&mut most) {
                    let lent = bank.lent(&memory_of(path)).unwrap_or_default();
                    *most = lent.iter().map(|lent| lent.amount).sum::<u64>().max(*most);
                }
                std::thread::sleep(Duration::from_millis(10));
            }
            most
        });
        Some(Server { directory, child, proxies, ends, looks: Some(looks) })
    }
}

fn spawn(directory: &TempDir) -> Option<Child> {
    let socket = directory.path().join("redis");
    let mut command = Command::new("redis-server");
    command.args(["--port", "0", "--save", "", "--appendonly", "no", "--unixsocket"]);
    command.arg(&socket).current_dir(directory.path()).stdin(Stdio::null()).stdout(Stdio::null());
    let Ok(child) = command.spawn() else {
        println!("skipped: a fleet on Redis: apt-get install redis-server");
        return None;
    };
    until("redis-server listens", || std::os::unix::net::UnixStream::connect(&socket).is_ok());
    Some(child)
}

impl Engine for Server {
    fn url(&self, member: usize) -> String {
        format!("redis://{}", self.proxies[member].address())
    }

    fn stop_for(&mut self, time: Duration) {
        stop_for(&self.child, time);
    }

    fn restart(&mut self, after: Duration) {
        end(&mut self.child);
        std::thread::sleep(after);
        self.child = spawn(&self.directory).expect("it was there before");
    }

    fn cut_off(&mut self, member: usize, time: Duration) {
        self.proxies[member].drops(true);
        // Long enough for its leases to end and be lent to others.
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
        // Has ended by itself otherwise.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
