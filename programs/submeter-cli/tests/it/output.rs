//! Standard output that cannot be written to is reported, and is not a success.

use std::fs::File;
use std::process::{Command, Stdio};

use submeter_program::text;

use crate::fleet::Directory;
use crate::support::{FREE, Server};

#[test]
fn what_cannot_be_written_is_no_commands_success() {
    let server = Server::start(&[]);
    let (page, cache) = (server.url(), server.cache_address());
    let directory = Directory::new("output");
    let address = directory.bank();
    let socket = address.trim_start_matches("unix:");
    let _bank = crate::fleet::bank(&address, &[]);
    let bills = format!("{socket}.bills");
    let (cache, other) = (cache.to_string(), format!("unix:{socket}.other"));
    let commands = [
        &["--help"][..],
        &["--version"],
        &["serve", "--help"],
        &["doctor"],
        &["doctor", "--json"],
        &["top", "--once", &page],
        &["top", "--once", "--json", &page],
        &["top", "--json", &page],
        &["stat", "-e", "task-clock", "--timeout", "20", &page],
        &["stat", "-e", "task-clock", "-I", "20", "-x", ",", &page],
        &["load", "--connect", &cache, "--tenants", "1", "--requests", "10"],
        &["load", "--connect", &cache, "--tenants", "1", "--requests", "10", "--json", "-"],
        &["fleet", "top", "--once", &page],
        &["fleet", "bill", "--file", &bills, &page],
        &["fleet", "bill", "--file", &bills, "--sum"],
        &["fleet", "set", "--bank", &address, "/acme", "rate=1/s"],
        &["fleet", "status", "--bank", &address],
        &["fleet", "status", "--json", "--bank", &address],
        &["fleet", "bank", "--listen", &other, "--seconds", "1"],
        &["fleet", "demo", "--seconds", "1"],
        &[&FREE[..], &["--seconds", "1"]].concat(),
        #[cfg(feature = "manual")]
        &["completions", "bash"],
        #[cfg(feature = "manual")]
        &["man"],
    ];
    for args in commands {
        let full = File::options().write(true).open("/dev/full").expect("a device of Linux");
        let mut command = Command::new(env!("CARGO_BIN_EXE_submeter"));
        let output = command.args(args).stdout(Stdio::from(full)).output().expect("it runs");
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {said}");
        assert!(said.contains("cannot write to standard output: No space"), "{args:?}: {said}");
    }
    // Not even the reason can be reported, which is no reason to crash.
    let full = || File::options().write(true).open("/dev/full").expect("a device of Linux");
    let mut command = Command::new(env!("CARGO_BIN_EXE_submeter"));
    let ended = command.arg("--help").stdout(full()).stderr(full()).status().expect("it runs");
    assert_eq!(ended.code(), Some(2));
}
