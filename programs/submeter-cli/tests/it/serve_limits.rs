//! Limits of `submeter serve`: from flags, and from a file that is read again.

use std::collections::HashMap;
use std::fs::File;
use std::io::Write;
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::Value;
use submeter_program::{Running, TempFile, text};

use crate::support::{FREE, MEANT, SUBMETER, Server, make_pipe, once_read, request, secret, stat};

const STORE: &str = "set acme:k 0 0 1\r\nv\r\n";

#[test]
fn a_tenant_over_its_rate_is_told_so() {
    let limits = ["--tenant-limit", "/acme=64k,rate=2/h,burst=1"];
    let server = Server::start(&limits);
    assert_eq!(server.ask(STORE), "STORED");
    let refused = server.ask(STORE);
    assert!(refused.starts_with("SERVER_ERROR too many requests: retry after 1"), "{refused}");
    let out = server.end_by("INT");
    assert!(out.contains("sums    exact: "), "{out}");
}

/// Works until the server refuses, and returns its answer.
fn until_refused(server: &Server) -> String {
    let began = Instant::now();
    loop {
        let answer = server.ask(STORE);
        if answer != "STORED" {
            return answer;
        }
        assert!(began.elapsed() < Duration::from_secs(60), "nothing is refused");
    }
}

/// A tenant that owes CPU time is told so, and shown with the remedy.
#[test]
fn a_debtor_is_told_and_shown_with_the_remedy() {
    let limits = ["--tenant-limit", "/acme=cpu=1m", "--limits-api"];
    let server = Server::start(&limits);
    let refused = until_refused(&server);
    assert!(refused.starts_with("SERVER_ERROR too much CPU time: retry after "), "{refused}");
    // As long as it takes until it is reported.
    let began = Instant::now();
    let verdict = loop {
        (0..100).for_each(|_| _ = server.ask(STORE));
        let tree = server.tree();
        if let Some(verdict) = tree["verdicts"].as_array().and_then(|all| all.first()) {
            let acme = &server.group("/acme")["overview"];
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
    let metrics = server.metrics();
    for metric in ["throttled_total", "throttled_time_seconds_total", "overdrafts_total"] {
        let series = format!("submeter_cache_cpu_budget_{metric}{{group=\"/acme\"}}");
        assert!(metrics.contains(&series), "{series}");
    }
    let set = |change: &str| SUBMETER.prints(&["limit", "set", &server.url(), "/acme", change]);
    let told = set("mode=soft");
    assert!(told.contains("cpu=1m,mode=soft") && told.contains("mode=none"), "{told}");
    assert_eq!(server.ask(STORE), "STORED", "what exceeds it is only counted");
    let began = Instant::now();
    while server.group("/acme")["overview"]["would_refuse_per_s"].as_f64() <= Some(0.0) {
        (0..100).for_each(|_| assert_eq!(server.ask(STORE), "STORED"));
        assert!(began.elapsed() < Duration::from_secs(60), "the page shows none of it");
    }
    let metrics = server.metrics();
    let series = "submeter_cache_cpu_budget_overdrafts_total{group=\"/acme\"} ";
    let counted = metrics.lines().find_map(|line| line.strip_prefix(series)).expect(series);
    assert!(counted.parse::<f64>().is_ok_and(|counted| counted > 0.0), "{counted}");
    let none = ["limit", "set", &server.url(), "/acme", "cpu=0"];
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
    let started = SUBMETER.start(&args);
    write("/acme rate=1/h\n");
    let mut server = Server::of(started);
    assert_eq!(server.ask(STORE), "STORED");
    assert!(server.ask(STORE).starts_with("SERVER_ERROR"));

    for bad in ["/acme 64m\n/web rate=5\n", "/acme rate=5/s\n/b 1k\n"] {
        change(&server, bad);
    }
    change(&server, "/acme rate=1/h\n");
    server.line_with("  limits  read again, for 2 tenants");
    assert!(server.ask(STORE).starts_with("SERVER_ERROR"), "the same rate");
    change(&server, "");
    server.line_with("  limits  read again, for 1 tenant");
    assert_eq!(server.ask(STORE), "STORED");

    let out = server.end_by("INT");
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
    let server = Server::start(&[&flags[..], &[token.path()]].concat());
    assert_eq!(server.ask("set auth 0 0 18\r\nacme correct-horse\r\n"), "STORED");
    assert_eq!(server.ask(STORE), "STORED");
    assert!(server.ask(STORE).starts_with("SERVER_ERROR too many"));
    SUBMETER.prints(&["top", "--once", "--token-file", token.path(), &server.url()]);
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
    let mut server = Server::start(&["--limits", file.path()]);
    for item in 0..100 {
        let value = "v".repeat(1000);
        let store = format!("set acme:{item} 0 0 1000\r\n{value}\r\n");
        assert_eq!(server.ask(&store), "STORED");
    }
    assert_eq!(stat(&server.cache, "curr_items"), 100);
    std::fs::write(&file.0, "/acme 10k\n").expect("written");
    server.signal("HUP");
    server.line_with("  limits  read again");
    let began = Instant::now();
    while stat(&server.cache, "curr_items") > 10 {
        assert!(began.elapsed() < Duration::from_secs(60), "items stay that are above the limit");
        std::thread::sleep(Duration::from_millis(10));
    }
    assert!(stat(&server.cache, "curr_items") > 0, "no more goes than must");
}

#[test]
fn a_hangup_without_a_file_changes_nothing() {
    for more in [&[][..], &["--limits-api"]] {
        let server = Server::start(more);
        server.signal("HUP");
        assert_eq!(server.ask(STORE), "STORED");
        let out = server.end_by("INT");
        assert!(out.contains("SIGHUP changes nothing") && out.contains("--limits"), "{out}");
        assert!(out.contains("sums    exact: "), "{out}");
    }
}

/// A pipe that nothing writes to is named, and does not block the reading of a later file.
#[test]
fn an_unwritten_pipe_holds_up_no_later_file() {
    let limits = TempFile::new("replaced.limits", "/acme rate=1/h\n");
    let users = secret("replaced.users", "acme:first-password\n");
    let mut server = Server::start(&["--limits", limits.path(), "--auth-file", users.path()]);
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
    assert_eq!(server.ask("set k 0 0 20\r\nacme second-password\r\n"), "STORED");
    let out = server.end_by("INT");
    assert_eq!(out.matches("limits  read again").count(), 1, "{out}");
    let told = format!("warning: {} (--limits) is still being read: ", limits.path());
    assert_eq!(out.matches(&told).count(), 1, "{out}");
}

#[test]
fn a_tenant_over_its_rate_waits_if_asked_for() {
    let limits = ["--tenant-limit", "/acme=rate=1/50ms", "--over-rate", "wait"];
    let server = Server::start(&limits);
    let started = std::time::Instant::now();
    for _ in 0..3 {
        assert_eq!(server.ask(STORE), "STORED");
    }
    assert!(started.elapsed().as_millis() >= 100, "{:?}", started.elapsed());
}

#[test]
fn limits_are_posted_where_that_is_asked_for() {
    let post = |server: &Server, headers: &str, body: &str| {
        request(server.page, "POST /api/limits", headers, body)
    };
    let server = Server::start(&["--limits-api", "--tenant-limit", "/b=64k"]);
    let (status, body) = post(&server, MEANT, "/acme rate=1/h\n");
    assert_eq!((status, body.as_str()), (200, "limits of 2 tenants are set\n"));
    assert_eq!(server.ask(STORE), "STORED");
    assert!(server.ask(STORE).starts_with("SERVER_ERROR"));
    let (status, body) = post(&server, MEANT, "# all\n/acme rate=1\n");
    assert_eq!(status, 400, "{body}");
    assert!(body.contains("as they were: the body line 2: \"1\" is not a rate"), "{body}");
    let (status, body) = post(&server, "", "");
    assert!(status == 403 && body.contains("X-Submeter: 1"), "{status} {body}");
    assert!(server.ask(STORE).starts_with("SERVER_ERROR"), "as it was");
    for empty in ["", "\r\n", "\u{feff}"] {
        let (status, body) = post(&server, MEANT, empty);
        assert!(status == 400 && body.contains("send a comment"), "{status} {body}");
    }
    assert!(server.ask(STORE).starts_with("SERVER_ERROR"), "as it was");
    assert_eq!(post(&server, MEANT, "# none\n").0, 200);
    assert_eq!(server.ask(STORE), "STORED");
    let out = server.end_by("INT");
    assert!(out.contains("limits that are no longer set: rate of \"/acme\""), "{out}");

    let server = Server::start(&[]);
    assert_eq!(post(&server, MEANT, "/acme rate=1/h\n").0, 404);
}

/// One tenant's limit is set from a shell, and undone by the line that this prints.
#[test]
fn a_limit_is_set_and_undone_from_a_shell() {
    let server = Server::start(&["--limits-api", "--tenant-limit", "/acme=64k"]);
    let page = server.url();
    let set =
        |limits: &[&str]| SUBMETER.prints(&[&["limit", "set", &page, "/acme"], limits].concat());
    let said = set(&["rate=1/h"]);
    let undo = format!("submeter limit set {page} '/acme' 'rate=none'");
    assert_eq!(said, format!("/acme: memory=64k,rate=1/3600s\nundo: {undo}\n"));
    assert_eq!(server.ask(STORE), "STORED");
    assert!(server.ask(STORE).starts_with("SERVER_ERROR too many requests"));
    assert!(set(&["rate=none"]).starts_with("/acme: memory=64k\n"));
    assert_eq!(server.ask(STORE), "STORED", "and what else limits it stays");
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
    let server = Server::start(&["--limits-api", "--limits", file.path()]);
    let memory = || -> HashMap<String, u64> {
        let doc = server.tree();
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
    let url = server.url();
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
