//! Hostile clients, one kind at a time: how much memory the server takes, and how long another
//! client waits. It is a program of its own, because it takes thousands of descriptors.
//!
//! Both are asserted. A waiting time says nothing if the machine delays even an echo in which the
//! server plays no part, or the server's own threads: such a row says `too noisy`, and only its
//! memory counts. A release build has 10,000 tenants, a debug build 1,000.
//!
//! ```text
//! cargo test --release -p submeter-cli --test hostile -- --nocapture
//! ```

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use submeter_program::{Program, Running};

const SUBMETER: Program = Program::new(env!("CARGO_BIN_EXE_submeter"));

const TENANTS: usize = if cfg!(debug_assertions) { 1_000 } else { 10_000 };

/// How long each kind of client runs.
const TIME: Duration = Duration::from_millis(if cfg!(debug_assertions) { 750 } else { 6000 });

/// Time limit for an answer on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// Time limit for the neighbour's answers, at the 99th percentile. On a quiet machine they take a
/// hundredth of it; a server that made lists on its serving threads took seven seconds.
const WAIT_MAX: Duration = Duration::from_secs(1);

/// A row is too noisy unless the neighbour waited for longer than the longest echo took, times
/// this. It is the longest, not a percentile: a neighbour that waits much has few answers, and a
/// single pause of the machine decides its percentile.
const NOISE: u32 = 10;

/// A row is also too noisy if the server's threads waited for a CPU for as long as they ran, times
/// this. An echo does not show that: a thread that computes little gets a CPU soon. A machine with
/// nothing else to do keeps them waiting for half of that, because of the clients.
const STARVED: u32 = 2;

const MIB: u64 = 1 << 20;

/// The memory of a server without tenants, apart from items and buffers: code, stacks, spare
/// buffers, the allocator's arenas and its free memory.
const BASE: u64 = 80 * MIB;

/// `--memory`, and the default of `--buffers`.
const ITEMS: u64 = 16 * MIB;
const BUFFERS: u64 = 64 * MIB;

/// The memory of a connection that needs no room: an input and an output buffer, and its state.
const CONNECTION: u64 = 40 << 10;

/// What the page keeps of the last two minutes (`BYTES_MAX` of `history.rs`).
const HISTORY: u64 = 12 * MIB;

/// A copy of one tenant's values. The page has two copies of all values, the older one for rates,
/// and makes a third.
const COPY: u64 = 2 << 10;
const COPIES: u64 = 3;

struct World {
    server: Running,
    cache: SocketAddr,
    page: SocketAddr,
}

impl World {
    fn start() -> World {
        let free = ["serve", "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", "--memory", "16m"];
        // Values are given back as soon as they are free. By default glibc raises this threshold
        // when the first one is freed, and keeps later ones in its arenas: with the same clients
        // either 94 MiB or 187 MiB were resident.
        let threshold = ("MALLOC_MMAP_THRESHOLD_", "131072");
        let mut server = SUBMETER.start_in(&free, &[threshold]);
        let page = server.address_after("http://");
        let cache = server.address_after("  cache  ");
        World { server, cache, page }
    }

    /// Starts a server as `start` does and creates many tenants.
    fn with_tenants() -> World {
        let world = World::start();
        let mut client = world.connect();
        let name = "y".repeat(100);
        for n in 0..TENANTS {
            write!(client, "set u{n}:{name}:k 0 0 1 noreply\r\nx\r\n").expect("sent");
        }
        ask(&mut client, "mn\r\n", "MN");
        world
    }

    fn connect(&self) -> TcpStream {
        connect(self.cache)
    }

    fn status(&self, field: &str) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.server.id()));
        let status = status.expect("it runs");
        let line = status.lines().find_map(|line| line.strip_prefix(field)).expect("a field");
        line.split_whitespace().nth(1).and_then(|n| n.parse().ok()).expect("a number")
    }

    /// Returns the peak of the resident memory in bytes.
    fn peak(&self) -> u64 {
        self.status("VmHWM") << 10
    }

    fn resident(&self) -> u64 {
        self.status("VmRSS") << 10
    }

    /// Returns how long its threads ran, and how long they waited for a CPU; zero if the kernel
    /// does not report it.
    fn ran_and_waited(&self) -> [Duration; 2] {
        let threads = std::fs::read_dir(format!("/proc/{}/task", self.server.id()));
        let mut sums = [0; 2];
        for thread in threads.expect("it runs").flatten() {
            let times = std::fs::read_to_string(thread.path().join("schedstat"));
            let times = times.unwrap_or_default();
            for (sum, time) in sums.iter_mut().zip(times.split_whitespace()) {
                *sum += time.parse::<u64>().expect("nanoseconds");
            }
        }
        sums.map(Duration::from_nanos)
    }

    /// Reads a whole document and returns its length.
    fn length(&self, target: &str) -> u64 {
        let mut stream = connect(self.page);
        write!(stream, "GET {target} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            .expect("sent");
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).expect("an answer");
        assert!(answer.starts_with(b"HTTP/1.1 200 "), "{target}");
        answer.len() as u64
    }
}

fn connect(addr: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(addr).expect("it listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a socket");
    // A server that stops reading must not stop the test.
    stream.set_write_timeout(Some(Duration::from_millis(200))).expect("a socket");
    stream.set_nodelay(true).expect("a socket");
    stream
}

fn ask(stream: &mut TcpStream, request: &str, answer: &str) {
    stream.write_all(request.as_bytes()).expect("it reads");
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line).expect("it answers in time");
    assert_eq!(line.trim_end(), answer, "to {request:?}");
}

/// Sends as much as the server takes.
fn push(stream: &mut TcpStream, bytes: &[u8]) {
    // The server may have closed the connection or stopped reading.
    let _ = stream.write_all(bytes);
}

/// A client that asks repeatedly, and records how long each answer takes.
struct Asker {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Vec<Duration>>,
}

impl Asker {
    /// A well-behaved client beside the hostile ones.
    fn neighbour(world: &World) -> Asker {
        let mut client = world.connect();
        ask(&mut client, "set well:k 0 0 5\r\nvalue\r\n", "STORED");
        Asker::start(client, "touch well:k 0\r\n", "TOUCHED")
    }

    /// A client of an echo, which measures the machine.
    fn control() -> Asker {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let client = connect(listener.local_addr().expect("bound"));
        std::thread::spawn(move || {
            let (stream, _) = listener.accept().expect("it has connected");
            stream.set_nodelay(true).expect("a socket");
            // Until the client is gone.
            let _ = std::io::copy(&mut &stream, &mut &stream);
        });
        Asker::start(client, "echo\r\n", "echo")
    }

    fn start(mut client: TcpStream, request: &'static str, answer: &'static str) -> Asker {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            let mut waited = Vec::new();
            // Relaxed: a plain signal to stop. At least one answer is awaited.
            while waited.is_empty() || !stopped.load(Ordering::Relaxed) {
                let began = Instant::now();
                ask(&mut client, request, answer);
                waited.push(began.elapsed());
                std::thread::sleep(Duration::from_millis(2));
            }
            waited
        });
        Asker { stop, thread }
    }

    /// Returns the 99th percentile and the maximum of its waiting times.
    fn end(self) -> (Duration, Duration) {
        // Relaxed: a plain signal to stop.
        self.stop.store(true, Ordering::Relaxed);
        let mut waited = self.thread.join().expect("it was answered each time");
        waited.sort_unstable();
        let p99 = waited[(waited.len() * 99 / 100).min(waited.len() - 1)];
        (p99, *waited.last().expect("at least one"))
    }
}

/// One row of the table.
struct Row {
    kind: &'static str,
    before: u64,
    peak: u64,
    bound: u64,
    waited: (Duration, Duration),
    /// The longest time that the echo took.
    noise: Duration,
    /// Whether the server had too little of the machine.
    starved: bool,
}

impl Row {
    /// Returns whether the server kept the neighbour waiting, rather than the machine.
    fn kept_waiting(&self) -> bool {
        self.waited.0 > WAIT_MAX && !self.is_too_noisy()
    }

    fn is_too_noisy(&self) -> bool {
        self.waited.0 > WAIT_MAX && (self.starved || NOISE * self.noise >= self.waited.0)
    }
}

/// Runs hostile clients for a while, with a neighbour beside them.
fn row(kind: &'static str, world: &World, bound: u64, hostile: impl FnOnce(&World)) -> Row {
    let (before, times) = (world.resident(), world.ran_and_waited());
    let (neighbour, control) = (Asker::neighbour(world), Asker::control());
    hostile(world);
    let (waited, (_, noise)) = (neighbour.end(), control.end());
    let now = world.ran_and_waited();
    let [ran, delayed] = [0, 1].map(|n| now[n].saturating_sub(times[n]));
    let starved = delayed > STARVED * ran;
    comes_later(world);
    let row = Row { kind, before, peak: world.peak(), bound, waited, noise, starved };
    let mib = |n: u64| n as f64 / MIB as f64;
    println!(
        "{:<44} {:>7.0} {:>7.0} {:>7.0} MiB {:>9.1} {:>9.1} {:>9.1} ms{}{}",
        row.kind,
        mib(row.before),
        mib(row.peak),
        mib(row.bound),
        row.waited.0.as_secs_f64() * 1e3,
        row.waited.1.as_secs_f64() * 1e3,
        row.noise.as_secs_f64() * 1e3,
        if row.starved { ", starved" } else { "" },
        if row.is_too_noisy() { ", too noisy" } else { "" },
    );
    row
}

/// Checks that a client that connects afterwards is served, even with a large value.
fn comes_later(world: &World) {
    let began = Instant::now();
    let value = "v".repeat(1_000_000);
    loop {
        let mut client = world.connect();
        push(&mut client, format!("set well:large 0 0 1000000\r\n{value}\r\n").as_bytes());
        let mut line = String::new();
        if BufReader::new(client).read_line(&mut line).is_ok() && line == "STORED\r\n" {
            return;
        }
        assert!(began.elapsed() < PATIENCE, "still not served: {line:?}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Opens `n` connections that each send `bytes`, and keeps them for a while.
fn crowd(addr: SocketAddr, n: usize, bytes: impl Fn(usize) -> Vec<u8>) {
    let began = Instant::now();
    let mut clients: Vec<TcpStream> = (0..n).map(|_| connect(addr)).collect();
    for (n, client) in clients.iter_mut().enumerate() {
        push(client, &bytes(n));
    }
    std::thread::sleep(TIME.saturating_sub(began.elapsed()));
}

fn get(target: &str) -> Vec<u8> {
    format!("GET {target} HTTP/1.1\r\nHost: localhost\r\n\r\n").into_bytes()
}

/// Sends requests a byte at a time from many connections.
fn slow_bytes(world: &World) {
    let began = Instant::now();
    let mut clients: Vec<TcpStream> = (0..400).map(|_| world.connect()).collect();
    let mut sent = 0;
    while began.elapsed() < TIME {
        let byte = b"set slow:k 0 0 1000000\r\n".get(sent).copied().unwrap_or(b'v');
        for client in &mut clients {
            push(client, &[byte]);
        }
        sent += 1;
    }
}

/// Connects as fast as possible and closes no connection.
fn flood(world: &World) {
    let clients: Vec<TcpStream> = (0..3000).map(|_| connect(world.cache)).collect();
    // Admitted clients receive nothing; the neighbour holds one of the places.
    for mut client in clients.iter().skip(1100) {
        let mut line = [0; 64];
        let n = client.read(&mut line).expect("it is told");
        assert_eq!(&line[..n], b"ERROR Too many open connections\r\n");
    }
}

/// Requests values of 1 MB, each replaced by the next, and never reads the answers.
fn deaf_to_get(world: &World) {
    let value = "x".repeat(1_000_000);
    crowd(world.cache, 300, |n| {
        let gets = format!("get k{n}\r\n").repeat(8);
        format!("set k{n} 0 0 1000000\r\n{value}\r\n{gets}").into_bytes()
    });
}

/// No hostile client exceeds its bound or keeps a neighbour from its answers.
#[test]
fn hostile_clients_stay_within_their_bounds() {
    let files = rlimit::increase_nofile_limit(8192).expect("the limit can be read");
    assert!(files >= 4096, "the machine allows {files} open files: raise ulimit -n");
    println!("{TENANTS} tenants where there are many; resident before, at most, bound; waiting of");
    println!("another client: 99th percentile, longest; longest of an echo");
    let held = BASE + ITEMS + BUFFERS;
    let mut rows = vec![
        row("400 uploads of 1 MiB that never end", &World::start(), held + 400 * CONNECTION, |w| {
            crowd(w.cache, 400, |n| {
                [format!("set k{n} 0 0 1048576\r\n").into_bytes(), vec![b'x'; 1_048_570]].concat()
            });
        }),
        row("400 lines of 1 MB that never end", &World::start(), held + 400 * CONNECTION, |w| {
            crowd(w.cache, 400, |_| [&b"get "[..], &b"a ".repeat(520_000)].concat());
        }),
        row("300 that do not read values of 1 MB", &World::start(), held + 300 * CONNECTION, |w| {
            deaf_to_get(w);
        }),
        row("400 that send a byte at a time", &World::start(), held + 400 * CONNECTION, slow_bytes),
    ];
    let world = World::start();
    // The server's own descriptors must come back: the last row is for the neighbour alone.
    rows.push(row("3,000 connections at once", &world, held + 1024 * CONNECTION, flood));
    drop(world);

    let world = World::with_tenants();
    let tenants = world.resident() + held;
    // A list takes about 430 bytes per tenant; the snapshot that it is made from, about 2 KiB.
    let list = TENANTS as u64 * (4 * 500 + 4096);
    rows.push(row("200 that do not read `stats tenants`", &world, tenants + list, |w| {
        crowd(w.cache, 200, |_| b"stats tenants\r\n".repeat(30));
    }));
    // Versions that clients read (`VERSIONS_MAX`, `FULLS_MAX` of `sampler.rs`), and one in the
    // making: its buffer may be twice as large as its content, and the smaller one from which it
    // grew still exists.
    let in_the_making = 3;
    for (kind, target, versions, n) in [
        ("100 that do not read /metrics", "/metrics", 2, 100),
        ("100 that do not read /api/tree", "/api/tree", 2, 100),
        ("200 that do not read /api/events", "/api/events", 4, 200),
    ] {
        let world = World::with_tenants();
        let tenants = world.resident() + held;
        // An event is smaller than the tree.
        let length = world.length(if target == "/metrics" { target } else { "/api/tree" });
        let documents = (versions + in_the_making) * length + n as u64 * (256 << 10);
        let page = HISTORY + COPIES * TENANTS as u64 * COPY + documents;
        rows.push(row(kind, &world, tenants + page, |w| crowd(w.page, n, |_| get(target))));
    }
    for row in rows {
        assert!(row.peak <= row.bound, "{}: {} bytes of {}", row.kind, row.peak, row.bound);
        let (wait, noise) = (row.waited.0, row.noise);
        assert!(!row.kept_waiting(), "{}: {wait:?} for a neighbour, {noise:?} an echo", row.kind);
    }
}

/// A row blames the server only if an echo does not wait and the server has a CPU.
#[test]
fn only_a_quiet_machine_blames_the_server() {
    let second = Duration::from_secs(1);
    let of = |waited, noise, starved| {
        let waited = (waited, waited);
        let row = Row { kind: "", before: 0, peak: 0, bound: 0, waited, noise, starved };
        (row.kept_waiting(), row.is_too_noisy())
    };
    assert_eq!(of(second, second, true), (false, false), "it may take that long");
    assert_eq!(of(2 * second, second / 10, false), (true, false));
    assert_eq!(of(2 * second, second / 10, true), (false, true));
    assert_eq!(of(2 * second, second / 5, false), (false, true));
}
