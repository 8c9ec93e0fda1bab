//! The rules and the dashboard that come with the server, checked against the server and
//! Prometheus' tools.

mod made;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use serde_json::Value;

use self::made::{ERROR, Server, Source, source};
use crate::support;

fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("monitoring")
}

fn read(file: &str) -> String {
    std::fs::read_to_string(directory().join(file)).expect("it is in the repository")
}

/// Returns the queries of the dashboard, with an interval where Grafana would insert one.
pub(crate) fn queries() -> Vec<String> {
    let dashboard: Value = serde_json::from_str(&read("dashboard.json")).expect("JSON");
    let panels = dashboard["panels"].as_array().expect("panels").iter();
    let targets = panels.flat_map(|panel| panel["targets"].as_array().expect("targets"));
    targets
        .map(|target| target["expr"].as_str().expect("a query").replace("$__rate_interval", "1m"))
        .collect()
}

/// Every metric of the rules and the dashboard is in a scrape.
#[test]
fn a_scrape_has_every_metric_of_rules_and_board() {
    // A server with an unreachable bank is a member of a fleet, too.
    let fleet = ["--bank", "unix:/nonexistent/bank", "--limit-fleet", "/acme=memory=1m"];
    let load = ["--load", "2", "--heap", "sampled"];
    let scrape = support::Server::start(&[&load[..], &fleet].concat()).metrics();
    let names = |text: &str| -> BTreeSet<String> {
        let words = text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
        words.filter(|word| word.starts_with("submeter_cache_")).map(str::to_owned).collect()
    };
    let known = names(&scrape);
    let rules = read("rules.yml");
    let mut asked = rules.clone() + &queries().join("\n");
    for record in rules.lines().filter_map(|line| line.trim().strip_prefix("- record: ")) {
        asked = asked.replace(record, "");
    }
    let asked = names(&asked);
    assert!(asked.len() > 8, "{asked:?}");
    let unknown: Vec<_> = asked.difference(&known).collect();
    assert!(unknown.is_empty(), "{unknown:?} not in {known:?}");
    let refusing =
        |name: &&String| name.ends_with("_refused_total") || name.ends_with("_throttled_total");
    // An item that a memory limit refuses is stored after an eviction.
    let told =
        |name: &&String| *name == "submeter_cache_memory_refused_total" || asked.contains(*name);
    let untold: Vec<_> = known.iter().filter(refusing).filter(|name| !told(name)).collect();
    assert!(untold.is_empty(), "{untold:?} refuse something, and no rule says so");
}

/// The whole of `/api/tree`, after a second in which something was counted.
static LOADED: LazyLock<Server> = LazyLock::new(|| {
    let server = support::Server::start(&["--load", "2", "--heap", "sampled"]);
    let began = Instant::now();
    loop {
        let tree = server.tree();
        let groups = tree["groups"].as_array().expect("a list");
        let is_known = |group: &Value| group["rates"]["cmd_get"].as_f64() > Some(0.0);
        if groups.len() > 2 && groups.iter().all(is_known) {
            return Server(tree);
        }
        assert!(began.elapsed() < Duration::from_secs(60), "the load does not begin: {tree}");
        std::thread::sleep(Duration::from_millis(50));
    }
});

/// Run `SUBMETER_BLESS=1 cargo test -p submeter-cli --test command monitoring` to write them.
#[test]
fn dashboard_and_rules_are_those_of_the_views() {
    for (file, is) in
        [("dashboard.json", LOADED.dashboard()), ("rules.yml", LOADED.rules(&read("rules.yml")))]
    {
        if std::env::var_os("SUBMETER_BLESS").is_some_and(|it| !it.is_empty()) {
            std::fs::write(directory().join(file), &is).expect("the repository can be written");
        }
        let same = read(file) == is;
        assert!(
            same,
            "{file} is not of the views: SUBMETER_BLESS=1 cargo test -p submeter-cli \
                       --test command monitoring, and review the diff"
        );
    }
}

/// Each view shows what its metrics in the dashboard say.
#[test]
fn each_view_shows_what_its_metrics_say() {
    let Server(tree) = &*LOADED;
    let unit = |metric: &str| {
        let mut schema = tree["schema"].as_array().expect("a list").iter();
        schema.find(|doc| doc["name"] == metric).expect(metric)["unit"].clone()
    };
    let mut compared = 0;
    for group in tree["groups"].as_array().expect("a list") {
        for view in tree["views"].as_array().expect("a list") {
            let key = view["key"].as_str().expect("text");
            // A new group has no rates yet.
            if group["rates"].as_object().is_none_or(serde_json::Map::is_empty) {
                continue;
            }
            let grown = |all: &[&str]| -> f64 {
                all.iter().map(|name| group["rates"][name].as_f64().expect(name)).sum()
            };
            let value = |metric: &str| &group["values"][metric];
            let expected = match source(key) {
                Source::Rate(all) if unit(all[0]) == "nanoseconds" => Some(grown(all) / 1e9),
                Source::Rate(all) => Some(grown(all)),
                Source::Ratio(part, whole) => {
                    Some(grown(&[part]) / grown(whole)).filter(|_| grown(whole) > 0.0)
                }
                Source::Level(metric) => {
                    value(metric)["current"].as_f64().or(value(metric).as_f64())
                }
                Source::Error(samples) => {
                    value(samples).as_f64().map(|samples| ERROR * (1.0 + samples).sqrt())
                }
                // Those are not from the same second.
                Source::Refused(_) | Source::P99(_) | Source::None => continue,
            };
            let shown = group["overview"][key].as_f64();
            let is_near = match (shown, expected) {
                (Some(shown), Some(expected)) => {
                    (shown - expected).abs() <= 0.1_f64.max(expected.abs() * 0.02)
                }
                (shown, expected) => shown == expected,
            };
            assert!(
                is_near,
                "{key} of {}: {shown:?}, and {expected:?} by its metrics",
                group["path"]
            );
            compared += usize::from(expected > Some(0.0));
        }
    }
    assert!(compared > 10, "{compared} figures are not 0");
}

/// `promtool` accepts the rules and the dashboard's queries, and each alert fires as it should.
#[test]
fn promtool_accepts_rules_and_queries() {
    if Command::new("promtool").arg("--version").output().is_err() {
        println!("skipped: no promtool: apt-get install --no-install-recommends prometheus");
        return;
    }
    let promtool = |arguments: &[&str]| {
        let output = Command::new("promtool").args(arguments).current_dir(directory()).output();
        let output = output.expect("it starts");
        let said = [output.stdout, output.stderr].concat();
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&said));
    };
    let (rules, tests) = (read("rules.yml"), read("rules_test.yml"));
    for alert in rules.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")) {
        assert!(tests.contains(&format!("alertname: {alert}\n")), "{alert} has no test");
    }
    let records: Vec<_> =
        rules.lines().filter_map(|line| line.trim().strip_prefix("- record: ")).collect();
    for query in queries().iter().filter(|query| query.contains("group:")) {
        assert!(records.iter().any(|record| query.contains(record)), "no rule records {query}");
    }
    promtool(&["check", "rules", "rules.yml"]);
    promtool(&["test", "rules", "rules_test.yml"]);
    let rule = |(n, query): (usize, String)| {
        format!("  - record: r{n}\n    expr: {}\n", serde_json::Value::from(query))
    };
    let rules: String = queries().into_iter().enumerate().map(rule).collect();
    let file = std::env::temp_dir().join(format!("submeter-queries-{}.yml", std::process::id()));
    std::fs::write(&file, format!("groups:\n- name: dashboard\n  rules:\n{rules}")).expect("room");
    promtool(&["check", "rules", &file.display().to_string()]);
    std::fs::remove_file(file).expect("written above");
}
