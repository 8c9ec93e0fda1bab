//! `submeter serve --checkpoint`: totals outlive the server, and none is counted twice.

use std::path::Path;

use serde_json::Value;
use submeter_program::Running;

use crate::fleet::{Directory, until};
use crate::support::{FREE, SUBMETER, Server};

/// A server, and what it says of its totals.
struct Kept {
    server: Server,
    totals: String,
}

impl Kept {
    fn start(file: &Path, more: &[&str]) -> Kept {
        let file = file.to_str().expect("UTF-8");
        let often = ["--checkpoint", file, "--checkpoint-seconds", "0.05"];
        Kept::of(SUBMETER.start(&[&FREE[..], &often, more].concat()))
    }

    fn of(running: Running) -> Kept {
        let mut server = Server::of(running);
        let totals = server.line_with("  totals ");
        Kept { server, totals }
    }

    fn store(&self, tenant: &str, n: u64) {
        self.server.store(tenant, n);
    }

    fn values(&self, path: &str) -> Value {
        self.server.group(path)["values"].clone()
    }

    fn stores(&self, path: &str) -> u64 {
        self.values(path)["cmd_set"].as_u64().unwrap_or(0)
    }

    /// Returns the line of `/metrics` for a group's stores.
    fn counted(&self, path: &str) -> u64 {
        let metrics = self.server.metrics();
        let named = format!("group=\"{path}\"");
        let of = |line: &&str| line.starts_with("submeter_cache_cmd_set") && line.contains(&named);
        let line = metrics.lines().find(of).unwrap_or_else(|| panic!("{path}: {metrics}"));
        line.split_whitespace().last().and_then(|n| n.parse().ok()).expect(line)
    }

    fn end_by(self, signal: &str) -> (Option<i32>, String) {
        self.server.signal(signal);
        self.server.end()
    }
}

#[test]
fn totals_outlive_the_server_and_count_once() {
    let directory = Directory::new("checkpoint");
    let file = directory.0.join("totals");
    let mut expected = 0;
    for (signal, stored) in [("TERM", 3), ("INT", 4), ("TERM", 5)] {
        let server = Kept::start(&file, &["--tenant-limit", "/acme=1m"]);
        let is_first = expected == 0;
        assert_eq!(server.totals.contains(": new"), is_first, "{}", server.totals);
        assert_eq!(server.totals.contains("groups restored"), !is_first, "{}", server.totals);
        assert!(!server.totals.contains("unknown"), "it ended by itself: {}", server.totals);
        assert_eq!(server.stores("/acme/web"), expected, "restored");
        server.store("acme:web", stored);
        expected += stored;
        until("it is counted", || server.stores("/acme/web") == expected);
        let values = server.values("/acme/web");
        assert_eq!(values["latency"]["count"], expected, "histograms too: {values}");
        assert_eq!(values["items"], stored, "items are those of this run: {values}");
        assert_eq!((server.stores("/acme"), server.stores("/")), (expected, expected));
        // Prometheus has the rest from the server that counted it.
        assert_eq!(server.counted("/acme/web"), stored);
        let (code, said) = server.end_by(signal);
        assert_eq!(code, Some(0), "{said}");
        assert!(said.contains("sums    exact: "), "{said}");
        assert!(said.contains(&format!("saved   totals, in {}", file.display())), "{said}");
    }
}

#[test]
fn names_that_come_and_go_fill_no_later_tree() {
    let directory = Directory::new("checkpoint-names");
    let file = directory.0.join("totals");
    for (run, max) in [(0, "10000"), (1, "4"), (2, "4"), (3, "4")] {
        let limit = format!("/limited{run}=1m");
        let server = Kept::start(&file, &["--tenants-max", max, "--tenant-limit", &limit]);
        let groups = server.server.tree()["groups"].as_array().expect("groups").len();
        assert!(groups <= 9, "{groups} in run {run}: a place and one for strays for each");
        assert_eq!(server.stores("/"), 50 * run, "in those above");
        for n in 0..50 {
            server.store(&format!("run{run}x{n}"), 1);
        }
        assert_eq!(server.values(&format!("/limited{run}"))["memory"]["limit"], 1 << 20);
        assert_eq!(server.end_by("TERM").0, Some(0));
    }
}

/// A repeated load equals what its clients counted each time.
#[test]
fn a_repeated_load_equals_its_clients_counts() {
    let directory = Directory::new("checkpoint-load");
    let file = directory.0.join("totals");
    for _ in 0..2 {
        let args = ["--load", "2", "--seconds", "0.5", "--checkpoint"];
        let args = [&FREE[..], &args, &[file.to_str().expect("UTF-8")]].concat();
        let said = SUBMETER.prints(&args);
        assert!(said.contains("counts of tenants equal their clients'"), "{said}");
    }
}

#[test]
fn a_killed_server_loses_what_it_had_not_saved() {
    let directory = Directory::new("checkpoint-kill");
    let file = directory.0.join("totals");
    let server = Kept::start(&file, &[]);
    server.store("acme", 5);
    let saved = || std::fs::read_to_string(&file).expect("there from the start");
    until("it is saved", || saved().contains("\"cmd_set\":5"));
    server.store("acme", 2);
    assert_eq!(server.end_by("KILL").0, None, "by a signal");
    // On a busy machine the next save may come before the signal.
    let kept = if saved().contains("\"cmd_set\":7") { 7 } else { 5 };

    let variable = [("SUBMETER_CHECKPOINT", file.to_str().expect("UTF-8"))];
    let server = Kept::of(SUBMETER.start_in(&FREE, &variable));
    assert!(server.totals.contains("groups restored; counts of the "), "{}", server.totals);
    assert_eq!(server.stores("/acme"), kept);
    server.store("acme", 1);
    assert_eq!(server.end_by("TERM").0, Some(0));
    // A file of flags may name it too.
    let config = directory.0.join("config");
    std::fs::write(&config, format!("checkpoint = {file:?}\n")).expect("written");
    let config = ["--config", config.to_str().expect("UTF-8")];
    let server = Kept::of(SUBMETER.start(&[&FREE[..], &config].concat()));
    assert_eq!(server.stores("/acme"), kept + 1);
}

#[test]
fn what_cannot_be_used_is_refused_and_stays() {
    let directory = Directory::new("checkpoint-bad");
    let (file, name) = (directory.0.join("totals"), |path: &Path| path.display().to_string());
    let refuses = |file: &Path, named: &[&str]| {
        let path = name(file);
        let args = [&FREE[..], &["--seconds", "5", "--checkpoint", &path]].concat();
        SUBMETER.refuses(&args, &[&[&*path, "(--checkpoint)"], named].concat());
    };
    Kept::start(&file, &[]).end_by("TERM");
    let whole = std::fs::read(&file).expect("saved");
    for damaged in [&whole[..whole.len() / 2], b"", b"not JSON\n", &[&whole[..], b"{}\n"].concat()]
    {
        std::fs::write(&file, damaged).expect("written");
        refuses(&file, &["the file is damaged; move it away to start from zero"]);
        assert_eq!(std::fs::read(&file).expect("there"), damaged, "untouched");
    }
    std::fs::write(&file, &whole).expect("written");
    let server = Kept::start(&file, &[]);
    refuses(&file, &["is in use", "use another file"]);
    // A failure for another reason does not touch it either.
    let taken = server.server.page.to_string();
    drop(server);
    let taken_by = std::net::TcpListener::bind(&taken).expect("free again");
    std::fs::write(&file, &whole).expect("written");
    let args = ["serve", "--listen", "127.0.0.1:0", "--http", &taken, "--checkpoint", &name(&file)];
    SUBMETER.refuses(&args, &[&taken, "in use"]);
    assert_eq!(std::fs::read(&file).expect("there"), whole, "untouched");
    drop(taken_by);

    refuses(
        &directory.0.join("no/such/totals"),
        &["No such file", "use a file in a writable folder"],
    );
    refuses(&directory.0, &["directory"]);
    // No user can create files there, not even root.
    refuses(Path::new("/proc/totals"), &["use a file in a writable folder"]);
    // An existing lock does not show that the rest can be written.
    let blocked = directory.0.join("blocked");
    std::fs::create_dir(directory.0.join("blocked.new")).expect("a directory");
    refuses(&blocked, &["cannot write checkpoint", "use a file in a writable folder"]);
    assert!(!blocked.exists());
}

/// A server continues when it cannot save, and says so once.
#[test]
fn a_server_that_cannot_save_goes_on_and_says_so() {
    let directory = Directory::new("checkpoint-full");
    let file = directory.0.join("totals");
    let server = Kept::start(&file, &[]);
    let before = std::fs::read(&file).expect("there from the start");
    let beside = directory.0.join("totals.new");
    std::fs::create_dir(&beside).expect("a directory");
    server.store("acme", 1);
    let metric = |server: &Kept, name: &str| {
        let metrics = server.server.metrics();
        let line = metrics.lines().find(|line| line.starts_with(name)).map(str::to_owned);
        let value = line.and_then(|line| line.split_whitespace().last()?.parse::<u64>().ok());
        value.unwrap_or_else(|| panic!("no {name}: {metrics}"))
    };
    until("it was tried twice", || metric(&server, "submeter_cache_checkpoint_failed_total") >= 2);
    server.store("acme", 1);
    assert_eq!(std::fs::read(&file).expect("there"), before, "whole");
    let (code, said) = server.end_by("TERM");
    assert_eq!(code, Some(1), "{said}");
    assert_eq!(said.matches("warning: cannot save totals").count(), 1, "{said}");
    assert!(said.contains("saved   NOT: ") && said.contains("sums    exact: "), "{said}");
}
