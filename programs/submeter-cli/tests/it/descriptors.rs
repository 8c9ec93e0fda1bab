//! A server that the system allows too few open files.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Resource, Rlimit, prlimit};

use crate::support::{FREE, SUBMETER, cache_address, get, line, stat};

/// Longer than any step takes on a loaded machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// How long the page bears a client that says nothing.
const SILENT_MAX: Duration = Duration::from_secs(30);

/// More clients than the server may have files.
fn crowd(addr: SocketAddr) -> Vec<TcpStream> {
    (0..150).map(|_| TcpStream::connect(addr).expect("the system takes it")).collect()
}

/// Returns whether a new client is served. One that is refused may find its connection reset.
fn is_served(addr: SocketAddr) -> bool {
    let mut late = TcpStream::connect(addr).expect("it listens");
    late.set_read_timeout(Some(PATIENCE)).expect("a socket");
    let mut answer = [0; 4];
    late.write_all(b"mn\r\n").is_ok()
        && late.read_exact(&mut answer).is_ok()
        && &answer == b"MN\r\n"
}

/// Returns how often the server has stopped accepting connections.
fn stops(client: &TcpStream) -> u64 {
    stat(client, "listen_disabled_num")
}

/// Returns the one warning in a server's output.
fn warning(out: &str) -> &str {
    let warnings: Vec<_> = out.lines().filter(|line| line.starts_with("warning: ")).collect();
    let [warning] = warnings[..] else { panic!("one warning: {out}") };
    warning
}

/// A server that is suddenly out of descriptors serves its clients, says so once, and recovers.
#[test]
fn a_lack_of_descriptors_is_survived() {
    let mut server = SUBMETER.start(&[&FREE[..], &["--threads", "2"]].concat());
    let addr = cache_address(&mut server);
    let mut early = TcpStream::connect(addr).expect("it listens");
    assert_eq!(stops(&early), 0);
    let few = Rlimit { current: Some(96), maximum: Some(96) };
    let pid = i32::try_from(server.id()).ok().and_then(Pid::from_raw);
    prlimit(pid, Resource::Nofile, few).expect("lowered");
    for round in 1..=2 {
        let before = stops(&early);
        let crowd = crowd(addr);
        let began = Instant::now();
        while stops(&early) == before {
            assert!(began.elapsed() < PATIENCE, "round {round}: it has accepted all");
            std::thread::sleep(Duration::from_millis(5));
        }
        early.write_all(b"set k 0 0 1\r\nx\r\n").expect("sent");
        assert_eq!(line(&early), "STORED", "who is connected is served");
        drop(crowd);
        assert!(is_served(addr), "round {round}: it accepts again");
    }
    let out = server.end_by("TERM");
    for part in ["Too many open files", "ulimit -n", "--connections"] {
        assert!(warning(&out).contains(part), "{out} names {part}");
    }
}

/// Neither the clients of the cache nor those of the page take the files of the others.
#[test]
fn few_descriptors_are_shared_out() {
    let mut server = SUBMETER
        .start_with_files_at_most(96, &[&FREE[..], &["--threads", "2", "-c", "1024"]].concat());
    let page = server.address_after("http://");
    let addr = cache_address(&mut server);
    let mut early = TcpStream::connect(addr).expect("it listens");
    let most = stat(&early, "max_connections");
    let mut clients = crowd(addr);
    let mut refusal = String::new();
    // One place is that of `early`.
    let last = clients.last_mut().expect("many");
    last.set_read_timeout(Some(PATIENCE)).expect("a socket");
    last.read_to_string(&mut refusal).expect("refused");
    assert_eq!(refusal, "ERROR Too many open connections\r\n");
    let _readers = crowd(page);
    let began = Instant::now();
    assert_eq!(get(page, "/healthz"), "ok\n", "for all the clients at both ports");
    assert!(began.elapsed() < SILENT_MAX, "it waited until silent readers were given up");
    clients.clear();
    // The server sees only after a while that they have left.
    while !is_served(addr) {
        assert!(began.elapsed() < PATIENCE, "the page's clients took the places");
        std::thread::sleep(Duration::from_millis(5));
    }
    early.write_all(b"mn\r\n").expect("sent");
    assert_eq!((line(&early), stops(&early)), ("MN".to_owned(), 0));
    let out = server.end_by("TERM");
    let starts = format!("warning: the system allows 96 open files: at most {most} connections");
    assert!(out.contains(&starts) && out.contains("instead of 1024"), "{out}");
}

/// With hardly any, it says so in one line.
#[test]
fn hardly_any_descriptors_are_refused() {
    for n in ["10", "16", "24", "40"] {
        let script = format!("ulimit -n {n} && exec \"$0\" \"$@\"");
        let mut command = Command::new("sh");
        command.args(["-c", &script, env!("CARGO_BIN_EXE_submeter")]).args(FREE);
        let output = command.args(["--threads", "2"]).output().expect("it runs");
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{n}: {said}");
        assert!(said.lines().count() == 1 && said.contains("ulimit -n"), "{n}: {said}");
    }
}
