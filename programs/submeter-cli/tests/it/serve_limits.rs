//! Limits of `submeter serve`: from flags, and from a file that is read again.

use std::collections::HashMap;
use std::fs::File;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::Value;
use submeter_program::{Running, TempFile, text};

use crate::http_serve::get_as;
use crate::support::{
    FREE, SUBMETER, cache_address, get, line, make_pipe, once_read, secret, stat,
};

fn ask(mut client: &TcpStream, request: &str) -> String {
    client.write_all(request.as_bytes()).expect("sent");
    line(client)
}

const STORE: &str = "set acme:k 0 0 1\r\nv\r\n";

#[test]
fn a_tenant_over_its_rate_is_told_so() {
    let limits = ["--tenant-limit", "/acme=64k,rate=2/h,burst=1"];
    let mut server = SUBMETER.start(&[&FREE[..], &limits].concat());
    let client = TcpStream::connect(cache_address(&mut server)).expect("it listens");
    assert_eq!(ask(&client, STORE), "STORED");
    let refused = ask(&client, STORE);
    assert!(refused.starts_with("SERVER_ERROR too many requests: retry after 1"), "{refused}");
    server.signal("INT");
    let (code, out) = server.end();
    assert_eq!(code, Some(0), "{out}");
    assert!(out.contains("sums    exact: "), "{out}");
}

/// Works until the server refuses, and returns its answer.
fn until_refused(client: &TcpStream) -> String {
    let began = Instant::now();
    loop {
        let answer = ask(client, STORE);
        if answer != "STORED" {
            return answer;
        }
        assert!(began.elapsed() < Duration::from_secs(60), "nothing is refused");
    }
}

fn tree(page: &str) -> Value {
    let (_, tree) = get_as(&format!("http://{page}/api/tree"), "application/json");
    serde_json::from_str(&tree).expect("JSON")
}

/// Returns what the page shows of a tenant.
fn overview<'a>(tree: &'a Value, path: &str) -> &'a Value {
    let groups = tree["groups"].as_array().expect("a list");
    &groups.iter().find(|group| group["path"] == path).expect(path)["overview"]
}

/// A tenant that owes CPU time is told so, and shown with the remedy.
#[test]
fn a_debtor_is_told_and_shown_with_the_remedy() {
    let limits = ["--tenant-limit", "/acme=cpu=1m", "--limits-api"];
    let mut server = SUBMETER.start(&[&FREE[..], &limits].concat());
    let at = server.address_after("http://");
    let page = at.to_string();
    let client = TcpStream::connect(cache_address(&mut server)).expect("it listens");
    let refused = until_refused(&client);
    assert!(refused.starts_with("SERVER_ERROR too much CPU time: retry after "), "{refused}");
    // As long as it takes until it is reported.
    let began = Instant::now();
    let verdict = loop {
        (0..100).for_each(|_| _ = ask(&client, STORE));
        let tree = tree(&page);
        if let Some(verdict) = tree["verdicts"].as_array().and_then(|all| all.first()) {
            let acme = overview(&tree, "/acme");
            assert_eq!(acme["cpu_limit_cores"], 0.001);
            assert!(acme["over_cpu_per_s"].as_f64() > Some(0.0), "{acme}");
            assert!(acme["cpu_owing"].as_f64() > Some(0.0), "{acme}");
            break verdict.clone();
        }
        assert!(began.elapsed() < Duration::from_secs(60), "no verdict: {tree}");
    };
    let said = verdict["text"].as_str().expect("text");
    assert!(said.ends_with("a second: over its CPU time of 0.001 CPUs."), "{said}");
    assert_eq!(verdict["remedy"], "cpu=10m");
    let metrics = get(at, "/metrics");
    for metric in ["throttled_total", "throttled_time_seconds_total", "overdrafts_total"] {
        let series = format!("submeter_cache_cpu_budget_{metric}{{group=\"/acme\"}}");
        assert!(metrics.contains(&series), "{series}");
    }
    let set = |change: &str| {
        let done = SUBMETER.run(&["limit", "set", &page, "/acme", change]);
        assert_eq!(done.status.code(), Some(0), "{}", text(&done.stderr));
        text(&done.stdout)
    };
    let told = set("mode=soft");
    assert!(told.contains("cpu=1m,mode=soft") && told.contains("mode=none"), "{told}");
    assert_eq!(ask(&client, STORE), "STORED", "what exceeds it is only counted");
    let began = Instant::now();
    while overview(&tree(&page), "/acme")["would_refuse_per_s"].as_f64() <= Some(0.0) {
        (0..100).for_each(|_| assert_eq!(ask(&client, STORE), "STORED"));
        assert!(began.elapsed() < Duration::from_secs(60), "the page shows none of it");
    }
    let metrics = get(at, "/metrics");
    let series = "submeter_cache_cpu_budget_overdrafts_total{group=\"/acme\"} ";
    let counted = metrics.lines().find_map(|line| line.strip_prefix(series)).expect(series);
    assert!(counted.parse::<f64>().is_ok_and(|counted| counted > 0.0), "{counted}");
    let none = ["limit", "set", &page, "/acme", "cpu=0"];
    SUBMETER.refuses(&none, &["\"0\" is too few CPUs: 0 would admit nothing", "stay as they were"]);
    assert!(set("cpu=none").contains("cpu=1m"), "what undoes it");
}

/// An impossible budget of CPU time is one line with the remedy.
#[test]
fn an_impossible_budget_is_one_line() {
    for (flags, named) in [
        (
            &["--tenant-limit", "/a=cpu=half"][..],
            "\"half\" is not a number of CPUs: use thousandths or CPUs",
        ),
        (&["--tenant-limit", "/a=cpu=0"], "\"0\" is too few CPUs: 0 would admit nothing"),
        (&["--tenant-limit", "/a=cpu=0.0005"], "round it"),
        (&["--tenant-limit", "/a=mode=dry"], "use soft or enforced"),
        (&["--tenant-limit", "/a=cpu=1", "--no-metering"], "not counted without metering"),
    ] {
        let output = SUBMETER.run(&[&FREE[..], flags].concat());
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{flags:?}: {said}");
        assert!(said.contains(named), "{flags:?}: {said}");
    }
}

/// A hangup reads the limits again; a bad file changes nothing.
#[test]
fn a_hangup_reads_the_limits_again() {
    let file = TempFile::new("limits", "");
    let write = |text: &str| std::fs::write(&file.0, text).expect("the server reads it");
    let change = |server: &Running, text: &str| {
        make_pipe(file.path());
        server.signal("HUP");
        write(text);
    };
    make_pipe(file.path());
    let args = [&FREE[..], &["--limits", file.path(), "--tenant-limit", "/b=64k"]].concat();
    let mut server = SUBMETER.start(&args);
    write("/acme rate=1/h\n");
    let client = TcpStream::connect(cache_address(&mut server)).expect("it listens");
    assert_eq!(ask(&client, STORE), "STORED");
    assert!(ask(&client, STORE).starts_with("SERVER_ERROR"));

    for bad in ["/acme 64m\n/web rate=5\n", "/acme rate=5/s\n/b 1k\n"] {
        change(&server, bad);
    }
    change(&server, "/acme rate=1/h\n");
    server.line_with("  limits  read again, for 2 tenants");
    assert!(ask(&client, STORE).starts_with("SERVER_ERROR"), "the same rate");
    change(&server, "");
    server.line_with("  limits  read again, for 1 tenant");
    assert_eq!(ask(&client, STORE), "STORED");

    server.signal("INT");
    let (code, out) = server.end();
    assert_eq!(code, Some(0), "{out}");
    assert!(out.contains("warning: limits that are no longer set: rate of \"/acme\""), "{out}");
    let kept: Vec<&str> = out.lines().filter(|line| line.contains("stay as they were")).collect();
    assert_eq!(kept.len(), 2, "{out}");
    let line_2 = format!("{} line 2: \"5\" is not a rate: use N/s", file.path());
    assert!(kept[0].contains(&line_2), "{}", kept[0]);
    assert!(kept[1].contains("\"/b\" has two limits: keep one"), "{}", kept[1]);
}

/// A file is read as it was meant, however an editor saves it.
#[test]
fn whatever_an_editor_makes_of_a_file_is_read() {
    let limits = "\u{feff}# limits\r\n\r\n /acme\t rate=1/h,burst=1 \t# few\r\n/web\u{a0}1m  ";
    let limits = TempFile::new("edited.limits", limits);
    // As PowerShell writes redirected output.
    let utf_16: Vec<u8> = std::fs::read_to_string(&limits.0)
        .map(|text| text.encode_utf16().flat_map(u16::to_le_bytes).collect())
        .expect("written above");
    std::fs::write(&limits.0, utf_16).expect("written");
    let users = "\u{feff}acme:correct-horse \t\r\n\r\n  # who else\r\n\tops:staple\t/ # all";
    let users = secret("edited.users", users);
    let token = secret("edited.token", "\u{feff}correct-horse-battery \t\r\n\r\n");
    let config = "\u{feff}# flags\r\n\tvalue-max = \"2k\" # small\r\nlimits = \"";
    let config = TempFile::new("edited.toml", &format!("{config}{}\" \t", limits.path()));
    let flags = ["--config", config.path(), "--auth-file", users.path(), "--token-file"];
    let mut server = SUBMETER.start(&[&FREE[..], &flags, &[token.path()]].concat());
    let page = server.address_after("http://").to_string();
    let client = TcpStream::connect(cache_address(&mut server)).expect("it listens");
    assert_eq!(ask(&client, "set auth 0 0 18\r\nacme correct-horse\r\n"), "STORED");
    assert_eq!(ask(&client, STORE), "STORED");
    assert!(ask(&client, STORE).starts_with("SERVER_ERROR too many"));
    let shown = SUBMETER.run(&["top", "--once", "--token-file", token.path(), &page]);
    assert_eq!(shown.status.code(), Some(0), "{}", text(&shown.stderr));
}

/// The server warns of a limit whose name only looks like a tenant's.
#[test]
fn a_limit_for_an_invisible_character_is_told_of() {
    let file = TempFile::new("hidden.limits", "/acme\u{200b} 1m\n/web 1m\n");
    let flags = ["--limits", file.path(), "--tenant-limit", "/b\u{ad}=64k", "--seconds", "0.1"];
    let flags = [&flags[..], &["--tenant-limit", "/c\u{a0}=64k"]].concat();
    let output = SUBMETER.run(&[&FREE[..], &flags].concat());
    let told = text(&output.stderr);
    for (name, place) in [
        (r"/acme\u{200b}", format!("{} line 1", file.path())),
        (r"/b\u{ad}", "--tenant-limit".to_owned()),
        (r"/c\u{a0}", "--tenant-limit".to_owned()),
    ] {
        let line = format!("warning: the limits of {name} ({place}) are for keys with an invis");
        assert_eq!(told.matches(&line).count(), 1, "{told}");
    }
    assert!(!told.contains("/web"), "{told}");
}

#[test]
fn what_is_above_a_lowered_limit_goes_at_once() {
    let file = TempFile::new("lowered.limits", "/acme 1m\n");
    let args = [&FREE[..], &["--limits", file.path()]].concat();
    let mut server = SUBMETER.start(&args);
    let client = TcpStream::connect(cache_address(&mut server)).expect("it listens");
    for item in 0..100 {
        let value = "v".repeat(1000);
        let store = format!("set acme:{item} 0 0 1000\r\n{value}\r\n");
        assert_eq!(ask(&client, &store), "STORED");
    }
    assert_eq!(stat(&client, "curr_items"), 100);
    std::fs::write(&file.0, "/acme 10k\n").expect("written");
    server.signal("HUP");
    server.line_with("  limits  read again");
    let began = Instant::now();
    while stat(&client, "curr_items") > 10 {
        assert!(began.elapsed() < Duration::from_secs(60), "items stay that are above the limit");
        std::thread::sleep(Duration::from_millis(10));
    }
    assert!(stat(&client, "curr_items") > 0, "no more goes than must");
}

#[test]
fn a_hangup_without_a_file_changes_nothing() {
    for more in [&[][..], &["--limits-api"]] {
        let mut server = SUBMETER.start(&[&FREE[..], more].concat());
        let client = TcpStream::connect(cache_address(&mut server)).expect("it listens");
        server.signal("HUP");
        assert_eq!(ask(&client, STORE), "STORED");
        server.signal("INT");
        let (code, out) = server.end();
        assert_eq!(code, Some(0), "{out}");
        assert!(out.contains("SIGHUP changes nothing") && out.contains("--limits"), "{out}");
        assert!(out.contains("sums    exact: "), "{out}");
    }
}

/// A pipe that nothing writes to is named, and does not block the reading of a later file.
#[test]
fn an_unwritten_pipe_holds_up_no_later_file() {
    let limits = TempFile::new("replaced.limits", "/acme rate=1/h\n");
    let users = secret("replaced.users", "acme:first-password\n");
    let args = [&FREE[..], &["--limits", limits.path(), "--auth-file", users.path()]].concat();
    let mut server = SUBMETER.start(&args);
    let cache = cache_address(&mut server);
    make_pipe(limits.path());
    server.signal("HUP");
    let silent = once_read(limits.path());
    // Another file in its place, which is read after the first has taken too long.
    std::fs::remove_file(&limits.0).expect("a pipe");
    std::fs::write(&limits.0, "/acme rate=5/h\n").expect("a folder of ours");
    std::fs::write(&users.0, "acme:second-password\n").expect("ours");
    server.signal("HUP");
    server.line_with("  limits  read again, for 1 tenant");
    // Late content changes nothing.
    (&silent).write_all(b"/a 1k\n/b 1k\n").expect("somebody reads it");
    drop(silent);
    let client = TcpStream::connect(cache).expect("it listens");
    assert_eq!(ask(&client, "set k 0 0 20\r\nacme second-password\r\n"), "STORED");
    server.signal("INT");
    let (code, out) = server.end();
    assert_eq!(code, Some(0), "{out}");
    assert_eq!(out.matches("limits  read again").count(), 1, "{out}");
    let told = format!("warning: {} (--limits) is still being read: ", limits.path());
    assert_eq!(out.matches(&told).count(), 1, "{out}");
}

#[test]
fn a_tenant_over_its_rate_waits_if_asked_for() {
    let limits = ["--tenant-limit", "/acme=rate=1/50ms", "--over-rate", "wait"];
    let mut server = SUBMETER.start(&[&FREE[..], &limits].concat());
    let client = TcpStream::connect(cache_address(&mut server)).expect("it listens");
    let started = std::time::Instant::now();
    for _ in 0..3 {
        assert_eq!(ask(&client, STORE), "STORED");
    }
    assert!(started.elapsed().as_millis() >= 100, "{:?}", started.elapsed());
}

/// Posts limits, and returns the status and the body of the answer.
fn post(page: SocketAddr, headers: &str, body: &str) -> (u16, String) {
    let mut client = TcpStream::connect(page).expect("it listens");
    let len = body.len();
    let head = "POST /api/limits HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n";
    write!(client, "{head}{headers}Content-Length: {len}\r\n\r\n{body}").expect("sent");
    let mut answer = String::new();
    client.read_to_string(&mut answer).expect("an answer");
    let status = answer.split(' ').nth(1).and_then(|status| status.parse().ok());
    let body = answer.split_once("\r\n\r\n").map(|(_, body)| body.to_owned());
    (status.expect(&answer), body.expect(&answer))
}

#[test]
fn limits_are_posted_where_that_is_asked_for() {
    const MEANT: &str = "X-Submeter: 1\r\n";
    let args = [&FREE[..], &["--limits-api", "--tenant-limit", "/b=64k"]].concat();
    let mut server = SUBMETER.start(&args);
    let page = server.address_after("http://");
    let client = TcpStream::connect(cache_address(&mut server)).expect("it listens");
    let (status, body) = post(page, MEANT, "/acme rate=1/h\n");
    assert_eq!((status, body.as_str()), (200, "limits of 2 tenants are set\n"));
    assert_eq!(ask(&client, STORE), "STORED");
    assert!(ask(&client, STORE).starts_with("SERVER_ERROR"));
    let (status, body) = post(page, MEANT, "# all\n/acme rate=1\n");
    assert_eq!(status, 400, "{body}");
    assert!(body.contains("as they were: the body line 2: \"1\" is not a rate"), "{body}");
    let (status, body) = post(page, "", "");
    assert!(status == 403 && body.contains("X-Submeter: 1"), "{status} {body}");
    assert!(ask(&client, STORE).starts_with("SERVER_ERROR"), "as it was");
    for empty in ["", "\r\n", "\u{feff}"] {
        let (status, body) = post(page, MEANT, empty);
        assert!(status == 400 && body.contains("send a comment"), "{status} {body}");
    }
    assert!(ask(&client, STORE).starts_with("SERVER_ERROR"), "as it was");
    assert_eq!(post(page, MEANT, "# none\n").0, 200);
    assert_eq!(ask(&client, STORE), "STORED");
    server.signal("INT");
    let (_, out) = server.end();
    assert!(out.contains("limits that are no longer set: rate of \"/acme\""), "{out}");

    let mut server = SUBMETER.start(&FREE);
    let page = server.address_after("http://");
    assert_eq!(post(page, MEANT, "/acme rate=1/h\n").0, 404);
}

/// One tenant's limit is set from a shell, and undone by the line that this prints.
#[test]
fn a_limit_is_set_and_undone_from_a_shell() {
    let args = [&FREE[..], &["--limits-api", "--tenant-limit", "/acme=64k"]].concat();
    let mut server = SUBMETER.start(&args);
    let page = server.line_with("http://");
    let page = page.split_whitespace().last().expect("an address");
    let page = page.trim_end_matches('/').to_owned();
    let client = TcpStream::connect(cache_address(&mut server)).expect("it listens");
    let set = |limits: &[&str]| {
        let output = SUBMETER.run(&[&["limit", "set", &page, "/acme"], limits].concat());
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        text(&output.stdout)
    };
    let said = set(&["rate=1/h"]);
    let undo = format!("submeter limit set {page} '/acme' 'rate=none'");
    assert_eq!(said, format!("/acme: memory=64k,rate=1/3600s\nundo: {undo}\n"));
    assert_eq!(ask(&client, STORE), "STORED");
    assert!(ask(&client, STORE).starts_with("SERVER_ERROR too many requests"));
    assert!(set(&["rate=none"]).starts_with("/acme: memory=64k\n"));
    assert_eq!(ask(&client, STORE), "STORED", "and what else limits it stays");
    // A misspelt name gets a warning.
    let new = SUBMETER.run(&["limit", "set", &page, "/acne", "rate=5/s"]);
    let said = text(&new.stderr);
    assert_eq!(new.status.code(), Some(0), "{said}");
    assert!(
        said.starts_with("warning: /acne is not among the tenants") && said.lines().count() == 1,
        "{said}"
    );
    // The undo is not lost with the output.
    let full = File::options().write(true).open("/dev/full").expect("a device");
    let mut lost = Command::new(env!("CARGO_BIN_EXE_submeter"));
    lost.args(["limit", "set", &page, "/acme", "rate=7/s"]).stdout(full);
    let lost = lost.output().expect("it runs");
    assert_eq!(lost.status.code(), Some(2));
    let said = text(&lost.stderr);
    assert!(said.contains(&undo) && said.contains("are set all the same"), "{said}");
    let bad = ["limit", "set", &page, "/acme", "rat=5/s"];
    SUBMETER.refuses(&bad, &["\"rat\" is not a limit", "stay as they were"]);
    let mut other = SUBMETER.start(&FREE);
    let page = other.line_with("http://");
    let page = page.split_whitespace().last().expect("an address");
    SUBMETER.refuses(&["limit", "set", page, "/acme", "rate=5/s"], &["--limits-api"]);
    let gone = ["limit", "set", "127.0.0.1:1", "/acme", "rate=5/s"];
    SUBMETER.refuses(&gone, &["cannot reach http://127.0.0.1:1: nothing listens there"]);
}

/// Makes the page's own script write lines of a limit for each name, as its button copies them.
fn copied(names: &[&str]) -> Option<String> {
    let names = serde_json::to_string(names).expect("texts");
    let write = "names.map((name, i) => `${inFile(name)} ${i + 1}k\\n`).join('')";
    let script = format!(
        "{}\nconst names = {names};\nprocess.stdout.write({write});",
        include_str!("../../../../crates/submeter-http/src/page/client/visible.js")
    );
    let output = Command::new("node").args(["-e", &script]).output().ok()?;
    assert!(output.status.success(), "{}", text(&output.stderr));
    Some(text(&output.stdout))
}

/// Whatever a tenant's name contains, copied lines and printed commands mean that tenant.
#[test]
fn hostile_names_survive_copied_commands() {
    let names = [
        "/two words",
        "/a,b=c\"",
        "/ #b",
        "/a #b",
        "/a#b",
        "/a ",
        "/ a",
        "/\u{a0}a\u{a0}",
        "/a\u{2028}b",
        "/\u{202e}x",
        "/e\u{e0041}",
        "/\\u{a}' \"",
        "/\u{feff}z",
        "/租 户/é",
    ];
    let Some(lines) = copied(&names) else {
        return println!("skipped: the page's scripts; install node (nodejs.org)");
    };
    assert!(lines.starts_with("\"/two words\" 1k\n/a,b=c\" 2k\n"), "{lines}");
    assert!(!lines.contains(|c| c != '\n' && submeter::is_hidden(c)), "{lines:?}");
    let file = TempFile::new("copied.limits", &lines);
    let mut server =
        SUBMETER.start(&[&FREE[..], &["--limits-api", "--limits", file.path()]].concat());
    let page = server.address_after("http://");
    let memory = || -> HashMap<String, u64> {
        let doc: Value = serde_json::from_str(&get(page, "/api/tree")).expect("JSON");
        let limit = |group: &Value| {
            let path = group["path"].as_str()?.to_owned();
            Some((path, group["values"]["memory"]["limit"].as_u64()?))
        };
        doc["groups"].as_array().expect("a list").iter().filter_map(limit).collect()
    };
    let before = memory();
    for (at, name) in names.iter().enumerate() {
        assert_eq!(before.get(*name), Some(&((at as u64 + 1) << 10)), "{name:?} of {lines}");
    }
    let url = format!("http://{page}");
    for name in names {
        let output = SUBMETER.run(&["limit", "set", &url, name, "memory=77k"]);
        assert_eq!(text(&output.stderr), "", "{name:?} is there");
        let said = text(&output.stdout);
        let Some((_, undo)) = said.split_once("undo: submeter ") else {
            panic!("{name:?}: {said}")
        };
        let undo = format!("{} {undo}", env!("CARGO_BIN_EXE_submeter"));
        let undone = Command::new("sh").args(["-c", &undo]).output().expect("sh runs");
        assert!(undone.status.success(), "{undo}: {}", text(&undone.stderr));
    }
    assert_eq!(memory(), before, "each is undone, and nobody else is limited");
}
