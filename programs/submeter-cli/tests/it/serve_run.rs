//! `submeter serve` from start to summary.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;

use serde_json::Value;
use submeter_program::{TempFile, text};

use crate::support::{FREE, SUBMETER, Server, cache_address};

fn serve(more: &[&str]) -> (Option<i32>, String) {
    let output = SUBMETER.run(&[&FREE[..], more].concat());
    (output.status.code(), text(&output.stdout) + &text(&output.stderr))
}

/// Returns the requests in a tenant's row of the summary.
fn requests(summary: &str, tenant: &str) -> u64 {
    let row = summary.lines().find(|line| line.split_whitespace().next() == Some(tenant));
    let row = row.unwrap_or_else(|| panic!("no row {tenant} in {summary}"));
    let number = row.split_whitespace().nth(1).expect("a second column");
    number.replace(',', "").parse().expect("a number")
}

/// A load of two tenants ends by itself with exact sums.
#[test]
fn a_load_ends_by_itself_with_exact_sums() {
    let (code, out) = serve(&["--load", "2", "--seconds", "0.4"]);
    assert_eq!(code, Some(0), "{out}");
    assert!(out.contains("page   http://127.0.0.1:"), "{out}");
    assert!(out.contains("sums    exact: "), "{out}");
    assert!(out.contains("20 counts of tenants equal their clients'"), "{out}");
    assert!(out.contains("every byte checked: all correct"), "{out}");
    assert!(!out.contains('\u{1b}'), "no colours without a terminal: {out}");
    let (one, two) = (requests(&out, "/load/tenant1"), requests(&out, "/load/tenant2"));
    assert!(one > 0 && two > 0, "{out}");
    assert_eq!(one + two, requests(&out, "total"), "{out}");
}

/// A load of three tenants stages a burst and a limit, unless told otherwise.
#[test]
fn a_load_of_three_stages_a_burst_and_a_limit() {
    let (code, out) = serve(&["--load", "3", "--seconds", "1"]);
    assert_eq!(code, Some(0), "{out}");
    let staged =
        "/load/tenant3 bursts for 3 s out of every 8 s, /load/tenant2 is limited to 1000/s";
    assert!(out.contains(staged), "{out}");
    assert!(out.contains("sums    exact: "), "{out}");
    // On a busy machine it may not reach that many.
    let row = out.lines().find_map(|line| line.strip_prefix("/load/tenant2")).expect("a row");
    let requests = row.split_whitespace().next().expect("a figure").replace(',', "");
    let is_over = requests.parse::<u32>().expect("a number") > 2500;
    assert!(out.contains("refused ") || !is_over, "{out}");

    let limit = "/load/tenant2=rate=2000000/s";
    let (code, out) = serve(&["--load", "3", "--seconds", "0.2", "--tenant-limit", limit]);
    assert_eq!(code, Some(0), "{out}");
    assert!(out.contains("tenant3 bursts") && !out.contains("limited to"), "{out}");
    assert!(!out.contains("refused "), "{out}");

    let (_, out) = serve(&["--load", "3", "--seconds", "0.2", "--idle-timeout", "2"]);
    assert!(!out.contains("bursts"), "its connections would be closed: {out}");
    SUBMETER.refuses(&[&FREE[..], &["--load", "3", "-c", "23"]].concat(), &["23", "opens 24"]);
}

#[test]
fn a_client_may_end_the_server_which_sums_up() {
    for load in [&[][..], &["--load", "1"]] {
        let server = Server::start(&[&["--enable-shutdown"], load].concat());
        (&server.cache).write_all(b"get acme:k\r\nshutdown\r\n").expect("it reads");
        let (code, out) = server.end();
        assert_eq!(code, Some(0), "{out}");
        assert!(out.contains("/acme") && out.contains("sums    exact: "), "{out}");
    }
}

#[test]
fn the_stores_limits_are_what_the_flags_say() {
    let server = Server::start(&["--value-max", "2k", "--no-evictions", "--no-flush-all"]);
    (&server.cache).write_all(b"stats settings\r\n").expect("it reads");
    let mut lines = BufReader::new(&server.cache).lines().map(|line| line.expect("text"));
    let settings: Vec<String> = lines.by_ref().take_while(|line| line != "END").collect();
    for line in [
        "STAT item_size_max 2048",
        "STAT evictions off",
        "STAT flush_enabled no",
        "STAT shutdown_command no",
    ] {
        assert!(settings.iter().any(|setting| setting == line), "{line}: {settings:?}");
    }
    server.end_by("TERM");
}

#[test]
fn evictions_and_limits_keep_the_sums_exact() {
    let limits = TempFile::new("load.limits", "# small\n/load/tenant1 256k\n");
    let more = ["--load", "6", "--seconds", "1", "--memory", "4m", "--limits", limits.path()];
    let (code, out) = serve(&more);
    assert_eq!(code, Some(0), "{out}");
    assert!(out.contains("sums    exact: "), "{out}");
}

#[test]
fn tenants_of_a_file_have_its_names() {
    let csv = "tenant,key_bytes,value_bytes,request_rate_kqps,zipf_alpha,wss_mb_no_ttl,\
               operations,ttls\n\
               all,40,100,1,1,1,get=0.2;gets=0.1;set=0.1;add=0.1;replace=0.1;append=0.05;\
               prepend=0.05;cas=0.1;delete=0.05;touch=0.05;gat=0.05;gats=0.05,60s:1\n\
               counters,30,8,1,1,1,incr=0.4;decr=0.2;get=0.2;set=0.2,40d:1\n";
    let file = TempFile::new("named.csv", csv);
    let (code, out) = serve(&["--load", "2", "--seconds", "0.4", "--tenants-file", file.path()]);
    assert_eq!(code, Some(0), "{out}");
    assert!(out.contains("sums    exact: "), "{out}");
    assert!(!out.contains("limited to"), "nothing is staged: {out}");
    assert!(requests(&out, "/load/all") > 0 && requests(&out, "/load/counters") > 0, "{out}");
}

#[test]
fn without_metering_it_says_so() {
    let (code, out) = serve(&["--load", "2", "--seconds", "0.3", "--no-metering"]);
    assert_eq!(code, Some(0), "{out}");
    assert!(out.contains("nothing was metered (--no-metering)"), "{out}");
    assert_eq!(requests(&out, "/load/tenant1"), 0, "{out}");
}

#[test]
fn another_delimiter_and_one_thread() {
    let (code, out) =
        serve(&["--load", "2", "--seconds", "0.3", "--delimiter", "|", "--threads", "1"]);
    assert_eq!(code, Some(0), "{out}");
    assert!(requests(&out, "/load/tenant2") > 0, "{out}");
}

#[test]
fn signals_end_a_load_with_its_summary() {
    for name in ["INT", "TERM"] {
        let mut server = SUBMETER.start(&[&FREE[..], &["--load", "2"]].concat());
        server.line_with("  ends   ");
        std::thread::sleep(std::time::Duration::from_millis(300));
        let out = server.end_by(name);
        assert!(out.contains("sums    exact: "), "{name}: {out}");
        requests(&out, "total");
    }
}

/// Returns two clients that hang: one never ends its upload, one never reads.
fn hanging(addr: std::net::SocketAddr) -> [TcpStream; 2] {
    let connect = || TcpStream::connect(addr).expect("it listens");
    let (mut upload, mut deaf) = (connect(), connect());
    upload.write_all(b"set hang:k 0 0 1000000\r\nvalue").expect("sent");
    let value = "v".repeat(1_000_000);
    let gets = "get hang:v\r\n".repeat(100);
    write!(deaf, "set hang:v 0 0 1000000\r\n{value}\r\n{gets}").expect("sent");
    BufReader::new(&deaf).lines().next().expect("an answer").expect("readable");
    [upload, deaf]
}

/// A signal under load ends it in time, whatever clients hang.
#[test]
fn a_signal_under_load_ends_it_in_time() {
    for name in ["INT", "TERM"] {
        let more = ["--load", "2", "--drain-seconds", "0.5"];
        let server = Server::start(&more);
        let hanging = hanging(server.cache_address());
        let out = server.end_by(name);
        assert!(out.contains("sums    exact: "), "{name}: {out}");
        drop(hanging);
    }
}

#[test]
fn a_second_signal_ends_it_at_once() {
    let mut server = Server::start(&["--drain-seconds", "3600"]);
    let addr = server.cache_address();
    let hanging = hanging(addr);
    server.signal("INT");
    // It no longer listens, and waits for the hanging clients.
    while TcpStream::connect(addr).is_ok() {
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    assert!(!server.has_ended());
    server.signal("INT");
    assert_eq!(server.end().0, Some(130));
    drop(hanging);
}

#[test]
fn what_other_clients_did_is_in_the_summary() {
    let server = Server::start(&["--tenant-limit", "/acme=64k"]);
    server.store("acme:web", 1);
    server.ask("get acme:web:0\r\n");
    // An idle client must not keep the server from ending.
    let out = server.end_by("INT");
    assert_eq!(requests(&out, "/acme/web"), 2, "{out}");
    assert!(out.contains("sums    exact: "), "{out}");
}

/// Load and serve count the same in two processes.
#[test]
fn load_and_serve_count_the_same() {
    let server = Server::start(&[]);
    let addr = server.cache_address().to_string();
    let load = SUBMETER.prints(&["load", "--connect", &addr, "--requests", "20000", "--json", "-"]);
    let json: Value = serde_json::from_str(&load).expect("JSON");
    let out = server.end_by("TERM");
    assert_eq!(requests(&out, "total"), 20_000, "{out}");
    for tenant in json["tenants"].as_array().expect("a list") {
        let group = tenant["group"].as_str().expect("a path");
        assert_eq!(Some(requests(&out, group)), tenant["requests"].as_u64(), "{group}");
    }
}

#[test]
fn clients_beyond_the_soft_file_limit_are_served() {
    let mut server = SUBMETER.start_with_files(128, &FREE);
    let addr = cache_address(&mut server);
    let clients: Vec<_> = (0..400).map(|_| TcpStream::connect(addr).expect("it listens")).collect();
    for mut client in &clients {
        client.write_all(b"mn\r\n").expect("sent");
        let answer = BufReader::new(client).lines().next().expect("an answer").expect("readable");
        assert_eq!(answer, "MN");
    }
    server.end_by("INT");
}

#[test]
fn a_signal_at_the_start_ends_it_with_a_summary() {
    for _ in 0..20 {
        let mut server = SUBMETER.start(&[&FREE[..], &["--load", "2"]].concat());
        // /proc shows when its handlers are installed: SIGINT is bit 1 of `SigCgt`.
        let status = format!("/proc/{}/status", server.id());
        let caught = || {
            let status = std::fs::read_to_string(&status).unwrap_or_default();
            let line = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
            line.is_some_and(|mask| u64::from_str_radix(mask.trim(), 16).is_ok_and(|m| m & 2 != 0))
        };
        while !caught() && !server.has_ended() {
            std::thread::yield_now();
        }
        let out = server.end_by("INT");
        // A machine that is too busy to start in time has nothing to sum up.
        assert!(out.contains("sums    exact: ") || out.is_empty(), "{out}");
    }
}
