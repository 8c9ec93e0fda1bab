//! `submeter stat` against a real server whose cache is in use.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::Value;
use submeter_program::{Running, TempFile, text};

use crate::support::{SUBMETER, Server, line};

/// Longer than any operation takes on a loaded machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// Starts a server with two tenants; returns the addresses of its page and its cache.
fn server() -> (Server, String, SocketAddr) {
    let server = Server::start(&[]);
    ["acme:web", "acme:api"].iter().for_each(|tenant| server.store(tenant, 1));
    let (page, addr) = (server.url(), server.cache_address());
    (server, page, addr)
}

/// Keeps `acme:web` busy while `act` runs.
fn busy<T>(addr: SocketAddr, act: impl FnOnce() -> T) -> T {
    /// Set when dropped, so that a test that fails in `act` does not hang.
    struct Stop<'a>(&'a AtomicBool);
    impl Drop for Stop<'_> {
        fn drop(&mut self) {
            // Relaxed: a plain signal.
            self.0.store(true, Ordering::Relaxed);
        }
    }
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let stream = TcpStream::connect(addr).expect("it listens");
            let mut answers = BufReader::new(&stream).lines();
            // Relaxed: a plain signal.
            while !stop.load(Ordering::Relaxed) {
                (&stream).write_all(b"delete acme:web:none\r\n").expect("sent");
                answers.next().expect("an answer").expect("readable");
            }
        });
        let _stop = Stop(&stop);
        act()
    })
}

fn ran(args: &[&str]) -> (String, String) {
    let output = SUBMETER.run(args);
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(0), "{args:?}: {out}{err}");
    (out, err)
}

/// CPU time is charged to the busy tenant, and intervals add up.
#[test]
fn cpu_time_is_the_busy_tenants() {
    let (_server, page, addr) = server();
    let list = "task-clock,task-clock,task-clock,task-clock";
    let groups = "acme/web,acme/api,/acme,";
    let (out, err) = busy(addr, || {
        ran(&["stat", "-e", list, "-G", groups, "-I", "50", "--timeout", "400", "-x;", &page])
    });
    let mut sums = [0.0; 4];
    let mut last_s = 0.0;
    for (index, line) in out.lines().enumerate() {
        let fields: Vec<&str> = line.split(';').collect();
        assert_eq!(fields.len(), 9, "{line}");
        let at_s: f64 = fields[0].parse().expect("seconds");
        assert!(at_s >= last_s, "{out}");
        last_s = at_s;
        let (unit, event, group) = (fields[2], fields[3], fields[4]);
        let expected = ["/acme/web", "/acme/api", "/acme", ""][index % 4];
        assert_eq!((unit, event, group), ("msec", "task-clock", expected), "{line}");
        sums[index % 4] += fields[1].parse::<f64>().unwrap_or(0.0);
    }
    assert!(last_s >= 0.4 && err.contains("intervals"), "{out}{err}");
    let [web, api, acme, all] = sums;
    assert!(web > 0.0 && api == 0.0, "{sums:?}");
    // The latest milliseconds have not reached a common ancestor yet.
    assert!(acme > 0.0 && acme <= web * 1.01 + 0.1 && all >= acme * 0.5, "{sums:?}");
}

/// Totals look like perf's, and name what is not supported.
#[test]
fn totals_look_like_perfs_with_the_unsupported() {
    let (_server, page, addr) = server();
    let (out, err) = busy(addr, || {
        // No CPU has that raw event.
        let list = "task-clock,rffffffffffff,{task-clock,cpu-clock}";
        ran(&["stat", "-e", list, "-G", "acme/web", "--timeout", "300", &page])
    });
    assert!(out.contains("Performance counter stats for"), "{out}");
    assert!(out.contains("seconds time elapsed"), "{out}");
    let lines: Vec<&str> = out.lines().filter(|line| line.contains("/acme/web")).collect();
    assert_eq!(lines.len(), 4, "{out}");
    assert!(lines[0].contains("msec task-clock") && lines[0].contains("CPUs utilized"), "{out}");
    assert!(lines[1].trim_start().starts_with("<not supported>"), "{out}");
    assert!(err.contains("rffffffffffff: "), "the reason is told: {err}");
}

/// Repeated runs are one table in the file, which says how much they vary.
#[test]
fn runs_are_one_table_with_their_variance() {
    let (_server, page, addr) = server();
    let file = TempFile::new("stat-runs", "earlier");
    let args = ["stat", "-e", "task-clock", "-G", "acme/web", "-r", "3", "--timeout", "100"];
    let began = Instant::now();
    let (out, _) = busy(addr, || ran(&[&args[..], &["-o", file.path(), &page]].concat()));
    assert_eq!(out, "", "all of it is in the file");
    let took = began.elapsed();
    let table = std::fs::read_to_string(file.path()).expect("readable");
    let lines: Vec<&str> = table.lines().filter(|line| line.contains("task-clock")).collect();
    assert!(table.contains(", 3 runs)") && lines.len() == 1, "{table}");
    assert!(lines[0].contains("/acme/web") && lines[0].contains("% )"), "{table}");
    let first = |line: &str| line.split_whitespace().next().and_then(|text| text.parse().ok());
    let busy_ms: Option<f64> = first(lines[0]);
    let elapsed: Option<f64> = table.lines().find(|line| line.contains("elapsed")).and_then(first);
    assert!(busy_ms.is_some_and(|ms| ms > 0.0), "{table}");
    // The time of one run, not of all three.
    let one = 0.1..=took.as_secs_f64() / 3.0;
    assert!(elapsed.is_some_and(|seconds| one.contains(&seconds)), "{took:?}: {table}");
}

/// JSON is one object per line, and Ctrl-C ends with the totals.
#[test]
fn json_is_an_object_a_line_and_ends_with_totals() {
    let (_server, page, addr) = server();
    let (code, out) = busy(addr, || {
        let stat = SUBMETER.start(&["stat", "-e", "task-clock", "--json", &page]);
        // Long enough for a first line of totals.
        std::thread::sleep(Duration::from_millis(500));
        stat.signal("INT");
        stat.end()
    });
    assert_eq!(code, Some(0), "{out}");
    let line = out.lines().find(|line| line.starts_with('{')).expect("an object");
    let object: Value = serde_json::from_str(line).expect("JSON");
    assert_eq!((&object["event"], &object["unit"]), (&"task-clock".into(), &"msec".into()));
    let value: f64 = object["counter-value"].as_str().expect("text").parse().expect("a number");
    assert!(value >= 0.0 && object.get("cgroup").is_none(), "{line}");
}

#[test]
fn ctrl_c_tells_what_was_counted_until_then() {
    let (_server, page, addr) = server();
    // Both the end of the run and the end of the first interval are far away.
    for (long, at) in [("--timeout", 0), ("-I", 1)] {
        let args = ["stat", "-e", "task-clock", "-G", "acme/web", "-x;", long, "3600000", &page];
        let counted = |wait_ms| {
            let (code, out) = busy(addr, || {
                let stat = SUBMETER.start(&args);
                std::thread::sleep(Duration::from_millis(wait_ms));
                stat.signal("INT");
                stat.end()
            });
            // On a slow machine the signal may arrive before the handler is installed and kill it.
            assert!(matches!(code, Some(0) | None), "{long}: {out}");
            let line = out.lines().find(|line| line.contains("task-clock"))?;
            line.split(';').nth(at)?.parse::<f64>().ok().filter(|ms| *ms > 0.0)
        };
        let counted_ms = [1_000, 4_000, 16_000].into_iter().find_map(counted);
        assert!(counted_ms.is_some(), "{long}: nothing of what was counted is told");
    }
}

/// Returns how many perf events the process has open.
fn open_events(server: &Running) -> usize {
    let files = std::fs::read_dir(format!("/proc/{}/fd", server.id())).expect("Linux");
    let links = files.filter_map(|file| std::fs::read_link(file.ok()?.path()).ok());
    links.filter(|link| link.to_string_lossy().contains("perf_event")).count()
}

#[test]
fn the_servers_events_end_with_the_listener() {
    let (server, page, addr) = server();
    let events = "page-faults,context-switches";
    let probe = ran(&["stat", "-e", events, "--timeout", "50", "-x,", &page]).0;
    if probe.contains("<not supported>") {
        eprintln!("skipped: perf_event_open is refused here: set kernel.perf_event_paranoid to 1");
        return;
    }
    let before = open_events(&server);
    busy(addr, || {
        let stat = SUBMETER.start(&["stat", "-e", events, "-G", "acme/web", "-I", "100", &page]);
        let since = Instant::now();
        while open_events(&server) <= before {
            assert!(since.elapsed() < PATIENCE, "no thread opened its events");
            std::thread::sleep(Duration::from_millis(20));
        }
        // Killed without closing the connection properly.
        stat.signal("KILL");
        while open_events(&server) > before {
            assert!(since.elapsed() < PATIENCE, "events stay open without a listener");
            // Each worker closes its events at its next switch: requests on other connections wake
            // all workers.
            let other = TcpStream::connect(addr).expect("it listens");
            (&other).write_all(b"delete acme:api:none\r\n").expect("sent");
            line(&other);
        }
    });
}

#[test]
fn what_cannot_be_counted_at_all_is_one_line() {
    let (_server, page, _) = server();
    SUBMETER.refuses(&["stat", "-e", "cylces", &page], &["cylces"]);
    SUBMETER.refuses(&["stat", "-x", ""], &["--field-separator", "it is empty"]);
    let list = ["stat", "-e", "task-clock", "-x", ",", "-G", r"a\,b=c", &page];
    SUBMETER.refuses(&list, &["\",\"", "\"/a,b=c\"", "-x", "--json"]);
    SUBMETER.refuses(&["stat", "-e", "cycles", "-G", "a,b", &page], &["a,b", "--for-each-group"]);
    for (group, named) in [
        ("nobody", "no group \"/nobody\""),
        ("a\u{1}b", "\"/a\\u{1}b\""),
        ("a&g=b c%20+ü", "no group \"/a&g=b c%20+ü\""),
    ] {
        SUBMETER.refuses(&["stat", "-e", "task-clock", "-G", group, &page], &[named]);
    }
    SUBMETER.refuses(&["stat", "-e", "task-clock", "-I", "1", &page], &["1", "milliseconds"]);
    SUBMETER.refuses(
        &["stat", "-e", "task-clock", "http://127.0.0.1:1"],
        &["127.0.0.1:1", "submeter serve"],
    );
    SUBMETER.refuses(&["stat", "-e", "", &page], &["-e"]);
}

/// Another server's page is not printed, and the error has a remedy.
#[test]
fn another_servers_page_is_not_printed() {
    let other = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let url = format!("http://{}", other.local_addr().expect("bound"));
    std::thread::spawn(move || {
        let page =
            "HTTP/1.1 501 No\r\nContent-Type: text/html\r\nConnection: close\r\n\r\n<p>\n<p>";
        for client in other.incoming() {
            let mut client = client.expect("a client");
            let mut head = BufReader::new(client.try_clone().expect("a descriptor")).lines();
            while head.next().is_some_and(|line| line.is_ok_and(|line| !line.is_empty())) {}
            client.write_all(page.as_bytes()).expect("sent");
        }
    });
    for args in [
        &["stat", "-e", "task-clock", "--timeout", "20", &url][..],
        &["limit", "set", &url, "/a", "rate=1/s"],
    ] {
        let output = SUBMETER.run(args);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains("is it a submeter server? Use its --http address"), "{said}");
        assert!(said.contains(&url) && !said.contains("<p>"), "{said}");
    }
}

/// Returns the address of a server that says this to one client, and then nothing.
fn says_and_waits(said: &'static str) -> String {
    let server = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let url = format!("http://{}", server.local_addr().expect("bound"));
    std::thread::spawn(move || {
        let (mut client, _) = server.accept().expect("a client");
        client.write_all(said.as_bytes()).expect("sent");
        // Until the client has given up.
        std::io::copy(&mut client, &mut std::io::sink()).expect("read");
    });
    url
}

/// A server elsewhere is not asked to count, and its address is no submeter server's.
#[test]
fn a_redirect_is_told_of() {
    let url = says_and_waits(
        "HTTP/1.1 307 Elsewhere\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n",
    );
    SUBMETER.refuses(
        &["stat", "-e", "task-clock", "--timeout", "20", &url],
        &[&format!("cannot reach {url}: it redirects to another address; use that address")],
    );
}

/// A server that stops after it has begun to count does not hold up who waits for the counts.
#[test]
fn counts_that_never_come_end_in_an_error() {
    let url = says_and_waits("HTTP/1.1 200 OK\r\nContent-Type: application/x-ndjson\r\n\r\n");
    let output = SUBMETER.run(&["stat", "-e", "task-clock", "--timeout", "20", &url]);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains(&format!("{url} has sent no counts for 5.02s")), "{said}");
}

/// The file of `-o` keeps its old content until something was counted.
#[test]
fn an_old_output_file_stays_until_needed() {
    let (_server, page, _) = server();
    let file = TempFile::new("stat-out", "earlier");
    let is = || std::fs::read_to_string(file.path()).expect("readable");
    let stat = |more: &[&str]| {
        let args = ["stat", "-e", "task-clock", "-x,", "-o", file.path(), "--timeout", "60"];
        SUBMETER.run(&[&args[..], more].concat())
    };
    for bad in [&["http://127.0.0.1:1"][..], &["-G", "nobody", &page], &["-e", "cylces", &page]] {
        assert_eq!(stat(bad).status.code(), Some(2), "{bad:?}");
        assert_eq!(is(), "earlier", "{bad:?}");
    }
    let none = ["stat", "-o", "/no/such/file", "http://127.0.0.1:1"];
    SUBMETER.refuses(&none, &["/no/such/file", "another file with -o"]);
    for (more, lines) in [(&[][..], 1..2), (&["-I", "20"], 2..8)] {
        let output = stat(&[more, &[&page]].concat());
        assert_eq!((output.status.code(), text(&output.stdout)), (Some(0), String::new()));
        assert!(lines.contains(&is().lines().count()) && is().contains("task-clock"), "{}", is());
    }
    let (out, _) = ran(&["stat", "-e", "task-clock", "-x,", "--timeout", "20", "-o-", &page]);
    assert!(out.contains("task-clock"), "standard output, not a file of that name: {out}");
}
