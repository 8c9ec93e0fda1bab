//! Shared by the tests of the command: how to start it, secrets, and a server that lies on request.

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::ops::{Deref, DerefMut};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::Value;
use submeter_program::{Program, Running, TempFile};

pub(crate) const SUBMETER: Program = Program::new(env!("CARGO_BIN_EXE_submeter"));

/// The beginning of a command line that serves on free ports.
pub(crate) const FREE: [&str; 5] = ["serve", "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0"];

/// Waits until the cache of `submeter serve` listens, and returns its address.
pub(crate) fn cache_address(server: &mut Running) -> SocketAddr {
    server.address_after("  cache  ")
}

/// Makes a file that only its owner may read.
pub(crate) fn secret(name: &str, content: &str) -> TempFile {
    let file = TempFile::new(name, content);
    std::fs::set_permissions(&file.0, PermissionsExt::from_mode(0o600)).expect("its owner's");
    file
}

/// Reads one line of a server's answer, and nothing after it.
pub(crate) fn line(mut stream: &TcpStream) -> String {
    let (mut line, mut byte) = (Vec::new(), [0]);
    while byte != *b"\n" {
        stream.read_exact(&mut byte).expect("an answer");
        line.push(byte[0]);
    }
    String::from_utf8_lossy(&line).trim_end().to_owned()
}

/// Returns one figure of `stats`.
pub(crate) fn stat(mut stream: &TcpStream, name: &str) -> u64 {
    stream.write_all(b"stats\r\n").expect("sent");
    let prefix = format!("STAT {name} ");
    let mut found = None;
    loop {
        let line = line(stream);
        if line == "END" {
            return found.unwrap_or_else(|| panic!("no {name} in `stats`"));
        }
        found = found.or_else(|| line.strip_prefix(&prefix)?.parse().ok());
    }
}

/// Sends a request to a page, without a client that could hide an error in it. Returns the status
/// and the body of the answer.
pub(crate) fn request(page: SocketAddr, request: &str, headers: &str, body: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(page).expect("it listens");
    let head = format!("Host: localhost\r\nConnection: close\r\n{headers}");
    let len = body.len();
    write!(stream, "{request} HTTP/1.1\r\n{head}Content-Length: {len}\r\n\r\n{body}")
        .expect("sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    let status = answer.split(' ').nth(1).and_then(|status| status.parse().ok());
    let body = answer.split_once("\r\n\r\n").map(|(_, body)| body.to_owned());
    (status.expect(&answer), body.expect(&answer))
}

/// The header of a request that changes something.
pub(crate) const MEANT: &str = "X-Submeter: 1\r\n";

/// Gets a document of a page.
pub(crate) fn get(page: SocketAddr, target: &str) -> String {
    let (status, body) = request(page, &format!("GET {target}"), "", "");
    assert_eq!(status, 200, "{target}: {body}");
    body
}

/// A server on free ports with a client of its cache; killed when dropped.
pub(crate) struct Server {
    running: Running,
    pub(crate) page: SocketAddr,
    pub(crate) cache: TcpStream,
}

impl Server {
    pub(crate) fn start(flags: &[&str]) -> Server {
        Server::of(SUBMETER.start(&[&FREE[..], flags].concat()))
    }

    /// Waits until a started server listens at both ports.
    pub(crate) fn of(mut running: Running) -> Server {
        let page = running.address_after("http://");
        let cache = TcpStream::connect(cache_address(&mut running)).expect("it listens");
        Server { running, page, cache }
    }

    pub(crate) fn cache_address(&self) -> SocketAddr {
        self.cache.peer_addr().expect("connected")
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.page)
    }

    /// Sends a request to the cache, and returns the first line of the answer.
    pub(crate) fn ask(&self, request: &str) -> String {
        (&self.cache).write_all(request.as_bytes()).expect("sent");
        line(&self.cache)
    }

    /// Stores `n` items of a tenant, and waits for each answer.
    pub(crate) fn store(&self, tenant: &str, n: u64) {
        for at in 0..n {
            assert_eq!(self.ask(&format!("set {tenant}:{at} 0 0 1\r\nv\r\n")), "STORED");
        }
    }

    pub(crate) fn tree(&self) -> Value {
        serde_json::from_str(&get(self.page, "/api/tree")).expect("JSON")
    }

    pub(crate) fn metrics(&self) -> String {
        get(self.page, "/metrics")
    }

    /// Returns what the page shows of a group; `null` if there is none.
    pub(crate) fn group(&self, path: &str) -> Value {
        let tree = self.tree();
        let mut groups = tree["groups"].as_array().expect("groups").iter();
        groups.find(|group| group["path"] == path).cloned().unwrap_or_default()
    }

    pub(crate) fn end(self) -> (Option<i32>, String) {
        self.running.end()
    }

    pub(crate) fn end_by(self, signal: &str) -> String {
        self.running.end_by(signal)
    }
}

impl Deref for Server {
    type Target = Running;

    fn deref(&self) -> &Running {
        &self.running
    }
}

impl DerefMut for Server {
    fn deref_mut(&mut self) -> &mut Running {
        &mut self.running
    }
}

/// How a [`Fake`] server treats its clients.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Lie {
    /// Correctly: it answers as it should.
    None,
    /// Changes the last byte of each value.
    Byte,
    /// Omits the last byte of each value.
    Cut,
    /// Answers a retrieval with the value and flags that another key was stored with.
    OtherValue,
    /// Answers with the key that another tenant would have.
    OtherKey,
    /// Answers with other flags.
    Flags,
    /// Answers with garbage.
    Nonsense,
    /// Closes the connection after some requests.
    Close,
    /// Reads and never answers.
    Silence,
}

/// A server of `get`, `gets` and `set` that remembers what it was sent.
pub(crate) struct Fake {
    pub(crate) addr: SocketAddr,
    log: Arc<Mutex<Vec<u8>>>,
}

impl Fake {
    /// Serves each connection on a thread that ends with it.
    pub(crate) fn start(lie: Lie) -> Fake {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let addr = listener.local_addr().expect("bound");
        let log = Arc::new(Mutex::new(Vec::new()));
        let logged = Arc::clone(&log);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (stream, log) = (stream.expect("accepted"), Arc::clone(&logged));
                // The client may disconnect at any point.
                std::thread::spawn(move || drop(converse(&stream, lie, &log)));
            }
        });
        Fake { addr, log }
    }

    /// Returns the bytes that all clients sent.
    pub(crate) fn log(&self) -> Vec<u8> {
        self.log.lock().expect("not poisoned").clone()
    }
}

fn converse(stream: &TcpStream, lie: Lie, log: &Mutex<Vec<u8>>) -> std::io::Result<()> {
    let mut items: HashMap<String, (String, Vec<u8>)> = HashMap::new();
    let mut last: Option<(String, Vec<u8>)> = None;
    let mut reader = BufReader::new(stream);
    let mut writer = stream;
    for served in 0.. {
        let mut line = String::new();
        if reader.read_line(&mut line)? == 0 {
            return Ok(());
        }
        log.lock().expect("not poisoned").extend_from_slice(line.as_bytes());
        match lie {
            Lie::Close if served == 20 => return Ok(()),
            Lie::Nonsense if served == 20 => {
                writer.write_all(b"HTTP/1.1 400 Bad Request\r\n")?;
                // Without what is left to read, closing would take the answer back.
                return std::io::copy(&mut reader, &mut std::io::sink()).map(drop);
            }
            _ => {}
        }
        let words: Vec<&str> = line.split_whitespace().collect();
        let answer = match words[..] {
            ["get" | "gets", key] => retrieve(key, items.get(key), last.as_ref(), lie),
            ["set", key, flags, _, len] => {
                let mut data = vec![0; len.parse::<usize>().expect("a length") + 2];
                reader.read_exact(&mut data)?;
                log.lock().expect("not poisoned").extend_from_slice(&data);
                data.truncate(data.len() - 2);
                last = Some((flags.to_owned(), data.clone()));
                items.insert(key.to_owned(), (flags.to_owned(), data));
                b"STORED\r\n".to_vec()
            }
            _ => panic!("the fake server does not know {line}"),
        };
        if !matches!(lie, Lie::Silence) {
            writer.write_all(&answer)?;
        }
    }
    Ok(())
}

fn retrieve(
    key: &str,
    item: Option<&(String, Vec<u8>)>,
    last: Option<&(String, Vec<u8>)>,
    lie: Lie,
) -> Vec<u8> {
    let Some((flags, data)) = item else { return b"END\r\n".to_vec() };
    let (mut key, mut flags, mut data) = (key.to_owned(), flags.clone(), data.clone());
    match lie {
        Lie::Byte => *data.last_mut().expect("not empty") ^= 1,
        Lie::Cut => drop(data.pop()),
        Lie::OtherValue => (flags, data) = last.expect("one was stored").clone(),
        Lie::OtherKey => key = key.replacen("tenant", "tenanu", 1),
        Lie::Flags => flags = "1".to_owned(),
        _ => {}
    }
    let head = format!("VALUE {key} {flags} {}\r\n", data.len());
    [head.as_bytes(), &data, b"\r\nEND\r\n"].concat()
}

/// Puts a pipe in place of the file, so that a test knows when the server reads it. Each call makes
/// a new one: a reader of the previous pipe does not get what is written for the next.
pub(crate) fn make_pipe(path: &str) {
    let new = format!("{path}.new");
    let made = Command::new("mkfifo").args(["-m", "600", &new]).status();
    assert!(made.expect("mkfifo runs").success());
    std::fs::rename(new, path).expect("renamed");
}

/// Returns a writer of a pipe once something reads it.
pub(crate) fn once_read(path: &str) -> File {
    let mut open = File::options();
    let open = open.write(true).custom_flags(libc::O_NONBLOCK);
    loop {
        match open.open(path) {
            Ok(writer) => return writer,
            Err(_) => std::thread::sleep(Duration::from_millis(5)),
        }
    }
}
