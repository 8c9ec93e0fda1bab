//! Bad input of every kind: one line that names it and the remedy, exit code 2.

use std::net::TcpListener;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};

use submeter_program::{Running, TempFile, text};

use crate::support::SUBMETER;

#[test]
fn unknown_commands_flags_and_values() {
    SUBMETER.refuses(&["srve"], &["srve", "'serve'"]);
    let unknown = SUBMETER.run(&["nosuch"]);
    let said = text(&unknown.stderr);
    assert!(said.contains("nosuch") && !said.contains("bench"), "{said}");
    SUBMETER.refuses(&["bench", "all"], &["-p submeter-bench"]);
    SUBMETER.refuses(&["serve", "--lod", "6"], &["--lod", "'--load'"]);
    SUBMETER.refuses(&["serve", "now"], &["now"]);
    SUBMETER.refuses(&["load", "--tenants", "0"], &["--tenants", "0"]);
    SUBMETER.refuses(&["load", "--tenants", "six"], &["--tenants", "six"]);
    SUBMETER.refuses(&["load", "--rate", "0"], &["--rate"]);
    SUBMETER.refuses(&["load", "--seconds", "0"], &["--seconds", "0"]);
    SUBMETER.refuses(&["load", "--pipeline", "100000"], &["--pipeline", "100000"]);
    SUBMETER.refuses(&["load", "--connect"], &["--connect"]);
    SUBMETER.refuses(&["serve", "--listen", "11211"], &["--listen", "11211"]);
    SUBMETER.refuses(&["serve", "--memory", "lots"], &["--memory", "lots", "64k"]);
    SUBMETER.refuses(&["serve", "--value-max", "2g"], &["--value-max", "1073741824"]);
    SUBMETER.refuses(&["serve", "--buffers", "1"], &["--buffers 1 ", "or more"]);
    SUBMETER.refuses(&["serve", "--tenant-limit", "/=1m"], &["set --memory (--tenant-limit)"]);
    let deep = ["serve", "--tenant-limit", "/a/b/c/d/e=1m"];
    SUBMETER.refuses(&deep, &["deeper than the maximum of 4: use an ancestor"]);
    SUBMETER.refuses(&["serve", "--tenant-limit", "/a=rate=0/s"], &["\"0/s\"", "1/h"]);
    SUBMETER
        .refuses(&["fleet", "set", "/a", "rate=0/s", "--bank", "unix:/b"], &["1/s for a fleet"]);
    SUBMETER.refuses(&["fleet", "bill", "--file", "bill"], &["10.0.0.1:9411", "or add --sum"]);
    let json = ["fleet", "bill", "--file", "bill", "--json"];
    SUBMETER.refuses(&json, &["were not provided: --sum (see"]);
    SUBMETER.refuses(&["serve", "--member", ""], &["--member", "1 to 1024 bytes"]);
    SUBMETER.refuses(&["serve", "--member", "a\u{1}b"], &["--member", "a\\u{1}b", "control"]);
    SUBMETER.refuses(&["serve", "--delimiter", "ab"], &["--delimiter", "ab"]);
    for host in ["http://cache.lan", "cache.lan:9411", "[::1]", ""] {
        SUBMETER.refuses(&["serve", "--http-host", host], &["--http-host", host, "omit scheme"]);
    }
    SUBMETER.refuses(&["serve", "--tenant-limit", "acme=1m"], &["acme", "starts with '/'"]);
    SUBMETER.refuses(&["serve", "--tenant-limit", "/acme"], &["/acme", "/PATH=LIMITS"]);
    SUBMETER
        .refuses(&["serve", "--tenant-limit", "/acme=1m,lower=1k"], &["\"lower\" is not a limit"]);
    SUBMETER.refuses(&["serve", "--tenant-limit", "/acme=rate=5"], &["\"5\"", "N/s"]);
    let misspelt = ["--tenant-limit", "\"hihg\" is not a limit: use SIZE, high=SIZE"];
    SUBMETER.refuses(&["serve", "--tenant-limit", "/acme=hihg=4k"], &misspelt);
    let fleet = ["serve", "--bank", "unix:/b", "--limit-fleet", "/a=foo=2m"];
    SUBMETER.refuses(&fleet, &["--limit-fleet", "\"foo\" is not a limit"]);
    let bank = ["fleet", "bank", "--listen", "unix:/no/such/b", "--limit", "/a=hihg=2m"];
    SUBMETER.refuses(&bank, &["--limit", "\"hihg\" is not a limit"]);
    let reached = ["serve", "--limits-api", "--http", "0.0.0.0:0"];
    SUBMETER.refuses(&reached, &["--limits-api", "0.0.0.0:0", "127.0.0.1:9411"]);
    SUBMETER.refuses(&["serve", "--over-rate", "never"], &["never", "refuse", "wait"]);
    SUBMETER.refuses(&["serve", "--tenants-file", "x.csv"], &["--load"]);
}

#[test]
fn no_command_shows_the_help_and_help_succeeds() {
    let output = SUBMETER.run(&[]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("Usage:"));
    for args in [&["--help"][..], &["serve", "--help"], &["load", "--help"], &["--version"]] {
        let output = SUBMETER.run(args);
        assert_eq!(output.status.code(), Some(0), "{args:?}");
        assert!(text(&output.stdout).contains("submeter"), "{args:?}");
        assert!(output.stderr.is_empty(), "{args:?}");
    }
    let version = text(&SUBMETER.run(&["--version"]).stdout);
    let (name, commit) = version.split_once(" (").unwrap_or((version.trim_end(), ""));
    assert_eq!(name, concat!("submeter ", env!("CARGO_PKG_VERSION")));
    assert!(commit.is_empty() || commit.trim_end().ends_with(')'), "{version:?}");
}

/// A build without manual pages says how to get one that has them.
#[cfg(not(feature = "manual"))]
#[test]
fn a_build_without_manuals_says_how_to_get_one() {
    SUBMETER.refuses(&["completions", "bash"], &["bash", "--features manual"]);
    SUBMETER.refuses(&["man"], &["manual pages", "--features manual"]);
    SUBMETER.refuses(&["man", "--out", "/tmp/x"], &["/tmp/x", "--features manual"]);
}

#[cfg(feature = "manual")]
#[test]
fn completions_and_manuals_name_every_command() {
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let output = SUBMETER.run(&["completions", shell]);
        assert_eq!(output.status.code(), Some(0), "{shell}");
        let script = text(&output.stdout);
        assert!(script.contains("doctor") && script.contains("tenant-limit"), "{shell}");
    }
    let page = text(&SUBMETER.run(&["man"]).stdout);
    for command in ["serve", "load", "fleet", "doctor", "top", "stat", "completions"] {
        assert!(page.contains(&format!("submeter\\-{command}(1)")), "{command}: {page}");
    }
    let dated = submeter_terminal::DATE.is_none_or(|date| {
        page.lines().any(|line| line.starts_with(".TH submeter") && line.contains(date))
    });
    assert!(dated, "{page}");
    SUBMETER.refuses(&["completions", "cmd"], &["cmd", "bash"]);
    SUBMETER.refuses(&["man", "--out", "/no/such"], &["/no/such", "No such file", "--out"]);
}

#[test]
fn missing_files() {
    let free = ["serve", "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0"];
    let limits = [&free[..], &["--limits", "/no/such.limits"]].concat();
    SUBMETER.refuses(&limits, &["/no/such.limits", "No such file", "--limits"]);
    let tenants = [&free[..], &["--load", "2", "--tenants-file", "/no/such.csv"]].concat();
    SUBMETER.refuses(&tenants, &["/no/such.csv", "No such file", "--tenants-file"]);
    SUBMETER
        .refuses(&["load", "--tenants-file", "/no/such.csv"], &["/no/such.csv", "--tenants-file"]);
}

#[test]
fn malformed_files() {
    let limits = TempFile::new("bad.limits", "/acme 64m\n/web huge\n");
    SUBMETER.refuses(&["serve", "--limits", limits.path()], &[limits.path(), "line 2", "huge"]);
    let utf_16 = TempFile::new("utf16.limits", "/\0a\0c\0m\0e\0 \x001\0m\0\n\0");
    SUBMETER.refuses(&["serve", "--limits", utf_16.path()], &[utf_16.path(), "save it as UTF-8"]);
    let csv = "tenant,key_bytes,value_bytes,request_rate_kqps,zipf_alpha,wss_mb_no_ttl,\
               operations,ttls\na,20,many,1,1,1,get=1,\n";
    let tenants = TempFile::new("bad.csv", csv);
    let parts = [tenants.path(), "line 2", "value_bytes", "many"];
    SUBMETER.refuses(&["load", "--tenants-file", tenants.path()], &parts);
    SUBMETER.refuses(&["serve", "--load", "1", "--tenants-file", tenants.path()], &parts);
}

/// Asserts that it is refused with a short line, whatever the file contains.
fn refuses_shortly(args: &[&str], parts: &[&str]) {
    SUBMETER.refuses(args, parts);
    let said = text(&SUBMETER.run(args).stderr);
    assert!(said.len() < 4000, "{} bytes: {said}", said.len());
}

#[test]
fn files_without_end() {
    let zero = "/dev/zero";
    SUBMETER.refuses(&["serve", "--limits", zero], &[zero, "larger than 16 MiB", "--limits"]);
    SUBMETER.refuses(&["serve", "--config", zero], &[zero, "larger than 16 MiB", "--config"]);
    let parts = [zero, "larger than 16 MiB", "--tenants-file"];
    SUBMETER.refuses(&["load", "--tenants-file", zero], &parts);
    SUBMETER.refuses(&["serve", "--load", "1", "--tenants-file", zero], &parts);
    if cfg!(feature = "tls") {
        let parts = [zero, "larger than 16 MiB", "--tls-cert"];
        SUBMETER.refuses(&["serve", "--tls-cert", zero, "--tls-key", zero], &parts);
    }
    let large = TempFile::new("large.token", "");
    let file = std::fs::File::options().write(true).open(large.path()).expect("just written");
    file.set_permissions(PermissionsExt::from_mode(0o600)).expect("ours");
    file.set_len(20 << 20).expect("a hole");
    let parts = [large.path(), "larger than 16 MiB", "--token-file"];
    SUBMETER.refuses(&["serve", "--token-file", large.path()], &parts);
    let parts = [zero, "not a regular file", "--file"];
    SUBMETER.refuses(&["fleet", "bill", "--sum", "--file", zero], &parts);
    SUBMETER.refuses(&["fleet", "bill", "127.0.0.1:1", "--file", zero], &parts);
}

#[test]
fn files_of_one_long_line_are_not_repeated() {
    let zeros = TempFile::new("zeros", &"\0".repeat(1 << 20));
    let long = "x".repeat(1 << 20);
    let word = TempFile::new("word", &long);
    for (args, parts) in [
        (["serve", "--limits"], &["line 1", "(1048576 characters)"][..]),
        (["serve", "--config"], &["line 1", "not TOML"]),
        (["load", "--tenants-file"], &["no column"]),
    ] {
        let args = |file| [args[0], args[1], file];
        refuses_shortly(&args(word.path()), parts);
        let zeroed = if args("")[0] == "serve" { "save it as UTF-8" } else { parts[0] };
        refuses_shortly(&args(zeros.path()), &[zeros.path(), zeroed]);
    }
    for (content, part) in [
        (format!("/{long} 64m"), "the maximum is 16384 bytes"),
        (format!("{long} 64m"), "starts with '/'"),
        (format!("/a {long}"), "is not a size"),
        (format!("/a rate={long}"), "is not a rate"),
        (format!("/a {long}=5"), "is not a limit"),
    ] {
        let limits = TempFile::new("long.limits", &content);
        refuses_shortly(&["serve", "--limits", limits.path()], &[part, "characters)"]);
    }
    for (content, part) in [
        (format!("memory = \"{long}\""), "is not a size"),
        (format!("http-host = \"{long}.\u{e9}\""), "is not a host name"),
        (format!("{long} = 5"), "is not a flag"),
        (format!("[limits]\n\"/{long}\" = 5"), "not a string"),
    ] {
        let config = TempFile::new("long.toml", &content);
        refuses_shortly(&["serve", "--config", config.path()], &[part, "characters)"]);
    }
    let csv = "tenant,key_bytes,value_bytes,request_rate_kqps,zipf_alpha,wss_mb_no_ttl,\
               operations,ttls\n";
    let tenants = TempFile::new("long.csv", &format!("{csv}a,20,{long},1,1,1,get=1,\n"));
    let parts = ["line 2", "value_bytes", "characters)"];
    refuses_shortly(&["load", "--tenants-file", tenants.path()], &parts);
}

/// Waits until `reader` reads the pipe. The returned writer writes nothing. A fixed wait would be
/// too short on a busy machine, and without a writer it would be invisible that the reader has come
/// that far.
fn silent_writer(pipe: &str, reader: &mut Running) -> std::fs::File {
    loop {
        let pipe = std::fs::File::options().write(true).custom_flags(libc::O_NONBLOCK).open(pipe);
        match pipe {
            Ok(pipe) => return pipe,
            Err(error) => assert_eq!(error.raw_os_error(), Some(libc::ENXIO), "{error}"),
        }
        assert!(!reader.has_ended());
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
}

#[test]
fn a_pipe_without_a_writer_holds_up_nothing() {
    let folder = crate::fleet::Directory::new("pipe");
    let pipe = |name: &str| {
        let pipe = folder.0.join(name).to_string_lossy().into_owned();
        let made = std::process::Command::new("mkfifo").args(["-m", "600", &pipe]).status();
        assert!(made.expect("mkfifo runs").success());
        pipe
    };
    let bill = pipe("bill");
    SUBMETER.refuses(&["fleet", "bill", "--sum", "--file", &bill], &[&bill, "not a regular file"]);
    let stop = &|before: &[&str], flag: &str, signal: &str| {
        let pipe = pipe(&format!("{flag}-{signal}"));
        let args = [&crate::support::FREE[..], before, &[flag, &pipe]].concat();
        let mut serve = SUBMETER.start(&args);
        let silent = silent_writer(&pipe, &mut serve);
        serve.signal(signal);
        let (code, said) = serve.end();
        drop(silent);
        assert_eq!(code, Some(2), "{said}");
        assert!(said.contains(&pipe) && said.contains(flag), "{said}");
    };
    // Each waits for a second after its signal.
    std::thread::scope(|scope| {
        for signal in ["INT", "TERM"] {
            scope.spawn(move || stop(&[], "--limits", signal));
            scope.spawn(move || stop(&["--load", "1"], "--tenants-file", signal));
            scope.spawn(move || stop(&[], "--auth-file", signal));
            scope.spawn(move || stop(&[], "--token-file", signal));
        }
    });
}

#[test]
fn impossible_limits_are_named_with_their_place() {
    let refuses = |content: &str, more: &[&str], parts: &[&str]| {
        let file = TempFile::new("impossible.limits", content);
        let args = [&["serve", "--limits", file.path()], more].concat();
        SUBMETER.refuses(&args, &[&[file.path()], parts].concat());
        let table = content.lines().map(|line| match line.split_once(' ') {
            Some((path, limits)) => format!("\"{}\" = \"{limits}\"\n", path.escape_default()),
            None => format!("{line}\n"),
        });
        let table = table.collect::<String>().replace("\\u{1}", "\\u0001");
        let config = TempFile::new("impossible.toml", &format!("[limits]\n{table}"));
        let args = [&["serve", "--config", config.path()], more].concat();
        SUBMETER.refuses(&args, &[config.path(), " line "]);
    };
    refuses("# one\n/a\u{1}b 1k\n", &[], &["/a\\u{1}b", "line 2"]);
    refuses("/a//b 1k\n", &[], &["/a//b", "line 1"]);
    refuses("/a 1k\n/b 1k\n", &["--tenant-limit", "/b=1m"], &["line 2, --tenant-limit", "\"/b\""]);
    let mins = ["line 1", "line 3", "more than --memory 67108864"];
    refuses("/a min=40m\n/b 1m\n/c min=40m\n", &[], &mins);
}

#[test]
fn more_tenants_than_a_file_has() {
    let csv = "tenant,key_bytes,value_bytes,request_rate_kqps,zipf_alpha,wss_mb_no_ttl,\
               operations,ttls\na,20,30,1,1,1,get=1,\n";
    let tenants = TempFile::new("one.csv", csv);
    let args = ["load", "--tenants", "2", "--tenants-file", tenants.path()];
    SUBMETER.refuses(&args, &[tenants.path(), "1 tenants, not 2"]);
}

#[test]
fn ports_in_use() {
    let held = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let addr = held.local_addr().expect("bound").to_string();
    let remedy = "127.0.0.1:0 picks a free one";
    SUBMETER.refuses(
        &["serve", "--listen", &addr, "--http", "127.0.0.1:0"],
        &[&addr, "in use", "--listen", remedy],
    );
    SUBMETER.refuses(
        &["serve", "--listen", "127.0.0.1:0", "--http", &addr],
        &[&addr, "in use", "--http", remedy],
    );
}

#[test]
fn an_address_that_is_not_ours() {
    SUBMETER.refuses(
        &["serve", "--listen", "192.0.2.1:0", "--http", "127.0.0.1:0"],
        &["192.0.2.1:0: it is no address of this machine", "--listen 127.0.0.1:0"],
    );
    SUBMETER.refuses(&["load", "--connect", "nowhere"], &["nowhere", "HOST:PORT"]);
}

#[test]
fn a_limit_on_what_cannot_be_a_tenant() {
    let free = ["serve", "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", "--seconds", "1"];
    SUBMETER.refuses(&[&free[..], &["--tenant-limit", "/a//b=1m"]].concat(), &["/a//b"]);
}
