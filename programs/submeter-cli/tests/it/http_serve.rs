//! The addresses of a real `submeter serve`, while real clients use its cache.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::Value;

use crate::support::{MEANT, Server, get, request};

/// The tree immediately shows everything that clients did, and it adds up.
#[test]
fn what_clients_did_is_in_the_tree_at_once() {
    let server = Server::start(&[]);
    ["acme:web", "acme:api"].iter().for_each(|tenant| server.store(tenant, 1));
    for request in ["get acme:web:none\r\n", "get acme:web:none\r\n", "delete k\r\n"] {
        server.ask(request);
    }
    for (path, sets, gets, deletes) in
        [("/acme/web", 1, 2, 0), ("/acme/api", 1, 0, 0), ("/acme", 2, 2, 0), ("/", 2, 2, 1)]
    {
        let values = &server.group(path)["values"];
        assert_eq!(values["cmd_set"], sets, "{path}");
        assert_eq!(values["cmd_get"], gets, "{path}");
        assert_eq!(values["cmd_delete"], deletes, "{path}");
    }
    let held = |path: &str| server.group(path)["values"]["memory"]["current"].as_u64();
    assert!(held("/acme/web") > Some(0));
    assert_eq!(held("/acme/web").zip(held("/acme/api")).map(|(a, b)| a + b), held("/acme"));
    assert_eq!(server.tree()["server"]["listen"], server.cache_address().to_string());
}

/// If few places are left at the page, there is a warning, a metric, and a line on the page.
#[test]
fn few_places_at_the_page_are_told_of() {
    let server = Server::start(&[]);
    let page = server.url();
    let open = |n: usize| -> Vec<TcpStream> {
        (0..n)
            .map(|_| {
                let mut client = TcpStream::connect(server.page).expect("it listens");
                write!(client, "GET /api/totals HTTP/1.1\r\nHost: localhost\r\n\r\n")
                    .expect("sent");
                client.read_exact(&mut [0; 12]).expect("an answer");
                client
            })
            .collect()
    };
    let state = |state: &str| {
        let series = "submeter_cache_ports_state{port=\"page\",submeter_cache_ports_state";
        format!("{series}=\"{state}\"}} 1\n")
    };
    let scrape = || server.metrics();
    assert!(scrape().contains(&state("free")));
    let held = open(230);
    assert!(scrape().contains(&state("few")), "{}", scrape());
    let tree = server.tree();
    let panels = tree["panels"].as_array().expect("a list");
    let rows = &panels.iter().find(|panel| panel["key"] == "ports").expect("there")["rows"];
    assert_eq!((&rows[0][1], &rows[1][1]), (&"free".into(), &"few".into()), "{rows}");
    let more = open(26);
    let refused = ureq::get(format!("{page}/api/totals")).call().expect_err("all are taken");
    assert!(refused.to_string().contains("503"), "{refused}");
    drop((held, more));
    let told = loop {
        match ureq::get(format!("{page}/metrics")).call() {
            Ok(mut scrape) => break scrape.body_mut().read_to_string().expect("a body"),
            Err(_) => std::thread::sleep(Duration::from_millis(10)),
        }
    };
    assert!(told.contains(&state("refused")), "{told}");
    let out = server.end_by("INT");
    let warned = out.matches("connections to the page are open: others may be turned away").count();
    assert_eq!(warned, 2, "{out}");
}

/// If few places are left at the cache, there is a warning, which names the largest holder.
#[test]
fn few_places_at_the_cache_are_told_of() {
    let server = Server::start(&["--connections", "16"]);
    let state = |state: &str| {
        let series = "submeter_cache_ports_state{port=\"cache\",submeter_cache_ports_state";
        server.metrics().contains(&format!("{series}=\"{state}\"}} 1\n"))
    };
    let open = |n: usize| -> Vec<TcpStream> {
        let client = |_| {
            let mut client = TcpStream::connect(server.cache_address()).expect("it listens");
            client.write_all(b"mn\r\n").expect("sent");
            client.read_exact(&mut [0; 4]).expect("an answer");
            client
        };
        (0..n).map(client).collect()
    };
    let mut held = open(13); // beside the server's own client
    assert!(state("free"));
    held.extend(open(1));
    assert!((0..3).all(|_| state("few")), "and it stays so");
    let out = server.end_by("INT");
    let line = "15 of at most 16 connections are open, 15 of them from tcp:127.0.0.1: others may \
                be turned away. Allow more (--connections)";
    assert_eq!(out.matches(line).count(), 1, "{out}");
}

/// Slow senders cause a warning, and a line on the page while they hold most buffers.
#[test]
fn little_room_for_buffers_is_told_of() {
    let server = Server::start(&["--buffers", "4m"]);
    let notice = || server.tree()["server"]["notice"].as_str().unwrap_or_default().to_owned();
    assert_eq!(notice(), "");
    let slow = [(); 4].map(|()| {
        let mut slow = TcpStream::connect(server.cache_address()).expect("it listens");
        slow.write_all(b"set a:k 0 0 1000000\r\n").expect("sent");
        slow.write_all(&[b'x'; 980_000]).expect("read");
        slow
    });
    let told = loop {
        match notice() {
            none if none.is_empty() => std::thread::sleep(Duration::from_millis(10)),
            told => break told,
        }
    };
    assert!(told.starts_with("Clients that are slow") && told.contains("of 4.00 MiB"), "{told}");
    assert!(told.ends_with(" MiB of it tcp:127.0.0.1."), "{told}");
    drop(slow);
    while !notice().is_empty() {
        std::thread::sleep(Duration::from_millis(10));
    }
    let out = server.end_by("INT");
    assert_eq!(out.matches("warning: clients that are slow").count(), 1, "{out}");
    assert!(out.contains(" of it tcp:127.0.0.1: others may wait"), "{out}");
}

#[test]
fn a_large_trees_text_takes_little_more_memory() {
    let server = Server::start(&[]);
    let stores: String = (0..3000).map(|n| format!("set t{n}:k 0 0 1 noreply\r\nv\r\n")).collect();
    assert_eq!(server.ask(&format!("{stores}mn\r\n")), "MN");
    // Until the page has its copies of them.
    while request(server.page, "GET /api/group?path=/t2999", "", "").0 != 200 {
        std::thread::sleep(Duration::from_millis(50));
    }
    let kib = |field: &str| -> usize {
        let status = std::fs::read_to_string(format!("/proc/{}/status", server.id()));
        let status = status.expect("it runs");
        let line = status.lines().find_map(|line| line.strip_prefix(field)).expect("a field");
        line.split_whitespace().next().and_then(|n| n.parse().ok()).expect("a number")
    };
    let before = kib("VmRSS:");
    let length = get(server.page, "/api/tree").len() / 1024;
    let grown = kib("VmHWM:") - before;
    assert!(grown < 8 * length, "{grown} KiB for {length} KiB of text");
}

#[test]
fn a_scrape_is_valid_for_prometheus_own_parser() {
    let server = Server::start(&["--load", "2"]);
    let scrape = ureq::get(format!("{}/metrics", server.url()));
    let mut answer = scrape.header("accept", "application/openmetrics-text").call().expect("text");
    let kind = answer.headers()["content-type"].to_str().expect("text");
    assert_eq!(kind, "application/openmetrics-text; version=1.0.0; charset=utf-8");
    let text = answer.body_mut().read_to_string().expect("a body");
    assert!(text.contains("submeter_cache_cpu_seconds_total{group=\"/\"} "), "{text}");
    assert!(text.ends_with("# EOF\n"));
    let python = std::env::var("PYTHON").unwrap_or_else(|_| "python3".to_owned());
    let probe = Command::new(&python).args(["-c", "import prometheus_client"]).output();
    if !probe.is_ok_and(|probe| probe.status.success()) {
        eprintln!("skipped: {python} has no prometheus_client (pip install prometheus_client)");
        return;
    }
    let script = "import sys; from prometheus_client.openmetrics.parser import \
                  text_string_to_metric_families as parse; \
                  print(sum(len(f.samples) for f in parse(sys.stdin.read())))";
    let mut child = Command::new(&python)
        .args(["-c", script])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("python starts");
    let mut stdin = child.stdin.take().expect("piped");
    stdin.write_all(text.as_bytes()).expect("python reads");
    drop(stdin);
    let output = child.wait_with_output().expect("python ends");
    assert!(output.status.success());
    let samples = text.lines().filter(|line| !line.starts_with('#')).count();
    assert_eq!(submeter_program::text(&output.stdout).trim(), samples.to_string());
}

#[test]
fn tenants_deleted_under_load_leave_exact_sums() {
    let mut server = Server::start(&["--load", "3"]);
    let page = server.page;
    server.line_with("  ends   ");
    let delete =
        |path: &str| match request(page, &format!("DELETE /api/group?path={path}"), MEANT, "") {
            (200, text) => Some(serde_json::from_str::<Value>(&text).expect("JSON")),
            (404, _) => None,
            (status, error) => panic!("{path}: {status} {error}"),
        };
    // Counts only deletions of a tenant in which the load had stored something again.
    let (mut times, mut deletions) = (0, 0);
    for _ in 0..2000 {
        let deletion = delete("/load/tenant1");
        deletions += u32::from(deletion.is_some());
        times += u32::from(deletion.is_some_and(|deletion| deletion["items"].as_u64() > Some(0)));
        if times == 5 {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    assert_eq!(times, 5);
    server.store("acme:web", 1);
    let deletion = delete("/acme").expect("it was just made");
    assert_eq!((deletion["groups"].as_u64(), deletion["items"].as_u64()), (Some(2), Some(1)));
    let out = server.end_by("INT");
    let left = format!("(plus {} deleted)", deletions + 1);
    assert!(out.contains("sums    exact: ") && out.contains(&left), "{out}");
    // The two tenants that were not deleted are compared one by one, and all three together.
    assert!(out.contains("30 counts of tenants equal their clients'"), "{out}");
}
