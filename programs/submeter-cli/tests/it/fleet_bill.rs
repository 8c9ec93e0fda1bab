//! `submeter fleet bill`: each count once, although servers and readers are killed.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use serde_json::Value;
use submeter::checkpoint::CheckpointFile;
use submeter::{Count, Counter, Schema, Tree};
use submeter_http::Dashboard;
use submeter_program::text;

use crate::fleet::Directory;
use crate::support::{MEANT, SUBMETER, Server, request, stat};

fn member(name: &str) -> Server {
    Server::start(&["--member", name])
}

fn delete(server: &Server, path: &str) {
    let (status, why) = request(server.page, &format!("DELETE /api/group?path={path}"), MEANT, "");
    assert_eq!(status, 200, "{why}");
}

fn kill(server: Server) {
    server.signal("KILL");
    let (code, _) = server.end();
    assert_eq!(code, None, "by a signal");
}

/// Runs the command, and returns what it printed.
fn bill(store: &[&str], more: &[&str]) -> String {
    SUBMETER.prints(&[&["fleet", "bill"], store, more].concat())
}

fn invoice(store: &[&str]) -> Value {
    serde_json::from_str(&bill(store, &["--sum", "--json"])).expect("JSON")
}

/// Returns what was billed of one counter, by tenant.
fn billed(invoice: &Value, metric: &str) -> BTreeMap<String, u64> {
    let lines = invoice["lines"].as_array().expect("a list").iter();
    let lines = lines.filter(|line| line["metric"] == metric).map(|line| {
        let path = line["path"].as_str().expect("text").to_owned();
        (path, line["total"].as_u64().expect("no count is negative"))
    });
    lines.collect()
}

fn states(invoice: &Value) -> Vec<&str> {
    let runs = invoice["runs"].as_array().expect("a list").iter();
    runs.map(|run| run["state"].as_str().expect("text")).collect()
}

/// Bills servers that are killed, and compares with what the client counted.
pub(crate) fn each_request_once(store: &[&str]) {
    let mut counted: BTreeMap<String, u64> = BTreeMap::new();
    for run in 0..3 {
        let servers = ["east", "west"].map(member);
        let urls = [servers[0].url(), servers[1].url()];
        let urls: Vec<&str> = urls.iter().map(String::as_str).collect();
        for (at, server) in servers.iter().enumerate() {
            for (tenant, n) in [("acme", 7), ("beta", 5 * run + 1), ("acme:web", at as u64 + 3)] {
                server.store(tenant, n);
                *counted.entry(format!("/{}", tenant.replace(':', "/"))).or_default() += n;
            }
        }
        bill(store, &urls);
        assert_eq!(billed(&invoice(store), "cmd_set"), counted);
        // Deleted and created again, with nothing unread in between.
        if run == 1 {
            delete(&servers[0], "/acme");
            servers[0].store("acme", 2);
            *counted.get_mut("/acme").expect("above") += 2;
        }
        bill(store, &urls);
        bill(store, &urls);
        assert_eq!(billed(&invoice(store), "cmd_set"), counted);
        // Never read before the end.
        servers[1].store("acme", 9);
        servers.into_iter().for_each(kill);
    }
    let invoice = invoice(store);
    assert_eq!(billed(&invoice, "cmd_set"), counted);
    let mut states = states(&invoice);
    states.sort_unstable();
    let (open, unknown) = (["open"; 2], ["unknown"; 4]);
    assert_eq!(states, [&open[..], &unknown].concat());
    let table = bill(store, &["--sum"]);
    for part in ["cmd_set of /acme/web", "east", "west", "unknown", "not read yet", "GMT"] {
        assert!(table.contains(part), "{part}: {table}");
    }
}

/// A file has each request once, whatever servers are killed.
#[test]
fn a_file_bills_once_though_servers_die() {
    let directory = Directory::new("bill");
    each_request_once(&["--file", &directory.0.join("bill").to_string_lossy()]);
}

/// Bills under load by readers that are killed, and compares with what the load generator counted.
pub(crate) fn readers_that_are_killed(store: &[&str], report: &Path) {
    let server = member("east");
    let (url, cache) = (server.url(), server.cache_address().to_string());
    let load = ["load", "--tenants", "3", "--seconds", "600", "--rate", "5000"];
    let report = report.to_string_lossy();
    let more = ["--connect", &cache, "--json", &report];
    let mut load = SUBMETER.start(&[&load[..], &more].concat());
    let mut rng = fastrand::Rng::with_seed(5);
    let mut killed = 0;
    while killed < 12 && !load.has_ended() {
        let reader = SUBMETER.start(&[&["fleet", "bill", &url], store].concat());
        std::thread::sleep(Duration::from_millis(rng.u64(1..60)));
        reader.signal("KILL");
        killed += usize::from(reader.end().0.is_none());
    }
    load.end_by("INT");
    let report = std::fs::read_to_string(&*report).expect("written");
    let report: Value = serde_json::from_str(&report).expect("JSON");
    server.store("acme", 3);
    bill(store, &[&url]);
    let invoice = invoice(store);
    let all = |metric: &str| billed(&invoice, metric).values().sum::<u64>();
    let requests = report["total"]["requests"].as_u64().expect("a number");
    let verbs = ["cmd_get", "cmd_set", "cmd_delete", "cmd_touch", "cmd_arithmetic"];
    assert_eq!(verbs.map(all).iter().sum::<u64>(), requests + 3);
    assert_eq!(all("cmd_get"), stat(&server.cache, "cmd_get"));
    assert_eq!(states(&invoice), ["open"]);
}

/// A file has each request once, whatever readers are killed.
#[test]
fn a_file_bills_once_though_readers_die() {
    let directory = Directory::new("bill-killed");
    let store = directory.0.join("bill");
    readers_that_are_killed(&["--file", &store.to_string_lossy()], &directory.0.join("report"));
}

/// A torn line, wherever it was cut, is left out and repaired.
#[test]
fn a_torn_line_is_left_out_and_repaired() {
    let directory = Directory::new("bill-torn");
    let path = directory.0.join("bill");
    let store = ["--file", &*path.to_string_lossy()];
    let server = member("east");
    let url = server.url();
    let mut lengths = Vec::new();
    for n in [2, 5] {
        server.store("acme", n);
        bill(&store, &[&url]);
        lengths.push(std::fs::metadata(&path).expect("written").len() as usize);
    }
    let whole = std::fs::read(&path).expect("written");
    let sum = || billed(&invoice(&store), "cmd_set").get("/acme").copied().unwrap_or(0);
    assert_eq!((sum(), whole.len()), (7, lengths[1]));
    let mut rng = fastrand::Rng::with_seed(3);
    let cuts = (0..12).map(|_| rng.usize(..whole.len())).chain([0, 1, lengths[0], whole.len() - 1]);
    for cut in cuts {
        std::fs::write(&path, &whole[..cut]).expect("writable");
        if cut > lengths[0] {
            assert_eq!(sum(), 2, "{cut}");
            for more in [&["--sum"][..], &["--sum", "--json"], &[&url]] {
                // The last run repairs it.
                let output = SUBMETER.run(&[&["fleet", "bill"], &store[..], more].concat());
                let said = text(&output.stderr);
                assert_eq!((output.status.code(), said.lines().count()), (Some(0), 1), "{said}");
                assert!(said.starts_with("warning: "), "{said}");
                for part in [store[1], "last entry", "incomplete", "bill all servers again"] {
                    assert!(said.contains(part), "{said} names {part}");
                }
            }
        }
        bill(&store, &[&url]);
        assert_eq!(sum(), 7, "{cut}");
        let output = SUBMETER.run(&[&["fleet", "bill", "--sum"], &store[..]].concat());
        assert_eq!(text(&output.stderr), "", "{cut}");
    }
    // Torn bytes are removed, even if the next line is shorter.
    std::fs::write(&path, [&whole[..], b"{\"member\":\"", &[b'x'; 9000]].concat())
        .expect("writable");
    bill(&store, &[&url]);
    assert!(std::fs::read(&path).expect("readable").ends_with(b"}\n"));
    // A hole in the last line, as left by a system that was cut off from its disk.
    let mut holed = whole.clone();
    holed[lengths[0] + 9..lengths[0] + 90].fill(0);
    std::fs::write(&path, &holed).expect("writable");
    assert_eq!(sum(), 2);
    // Elsewhere a hole is damage.
    holed = whole;
    holed[lengths[0] - 9] = 0;
    std::fs::write(&path, &holed).expect("writable");
    let args = [&["fleet", "bill", "--sum"], &store[..]].concat();
    SUBMETER.refuses(&args, &[store[1], "line 2 is damaged", "from a copy"]);
    SUBMETER.refuses(&[&["fleet", "bill", &url], &store[..]].concat(), &["line 2 is damaged"]);
    assert_eq!(std::fs::read(&path).expect("readable"), holed, "nothing was taken away");
}

#[test]
fn what_cannot_be_billed_is_said_the_rest_billed() {
    let directory = Directory::new("bill-refused");
    let path = directory.0.join("bill").to_string_lossy().into_owned();
    let store = ["--file", &*path];
    let server = member("east");
    server.store("acme", 4);
    let args = ["fleet", "bill", "127.0.0.1:1", &server.url(), "--file", &path];
    let output = SUBMETER.run(&args);
    let err = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{err}");
    assert!(err.contains("1 of 2 servers not read") && err.contains("127.0.0.1:1"), "{err}");
    assert_eq!(billed(&invoice(&store), "cmd_set"), [("/acme".to_owned(), 4)].into());
    SUBMETER.refuses(&["fleet", "bill", "--file", &path], &["URL"]);
    SUBMETER.refuses(&["fleet", "bill", "ftp://h", "--file", &path], &["ftp://h"]);
    let nowhere = format!("{path}/nowhere");
    SUBMETER.refuses(&["fleet", "bill", "--sum", "--file", &nowhere], &[&nowhere, "--file"]);
    // A file of another kind is not mistaken for a torn one.
    std::fs::write(&path, "root:x:0:0").expect("writable");
    let args = ["fleet", "bill", &server.url(), "--file", &path];
    SUBMETER.refuses(&args, &[&path, "not a bill"]);
    assert_eq!(std::fs::read(&path).expect("readable"), b"root:x:0:0");
}

/// A program whose totals outlive it.
fn program() -> (Tree, Counter<Count>) {
    let mut schema = Schema::builder();
    let jobs = schema.counter::<Count>("jobs", "Jobs done");
    (Tree::new(schema.build().expect("distinct names")).expect("a tree"), jobs)
}

/// Runs `act` beside the page of a program.
fn beside(tree: &Tree, act: impl FnOnce(&str)) {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let addr = runtime.block_on(async {
        let port = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let addr = port.local_addr().expect("bound").to_string();
        let shown = Dashboard::new("worker", tree).member("worker-1");
        tokio::spawn(async { submeter_http::serve(port, shown, std::future::pending()).await });
        addr
    });
    act(&addr);
    runtime.shutdown_background();
}

/// Bills a program that restores its totals. Each of its processes counts jobs at three
/// times: before an early reading, after it but before its checkpoint, and after that.
pub(crate) fn each_job_once(store: &[&str], checkpoint: &Path) {
    let mut expected = 0;
    // Read after its checkpoint; read before it; not read; read at the end, and complete.
    for (run, read_at) in [Some(2), Some(0), None, Some(2)].into_iter().enumerate() {
        let (tree, jobs) = program();
        let mut file = CheckpointFile::open(checkpoint).expect("a directory");
        tree.restore(&mut file).expect("whole");
        let acme = tree.get_or_create("/acme").expect("a legal path");
        let mut file = Some(file);
        beside(&tree, |url| {
            let read = |step| {
                if read_at == Some(step) {
                    bill(store, &[url]);
                }
            };
            acme.add(jobs, 100);
            read(0);
            acme.add(jobs, 10);
            tree.checkpoint(file.as_mut().expect("open")).expect("saved");
            acme.add(jobs, 1);
            read(2);
        });
        // What was read, or else what was saved and then exported by the next process.
        expected += if read_at == Some(2) { 111 } else { 110 };
        if run == 3 {
            tree.checkpoint_last(file.take().expect("open")).expect("saved");
        }
    }
    assert_eq!(billed(&invoice(store), "jobs"), [("/acme".to_owned(), expected)].into());
    let (tree, _) = program();
    let mut file = CheckpointFile::open(checkpoint).expect("a directory");
    tree.restore(&mut file).expect("whole").expect("a checkpoint");
    for _ in 0..2 {
        beside(&tree, |url| drop(bill(store, &[url])));
        let invoice = invoice(store);
        assert_eq!(billed(&invoice, "jobs"), [("/acme".to_owned(), expected)].into());
        let mut states = states(&invoice);
        states.sort_unstable();
        assert_eq!(states, ["complete", "open", "unknown", "unknown", "unknown"]);
        assert_eq!(invoice["unread"], serde_json::json!([]));
    }
}

/// A file has each job of a program that restores its totals once.
#[test]
fn restored_totals_are_in_the_file_once() {
    let directory = Directory::new("bill-restored");
    let store = directory.0.join("bill");
    each_job_once(&["--file", &store.to_string_lossy()], &directory.0.join("totals"));
}
