//! The server as an operator runs it: readiness for systemd, and the log.

use std::net::TcpStream;
use std::os::unix::net::UnixDatagram;
use std::time::Duration;

use submeter_program::text;

use crate::support::{FREE, SUBMETER, cache_address};

/// A socket on which a service manager listens, removed when dropped.
struct Manager(UnixDatagram, std::path::PathBuf);

impl Manager {
    fn new() -> Manager {
        let name = format!("submeter-{}-notify.sock", std::process::id());
        let path = std::env::temp_dir().join(name);
        let _ = std::fs::remove_file(&path);
        let socket = UnixDatagram::bind(&path).expect("a free path");
        socket.set_read_timeout(Some(Duration::from_secs(120))).expect("not zero");
        Manager(socket, path)
    }

    fn told(&self) -> String {
        let mut buffer = [0; 4096];
        let n = self.0.recv(&mut buffer).expect("told in time");
        text(&buffer[..n])
    }
}

impl Drop for Manager {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.1);
    }
}

/// systemd is told when both ports are open, and when the server ends.
#[test]
fn systemd_is_told_of_the_start_and_the_end() {
    let manager = Manager::new();
    let socket = manager.1.to_str().expect("UTF-8");
    let mut server = SUBMETER.start_in(&FREE, &[("NOTIFY_SOCKET", socket)]);
    let told = manager.told();
    assert!(told.lines().any(|line| line == "READY=1"), "{told}");
    // In the order of its lines: neither has to be waited for.
    let page = server.address_after("http://");
    let cache = cache_address(&mut server);
    for (port, name) in [(page, "page"), (cache, "cache")] {
        TcpStream::connect(port).expect("it is open");
        assert!(told.contains(&port.to_string()), "{told} has the {name}");
    }
    server.signal("TERM");
    assert_eq!(manager.told().trim_end(), "STOPPING=1");
    assert_eq!(server.end().0, Some(0));
}

#[test]
fn a_manager_that_is_not_there_is_one_warning() {
    let args = [&FREE[..], &["--seconds", "0.1"]].concat();
    let output = SUBMETER.run_in(&args, &[("NOTIFY_SOCKET", "/nowhere/notify.sock")]);
    assert_eq!(output.status.code(), Some(0));
    let said = text(&output.stderr);
    let [warning] = said.lines().collect::<Vec<_>>()[..] else { panic!("one warning: {said}") };
    assert!(warning.starts_with("warning: ") && warning.contains("NOTIFY_SOCKET"), "{said}");
}

/// The log is as verbose as requested, and JSON where wanted.
#[test]
fn the_log_is_as_long_as_asked_for() {
    let run = |flags: &[&str]| {
        let output = SUBMETER.run(&[&FREE[..], &["--seconds", "0.1"], flags].concat());
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        text(&output.stderr)
    };
    assert_eq!(run(&[]), "", "nothing without a flag, where there is nothing to warn of");
    let log = run(&["-v"]);
    let lines: Vec<&str> = log.lines().collect();
    assert!(lines[0].starts_with("info: serving cache=127.0.0.1:"), "{log}");
    assert!(lines[1].starts_with("info: stopping"), "{log}");

    let log = run(&["-v", "--log", "json"]);
    let objects = log.lines().map(|line| serde_json::from_str(line).expect(line));
    let objects: Vec<serde_json::Value> = objects.collect();
    assert_eq!((&objects[0]["level"], &objects[0]["message"]), (&"INFO".into(), &"serving".into()));
    assert!(objects[0]["timestamp"].is_string() && objects[0]["cache"].is_string(), "{log}");
}

#[test]
fn warnings_and_failures_are_json_too() {
    let wide = ["serve", "--listen", "0.0.0.0:0", "--http", "127.0.0.1:0", "--seconds", "0.1"];
    let warned = text(&SUBMETER.run(&wide).stderr);
    let json = SUBMETER.run(&[&wide[..], &["--log", "json"]].concat());
    let object: serde_json::Value = serde_json::from_str(&text(&json.stderr)).expect("one object");
    let message = object["message"].as_str().expect("a text");
    // Each run has a port of its own.
    let behind_port = |line: &str| line.split_once(" may ").expect(line).1.trim_end().to_owned();
    assert!(warned.starts_with("warning: ") && warned.lines().count() == 1, "{warned}");
    assert_eq!(behind_port(&warned), behind_port(message));
    assert_eq!(object["level"], "WARN");

    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let taken = taken.local_addr().expect("bound").to_string();
    let args = ["serve", "--http", "127.0.0.1:0", "--listen", &taken];
    let failed = SUBMETER.run(&args);
    let json = SUBMETER.run(&[&args[..], &["--log", "json"]].concat());
    assert_eq!((failed.status.code(), json.status.code()), (Some(2), Some(2)));
    let object: serde_json::Value = serde_json::from_str(&text(&json.stderr)).expect("one object");
    assert_eq!(object["level"], "ERROR");
    let message = object["message"].as_str().expect("a text");
    assert_eq!(text(&failed.stderr), format!("error: {message}\n"));
}
