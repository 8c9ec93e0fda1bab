//! The text of a registry with a tree in it.

use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;
use submeter::checkpoint::CheckpointFile;
use submeter::{Buckets, Bytes, Count, Nanoseconds, Schema, SchemaBuilder, Tree};
use submeter_prometheus_client::TreeCollector;

fn tree(declare: impl FnOnce(&mut SchemaBuilder)) -> Tree {
    let mut schema = Schema::builder();
    declare(&mut schema);
    Tree::new(schema.build().expect("valid")).expect("address space")
}

fn text(tree: &Tree) -> String {
    let mut registry = Registry::with_prefix("app");
    registry.register_collector(Box::new(TreeCollector::new(tree)));
    let mut text = String::new();
    encode(&mut text, &registry).expect("a string takes all");
    text
}

#[track_caller]
fn has(text: &str, lines: &[&str]) {
    for line in lines {
        assert!(text.lines().any(|known| known == *line), "{line:?} is missing in\n{text}");
    }
}

/// Every kind is written with its unit, and with the totals of descendants.
#[test]
fn every_kind_is_written_with_its_unit() {
    let mut schema = Schema::builder();
    let requests = schema.counter::<Count>("requests_total", "Requests");
    let cpu = schema.counter::<Nanoseconds>("cpu", "CPU");
    let open = schema.gauge::<Count>("open", "Open");
    let wait = schema.histogram::<Nanoseconds>("wait", "Wait", Buckets::powers(8, 12));
    let memory = schema.quota::<Bytes>("memory", "Memory");
    let tree = Tree::new(schema.build().expect("valid")).expect("address space");
    let web = tree.get_or_create("/acme/web").expect("room");
    web.add(requests, u64::MAX >> 1);
    web.add(cpu, 1_500_000_000);
    web.adjust(open, -2);
    web.record_many(wait, 100, 2);
    web.record(wait, 1000);
    web.record(wait, 1 << 20);
    let acme = tree.get("/acme").expect("made above");
    acme.set_limit(memory, Some(100));
    let held = web.try_charge(memory, 60).expect("within");
    assert!(web.try_charge(memory, 60).is_err());
    let text = text(&tree);
    has(
        &text,
        &[
            "# TYPE app_requests_subtree counter",
            "app_requests_subtree_total{group=\"/\"} 9223372036854775807",
            "# UNIT app_cpu_subtree_seconds seconds",
            "app_cpu_subtree_seconds_total{group=\"/acme\"} 1.5",
            "app_open_subtree{group=\"/acme/web\"} -2",
            "app_wait_subtree_seconds_bucket{le=\"2.56e-7\",group=\"/acme\"} 2",
            "app_wait_subtree_seconds_bucket{le=\"0.000001024\",group=\"/acme\"} 3",
            "app_wait_subtree_seconds_bucket{le=\"+Inf\",group=\"/acme\"} 4",
            "app_wait_subtree_seconds_count{group=\"/acme\"} 4",
            "app_memory_subtree_bytes{group=\"/acme\"} 60",
            "app_memory_limit_bytes{group=\"/acme\"} 100",
            "app_memory_peak_bytes{group=\"/\"} 60",
            "app_memory_refused_total{group=\"/acme\"} 1",
            "# EOF",
        ],
    );
    assert!(!text.contains("app_memory_limit_bytes{group=\"/\"}"), "no limit there");
    drop(held);
}

/// Each part of a quota has a family, and stalls are in seconds.
#[test]
fn each_part_of_a_quota_has_a_family() {
    let mut schema = Schema::builder();
    let memory = schema.quota::<Bytes>("memory", "Memory");
    let tree = Tree::new(schema.build().expect("valid")).expect("address space");
    let web = tree.get_or_create("/acme/web").expect("room");
    let acme = tree.get("/acme").expect("made above");
    acme.set_limit(memory, Some(50));
    let held = web.charge_forced(memory, 60);
    let late = web.charge_blocking(memory, 1, std::time::Duration::from_millis(1));
    late.expect_err("no room");
    let text = text(&tree);
    let waited = web.pressure(memory).some.total.as_nanos() as f64 / 1e9;
    assert!(waited > 0.0, "{waited}");
    has(
        &text,
        &[
            "app_memory_overdrafts_total{group=\"/acme\"} 1",
            "app_memory_overdrafts_total{group=\"/acme/web\"} 0",
            "# UNIT app_memory_pressure_some_seconds seconds",
            "app_memory_reclaimed_bytes_total{group=\"/acme\"} 0",
            "app_memory_reclaimed_low_total{group=\"/acme\"} 0",
        ],
    );
    // The number, not its text: below a ten-thousandth some writers use exponents.
    let series = "app_memory_pressure_some_seconds_total{group=\"/acme/web\"} ";
    let shown = text.lines().find_map(|line| line.strip_prefix(series));
    assert_eq!(shown.and_then(|shown| shown.parse().ok()), Some(waited), "{shown:?}");
    let families = text.lines().filter(|line| line.starts_with("# TYPE app_memory_")).count();
    assert_eq!(families, submeter::export::QuotaPart::ALL.len() + 1);
    drop(held);
}

#[test]
fn no_two_families_share_a_sample() {
    let tree = tree(|schema| {
        schema.counter::<Count>("x_total", "");
        schema.counter::<Count>("x", "");
        schema.gauge::<Bytes>("bytes_in", "");
        schema.gauge::<Bytes>("in", "");
        schema.gauge::<Bytes>("bytes", "");
    });
    let text = text(&tree);
    let mut samples: Vec<_> = text
        .lines()
        .filter(|line| !line.starts_with('#'))
        .filter_map(|l| l.split(' ').next())
        .collect();
    let all = samples.len();
    samples.sort_unstable();
    samples.dedup();
    assert_eq!(samples.len(), all, "a sample twice in\n{text}");
    has(
        &text,
        &[
            "app_x_subtree_2_total{group=\"/\"} 0",
            "app_in_subtree_2_bytes{group=\"/\"} 0",
            "app_bytes_subtree_bytes{group=\"/\"} 0",
        ],
    );
}

/// Hostile paths and help texts stay within their quotes and lines.
#[test]
fn hostile_texts_stay_within_their_lines() {
    let tree = tree(|schema| {
        schema.counter::<Count>("requests", "a\n# TYPE forged counter");
    });
    tree.create("/a\"} 7 \\").expect("a legal name");
    let text = text(&tree);
    has(&text, &["app_requests_subtree_total{group=\"/a\\\"} 7 \\\\\"} 0"]);
    assert!(!text.lines().any(|line| line.starts_with("# TYPE forged")), "{text}");
}

#[test]
fn totals_do_not_fall_when_a_child_ends() {
    let mut schema = Schema::builder();
    let requests = schema.counter::<Count>("requests", "");
    let tree = Tree::new(schema.build().expect("valid")).expect("address space");
    let web = tree.get_or_create("/acme/web").expect("room");
    web.add(requests, 3);
    has(&text(&tree), &["app_requests_subtree_total{group=\"/acme\"} 3"]);
    web.kill().expect("no children");
    let text = text(&tree);
    has(&text, &["app_requests_subtree_total{group=\"/acme\"} 3"]);
    assert!(!text.contains("/acme/web"), "{text}");
}

#[test]
fn what_was_restored_is_left_to_who_counted_it() {
    let schema = || {
        let mut schema = Schema::builder();
        let requests = schema.counter::<Count>("requests", "Requests");
        (Tree::new(schema.build().expect("valid")).expect("address space"), requests)
    };
    let name = format!("submeter-prometheus-client-{}", std::process::id());
    let path = std::env::temp_dir().join(name);
    let open = || CheckpointFile::open(&path).expect("room");
    let (former, requests) = schema();
    former.get_or_create("/acme").expect("room").add(requests, 1_000);
    former.checkpoint(&mut open()).expect("room");
    let (tree, requests) = schema();
    tree.restore(&mut open()).expect("saved above").expect("one");
    std::fs::remove_file(&path).expect("saved above");
    tree.get("/acme").expect("restored").add(requests, 4);
    has(&text(&tree), &["app_requests_subtree_total{group=\"/acme\"} 4"]);
}
