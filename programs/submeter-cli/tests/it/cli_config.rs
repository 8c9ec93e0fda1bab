//! What `serve` takes from its environment and from the file of `--config`.

use std::net::TcpStream;
use std::time::{Duration, Instant};

use submeter_program::{TempFile, text};

use crate::support::{FREE, SUBMETER, Server, line};

/// Returns what `stats settings` reports for `name`.
fn setting(mut client: &TcpStream, name: &str) -> String {
    std::io::Write::write_all(&mut client, b"stats settings\r\n").expect("sent");
    let prefix = format!("STAT {name} ");
    let mut found = None;
    loop {
        let line = line(client);
        if line == "END" {
            return found.unwrap_or_else(|| panic!("no {name}"));
        }
        found = found.or_else(|| line.strip_prefix(&prefix).map(str::to_owned));
    }
}

#[test]
fn flags_precede_variables_and_those_the_file() {
    let file = "memory = \"8m\"\nvalue-max = \"2k\"\nconnections = 50\nno-flush-all = true\n\
                no-evictions = true\nlisten = \"192.0.2.1:1\"\n";
    let file = TempFile::new("order.toml", file);
    let variables = [
        ("SUBMETER_CONFIG", file.path()),
        ("SUBMETER_VALUE_MAX", "4k"),
        ("SUBMETER_CONNECTIONS", "60"),
        ("SUBMETER_NO_EVICTIONS", "false"),
    ];
    let args = [&FREE[..], &["-c", "70"]].concat();
    let server = Server::of(SUBMETER.start_in(&args, &variables));
    for (name, expected) in [
        ("maxbytes", "8388608"),
        ("flush_enabled", "no"),
        ("item_size_max", "4096"),
        ("evictions", "on"),
        ("maxconns", "70"),
    ] {
        assert_eq!(setting(&server.cache, name), expected, "{name}");
    }
}

#[test]
fn a_hangup_reads_the_files_limits_again_only() {
    let file = TempFile::new("again.toml", "memory = \"8m\"\n[limits]\n\"/acme\" = \"rate=1/h\"\n");
    let mut server = Server::start(&["--config", file.path(), "--tenant-limit", "/b=1m"]);
    let store = |server: &Server| server.ask("set acme:k 0 0 1\r\nv\r\n");
    assert_eq!(store(&server), "STORED");
    assert!(store(&server).starts_with("SERVER_ERROR"));
    let write = |text: &str| std::fs::write(&file.0, text).expect("written");
    write("memory = \"16m\"\nvalue-max = \"2k\"\n[limits]\n\"/c\" = \"1m\"\n\"/d\" = \"1m\"\n");
    server.signal("HUP");
    assert!(server.line_with("  limits  read again").contains("for 3 tenants"));
    assert_eq!(store(&server), "STORED");
    write("[limits]\n\"/acme\" = \"rate=1\"\n");
    server.signal("HUP");
    let began = Instant::now();
    // It reports this on standard error, which is read at the end.
    while began.elapsed() < Duration::from_millis(300) {
        assert_eq!(store(&server), "STORED", "the limits stay");
        std::thread::sleep(Duration::from_millis(20));
    }
    let out = server.end_by("INT");
    assert!(out.contains("memory, value-max in ") && out.contains("only a restart"), "{out}");
    let kept = format!("the limits stay as they were: {} line 2: \"1\" is not a rate", file.path());
    assert!(out.contains(&kept), "{out}");
}

#[test]
fn a_file_of_limits_precedes_the_configs() {
    let config = TempFile::new("both.toml", "[limits]\n\"/a\" = \"1m\"\n");
    let lines = TempFile::new("both.limits", "/b 1m\n/c 1m\n");
    let args = [&FREE[..], &["--config", config.path(), "--limits", lines.path()]].concat();
    let mut server = SUBMETER.start(&args);
    server.line_with("  ends   ");
    server.signal("HUP");
    assert!(server.line_with("  limits  read again").contains("for 2 tenants"));
}

#[test]
fn what_is_wrong_is_named_with_its_place() {
    let refuses = |content: &str, more: &[&str], parts: &[&str]| {
        let file = TempFile::new("wrong.toml", content);
        let args = [&["serve", "--config", file.path()], more].concat();
        SUBMETER.refuses(&args, &[&[file.path(), "--config"], parts].concat());
    };
    refuses("\nmemroy = \"4g\"\n", &[], &["line 2", "\"memroy\"", "\"memory\""]);
    refuses("memory = \"lots\"\n", &[], &["line 1", "lots", "64k"]);
    refuses("[limits]\n\"acme\" = \"1m\"\n", &[], &["line 2", "starts with '/'"]);
    refuses("memory\n", &[], &["line 1", "not TOML"]);
    SUBMETER.refuses(&["serve", "--config", "/no/such.toml"], &["/no/such.toml", "--config"]);

    // Each is valid by itself.
    let file = TempFile::new("conflict.toml", "\nauth-file = \"users\"\n");
    let args = ["serve", "--load", "6", "--config", file.path()];
    let place = format!("auth-file: {} line 2", file.path());
    SUBMETER.refuses(&args, &["--load", "--auth-file", &place]);
    let file = TempFile::new("alone.toml", "tls-cert = \"c.pem\"\n");
    SUBMETER.refuses(&["serve", "--config", file.path()], &["--tls-key"]);
}

#[test]
fn a_misspelt_variable_is_warned_of() {
    let variables = [
        ("SUBMETER_MEMROY", "8m"),
        ("SUBMETER_TENANT_LIMIT", "/a=1m"),
        ("SUBMETER_CLOCK", "system"),
        ("SUBMETER_PORT", "tcp://10.0.0.1:11211"),
    ];
    let args = [&FREE[..], &["--seconds", "0.1"]].concat();
    let output = SUBMETER.run_in(&args, &variables);
    let err = text(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{err}");
    assert!(err.contains("SUBMETER_MEMROY is not read: did you mean SUBMETER_MEMORY?"), "{err}");
    assert!(err.contains("SUBMETER_TENANT_LIMIT is not read"), "{err}");
    assert_eq!(err.matches(" is not read").count(), 2, "{err}");
}

#[test]
fn an_empty_variable_is_none_or_closes_a_port() {
    let config = TempFile::new("empty.toml", "value-max = \"2k\"\n");
    let help = text(&SUBMETER.run(&["serve", "--help"]).stdout);
    let flags = help.lines().filter_map(|line| line.split_once("--")?.1.split([' ', ',']).next());
    let doors = ["auth-file", "tls-cert", "tls-key", "token-file"];
    // The settings named below are given as words.
    let given = ["listen", "http", "config", "seconds"];
    let is_left = |flag: &&str| !doors.contains(flag) && !given.contains(flag);
    let names: Vec<String> = flags
        .filter(is_left)
        .map(|flag| format!("SUBMETER_{}", flag.to_uppercase().replace('-', "_")))
        .collect();
    assert!(names.len() > 30 && names.iter().any(|name| name == "SUBMETER_BANK"), "{names:?}");
    let args = [&FREE[..], &["--config", config.path(), "--seconds", "0.1"]].concat();
    for nothing in ["", " \t"] {
        let unset: Vec<(&str, &str)> = names.iter().map(|name| (&**name, nothing)).collect();
        let output = SUBMETER.run_in(&args, &unset);
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        for door in doors {
            let name = format!("SUBMETER_{}", door.to_uppercase().replace('-', "_"));
            let output = SUBMETER.run_in(&args, &[(&name, nothing)]);
            assert_eq!(output.status.code(), Some(2), "{}", text(&output.stderr));
            assert!(text(&output.stderr).contains(door), "{}", text(&output.stderr));
        }
        for (command, asked) in [(&["status"][..], "--bank"), (&["bill", "--sum"], "--postgres")] {
            let unset = [("SUBMETER_BANK", nothing), ("SUBMETER_POSTGRES", nothing)];
            let output = SUBMETER.run_in(&[&["fleet"], command].concat(), &unset);
            assert!(text(&output.stderr).contains(asked), "{}", text(&output.stderr));
        }
    }
}

/// An error is blamed on what it would not occur without.
#[test]
fn an_error_is_blamed_on_its_cause() {
    let config = TempFile::new("blamed.toml", "memory = \"8m\"\nvalue-max = \"2k\"\n");
    let args = ["serve", "--config", config.path()];
    for (variable, value, place) in [
        ("SUBMETER_MEMORY", "lots", "(memory: SUBMETER_MEMORY)"),
        ("SUBMETER_BANK", "unix:/bank", "--limit-fleet <LIMIT> (bank: SUBMETER_BANK)"),
        ("SUBMETER_TLS_CERT", "x.pem", "(tls-cert: SUBMETER_TLS_CERT)"),
    ] {
        let output = SUBMETER.run_in(&args, &[(variable, value), ("SUBMETER_VALUE_MAX", "1k")]);
        let err = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{err}");
        assert!(err.contains(place) && !err.contains(config.path()), "{err}");
    }
}

#[test]
fn a_switch_is_on_or_off_in_any_such_word() {
    for (word, evicts) in
        [("1", false), ("yes", false), ("TRUE", false), ("0", true), ("Off", true)]
    {
        let server = Server::of(SUBMETER.start_in(&FREE, &[("SUBMETER_NO_EVICTIONS", word)]));
        assert_eq!(
            setting(&server.cache, "evictions"),
            if evicts { "on" } else { "off" },
            "{word}"
        );
    }
}

#[test]
fn a_variable_that_is_wrong_is_named() {
    for (variable, value, parts) in [
        ("SUBMETER_MEMORY", "lots", &["lots", "memory: SUBMETER_MEMORY"][..]),
        ("SUBMETER_NO_EVICTIONS", "maybe", &["maybe", "SUBMETER_NO_EVICTIONS"]),
        ("SUBMETER_CONFIG", "/no/such.toml", &["/no/such.toml", "--config"]),
        ("SUBMETER_HTTP_HOST", "a.lan,http://b", &["http://b", "SUBMETER_HTTP_HOST"]),
    ] {
        let output = SUBMETER.run_in(&["serve"], &[(variable, value)]);
        let err = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{variable}: {err}");
        assert_eq!(err.lines().count(), 1, "{err}");
        for part in parts {
            assert!(err.contains(part), "{variable}: {err} names {part}");
        }
    }
    let not_text = std::os::unix::ffi::OsStrExt::from_bytes(b"\xff");
    let not_text: &std::ffi::OsStr = not_text;
    let mut serve = std::process::Command::new(env!("CARGO_BIN_EXE_submeter"));
    let output = serve.arg("serve").env("SUBMETER_LISTEN", not_text).output().expect("it runs");
    let err = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{err}");
    assert!(err.contains("the variable SUBMETER_LISTEN is not UTF-8"), "{err}");
    let mut serve = std::process::Command::new(env!("CARGO_BIN_EXE_submeter"));
    let output = serve.args(["serve", "--listen"]).arg(not_text).output().expect("it runs");
    let err = text(&output.stderr);
    assert!(err.contains("the value of --listen is not UTF-8"), "{err}");
    // Other commands have no variables.
    let output = SUBMETER.run_in(&["top", "--once", "-x"], &[("SUBMETER_MEMORY", "lots")]);
    assert!(!text(&output.stderr).contains("SUBMETER_MEMORY"));
}
