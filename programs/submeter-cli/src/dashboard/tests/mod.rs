//! The web server on a real socket, over a cache whose tenants the test makes itself.

mod delete;
mod guard;
mod http;
mod stat;
mod stream;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::thread::JoinHandle;
use std::time::Duration;

use submeter::Group;
use submeter_cache::{Address, Cache, Config};
use tokio::sync::oneshot;

use super::{Door, Guard};
use crate::commands::serve::shown::shown;
use crate::secrets::Token;

/// How long an operation may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// A server on a free port, stopped when dropped.
struct World {
    cache: Cache,
    deleted: super::Deleted,
    addr: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    serving: Option<JoinHandle<()>>,
}

impl World {
    fn start() -> World {
        World::guarded(&[], None)
    }

    /// Starts a server that answers to these names too and may ask for a token.
    fn guarded(hosts: &[&str], token: Option<Token>) -> World {
        let cache = Cache::new(Config::default()).expect("the default configuration");
        let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
        listener.set_nonblocking(true).expect("a socket");
        let addr = listener.local_addr().expect("bound");
        let (stop, stopped) = oneshot::channel::<()>();
        let (served, deleted) = (cache.clone(), super::Deleted::default());
        let noted = deleted.clone();
        let guard =
            Guard::new("http", addr, hosts.iter().map(|&host| host.to_owned()).collect(), token);
        let serving = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_multi_thread()
                .worker_threads(2)
                .enable_all()
                .build()
                .expect("a runtime");
            runtime.block_on(async move {
                let listener = tokio::net::TcpListener::from_std(listener).expect("a listener");
                let shown = shown(&served, &Address::Tcp(([127, 0, 0, 1], 11211).into()));
                let shutdown = async move { drop(stopped.await) };
                super::serve(Door::new(listener, None), served, shown, noted, guard, shutdown)
                    .await
                    .expect("serves");
            });
            // A client that does not read must not block the end of the test.
            runtime.shutdown_timeout(Duration::from_millis(100));
        });
        World { cache, deleted, addr, stop: Some(stop), serving: Some(serving) }
    }

    fn tenant(&self, path: &str) -> Group {
        self.cache.tree().get_or_create(path).expect("a legal path")
    }

    /// Lets a tenant answer `n` gets, each a hit.
    fn gets(&self, path: &str, n: u64) -> Group {
        let (group, m) = (self.tenant(path), self.cache.metrics());
        group.add(m.cmd_get, n);
        group.add(m.get_hits, n);
        group.record(m.latency, 1000);
        group
    }

    fn connect(&self) -> Connection {
        let stream = TcpStream::connect(self.addr).expect("the server accepts");
        stream.set_read_timeout(Some(PATIENCE)).expect("a socket");
        stream.set_write_timeout(Some(PATIENCE)).expect("a socket");
        Connection { reader: BufReader::new(stream) }
    }

    fn request(&self, method: &str, target: &str) -> Answer {
        self.request_with(method, target, &["Host: localhost"])
    }

    fn request_with(&self, method: &str, target: &str, headers: &[&str]) -> Answer {
        let mut connection = self.connect();
        let headers = headers.join("\r\n");
        connection
            .send(&format!("{method} {target} HTTP/1.1\r\n{headers}\r\nConnection: close\r\n\r\n"));
        let mut answer = connection.head();
        let mut body = Vec::new();
        connection.reader.read_to_end(&mut body).expect("a body");
        if answer.header("transfer-encoding") == Some("chunked") {
            panic!("{target} is chunked: only events are");
        }
        answer.body = String::from_utf8(body).expect("UTF-8");
        answer
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
