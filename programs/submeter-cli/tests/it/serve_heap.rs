//! `submeter serve --heap`: which tenant owns the memory of the process.

use serde_json::Value;
use submeter_program::text;

use crate::fleet::until;
use crate::support::{FREE, SUBMETER, Server};

const VALUE: usize = 100_000;

/// A server that attributes its heap to tenants.
struct Heap(Server);

impl Heap {
    fn start(how: &str) -> Heap {
        Heap(Server::start(&["--heap", how]))
    }

    fn set(&self, key: &str, len: usize) {
        let set = format!("set {key} 0 0 {len}\r\n{}\r\n", "v".repeat(len));
        assert_eq!(self.0.ask(&set), "STORED");
    }

    fn delete(&self, key: &str) {
        assert_eq!(self.0.ask(&format!("delete {key}\r\n")), "DELETED");
    }

    fn held(&self, path: &str) -> usize {
        self.0.group(path)["overview"]["heap_bytes"].as_u64().unwrap_or(0) as usize
    }

    /// Returns the only row of the process's memory.
    fn process(&self) -> Vec<u64> {
        let panels = self.0.tree()["panels"].clone();
        let mut all = panels.as_array().expect("panels").iter();
        let panel = all.find(|panel| panel["key"] == "process_memory").expect("shown");
        let row = panel["rows"][0].as_array().expect("a row").iter();
        row.map(|cell| cell["value"].as_u64().expect("a figure")).collect()
    }
}

/// A tenant has what its items take, until they are deleted.
#[test]
fn a_tenant_has_what_its_items_take() {
    let server = Heap::start("exact");
    (0..10).for_each(|item| server.set(&format!("acme:{item}"), VALUE));
    server.set("other:1", VALUE);
    // The rest is less than an item: keys, headers, places in the table.
    until("items are whose they are", || {
        (10 * VALUE..11 * VALUE).contains(&server.held("/acme"))
            && (VALUE..2 * VALUE).contains(&server.held("/other"))
            && (11 * VALUE..12 * VALUE).contains(&server.held("/"))
    });
    let [all, files, tenants, rest] = server.process()[..] else { panic!("no error") };
    assert!(tenants >= 11 * VALUE as u64, "{tenants}");
    assert_eq!(files + tenants + rest, all);
    (0..10).for_each(|item| server.delete(&format!("acme:{item}")));
    until("deleted items are nobody's", || server.held("/acme") < VALUE);
    let said = server.0.end_by("TERM");
    assert!(said.contains("heap    exact: tenants hold "), "{said}");
}

/// A tenant has about what its items take, with the error beside it.
#[test]
fn a_tenant_has_about_what_its_items_take() {
    const SMALL: usize = 3_000;
    const ITEMS: usize = 1_000;
    let server = Heap::start("sampled");
    // Known to the byte, and sampled.
    (0..10).for_each(|item| server.set(&format!("large:{item}"), VALUE));
    (0..ITEMS).for_each(|item| server.set(&format!("small:{item}"), SMALL));
    let error = |group: &Value| group["overview"]["heap_error_bytes"].as_u64().unwrap_or(0);
    until("items are about whose they are", || {
        let [large, small] = ["/large", "/small"].map(|path| server.0.group(path));
        let far = |group: &Value, truth: usize| {
            let held = group["overview"]["heap_bytes"].as_u64().unwrap_or(0);
            held.abs_diff(truth as u64)
        };
        // Five standard errors, and what keys, headers and places take.
        far(&large, 10 * VALUE) < 5 * error(&large) + VALUE as u64
            && far(&small, ITEMS * SMALL) < 5 * error(&small) + VALUE as u64
    });
    let small = server.0.group("/small");
    let samples = small["values"]["heap_live_samples"].as_f64().expect("a gauge");
    assert!(samples > 10.0, "about one in 22: {small}");
    let expected = 65_536.0 * (1.0 + samples).sqrt();
    assert_eq!(error(&small), expected.round() as u64);
    let [.., tenants, _, of_all] = server.process()[..] else { panic!("five figures") };
    assert!(of_all >= error(&small) && tenants > of_all, "{of_all} of {tenants}");
    let metrics = server.0.metrics();
    for series in ["heap_live_bytes", "heap_live_samples", "heap_lacking_bytes_total"] {
        assert!(metrics.contains(&format!("submeter_cache_{series}")), "{metrics}");
    }
    (0..ITEMS).for_each(|item| server.delete(&format!("small:{item}")));
    // The rest is the table that they were in, within the error, as above.
    until("deleted items are nobody's", || {
        let small = server.0.group("/small");
        server.held("/small") < VALUE + 5 * error(&small) as usize
    });
    let said = server.0.end_by("TERM");
    assert!(said.contains("heap    sampled: tenants hold ") && said.contains(" \u{b1} "), "{said}");
}

#[test]
fn books_agree_after_a_load_that_evicts() {
    for how in ["exact", "sampled"] {
        let args = ["--load", "3", "--seconds", "1", "--memory", "4m", "--heap", how];
        let said = SUBMETER.prints(&[&FREE[..], &args].concat());
        let heap = format!("heap    {how}: ");
        assert!(said.contains("sums    exact: ") && said.contains(&heap), "{said}");
    }
}

#[test]
fn how_is_one_of_three_words() {
    let output = SUBMETER.run(&[&FREE[..], &["--heap", "sample"]].concat());
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("--heap") && said.contains("off, sampled, exact"), "{said}");
}

#[test]
fn without_metering_allocations_are_nobodys() {
    let output = SUBMETER.run(&[&FREE[..], &["--heap", "exact", "--no-metering"]].concat());
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("--heap") && said.contains("--no-metering"), "{said}");
}
