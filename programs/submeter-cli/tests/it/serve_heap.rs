//! `submeter serve --heap`: whose the memory of the process is.

use std::io::Write;
use std::net::TcpStream;

use serde_json::Value;
use submeter_program::text;

use crate::fleet::until;
use crate::support::{FREE, SUBMETER, cache_address, get, line};

const VALUE: usize = 100_000;

#[test]
fn a_tenant_has_what_its_items_take_until_they_are_deleted() {
    let mut server = SUBMETER.start(&[&FREE[..], &["--heap", "exact"]].concat());
    let page = server.address_after("http://");
    let mut cache = TcpStream::connect(cache_address(&mut server)).expect("it listens");
    let mut ask = |request: String| {
        cache.write_all(request.as_bytes()).expect("sent");
        line(&cache)
    };
    let tree = || -> Value { serde_json::from_str(&get(page, "/api/tree")).expect("JSON") };
    let heap = |path: &str| {
        let tree = tree();
        let groups = tree["groups"].as_array().expect("groups");
        let group = groups.iter().find(|group| group["path"] == path);
        group.and_then(|group| group["overview"]["heap_bytes"].as_u64()).unwrap_or(0) as usize
    };
    for item in 0..10 {
        let set = format!("set acme:{item} 0 0 {VALUE}\r\n{}\r\n", "v".repeat(VALUE));
        assert_eq!(ask(set), "STORED");
    }
    assert_eq!(ask(format!("set other:1 0 0 {VALUE}\r\n{}\r\n", "v".repeat(VALUE))), "STORED");
    // Less than an item besides: keys, headers, places in the table.
    until("items are whose they are", || {
        (10 * VALUE..11 * VALUE).contains(&heap("/acme"))
            && (VALUE..2 * VALUE).contains(&heap("/other"))
            && (11 * VALUE..12 * VALUE).contains(&heap("/"))
    });
    let panels = tree()["panels"].clone();
    let panel = panels.as_array().expect("panels").iter().find(|it| it["key"] == "process_memory");
    let row: Vec<u64> = panel.expect("shown")["rows"][0]
        .as_array()
        .expect("a row")
        .iter()
        .map(|cell| cell["value"].as_u64().expect("a figure"))
        .collect();
    let [all, files, tenants, rest] = row[..] else { panic!("{panels}") };
    assert!(tenants >= 11 * VALUE as u64, "{panels}");
    assert_eq!(files + tenants + rest, all, "{panels}");
    for item in 0..10 {
        assert_eq!(ask(format!("delete acme:{item}\r\n")), "DELETED");
    }
    until("deleted items are nobody's", || heap("/acme") < VALUE);
    server.signal("TERM");
    let (code, said) = server.end();
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("heap    exact: tenants hold "), "{said}");
}

#[test]
fn books_agree_after_a_load_that_evicts() {
    let args = ["--load", "3", "--seconds", "1", "--memory", "4m", "--heap", "exact"];
    let output = SUBMETER.run(&[&FREE[..], &args].concat());
    let said = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{said}{}", text(&output.stderr));
    assert!(said.contains("sums    exact: ") && said.contains("heap    exact: "), "{said}");
}

#[test]
fn without_metering_no_thread_knows_for_whom_it_allocates() {
    let output = SUBMETER.run(&[&FREE[..], &["--heap", "exact", "--no-metering"]].concat());
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("--heap") && said.contains("--no-metering"), "{said}");
}
