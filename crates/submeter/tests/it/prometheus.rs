//! A real Prometheus scrapes an export in two jobs, and its counts are compared with those of the
//! tree. Another of its tools reads the text.

#![cfg(not(miri))] // Miri starts no programs.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;
use submeter::export::{Export, Format};
use submeter::{Buckets, Bytes, Count, Schema, Tree};

/// How long to wait for anything before the test fails.
const PATIENCE: Duration = Duration::from_secs(60);

const CONFIG: &str = "\
global: {scrape_interval: 50ms, scrape_timeout: 50ms}
scrape_configs:
- {job_name: one, static_configs: [{targets: ['TARGET']}]}
- {job_name: two, static_configs: [{targets: ['TARGET']}]}
";

/// Returns whether a program is installed; if not, prints how to get it.
fn has(program: &str) -> bool {
    let there = Command::new(program).arg("--version").output().is_ok();
    if !there {
        println!("skipped: no {program}: apt-get install --no-install-recommends prometheus");
    }
    there
}

/// A server that scrapes `target` in two jobs, and ends when this is dropped.
struct Prometheus {
    child: Child,
    addr: SocketAddr,
    directory: PathBuf,
}

impl Prometheus {
    fn start(target: SocketAddr) -> Prometheus {
        let directory = std::env::temp_dir().join(format!("submeter-prometheus-{}", target.port()));
        std::fs::create_dir_all(&directory).expect("a directory");
        let config = directory.join("prometheus.yml");
        std::fs::write(&config, CONFIG.replace("TARGET", &target.to_string())).expect("written");
        let mut child = Command::new("prometheus")
            .arg(format!("--config.file={}", config.display()))
            .arg(format!("--storage.tsdb.path={}", directory.join("data").display()))
            .arg("--web.listen-address=127.0.0.1:0")
            .stderr(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .expect("it starts");
        let mut log = BufReader::new(child.stderr.take().expect("piped")).lines();
        let addr = log.by_ref().map(|line| line.expect("text")).find_map(|line| {
            // Other fields may come in between, depending on the version.
            let addr = line.split_once("\"Listening on\"")?.1.split_once("address=")?.1;
            addr.split_whitespace().next()?.parse().ok()
        });
        // Keep reading, or it would wait for room in the pipe.
        thread::spawn(move || log.for_each(drop));
        let addr = addr.expect("it says where it listens");
        Prometheus { child, addr, directory }
    }

    /// Returns what a query finds, or nothing while it is not ready.
    fn query(&self, query: &str) -> Vec<Value> {
        let target = query.replace('[', "%5B").replace(']', "%5D");
        let answer = get(self.addr, &format!("/api/v1/query?query={target}"));
        let json: Value = serde_json::from_str(&answer).unwrap_or_default();
        json["data"]["result"].as_array().cloned().unwrap_or_default()
    }

    /// Returns, for each job, the increase of a metric over all its samples: like `increase`, but
    /// without extrapolating before the first and after the last.
    fn increases(&self, metric: &str) -> [f64; 2] {
        let mut sums = [0.0; 2];
        for series in self.query(&format!("{metric}[1h]")) {
            let job = usize::from(series["metric"]["job"] == "two");
            let samples = series["values"].as_array().expect("a range").iter();
            let values: Vec<f64> = samples
                .map(|sample| sample[1].as_str().expect("text").parse().expect("a number"))
                .collect();
            let grown = |pair: &[f64]| {
                let [before, after] = [pair[0], pair[1]];
                if after < before { after } else { after - before }
            };
            sums[job] += values.windows(2).map(grown).sum::<f64>();
        }
        sums
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
        drop(std::fs::remove_dir_all(&self.directory));
    }
}

fn get(addr: SocketAddr, target: &str) -> String {
    let mut text = String::new();
    if let Ok(mut stream) = TcpStream::connect(addr) {
        let request = format!("GET {target} HTTP/1.0\r\nHost: {addr}\r\n\r\n");
        drop(stream.write_all(request.as_bytes()));
        drop(stream.read_to_string(&mut text));
    }
    text.split_once("\r\n\r\n").map(|(_, body)| body.to_owned()).unwrap_or_default()
}

/// Answers each request with the tree, until the process ends, and counts the requests.
fn serve(tree: Tree, export: Export) -> (SocketAddr, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let addr = listener.local_addr().expect("bound");
    let scrapes = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&scrapes);
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.expect("a client");
            let mut lines = BufReader::new(stream.try_clone().expect("a handle")).lines();
            let mut accept = String::new();
            for line in lines.by_ref().map_while(Result::ok).take_while(|line| !line.is_empty()) {
                if let Some((name, value)) = line.split_once(": ")
                    && name.eq_ignore_ascii_case("accept")
                {
                    value.clone_into(&mut accept);
                }
            }
            if accept.is_empty() {
                // It gave up before it asked, as on a busy machine.
                continue;
            }
            let format = Format::accepted(&accept);
            assert_eq!(format, Format::OpenMetrics, "Prometheus asks for it: {accept}");
            let mut text = String::new();
            export.write_as(format, &tree, &mut text).expect("a string");
            let kind = format.content_type();
            let head = format!("HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nConnection: close\r\n");
            let answer = format!("{head}Content-Length: {}\r\n\r\n{text}", text.len());
            drop(stream.write_all(answer.as_bytes()));
            // SeqCst: a statistic of a test.
            counted.fetch_add(1, Ordering::SeqCst);
        }
    });
    (addr, scrapes)
}

fn wait(what: &str, mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < PATIENCE, "{what}: not within {PATIENCE:?}");
        thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_real_prometheus_has_what_the_tree_has() {
    if !has("prometheus") {
        return;
    }
    let mut schema = Schema::builder();
    let requests = schema.counter::<Count>("requests", "Requests");
    let sizes = schema.histogram::<Bytes>("sizes", "Sizes", Buckets::powers(4, 20));
    let memory = schema.quota::<Bytes>("memory", "Memory");
    let tree = Tree::new(schema.build().expect("valid")).expect("address space");
    // The two jobs scrape independently, not strictly in turns. Prometheus begins after 5 s.
    let export = Export::new("app").top(4, requests).scrapers(20);
    let (target, scrapes) = serve(tree.clone(), export);
    let server = Prometheus::start(target);
    wait("first scrapes", || server.query("up==1").len() == 2);

    let (mut random, mut counted) = (fastrand::Rng::with_seed(7), 0);
    let begin = scrapes.load(Ordering::SeqCst);
    // SeqCst: a statistic of a test.
    let scraped = || scrapes.load(Ordering::SeqCst) - begin;
    let start = Instant::now();
    while scraped() < 40 {
        let late = start.elapsed() > PATIENCE;
        assert!(!late, "40 scrapes: only {} within {PATIENCE:?}", scraped());
        let path = format!("/tenant{}/{}", random.u8(..4), ["web", "mail"][random.usize(..2)]);
        if random.u8(..30) == 0 {
            tree.get(&path).map(|group| group.kill().expect("a leaf"));
        }
        let group = tree.get_or_create(&path).expect("room");
        group.add(requests, 3);
        group.record(sizes, random.u64(1..100_000));
        group.set_limit(memory, Some(10));
        assert!(group.try_charge(memory, 11).is_err());
        counted += 1;
        thread::sleep(Duration::from_millis(2));
    }
    let expected = [f64::from(3 * counted); 2];
    let end = scrapes.load(Ordering::SeqCst);
    wait("last scrapes", || scrapes.load(Ordering::SeqCst) > end + 8);
    // What was scraped is stored a moment later.
    let start = Instant::now();
    while server.increases("app_requests_total") != expected && start.elapsed() < PATIENCE / 6 {
        thread::sleep(Duration::from_millis(100));
    }
    assert_eq!(server.increases("app_requests_total"), expected);
    assert_eq!(server.increases("app_sizes_bytes_count"), [f64::from(counted); 2]);
    assert_eq!(server.increases("app_memory_refused_total"), [f64::from(counted); 2]);
    let series = server.query("app_requests_total[1h]").len();
    assert!(series > 2 * 4, "groups came and went: {series} series");
}

#[test]
fn promtool_finds_nothing_to_complain_of() {
    if !has("promtool") {
        return;
    }
    let mut schema = Schema::builder();
    let requests = schema.counter::<Count>("requests", "Requests with a \\ and a \"quote\"");
    let sizes = schema.histogram::<Bytes>("sizes", "Sizes", Buckets::powers(4, 20));
    let memory = schema.quota::<Bytes>("memory", "Memory");
    schema.cpu_time("cpu", "CPU time");
    let tree = Tree::new(schema.build().expect("valid")).expect("address space");
    let web = tree.get_or_create("/a \"quoted\" name/web").expect("room");
    web.add(requests, 3);
    web.record(sizes, 3000);
    web.set_limit(memory, Some(1000));
    let held = web.charge_forced(memory, 1001);
    web.charge_blocking(memory, 1, Duration::from_millis(1)).expect_err("it is full");
    drop(held);
    let export = || Export::new("app").build_info(&[("version", "1")]);
    // It reads only the classic format.
    for (form, export) in [
        ("default", export()),
        ("subtrees", export().subtrees()),
        ("top", export().top(1, requests).depth(1)),
        ("created", export().created()),
        ("exact", export().exact()),
        ("exact with subtrees", export().exact().subtrees()),
    ] {
        let mut text = String::new();
        export.write_as(Format::Text, &tree, &mut text).expect("a string");
        assert!(text.contains("\napp_memory_pressure_some_seconds_total{"), "{form}: {text}");
        let said = promtool_says(&text);
        assert!(said.is_empty(), "{form}: {said}in {text}");
    }
}

/// Returns what `promtool check metrics` says about an exposition: nothing if it is correct.
fn promtool_says(text: &str) -> String {
    let mut child = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it starts");
    child.stdin.take().expect("piped").write_all(text.as_bytes()).expect("it reads");
    let output = child.wait_with_output().expect("it ends");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    if output.status.success() { said } else { format!("{}: {said}", output.status) }
}
