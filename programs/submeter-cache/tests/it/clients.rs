//! Third-party clients: a library from crates.io and the tools of libmemcached.

use std::process::{Command, Output};

use crate::common::{Running, start_default};

#[test]
fn a_client_library_works() {
    let server = start_default();
    let url = format!("memcache://{}?protocol=ascii&timeout=20", server.addr);
    let client = memcache::connect(url).expect("it connects");
    client.set("acme:text", "value", 0).expect("set");
    assert_eq!(client.get::<String>("acme:text").expect("get").as_deref(), Some("value"));
    assert_eq!(client.get::<String>("acme:none").expect("get"), None);
    client.add("acme:number", 40, 0).expect("add");
    // The library does not report whether it was stored.
    client.add("acme:number", 1, 0).expect("add");
    assert_eq!(client.increment("acme:number", 3).expect("incr"), 43);
    assert_eq!(client.decrement("acme:number", 1).expect("decr"), 42);
    client.append("acme:text", "!").expect("append");
    client.prepend("acme:text", ">").expect("prepend");
    client.replace("acme:number", 7, 100).expect("replace");
    let keys = ["acme:text", "acme:number", "acme:none"];
    let found = client.gets::<(Vec<u8>, u32, Option<u64>)>(&keys).expect("gets");
    assert_eq!(found.len(), 2);
    assert_eq!(found["acme:text"].0, b">value!");
    let cas = found["acme:text"].2.expect("gets returns a cas");
    assert!(client.cas("acme:text", "swapped", 0, cas).expect("cas"));
    assert!(!client.cas("acme:text", "again", 0, cas).expect("cas"));
    assert!(client.touch("acme:text", 1000).expect("touch"));
    assert!(client.delete("acme:text").expect("delete"));
    assert!(!client.delete("acme:text").expect("delete"));
    let large = vec![b'v'; 1 << 20];
    client.set("acme:large", &large[..], 0).expect("a value of 1 MiB");
    assert_eq!(client.get::<Vec<u8>>("acme:large").expect("get"), Some(large));
    assert!(client.version().expect("version")[0].1.starts_with("1.6"));
    client.flush().expect("flush_all");
    assert_eq!(client.get::<String>("acme:number").expect("get"), None);

    let metrics = server.cache.metrics();
    let acme = server.cache.tree().get("/acme").expect("it was asked for");
    assert_eq!(acme.sum(metrics.cmd_arithmetic), 2);
    assert_eq!(acme.sum(metrics.cmd_delete), 2);
    assert_eq!(acme.sum(metrics.cmd_touch), 1);
    assert_eq!(acme.sum(metrics.items), 0);
}

/// Runs one of libmemcached's tools against the server, or prints that it is missing.
fn tool(server: &Running, name: &str, args: &[&str]) -> Option<Output> {
    let mut command = Command::new(name);
    match command.arg(format!("--servers={}", server.addr)).args(args).output() {
        Ok(output) => Some(output),
        Err(_) => {
            eprintln!("SKIPPED: no {name} on this machine (Debian: libmemcached-tools)");
            None
        }
    }
}

#[test]
fn libmemcached_tools_work() {
    let server = start_default();
    let file = std::env::temp_dir().join(format!("submeter-tools-{}", std::process::id()));
    std::fs::write(&file, "from a file\n").expect("a temporary file");
    let path = file.to_str().expect("temporary paths are text");
    let key = file.file_name().and_then(|name| name.to_str()).expect("it has a name");
    let Some(copied) = tool(&server, "memccp", &[path]) else { return };
    let _ = std::fs::remove_file(&file);
    assert!(copied.status.success(), "{copied:?}");
    let mut client = server.connect();
    assert_eq!(client.get(key).as_deref(), Some(&b"from a file\n"[..]));

    let run = |name: &str, args: &[&str]| tool(&server, name, args).expect("they come together");
    let shown = run("memccat", &[key]);
    assert_eq!(String::from_utf8_lossy(&shown.stdout).trim_end(), "from a file");
    assert!(run("memcexist", &[key]).status.success());
    assert!(run("memctouch", &["--expire=1000", key]).status.success());
    assert!(run("memcping", &[]).status.success());
    let stats = run("memcstat", &[]);
    let text = String::from_utf8_lossy(&stats.stdout);
    assert!(stats.status.success() && text.contains("curr_items: 1"), "{text}");
    assert!(run("memcrm", &[key]).status.success());
    assert!(!run("memcexist", &[key]).status.success());
    assert_eq!(client.set("k", b"a"), "STORED");
    assert!(run("memcflush", &[]).status.success());
    assert_eq!(client.get("k"), None);
}

#[test]
fn memccapable_finds_every_ascii_command_capable() {
    let server = start_default();
    let port = server.addr.port().to_string();
    let ran = Command::new("memccapable").args(["-h", "127.0.0.1", "-p", &port, "-a"]).output();
    let Ok(output) = ran else {
        eprintln!("SKIPPED: no memccapable on this machine (Debian: libmemcached-tools)");
        return;
    };
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}");
    assert!(text.matches("[pass]").count() >= 27 && !text.contains("[FAIL]"), "{text}");
}
