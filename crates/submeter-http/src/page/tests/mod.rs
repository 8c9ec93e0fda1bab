//! The web server on a real socket, over a program whose tenants the test creates.

mod colours;
mod declared;
mod guard;
mod http;
mod mounted;
mod news;
mod panels;
mod replaced;
mod stat;
mod stream;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::thread::JoinHandle;
use std::time::Duration;

use axum::http::StatusCode;
use submeter::{
    Buckets, Bytes, Count, Counter, Group, Histogram, Nanoseconds, Quota, Schema, Tree,
};
use tokio::sync::oneshot;

use super::Dashboard;

/// How long an operation may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// A program with five metrics that is not a cache.
pub(super) struct Program {
    tree: Tree,
    jobs: Counter<Count>,
    waits: Histogram<Nanoseconds>,
    disk: Quota<Bytes>,
}

impl Program {
    pub(super) fn new() -> Program {
        let mut s = Schema::builder();
        let jobs = s.counter("jobs", "Jobs done");
        s.gauge::<Count>("queued", "Jobs that wait");
        s.cpu_time("cpu", "Time on a processor");
        let waits = s.histogram("waits", "Waits", Buckets::LATENCY_NS);
        let disk = s.quota("disk", "Disk held");
        let tree = Tree::new(s.build().expect("distinct names")).expect("a tree");
        Program { tree, jobs, waits, disk }
    }

    /// Shows it, and lets clients delete leaves.
    pub(super) fn shown(&self) -> Dashboard {
        let tree = self.tree.clone();
        let delete = move |path: String| {
            let group = tree.get(&path);
            async move {
                match group.map(|group| group.kill()) {
                    Some(Ok(_)) => (StatusCode::OK, "gone\n"),
                    _ => (StatusCode::NOT_FOUND, "no such leaf\n"),
                }
            }
        };
        Dashboard::new("program", &self.tree).on_delete(delete)
    }
}

/// A server on a free port, stopped when dropped.
struct World {
    program: Program,
    addr: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    serving: Option<JoinHandle<()>>,
}

impl World {
    fn start() -> World {
        World::with(|shown| shown)
    }

    fn with(more: impl FnOnce(Dashboard) -> Dashboard) -> World {
        let program = Program::new();
        let shown = more(program.shown());
        let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
        listener.set_nonblocking(true).expect("a socket");
        let addr = listener.local_addr().expect("bound");
        let (stop, stopped) = oneshot::channel::<()>();
        let serving = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_multi_thread()
                .worker_threads(2)
                .enable_all()
                .build()
                .expect("a runtime");
            runtime.block_on(async move {
                let listener = tokio::net::TcpListener::from_std(listener).expect("a listener");
                let shutdown = async move { drop(stopped.await) };
                crate::serve(listener, shown, shutdown).await.expect("serves");
            });
            // A client that does not read must not block the end of the test.
            runtime.shutdown_timeout(Duration::from_millis(100));
        });
        World { program, addr, stop: Some(stop), serving: Some(serving) }
    }

    fn tree(&self) -> &Tree {
        &self.program.tree
    }

    fn tenant(&self, path: &str) -> Group {
        self.tree().get_or_create(path).expect("a legal path")
    }

    /// Lets a tenant do `n` jobs.
    fn jobs(&self, path: &str, n: u64) -> Group {
        let group = self.tenant(path);
        group.add(self.program.jobs, n);
        group.record(self.program.waits, 1000);
        group
    }

    fn connect(&self) -> Connection {
        let stream = TcpStream::connect(self.addr).expect("the server accepts");
        stream.set_read_timeout(Some(PATIENCE)).expect("a socket");
        stream.set_write_timeout(Some(PATIENCE)).expect("a socket");
        Connection { reader: BufReader::new(stream) }
    }

    /// Returns a connection whose first request was answered, and which therefore keeps its place.
    fn let_in(&self) -> Connection {
        let mut connection = self.connect();
        connection.send("HEAD /api/totals HTTP/1.1\r\nHost: localhost\r\n\r\n");
        assert_eq!(connection.head().status, 200);
        connection
    }

    fn request(&self, method: &str, target: &str) -> Answer {
        self.request_with(method, target, &["Host: localhost"])
    }

    fn request_with(&self, method: &str, target: &str, headers: &[&str]) -> Answer {
        let (mut answer, body) = self.request_bytes(method, target, headers);
        answer.body = String::from_utf8(body).expect("UTF-8");
        answer
    }

    /// Returns the body separately, as it may not be text.
    fn request_bytes(&self, method: &str, target: &str, headers: &[&str]) -> (Answer, Vec<u8>) {
        let mut connection = self.connect();
        let headers = headers.join("\r\n");
        connection
            .send(&format!("{method} {target} HTTP/1.1\r\n{headers}\r\nConnection: close\r\n\r\n"));
        let answer = connection.head();
        let mut body = Vec::new();
        connection.reader.read_to_end(&mut body).expect("a body");
        if answer.header("transfer-encoding") == Some("chunked") {
            panic!("{target} is chunked: only events are");
        }
        (answer, body)
    }

    fn get(&self, target: &str) -> Answer {
        self.request("GET", target)
    }

    fn json(&self, target: &str) -> serde_json::Value {
        let answer = self.get(target);
        assert_eq!(answer.status, 200, "{target}: {}", answer.body);
        serde_json::from_str(&answer.body).expect("JSON")
    }

    /// Stops the server and waits for its end.
    fn stop(&mut self) {
        drop(self.stop.take());
        if let Some(serving) = self.serving.take() {
            serving.join().expect("the server ends well");
        }
    }
}

impl Drop for World {
    fn drop(&mut self) {
        drop(self.stop.take());
    }
}

struct Connection {
    reader: BufReader<TcpStream>,
}

#[derive(Debug)]
struct Answer {
    status: u16,
    headers: Vec<(String, String)>,
    body: String,
}

impl Answer {
    fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }
}

impl Connection {
    fn send(&mut self, text: &str) {
        self.reader.get_mut().write_all(text.as_bytes()).expect("the server reads");
    }

    fn line(&mut self) -> Option<String> {
        let mut line = String::new();
        let n = self.reader.read_line(&mut line).expect("a line within the time");
        (n > 0).then(|| line.trim_end_matches(['\r', '\n']).to_owned())
    }

    fn head(&mut self) -> Answer {
        let status = self.line().expect("a status line");
        let status = status.split(' ').nth(1).and_then(|s| s.parse().ok()).expect("a status");
        let mut headers = Vec::new();
        while let Some(line) = self.line().filter(|line| !line.is_empty()) {
            let (name, value) = line.split_once(':').expect("a header");
            headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
        }
        Answer { status, headers, body: String::new() }
    }
}
