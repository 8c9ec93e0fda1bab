//! `submeter load` against correct and faulty servers.

use std::net::TcpListener;

use serde_json::Value;
use submeter_program::{TempFile, text};

use crate::support::{Fake, Lie, SUBMETER};

/// Small values, few hot keys, and only commands that the fake server knows.
const CSV: &str = "tenant,key_bytes,value_bytes,request_rate_kqps,zipf_alpha,wss_mb_no_ttl,\
                   operations,ttls\n\
                   tenanta,30,40,3,2.5,0,get=0.6;set=0.4,60s:1\n\
                   tenantb,30,400,1,2.5,0,get=0.6;gets=0;set=0.4,\n";

fn load(fake: &Fake, csv: &TempFile, more: &[&str]) -> (Option<i32>, String, String) {
    let addr = fake.addr.to_string();
    let args = ["load", "--connect", &addr, "--tenants-file", csv.path(), "--connections", "1"];
    let output = SUBMETER.run(&[&args[..], more].concat());
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

/// Commands, lengths and the time before the measurement are as requested.
#[test]
fn commands_and_lengths_are_as_asked_for() {
    let (fake, csv) = (Fake::start(Lie::None), TempFile::new("load-mix", CSV));
    let file = TempFile::new("load-hdr", "");
    let args = ["--ratio", "1:0", "--data-size", "64", "--requests", "40", "--ramp", "0.01"];
    let hdr = ["--hdr", file.path(), "--json", "-"];
    let (code, out, err) = load(&fake, &csv, &[&args[..], &hdr].concat());
    assert_eq!(code, Some(0), "{err}");
    let json: Value = serde_json::from_str(&out).expect("JSON");
    assert_eq!(json["total"]["by_command"], serde_json::json!({ "set": 40 }));
    let sent = json["total"]["bytes_sent"].as_u64().expect("a number");
    assert!((40 * 64..40 * 200).contains(&sent), "{sent}");
    let text = std::fs::read_to_string(file.path()).expect("written");
    assert!(text.contains("1/(1-Percentile)") && text.contains("Total count    =           40]"));
    // If its end stops it, the measured time is what follows the warm-up.
    let (code, out, err) = load(
        &fake,
        &csv,
        &["--warm-up", "0.3", "--seconds", "0.2", "--rate", "100", "--json", "-"],
    );
    assert_eq!(code, Some(0), "{err}");
    let json: Value = serde_json::from_str(&out).expect("JSON");
    let (took, n) = (json["seconds"].as_f64(), json["total"]["requests"].as_u64());
    assert!(took.is_some_and(|s| s > 0.1) && n.is_some_and(|n| n < 40), "{took:?} s, {n:?}");
    assert_eq!(json["config"]["warm_up"], 0.3);
    let (code, _, err) = load(&fake, &csv, &["--ramp", "2", "--seconds", "2"]);
    assert!(code == Some(2) && err.contains("raise --seconds"), "{err}");
    let (code, _, err) = load(&fake, &csv, &["--ratio", "1"]);
    assert!(code == Some(2) && err.contains("SET:GET, such as 1:10"), "{err}");
}

/// Connections start one after another, within the requested time.
#[test]
fn connections_start_one_after_the_other() {
    let (fake, csv) = (Fake::start(Lie::None), TempFile::new("load-ramp", CSV));
    let addr = fake.addr.to_string();
    let args = ["load", "--connect", &addr, "--tenants-file", csv.path(), "--requests", "20"];
    let more = ["--connections", "2", "--ramp", "1.2", "--json", "-"];
    let output = SUBMETER.run(&[&args[..], &more].concat());
    let json: Value = serde_json::from_str(&text(&output.stdout)).expect("JSON");
    // The second of two begins after half of it.
    assert!(json["seconds"].as_f64().is_some_and(|s| s >= 0.6), "{json:#}");
    assert_eq!((&json["total"]["requests"], &json["config"]["ramp"]), (&20.into(), &1.2.into()));
}

/// Latencies go to standard output alone, and no two results go to one place.
#[test]
fn no_two_results_go_to_one_place() {
    let (fake, csv) = (Fake::start(Lie::None), TempFile::new("load-hdr-out", CSV));
    let (code, out, err) = load(&fake, &csv, &["--requests", "40", "--hdr", "-"]);
    assert_eq!(code, Some(0), "{err}");
    let is_alone = out.trim_start().starts_with("Value") && !out.contains("throughput");
    assert!(is_alone && out.contains("Total count    =           40]"), "{out}");
    assert!(err.contains("throughput") && err.contains("read back"), "{err}");
    let args = ["load", "--connect", "127.0.0.1:1", "--json"];
    let both = |to: &str, said: &str| {
        SUBMETER.refuses(&[&args[..], &[to, "--hdr", to]].concat(), &[said, "for --hdr"]);
    };
    both("-", "standard output");
    both("some.json", "one file");
}

/// A full disk is one error and leaves the earlier record.
#[test]
fn a_full_disk_leaves_the_earlier_record() {
    let fake = Fake::start(Lie::None);
    let folder = std::env::temp_dir().join(format!("submeter-full-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("writable");
    let record = folder.join("record.json");
    std::fs::write(&record, "earlier").expect("writable");
    let addr = fake.addr.to_string();
    let load = ["load", "--tenants", "1", "--requests", "10", "--connect", &addr, "--json"];
    let run = |limit: &str, file: &str| {
        // Files may not grow; with SIGXFSZ ignored, a write fails instead of killing the process.
        let script = format!("trap '' XFSZ; {limit} exec \"$0\" \"$@\"");
        let mut command = std::process::Command::new("sh");
        command.args(["-c", &script, env!("CARGO_BIN_EXE_submeter")]).args(load).arg(file);
        let output = command.output().expect("sh runs");
        let err = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{err}");
        assert_eq!(err.lines().count(), 1, "{err}");
        assert!(err.contains(file) && err.contains("--json"), "{err} names file and remedy");
    };
    run("ulimit -f 0;", record.to_str().expect("UTF-8"));
    assert_eq!(std::fs::read_to_string(&record).expect("it is there"), "earlier");
    assert_eq!(std::fs::read_dir(&folder).expect("readable").count(), 1, "nothing half-written");
    std::fs::remove_dir_all(&folder).expect("the test's own");
    if std::path::Path::new("/dev/full").exists() {
        run("", "/dev/full");
        assert!(!std::fs::metadata("/dev/full").expect("still there").is_file());
    }
}

#[test]
fn an_unwritable_record_is_refused_before_a_run() {
    let fake = Fake::start(Lie::None);
    let addr = fake.addr.to_string();
    let folder = std::env::temp_dir();
    for file in ["/no/such/record.json", folder.to_str().expect("UTF-8")] {
        let args = ["load", "--tenants", "1", "--requests", "10", "--connect", &addr];
        SUBMETER.refuses(&[&args[..], &["--json", file]].concat(), &[file, "--json"]);
    }
    assert!(fake.log().is_empty(), "nothing was sent");
}

#[test]
fn a_run_that_fails_leaves_no_record() {
    let fake = Fake::start(Lie::Nonsense);
    let folder = crate::fleet::Directory::new("load-failed");
    let record = folder.0.join("record.json");
    let addr = fake.addr.to_string();
    let args = ["load", "--tenants", "1", "--connect", &addr, "--json"];
    let output = SUBMETER.run(&[&args[..], &[record.to_str().expect("UTF-8")]].concat());
    assert_eq!(output.status.code(), Some(2), "{}", text(&output.stderr));
    assert_eq!(std::fs::read_dir(&folder.0).expect("readable").count(), 0);
}

#[test]
fn a_good_server_passes_and_json_has_every_count() {
    let fake = Fake::start(Lie::None);
    let csv = TempFile::new("good.csv", CSV);
    let json = TempFile::new("good.json", "");
    let (code, out, err) =
        load(&fake, &csv, &["--requests", "3000", "--seed", "5", "--json", json.path()]);
    assert_eq!(code, Some(0), "{out}{err}");
    assert!(out.contains("every byte checked: all correct"), "{out}");
    assert_eq!(err, "", "quiet without a terminal");
    assert!(!out.contains('\u{1b}'), "no colours without a terminal: {out}");

    let text = std::fs::read_to_string(json.path()).expect("written");
    let json: Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(json["config"]["seed"], 5);
    assert_eq!(json["config"]["requests"], 3000);
    let total = &json["total"];
    assert_eq!(total["requests"], 3000);
    assert_eq!(total["corrupt"], 0);
    assert_eq!(total["latency_ns"]["count"], 3000);
    let tenants = json["tenants"].as_array().expect("a list");
    assert_eq!(tenants.len(), 2);
    assert_eq!(tenants[0]["group"], "/load/tenanta");
    for field in ["requests", "hits", "misses", "done", "fills", "bytes_sent", "bytes_received"] {
        let of = |v: &Value| v[field].as_u64().expect(field);
        assert_eq!(of(&tenants[0]) + of(&tenants[1]), of(total), "{field}");
    }
    let number = |field: &str| total[field].as_u64().expect(field);
    assert_eq!(number("hits") + number("misses") + number("done"), 3000);
    assert_eq!(number("bytes_sent"), fake.log().len() as u64, "what arrived");
    for quantile in ["p50", "p90", "p99", "p99_9", "max"] {
        assert!(total["latency_ns"][quantile].as_u64().is_some_and(|ns| ns > 0), "{quantile}");
    }
}

#[test]
fn json_goes_to_standard_output_alone() {
    let fake = Fake::start(Lie::None);
    let csv = TempFile::new("stdout.csv", CSV);
    let (code, out, err) = load(&fake, &csv, &["--requests", "100", "--json", "-"]);
    assert_eq!(code, Some(0), "{out}{err}");
    let json: Value = serde_json::from_str(&out).expect("JSON and nothing else");
    assert_eq!(json["total"]["requests"], 100);
    assert!(err.contains("tenanta"), "the table is for people: {err}");
}

#[test]
fn the_seed_decides_what_is_sent() {
    let csv = TempFile::new("seed.csv", CSV);
    let sent = |seed: &str| {
        let fake = Fake::start(Lie::None);
        let more = ["--requests", "500", "--pipeline", "1", "--seed", seed];
        assert_eq!(load(&fake, &csv, &more).0, Some(0));
        fake.log()
    };
    let first = sent("7");
    assert!(first == sent("7"), "the same bytes");
    assert!(first != sent("8"), "other bytes");
}

#[test]
fn every_lie_about_a_value_is_found() {
    let csv = TempFile::new("lies.csv", CSV);
    for (lie, told) in [
        (Lie::Byte, "they differ from byte"),
        (Lie::Cut, "they differ from byte"),
        (Lie::OtherValue, "expected"),
        (Lie::OtherKey, "got the item of key load:tenanu"),
        (Lie::Flags, "got 1"),
    ] {
        let fake = Fake::start(lie);
        let json = TempFile::new(&format!("{lie:?}.json"), "");
        let more = ["--requests", "1000", "--pipeline", "4", "--json", json.path()];
        let (code, out, err) = load(&fake, &csv, &more);
        assert_eq!(code, Some(1), "{lie:?}: {out}{err}");
        assert!(out.contains("CORRUPT") && out.contains("key load:tenant"), "{lie:?}: {out}");
        assert!(out.contains(told), "{lie:?}: {out}");
        let text = std::fs::read_to_string(json.path()).expect("written");
        let json: Value = serde_json::from_str(&text).expect("JSON");
        assert!(json["total"]["corrupt"].as_u64().is_some_and(|n| n > 0), "{lie:?}");
        assert!(json["corruptions"].as_array().is_some_and(|all| !all.is_empty()), "{lie:?}");
    }
}

#[test]
fn nobody_listens() {
    // Bound and dropped: the port was free just now.
    let addr = TcpListener::bind("127.0.0.1:0").and_then(|l| l.local_addr()).expect("a port");
    let addr = addr.to_string();
    SUBMETER.refuses(
        &["load", "--connect", &addr, "--seconds", "5"],
        &[&addr, "refused", "submeter serve", "--connect"],
    );
}

#[test]
fn the_server_leaves_talks_nonsense_or_is_silent() {
    let csv = TempFile::new("bad-server.csv", CSV);
    for (lie, told) in [
        (Lie::Close, "closed the connection"),
        (Lie::Nonsense, "HTTP/1.1 400 Bad Request"),
        (Lie::Silence, "has not answered for 10 s"),
    ] {
        let fake = Fake::start(lie);
        let (code, out, err) = load(&fake, &csv, &["--seconds", "1"]);
        assert_eq!(code, Some(2), "{lie:?}: {out}{err}");
        assert_eq!(out, "", "{lie:?}");
        assert_eq!(err.lines().count(), 1, "{lie:?}: {err}");
        assert!(err.contains(told) && err.contains(&fake.addr.to_string()), "{lie:?}: {err}");
    }
}

#[test]
fn a_rate_is_kept() {
    let fake = Fake::start(Lie::None);
    let csv = TempFile::new("rate.csv", CSV);
    let more = ["--requests", "100", "--rate", "200", "--json", "-"];
    let (code, out, err) = load(&fake, &csv, &more);
    assert_eq!(code, Some(0), "{err}");
    let json: Value = serde_json::from_str(&out).expect("JSON");
    // The hundredth is due after 0.495 s; how much later it comes depends on the machine.
    assert!(json["seconds"].as_f64().is_some_and(|s| s >= 0.49), "{}", json["seconds"]);
}

#[test]
fn a_signal_ends_it_with_its_results() {
    let fake = Fake::start(Lie::None);
    let csv = TempFile::new("signal.csv", CSV);
    let addr = fake.addr.to_string();
    let json = TempFile::new("signal.json", "");
    let args = ["load", "--connect", &addr, "--tenants-file", csv.path(), "--seconds", "60"];
    let load = SUBMETER.start(&[&args[..], &["--json", json.path()]].concat());
    // Until something was read back.
    while fake.log().len() < 1 << 16 {
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    let out = load.end_by("INT");
    assert!(out.contains("every byte checked: all correct"), "{out}");
    let json: Value = serde_json::from_str(&std::fs::read_to_string(json.path()).expect("written"))
        .expect("JSON");
    assert_eq!(json["total"]["bytes_sent"].as_u64(), Some(fake.log().len() as u64));
    assert!(json["seconds"].as_f64().is_some_and(|s| s < 60.0));
}

/// What nobody measured is not said to be correct, or to have taken no time.
#[test]
fn a_signal_in_the_warm_up_leaves_no_results() {
    let fake = Fake::start(Lie::None);
    let csv = TempFile::new("warm.csv", CSV);
    let addr = fake.addr.to_string();
    let args = ["load", "--connect", &addr, "--tenants-file", csv.path(), "--seconds", "60"];
    let load = SUBMETER.start(&[&args[..], &["--warm-up", "600"]].concat());
    while fake.log().is_empty() {
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    let out = load.end_by("INT");
    assert!(out.contains("none were read back") && !out.contains("correct"), "{out}");
    assert!(!out.contains("0 ns"), "{out}");
}

#[test]
fn a_second_signal_ends_it_at_once() {
    let fake = Fake::start(Lie::Silence);
    let csv = TempFile::new("twice.csv", CSV);
    let addr = fake.addr.to_string();
    let args = ["load", "--connect", &addr, "--tenants-file", csv.path(), "--seconds", "600"];
    let mut load = SUBMETER.start(&args);
    while fake.log().is_empty() {
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    // Repeated, because signals that are pending at the same time are delivered as one.
    while !load.has_ended() {
        load.signal("INT");
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    let (code, out) = load.end();
    assert_eq!(code, Some(130), "{out}");
}
