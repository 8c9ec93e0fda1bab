//! A server on its own port, and a client that sends and reads bytes.

#![allow(dead_code, reason = "each test binary uses a part")]

pub(crate) mod memcached;

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::num::NonZero;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use submeter_cache::{Cache, Config, Server};
use tokio::sync::oneshot;

/// Far longer than any operation takes, so that no test fails on a slow machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// A server in its own runtime; dropping it stops it and waits.
pub(crate) struct Running {
    pub(crate) cache: Cache,
    pub(crate) addr: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

pub(crate) fn start(config: Config) -> Running {
    start_with(config, |server| server)
}

/// Starts a server with a configuration that `change` adjusts.
pub(crate) fn start_with(
    config: Config,
    change: impl FnOnce(Server) -> Server + Send + 'static,
) -> Running {
    let cache = Cache::new(config).expect("the configuration is sound");
    let (stop, stopped) = oneshot::channel();
    let (tell, told) = std::sync::mpsc::channel();
    let served = cache.clone();
    let thread = std::thread::spawn(move || {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async {
            let server = Server::bind(([127, 0, 0, 1], 0).into(), served).await.expect("a port");
            tell.send(server.address().tcp().expect("a port")).expect("the test waits");
            let shutdown = async {
                let _ = stopped.await;
            };
            // The same as `submeter serve`.
            let threads = NonZero::new(2).expect("not 0");
            let server = server.threads(threads).expect("the system has threads");
            change(server).run(shutdown).await.expect("serving does not fail");
        });
    });
    let addr = told.recv().expect("the server starts");
    Running { cache, addr, stop: Some(stop), thread: Some(thread) }
}

pub(crate) fn start_default() -> Running {
    start(Config::default())
}

impl Running {
    pub(crate) fn connect(&self) -> Client {
        Client::connect(self.addr)
    }

    /// Connects and logs in, as a user with its password.
    pub(crate) fn connect_as(&self, who: &str) -> Client {
        let mut client = self.connect();
        assert_eq!(client.login(who), "STORED", "{who}");
        client
    }

    /// Ends the server: all connections are closed after this.
    pub(crate) fn stop(&mut self) {
        if let Some(stop) = self.stop.take() {
            let _ = stop.send(());
        }
        if let Some(thread) = self.thread.take() {
            thread.join().expect("the server did not panic");
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if std::thread::panicking() {
            return;
        }
        self.stop();
    }
}

/// A connection.
pub(crate) struct Client {
    pub(crate) stream: TcpStream,
    pending: Vec<u8>,
}

impl Client {
    pub(crate) fn connect(addr: SocketAddr) -> Client {
        let stream = TcpStream::connect(addr).expect("the server listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        stream.set_write_timeout(Some(PATIENCE)).expect("a timeout");
        stream.set_nodelay(true).expect("no delay");
        Client { stream, pending: Vec::new() }
    }

    /// Returns a second handle to the connection, to read while another thread writes.
    pub(crate) fn reader(&self) -> Client {
        Client { stream: self.stream.try_clone().expect("a clone"), pending: Vec::new() }
    }

    pub(crate) fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.stream.write_all(bytes.as_ref()).expect("the server reads");
    }

    /// Reads one line, without its end.
    pub(crate) fn line(&mut self) -> String {
        loop {
            if let Some(end) = self.pending.iter().position(|&byte| byte == b'\n') {
                let line: Vec<u8> = self.pending.drain(..=end).collect();
                let line = line.strip_suffix(b"\r\n").expect("lines end in CR LF");
                return String::from_utf8_lossy(line).into_owned();
            }
            assert!(self.fill() > 0, "closed in the middle of {:?}", self.pending);
        }
    }

    /// Reads exactly `n` bytes.
    pub(crate) fn bytes(&mut self, n: usize) -> Vec<u8> {
        while self.pending.len() < n {
            assert!(self.fill() > 0, "closed after {} of {n} bytes", self.pending.len());
        }
        self.pending.drain(..n).collect()
    }

    /// Reads until the server closes.
    pub(crate) fn rest(&mut self) -> Vec<u8> {
        while self.fill() > 0 {}
        std::mem::take(&mut self.pending)
    }

    fn fill(&mut self) -> usize {
        let mut buffer = [0; 65536];
        let n = self.stream.read(&mut buffer).expect("the server answers in time");
        self.pending.extend_from_slice(&buffer[..n]);
        n
    }

    /// Sends a request and reads one line of answer.
    pub(crate) fn ask(&mut self, request: impl AsRef<[u8]>) -> String {
        self.send(request);
        self.line()
    }

    /// Sends requests and reads everything up to the answer of a closing `mn`.
    pub(crate) fn talk(&mut self, requests: impl AsRef<[u8]>) -> String {
        self.send(requests);
        self.send("mn\r\n");
        let mut answers = String::new();
        loop {
            let line = self.line();
            if line == "MN" {
                return answers;
            }
            answers.push_str(&line);
            answers.push_str("\r\n");
        }
    }

    pub(crate) fn set(&mut self, key: &str, value: &[u8]) -> String {
        let mut request = format!("set {key} 0 0 {}\r\n", value.len()).into_bytes();
        request.extend_from_slice(value);
        request.extend_from_slice(b"\r\n");
        self.ask(request)
    }

    /// Fetches a value; `None` if there is none.
    pub(crate) fn get(&mut self, key: &str) -> Option<Vec<u8>> {
        let head = self.ask(format!("get {key}\r\n"));
        if head == "END" {
            return None;
        }
        let len = head.rsplit(' ').next().and_then(|len| len.parse().ok()).expect(&head);
        let value = self.bytes(len);
        assert_eq!(self.bytes(7), b"\r\nEND\r\n");
        Some(value)
    }

    /// Identifies itself by `USER PASSWORD`, and reads one line of answer.
    pub(crate) fn login(&mut self, login: &str) -> String {
        self.set("auth", login.as_bytes())
    }

    /// Returns a number of `stats`.
    pub(crate) fn stat(&mut self, name: &str) -> u64 {
        let stats = self.talk("stats\r\n");
        let line = stats.lines().find_map(|line| line.strip_prefix(&format!("STAT {name} ")));
        line.and_then(|n| n.parse().ok()).unwrap_or_else(|| panic!("no {name} in {stats}"))
    }

    pub(crate) fn close_writing(&mut self) {
        self.stream.shutdown(Shutdown::Write).expect("still connected");
    }
}

/// Waits until a condition holds.
pub(crate) fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < PATIENCE, "{what}: not within {PATIENCE:?}");
        std::thread::sleep(Duration::from_millis(5));
    }
}
