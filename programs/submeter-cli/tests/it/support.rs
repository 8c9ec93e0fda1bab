//! What the tests of the command share: running it, and a server that lies on request.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Longer than anything takes on a loaded machine; a test that reaches it has failed.
const PATIENCE: Duration = Duration::from_secs(120);

/// Runs the command to its end.
pub(crate) fn submeter(args: &[&str]) -> Output {
    submeter_in(args, &[])
}

/// Runs the command to its end, with these variables in its environment.
pub(crate) fn submeter_in(args: &[&str], variables: &[(&str, &str)]) -> Output {
    assert_cmd::Command::new(env!("CARGO_BIN_EXE_submeter"))
        .args(args)
        .envs(variables.iter().copied())
        .timeout(PATIENCE)
        .output()
        .expect("the command runs")
}

/// Asserts that the command refuses its input: exit code 2, nothing on standard output, and one
/// line on standard error that contains every part.
pub(crate) fn refused(args: &[&str], parts: &[&str]) {
    let output = submeter(args);
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(2), "{args:?}: {out}{err}");
    assert_eq!(out, "", "{args:?}");
    assert_eq!(err.lines().count(), 1, "{args:?}: {err}");
    assert!(err.starts_with("error: "), "{args:?}: {err}");
    for part in parts {
        assert!(err.contains(part), "{args:?}: {err} names {part}");
    }
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("UTF-8")
}

/// A command that runs while the test does something; killed when dropped.
pub(crate) struct Running {
    child: Child,
    stdout: BufReader<ChildStdout>,
    seen: String,
}

impl Running {
    /// Starts the command.
    pub(crate) fn start(args: &[&str]) -> Running {
        let mut command = Command::new(env!("CARGO_BIN_EXE_submeter"));
        command.args(args);
        Running::spawn(command)
    }

    /// Starts the command with a soft limit of `n` open files.
    pub(crate) fn start_with_files(n: u32, args: &[&str]) -> Running {
        let mut command = Command::new("sh");
        let script = format!("ulimit -S -n {n} && exec \"$0\" \"$@\"");
        command.args(["-c", &script, env!("CARGO_BIN_EXE_submeter")]).args(args);
        Running::spawn(command)
    }

    fn spawn(mut command: Command) -> Running {
        let mut child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the command starts");
        let stdout = BufReader::new(child.stdout.take().expect("piped"));
        Running { child, stdout, seen: String::new() }
    }

    /// Reads lines until one contains `part`, and returns that line.
    pub(crate) fn line_with(&mut self, part: &str) -> String {
        loop {
            let mut line = String::new();
            let n = self.stdout.read_line(&mut line).expect("readable");
            self.seen.push_str(&line);
            assert!(n > 0, "ended without {part}: {}", self.seen);
            if line.contains(part) {
                return line;
            }
        }
    }

    /// Waits until the cache listens, and returns its address.
    pub(crate) fn cache(&mut self) -> SocketAddr {
        let line = self.line_with("  cache  ");
        let addr = line.split_whitespace().nth(1).expect("an address");
        addr.trim_end_matches(',').parse().expect("an address")
    }

    /// Returns the process' number.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Sends a signal by name.
    pub(crate) fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        let sent = Command::new("kill").args([&format!("-{name}"), &pid]).status();
        assert!(sent.expect("kill runs").success());
    }

    /// Returns whether it has ended.
    pub(crate) fn has_ended(&mut self) -> bool {
        self.child.try_wait().expect("a child").is_some()
    }

    /// Waits for the end; returns the exit code and everything printed.
    pub(crate) fn end(mut self) -> (Option<i32>, String) {
        let since = Instant::now();
        self.stdout.read_to_string(&mut self.seen).expect("readable");
        loop {
            if let Some(status) = self.child.try_wait().expect("a child") {
                let mut err = String::new();
                let mut stderr = self.child.stderr.take().expect("piped");
                stderr.read_to_string(&mut err).expect("readable");
                return (status.code(), std::mem::take(&mut self.seen) + &err);
            }
            assert!(since.elapsed() < PATIENCE, "it does not end: {}", self.seen);
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// How a [`Fake`] server treats its clients.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Lie {
    /// Not at all: it answers as it should.
    None,
    /// Changes the last byte of each value.
    Byte,
    /// Leaves the last byte of each value out.
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
                continue;
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

/// A file that is removed with its test.
pub(crate) struct TempFile(pub(crate) std::path::PathBuf);

impl TempFile {
    /// Writes a file whose name is the test's own.
    pub(crate) fn new(name: &str, content: &str) -> TempFile {
        let name = format!("submeter-{}-{name}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::write(&path, content).expect("writable");
        TempFile(path)
    }

    pub(crate) fn path(&self) -> &str {
        self.0.to_str().expect("UTF-8")
    }
}

impl Drop for TempFile {
    fn drop(&mut self) {
        // A test may have removed it.
        let _ = std::fs::remove_file(&self.0);
    }
}
