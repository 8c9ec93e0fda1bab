//! The bank of a host: who may ask, what is refused, and what a restart keeps.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use submeter_bank::{
    Bank, Budget, Holder, Ledger, MemoryBank, Operate, Outage, Past, Request, SocketBank,
    SocketServer,
};
use tempfile::TempDir;

use crate::conformance::Idle;

/// Long enough that no lease ends while a test runs.
const TTL: Duration = Duration::from_secs(600);

fn memory() -> Budget {
    Budget::new("/acme", "memory").expect("a name")
}

fn request(member: &str, epoch: u64, wants: u64) -> Request {
    let mut holder = Holder::new(member, epoch);
    holder.add(memory(), wants, Outage::Strict);
    holder.request(Duration::ZERO, &mut Idle)
}

struct Host {
    _directory: TempDir,
    path: PathBuf,
    bank: Arc<MemoryBank>,
    server: Option<SocketServer>,
}

fn host(mode: u32) -> Host {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("bank");
    let mut ledger = Ledger::new(TTL, Past::None);
    ledger.set_limit(&memory(), 1000, 0).expect("no floors");
    ledger.set_limit_per_member(&memory(), Some(600));
    let bank = Arc::new(MemoryBank::from(ledger));
    let server = SocketServer::start(&path, mode, Arc::clone(&bank)).expect("a new path");
    Host { _directory: directory, path, bank, server: Some(server) }
}

impl Host {
    fn amount(&self, request: &Request) -> u64 {
        let answer = SocketBank::new(&self.path).exchange(request).expect("an answer");
        answer.leases[0].amount
    }

    /// Sends bytes, and returns the line that comes back, which is empty if none does.
    fn send(&self, bytes: &[u8]) -> String {
        let mut stream = UnixStream::connect(&self.path).expect("served");
        stream.set_read_timeout(Some(Duration::from_secs(60))).expect("a time");
        // The server may disconnect in the middle of what it does not read.
        let _ = stream.write_all(bytes);
        let _ = stream.shutdown(std::net::Shutdown::Write);
        let mut line = String::new();
        let read = BufReader::new(stream).read_line(&mut line);
        let waited = read.is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock);
        assert!(!waited, "neither an answer nor an end");
        line
    }
}

#[test]
fn a_socket_exchanges_as_the_ledger_does() {
    let host = host(0o600);
    let bank = SocketBank::new(&host.path);
    for (sequence, wants, lent) in [(1, 400, 400), (2, 500, 500), (3, u64::MAX, 600)] {
        let mut request = request("web", 7, wants);
        request.sequence = sequence;
        request.wants[0].has = 400;
        let answer = bank.exchange(&request).expect("an answer");
        assert_eq!((answer.sequence, answer.ttl, answer.learns), (sequence, TTL, false));
        assert_eq!((&answer.leases[0].budget, answer.leases[0].amount), (&memory(), lent));
    }
    assert_eq!(host.bank.lent(&memory())[0].amount, 600);
    let error = bank.exchange(&request("web", 7, 1)).expect_err("an old request");
    assert!(error.is_refused());
    assert!(error.to_string().ends_with("arrived after request 3: send a new one"), "{error}");
    // The connection is still usable.
    assert_eq!(bank.exchange(&request("other", 8, 1)).expect("an answer").leases[0].amount, 1);
}

/// A line that is not a request is refused, and leaves nothing behind.
#[test]
fn what_is_no_request_leaves_nothing() {
    let host = host(0o600);
    let line = |member: &str, path: &str| {
        format!(
            "{{\"exchange\":{{\"member\":\"{member}\",\"epoch\":1,\"sequence\":1,\"wants\":[{{\"path\":\"{path}\",\
             \"resource\":\"memory\",\"has\":0,\"wants\":5}}]}}}}\n"
        )
    };
    for (line, why) in [
        (line("web", "acme"), "write it as /acme/web"),
        (line("web", "/a\\u0001"), "remove the control characters"),
        (line("", "/acme"), "must be 1 to 1024 bytes long"),
        (line("w\\u001b[2J", "/acme"), "remove the control characters"),
    ] {
        let reply = host.send(line.as_bytes());
        assert!(reply.starts_with("{\"refused\":") && reply.contains(why), "{line}: {reply}");
    }
    let deep = "[".repeat(1 << 20) + "\n";
    let mut long = vec![b' '; 17 << 20];
    long.extend(line("web", "/acme").bytes());
    let nothing = b"\n".as_slice();
    let cut_off = &line("web", "/acme").into_bytes()[..40];
    let huge = "{\"exchange\":{\"member\":\"web\",\"epoch\":-1,\"sequence\":1e99,\"wants\":[]}}\n";
    let binary = b"\xff\xfe\0\n".as_slice();
    for bytes in [deep.as_bytes(), &long, nothing, cut_off, huge.as_bytes(), binary, b""] {
        assert_eq!(
            host.send(bytes),
            "",
            "{:?}",
            String::from_utf8_lossy(&bytes[..bytes.len().min(60)])
        );
    }
    assert!(host.bank.lent(&memory()).is_empty());
    assert_eq!(host.amount(&request("web", 1, 5)), 5, "others are served as before");
}

/// A socket has the mode that it was given, and no other file is left.
#[test]
fn a_socket_has_its_mode_and_leaves_no_file() {
    let mut host = host(0o600);
    let mode = fs::metadata(&host.path).expect("a socket").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    host.server = None;
    let mut left = fs::read_dir(host.path.parent().expect("a directory")).expect("readable");
    assert_eq!(left.next().expect("a lock").expect("readable").file_name(), "bank.lock");
    assert!(left.next().is_none());
}

/// An operator sets limits over the socket, and sees who holds what.
#[test]
fn an_operator_sets_limits_and_sees_holders() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("bank");
    let bank = Arc::new(MemoryBank::from(Ledger::new(TTL, Past::None)));
    let _server = SocketServer::start(&path, 0o600, bank).expect("a new path");
    crate::operate::check(&SocketBank::new(&path));
}

/// A user who does not serve the bank sets and lists nothing.
///
/// The test's process asks as another user, which requires root.
#[test]
fn who_does_not_serve_the_bank_sets_nothing() {
    let host = host(0o666);
    fs::set_permissions(host.path.parent().expect("a directory"), PermissionsExt::from_mode(0o755))
        .expect("its owner");
    let ask = |line: &str| {
        let script = "import socket,sys\ns=socket.socket(socket.AF_UNIX)\ns.connect(sys.argv[1])\n\
                      s.sendall(sys.argv[2].encode()+b'\\n')\nprint(s.makefile().readline())";
        let mut other = Command::new("setpriv");
        // The system's Python: one that a user installed may be out of the other user's reach.
        other.args(["--reuid=65534", "--clear-groups", "/usr/bin/python3", "-c", script]);
        other.arg(&host.path).arg(line).output()
    };
    let set = "{\"set\":{\"path\":\"/acme\",\"resource\":\"memory\",\"most\":9,\"floors\":0,\
               \"per_member\":null}}";
    let holders = "{\"holders\":{\"path\":\"/acme\",\"resource\":\"memory\"}}";
    for line in [set, "\"limits\"", holders] {
        let Ok(output) = ask(line) else {
            println!("skipped: users, by setpriv of util-linux");
            return;
        };
        if !output.status.success() {
            println!("skipped: another user, which takes root and python3");
            return;
        }
        let reply = String::from_utf8(output.stdout).expect("text");
        assert!(reply.contains("ask as the user who serves the bank"), "{line}: {reply}");
    }
    assert_eq!(host.bank.limits().expect("it cannot fail")[0].most, 1000);
}

/// If other users may ask, a member's name is its user.
#[test]
fn where_others_may_ask_names_are_users() {
    if !cfg!(target_os = "linux") {
        println!("skipped: names by user, which Linux knows");
        return;
    }
    let host = host(0o666);
    assert_eq!(host.amount(&request("web", 1, 400)), 400);
    // A member that gives another name has the same cap of 600.
    assert_eq!(host.amount(&request("other", 2, 400)), 200);
    let lent = host.bank.lent(&memory());
    assert!(lent[0].member.starts_with("user "), "{lent:?}");
    assert_eq!(lent[0].member, lent[1].member);
}

#[test]
fn a_second_server_only_replaces_a_killed_one() {
    let mut host = host(0o600);
    let error = SocketServer::start(&host.path, 0o600, Arc::clone(&host.bank)).expect_err("taken");
    assert!(error.to_string().contains("another server uses it"), "{error}");
    assert_eq!(host.amount(&request("web", 1, 5)), 5);
    // What a kill leaves behind: the socket, and a directory that was being filled.
    let socket = host.path.with_extension("kept");
    fs::hard_link(&host.path, &socket).expect("a second name");
    let client = SocketBank::new(&host.path);
    client.exchange(&request("client", 4, 1)).expect("served");
    host.server = None;
    client.exchange(&request("client", 4, 1)).expect_err("not served");
    fs::rename(&socket, &host.path).expect("put back");
    fs::create_dir(host.path.with_extension("new")).expect("a directory");
    host.server = Some(
        SocketServer::start(&host.path, 0o600, Arc::clone(&host.bank)).expect("nobody has it"),
    );
    client.exchange(&request("client", 4, 1)).expect("connects again");
}

/// A server that ends waits for none that has taken its place, and leaves the other's socket alone.
///
/// Such a server can start once the lock has been removed.
#[test]
fn an_end_leaves_anothers_socket_alone() {
    let mut host = host(0o600);
    let first = host.server.take();
    fs::remove_file(host.path.with_extension("lock")).expect("a file");
    host.server =
        Some(SocketServer::start(&host.path, 0o600, Arc::clone(&host.bank)).expect("free"));
    let (says, ended) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        drop(first);
        says.send(()).expect("somebody waits");
    });
    ended.recv_timeout(Duration::from_secs(60)).expect("it ends");
    assert_eq!(host.amount(&request("web", 1, 5)), 5);
}

#[test]
fn a_file_that_is_no_socket_is_left_alone() {
    let host = host(0o600);
    let path = host.path.with_extension("txt");
    fs::write(&path, "mine").expect("written");
    let error = SocketServer::start(&path, 0o600, Arc::clone(&host.bank)).expect_err("a file");
    assert!(error.to_string().contains("remove it, or use another path"), "{error}");
    assert_eq!(fs::read(&path).expect("still there"), b"mine");
}

/// Returns as many connections as there are places, unless the system has too few descriptors.
fn all_places(host: &Host) -> Option<Vec<UnixStream>> {
    let kept: Vec<_> = (0..1_024).map_while(|_| UnixStream::connect(&host.path).ok()).collect();
    if kept.len() < 1_024 {
        println!("skipped: 1,024 connections: ulimit -n 4096");
        return None;
    }
    Some(kept)
}

#[test]
fn processes_that_ask_nothing_keep_nobody_out() {
    let host = host(0o600);
    let Some(_kept) = all_places(&host) else { return };
    let members = ["web", "mail", "api"].map(|member| (member, SocketBank::new(&host.path)));
    for epoch in 1..3 {
        for (member, bank) in &members {
            bank.exchange(&request(member, epoch, 5))
                .expect("the place of a silent one, and stays");
        }
    }
}

#[test]
fn a_thousand_are_served_and_the_next_is_told() {
    let host = host(0o600);
    let Some(mut kept) = all_places(&host) else { return };
    for asks in &mut kept {
        asks.write_all(b"\"limits\"\n").expect("sent");
        asks.read_exact(&mut [0; 9]).expect("an answer");
    }
    let error = SocketBank::new(&host.path).exchange(&request("web", 1, 5)).expect_err("full");
    // Its end of the connection may be closed before it has asked.
    assert!(!error.is_refused() || error.to_string().contains("1024 processes"), "{error}");
    drop(kept);
    let bank = SocketBank::new(&host.path);
    let served = (0..1_000).any(|_| {
        std::thread::sleep(Duration::from_millis(10));
        bank.exchange(&request("web", 1, 5)).is_ok()
    });
    assert!(served, "there is room again");
}
