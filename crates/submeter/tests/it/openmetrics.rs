//! The exposition is read back by our own strict parser and by Prometheus' client library.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::io::Write as _;
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use submeter::export::{Export, Format};
use submeter::{Buckets, Bytes, Count, Nanoseconds, Schema, Tree};

/// Names that a client may choose and that would escape the quotes of a careless encoder.
const HOSTILE: [&str; 5] =
    ["a\"b", "back\\slash", "<img src=x onerror=alert(1)>", "#,{}=\" 1", "naïve 🦀 tenant"];

#[test]
fn lines_are_valid_and_values_are_read_back() {
    let families = parse(&sample());
    let web = [("group".to_owned(), "/acme/web".to_owned())];
    let value = |family: &str, sample: &str| families[family].samples[&key(sample, &web)].clone();

    assert_eq!(families["app_requests"].kind, "counter");
    assert_eq!(value("app_requests", "app_requests_total"), "3");
    assert_eq!(families["app_in_bytes"].unit, "bytes");
    assert_eq!(value("app_in_bytes", "app_in_bytes_total"), "18446744073709551615");
    assert_eq!(families["app_cpu_seconds"].unit, "seconds");
    assert_eq!(value("app_cpu_seconds", "app_cpu_seconds_total"), "12.000000345");
    assert_eq!(value("app_drift_seconds", "app_drift_seconds"), "-0.5");
    assert_eq!(value("app_memory_bytes", "app_memory_bytes"), "700");
    assert_eq!(value("app_memory_limit_bytes", "app_memory_limit_bytes"), "1000");
    assert_eq!(value("app_memory_subtree_bytes", "app_memory_subtree_bytes"), "700");
    assert_eq!(value("app_requests_subtree", "app_requests_subtree_total"), "3");
    assert_eq!(value("app_memory_refused", "app_memory_refused_total"), "1");
    assert_eq!(value("app_latency_seconds", "app_latency_seconds_count"), "5");
    assert_eq!(value("app_latency_seconds", "app_latency_seconds_sum"), "200.000001513");
}

#[test]
fn the_backend_is_one_sample_with_its_reason() {
    let backend = submeter::backend();
    let families = parse(&sample());
    let family = &families["app_backend"];
    let labels = [("backend", backend.id()), ("reason", backend.reason())];
    let labels = labels.map(|(name, value)| (name.to_owned(), value.to_owned()));
    assert_eq!((family.kind.as_str(), family.samples.len()), ("info", 1));
    assert_eq!(family.samples[&key("app_backend_info", &labels)], "1");
    assert!(!backend.reason().is_empty(), "{backend:?}");
}

#[test]
fn a_scrape_says_how_long_a_barrier_waits() {
    let families = parse(&sample());
    let family = &families["app_barrier_wait_seconds"];
    assert_eq!((family.kind.as_str(), family.samples.len()), ("gauge", 1));
    // Barriers of other tests in this process may be in progress.
    let waited: f64 =
        family.samples[&key("app_barrier_wait_seconds", &[])].parse().expect("seconds");
    assert!((0.0..5.0).contains(&waited), "{waited}");
}

/// A scrape says which tree counted and since when, and a later one has a higher sequence.
#[test]
fn a_scrape_names_its_tree_and_sequence() {
    let tree = |name: &str| {
        let tree = Tree::new(Schema::builder().build().expect("valid")).expect("room");
        tree.create(name).expect("room");
        tree
    };
    let scrape = |tree: &Tree| {
        let families = parse(&text(&Export::new("app"), tree));
        let sample = |name: &str| families[name].samples[&key(name, &[])].clone();
        let epoch = [("epoch".to_owned(), format!("{:016x}", tree.snapshot().epoch()))];
        assert_eq!(families["app_tree"].samples[&key("app_tree_info", &epoch)], "1");
        let start = &families["app_tree_start_time_seconds"];
        assert_eq!((&*start.kind, &*start.unit), ("gauge", "seconds"));
        let sequence: u64 = sample("app_tree_sequence").parse().expect("an integer");
        (sample("app_tree_start_time_seconds"), sequence, epoch)
    };
    let before = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs_f64();
    let (first, second) = (tree("/a"), tree("/b"));
    let after = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs_f64();
    let (start, sequence, epoch) = scrape(&first);
    let at: f64 = start.parse().expect("a number");
    assert!((before - 0.001..=after).contains(&at), "{before} {at} {after}");
    // So that `changes` finds a restart, not merely an answer of another moment.
    std::thread::sleep(Duration::from_millis(20));
    let (again, later, same) = scrape(&first);
    assert_eq!((again, same), (start, epoch.clone()));
    assert!(later > sequence, "{sequence}, then {later}");
    assert_ne!(scrape(&second).2, epoch);
}

#[test]
fn what_runs_and_where_is_told_by_labels() {
    let families = parse(&sample());
    let sample = |family: &str, label: (&str, &str)| {
        let labels = [(label.0.to_owned(), label.1.to_owned())];
        families[family].samples[&key(&format!("{family}_info"), &labels)].clone()
    };
    assert_eq!(sample("app_build", ("version", "1.2 \"x\"")), "1");
    assert_eq!(sample("target", ("service_name", "shop")), "1");
}

#[test]
fn a_series_tells_since_when_it_counts() {
    let before = std::time::SystemTime::now();
    let families = parse(&sample());
    let web = [("group".to_owned(), "/acme/web".to_owned())];
    let created = |family: &str| -> f64 {
        let sample = format!("{family}_created");
        families[family].samples[&key(&sample, &web)].parse().expect("a time")
    };
    let epoch = std::time::SystemTime::UNIX_EPOCH;
    let seconds =
        |time: std::time::SystemTime| time.duration_since(epoch).expect("after 1970").as_secs_f64();
    // The samples have a resolution of milliseconds.
    let range = seconds(before) - 0.002..=seconds(std::time::SystemTime::now()) + 0.002;
    for family in ["app_requests", "app_latency_seconds"] {
        assert!(range.contains(&created(family)), "{} not in {range:?}", created(family));
    }
}

/// The text format names a counter like its samples, and has no end mark.
#[test]
fn the_text_format_names_counters_as_samples() {
    let mut schema = Schema::builder();
    let requests = schema.counter::<Bytes>("requests", "With a \\ and a \"quote\"");
    let tree = Tree::new(schema.build().expect("schema")).expect("tree");
    tree.root().add(requests, 3);
    let mut text = String::new();
    let export = Export::new("app").created();
    export.write_as(Format::Text, &tree, &mut text).expect("a string");
    let (info, rest) = text.split_once("} 1\n").expect("the backend");
    assert!(info.contains("\n# TYPE app_backend_info gauge\napp_backend_info{backend="), "{info}");
    let (tree, counter) = rest.split_once("app_tree_sequence 1\n").expect("the tree");
    let info = "# TYPE app_tree_info gauge\napp_tree_info{epoch=";
    let start = "# TYPE app_tree_start_time_seconds gauge\napp_tree_start_time_seconds ";
    let sequence = "# TYPE app_tree_sequence gauge\n";
    assert!(tree.contains(info) && tree.contains(start) && tree.ends_with(sequence), "{tree}");
    let expected = "# HELP app_requests_bytes_total With a \\\\ and a \"quote\" (what a new group \
                    counts until 2 scrapes have seen it is in the //other above it)\n\
                    # TYPE app_requests_bytes_total counter\n\
                    app_requests_bytes_total{group=\"/\"} 3\n";
    assert_eq!(counter, expected);
}

/// Histogram buckets are cumulative and exact at their bounds.
#[test]
fn histogram_buckets_are_cumulative_and_exact() {
    let families = parse(&sample());
    let at = |le: &str| {
        let labels = [("group", "/acme/web"), ("le", le)];
        let labels = labels.map(|(k, v)| (k.to_owned(), v.to_owned()));
        families["app_latency_seconds"].samples[&key("app_latency_seconds_bucket", &labels)].clone()
    };
    // 256 ns is on the first bound, 257 ns above it; 100 s is above the last one.
    assert_eq!(at("0.000000256"), "1");
    assert_eq!(at("0.000000512"), "2");
    assert_eq!(at("0.000001024"), "3");
    assert_eq!(at("68.719476736"), "3");
    assert_eq!(at("+Inf"), "5");
}

#[test]
fn hostile_names_stay_inside_their_label() {
    let families = parse(&sample());
    let groups: HashSet<&str> = families["app_requests"]
        .samples
        .keys()
        .map(|(_, labels)| labels["group"].as_str())
        .collect();
    for name in HOSTILE {
        assert!(groups.contains(format!("/{name}").as_str()), "{name} in {groups:?}");
    }
    // The root, its `other`, the group above the one with all metrics, that one, and its `other`.
    assert_eq!(groups.len(), HOSTILE.len() + 5);
}

#[test]
fn prometheus_own_parser_accepts_it() {
    let python = std::env::var("PYTHON").unwrap_or_else(|_| "python3".to_owned());
    let probe = Command::new(&python).args(["-c", "import prometheus_client"]).output();
    if !probe.is_ok_and(|probe| probe.status.success()) {
        eprintln!("skipped: {python} has no prometheus_client (pip install prometheus_client)");
        return;
    }
    let script = "\
import sys
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse
n = 0
for family in parse(sys.stdin.read()):
    assert family.documentation, family.name
    n += len(family.samples)
print(n)";
    let mut child = Command::new(&python)
        .args(["-c", script])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("python starts");
    let text = sample();
    let mut stdin = child.stdin.take().expect("piped");
    stdin.write_all(text.as_bytes()).expect("python reads");
    drop(stdin);
    let output = child.wait_with_output().expect("python ends");
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{error}");
    let samples = text.lines().filter(|line| !line.starts_with('#')).count();
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), samples.to_string());
}

/// A tree with every kind of metric and unit, limits, and names that try to break out.
fn sample() -> String {
    let mut s = Schema::builder();
    let requests = s.counter::<Count>("requests", "Requests with a \\ and a \"quote\"");
    let bytes_in = s.counter::<Bytes>("bytes_in", "Bytes in");
    let cpu = s.counter::<Nanoseconds>("cpu", "CPU time");
    let drift = s.gauge::<Nanoseconds>("drift", "A gauge that may be negative");
    let memory = s.quota::<Bytes>("memory", "Memory");
    let slots = s.quota::<Count>("slots", "Slots");
    let latency = s.histogram::<Nanoseconds>("latency", "Latency", Buckets::LATENCY_NS);
    let batch = s.histogram::<Count>("batch", "Batch size", Buckets::powers(2, 8));
    let tree = Tree::new(s.build().expect("schema")).expect("tree");
    let web = tree.get_or_create("/acme/web").expect("group");
    web.add(requests, 3);
    web.add(bytes_in, u64::MAX);
    web.add(cpu, 12_000_000_345);
    web.adjust(drift, -500_000_000);
    web.set_limit(memory, Some(1000));
    let held = web.try_charge(memory, 700).expect("fits");
    assert!(web.try_charge(memory, 301).is_err());
    let slot = web.try_charge(slots, 2).expect("no limit");
    for ns in [256, 257, 1000, 100_000_000_000, 100_000_000_000] {
        web.record(latency, ns);
    }
    web.record(batch, 4);
    for name in HOSTILE {
        tree.get_or_create(&format!("/{name}")).expect("a legal name").add(requests, 1);
    }
    let export = Export::new("app").subtrees().created().build_info(&[("version", "1.2 \"x\"")]);
    let text = text(&export.target_info(&[("service.name", "shop")]), &tree);
    drop((held, slot));
    text
}

fn text(export: &Export, tree: &Tree) -> String {
    let mut text = String::new();
    export.write(tree, &mut text).expect("a String takes everything");
    text
}

type SampleKey = (String, BTreeMap<String, String>);

#[derive(Default)]
struct Family {
    kind: String,
    unit: String,
    samples: HashMap<SampleKey, String>,
}

fn key(name: &str, labels: &[(String, String)]) -> SampleKey {
    (name.to_owned(), labels.iter().cloned().collect())
}

/// Parses an exposition strictly by the specification; panics at the first violation.
fn parse(text: &str) -> HashMap<String, Family> {
    let body = text.strip_suffix("# EOF\n").expect("ends with # EOF");
    let mut families: HashMap<String, Family> = HashMap::new();
    let mut current = String::new();
    for line in body.lines() {
        if let Some(meta) = line.strip_prefix("# ") {
            let mut words = meta.splitn(3, ' ');
            let mut word = || words.next().unwrap_or_else(|| panic!("a short line: {line}"));
            let (what, name, value) = (word(), word(), word());
            if what == "TYPE" {
                assert!(!families.contains_key(name), "family {name} twice");
                current = name.to_owned();
            }
            assert_eq!(current, name, "metadata outside its family: {line}");
            let family = families.entry(current.clone()).or_default();
            assert!(family.samples.is_empty(), "metadata after samples: {line}");
            match what {
                "TYPE" => family.kind = value.to_owned(),
                "UNIT" => {
                    assert!(name.ends_with(&format!("_{value}")), "the unit ends the name: {line}");
                    family.unit = value.to_owned();
                }
                "HELP" => assert!(!value.is_empty()),
                _ => panic!("unknown metadata: {line}"),
            }
            continue;
        }
        let (name, labels, value) = sample_line(line);
        let family = families.get_mut(&current).unwrap_or_else(|| panic!("no family: {line}"));
        let suffix = name.strip_prefix(&current).unwrap_or_else(|| panic!("stray: {line}"));
        let allowed: &[&str] = match family.kind.as_str() {
            "counter" => &["_total", "_created"],
            "gauge" => &[""],
            "histogram" => &["_bucket", "_sum", "_count", "_created"],
            "info" => &["_info"],
            kind => panic!("type {kind}"),
        };
        assert!(allowed.contains(&suffix), "{suffix} of a {}: {line}", family.kind);
        let number: f64 = value.parse().unwrap_or_else(|_| panic!("no number: {line}"));
        assert!(number >= 0.0 || family.kind == "gauge", "a negative {}: {line}", family.kind);
        let key = (name, labels);
        assert!(!family.samples.contains_key(&key), "twice: {line}");
        family.samples.insert(key, value);
    }
    for (name, family) in families.iter().filter(|(_, family)| family.kind == "histogram") {
        check_histogram(name, family);
    }
    families
}

/// Splits `name{a="b"} 1` or `name 1`, undoing the escapes.
fn sample_line(line: &str) -> (String, BTreeMap<String, String>, String) {
    let Some((name, mut rest)) = line.split_once('{') else {
        let (name, value) = line.split_once(' ').unwrap_or_else(|| panic!("no value: {line}"));
        return (name.to_owned(), BTreeMap::new(), value.to_owned());
    };
    assert!(
        name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_'),
        "not a metric's name: {line}"
    );
    let mut labels = BTreeMap::new();
    loop {
        let (label, after) = rest.split_once("=\"").unwrap_or_else(|| panic!("label: {line}"));
        let mut value = String::new();
        let mut chars = after.char_indices();
        let end = loop {
            match chars.next().unwrap_or_else(|| panic!("open quote: {line}")) {
                (at, '"') => break at,
                (_, '\\') => match chars.next().map(|(_, c)| c) {
                    Some('n') => value.push('\n'),
                    Some(c @ ('\\' | '"')) => value.push(c),
                    other => panic!("escape {other:?}: {line}"),
                },
                (_, c) => value.push(c),
            }
        };
        assert!(labels.insert(label.to_owned(), value).is_none(), "label twice: {line}");
        rest = &after[end + 1..];
        if let Some(value) = rest.strip_prefix("} ") {
            return (name.to_owned(), labels, value.to_owned());
        }
        rest = rest.strip_prefix(',').unwrap_or_else(|| panic!("after a label: {line}"));
    }
}

fn check_histogram(name: &str, family: &Family) {
    let mut series: HashMap<&str, Vec<(f64, u64)>> = HashMap::new();
    for ((sample, labels), value) in &family.samples {
        if sample.ends_with("_bucket") {
            let bound = labels["le"].parse().expect("le is a number or +Inf");
            let count = value.parse().expect("a count is whole");
            series.entry(&labels["group"]).or_default().push((bound, count));
        }
    }
    for (group, mut buckets) in series {
        buckets.sort_by(|a, b| a.0.total_cmp(&b.0));
        assert!(buckets.is_sorted_by_key(|bucket| bucket.1), "{name} of {group}: {buckets:?}");
        let (bound, last) = *buckets.last().expect("has buckets");
        assert!(bound.is_infinite(), "{name} of {group} has no +Inf");
        let labels = [("group".to_owned(), group.to_owned())];
        assert_eq!(family.samples[&key(&format!("{name}_count"), &labels)], last.to_string());
    }
}

/// Buckets whose sum exceeds 64 bits are written as the largest number.
#[test]
fn buckets_beyond_64_bits_are_capped() {
    let mut schema = Schema::builder();
    let latency = schema.histogram::<Nanoseconds>("latency", "", Buckets::LATENCY_NS);
    let tree = Tree::new(schema.build().expect("valid")).expect("address space");
    tree.root().record_many(latency, 3, u64::MAX);
    tree.root().record_many(latency, 1 << 20, u64::MAX);
    let text = text(&Export::new("app"), &tree);
    let count = format!("app_latency_seconds_count{{group=\"/\"}} {}", u64::MAX);
    assert!(text.lines().any(|line| line == count), "{count} in {text}");
}

/// The help text says where the first counts of a new group are.
#[test]
fn help_says_where_a_new_groups_counts_are() {
    let mut schema = Schema::builder();
    let jobs = schema.counter::<Count>("jobs", "Jobs done");
    schema.histogram::<Nanoseconds>("time", "Time of a job", Buckets::LATENCY_NS);
    schema.gauge::<Count>("workers", "Workers");
    schema.quota::<Bytes>("memory", "Memory held");
    let tree = Tree::new(schema.build().expect("schema")).expect("tree");
    let help = |text: &str, name: &str| {
        let line = text.lines().find(|line| line.starts_with(&format!("# HELP {name} ")));
        line.unwrap_or_else(|| panic!("no {name}: {text}")).to_owned()
    };
    for (scrapers, seen) in [(1, "a scrape has seen it"), (2, "2 scrapes have seen it")] {
        let export = Export::new("").scrapers(scrapers).subtrees();
        let first = text(&export, &tree);
        let about = format!("what a new group counts until {seen} is in the //other above it");
        for name in ["jobs", "time_seconds", "memory_refused"] {
            assert!(help(&first, name).ends_with(&format!(" ({about})")), "{}", help(&first, name));
        }
        for name in ["jobs_subtree", "workers", "memory_peak_bytes"] {
            assert!(!help(&first, name).contains("other"), "{}", help(&first, name));
        }
        // And that is where they are.
        let group = tree.create(&format!("/new{scrapers}")).expect("room");
        let own = format!("jobs_total{{group=\"/new{scrapers}\"}}");
        for n in 1..=scrapers + 1 {
            group.add(jobs, 1);
            let value = if n > scrapers { 1 } else { 0 };
            assert!(text(&export, &tree).contains(&format!("{own} {value}\n")), "scrape {n}");
        }
    }
    let exact = text(&Export::new("").exact(), &tree);
    assert!(!help(&exact, "jobs").contains("other"), "{exact}");
}
