//! The rules and the dashboard that come with the server, against the server and Prometheus' tools.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::http_serve::{addresses, get_as};
use crate::support::{FREE, SUBMETER};

fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("monitoring")
}

fn read(file: &str) -> String {
    std::fs::read_to_string(directory().join(file)).expect("it is in the repository")
}

/// The queries of the dashboard, with an interval where Grafana would put one.
fn queries() -> Vec<String> {
    let dashboard: serde_json::Value = serde_json::from_str(&read("dashboard.json")).expect("JSON");
    let panels = dashboard["panels"].as_array().expect("panels").iter();
    let targets = panels.flat_map(|panel| panel["targets"].as_array().expect("targets"));
    targets
        .map(|target| target["expr"].as_str().expect("a query").replace("$__rate_interval", "1m"))
        .collect()
}

#[test]
fn every_metric_of_the_rules_and_the_dashboard_is_in_a_scrape() {
    // A bank that is away makes a member of a fleet, too.
    let fleet = ["--bank", "unix:/nonexistent/bank", "--limit-fleet", "/acme=memory=1m"];
    let mut server = SUBMETER.start(&[&FREE[..], &["--load", "2"], &fleet].concat());
    let (page, _) = addresses(&mut server);
    let (_, scrape) = get_as(&format!("{page}/metrics"), "text/plain");
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
}

#[test]
fn what_the_page_calls_trouble_is_in_the_alert_and_the_panel_of_refusals() {
    let mut server = SUBMETER.start(&FREE);
    let (page, _) = addresses(&mut server);
    let (_, tree) = get_as(&format!("{page}/api/tree"), "application/json");
    let tree: serde_json::Value = serde_json::from_str(&tree).expect("JSON");
    let views = tree["views"].as_array().expect("a list").iter();
    let troubles: Vec<&str> = views
        .filter(|view| view["is_trouble"] == true)
        .map(|view| match view["key"].as_str().expect("text") {
            "store_failures_per_s" => "submeter_cache_store_failures_total",
            "over_rate_per_s" => "submeter_cache_requests_throttled_total",
            new => panic!("{new} is trouble: name its metric here, in the alert and in the panel"),
        })
        .collect();
    assert!(!troubles.is_empty(), "the page shows no trouble");
    let rules = read("rules.yml");
    let (_, alert) = rules.split_once("- alert: SubmeterRefusals").expect("an alert");
    let (alert, _) = alert.split_once("- alert:").expect("another");
    let dashboard: serde_json::Value = serde_json::from_str(&read("dashboard.json")).expect("JSON");
    let mut panels = dashboard["panels"].as_array().expect("panels").iter();
    let panel = panels.find(|panel| panel["title"] == "Refusals").expect("a panel").to_string();
    for metric in troubles {
        assert!(alert.contains(metric), "SubmeterRefusals lacks {metric}");
        assert!(panel.contains(metric), "the panel \"Refusals\" lacks {metric}");
    }
}

#[test]
fn promtool_accepts_the_rules_and_the_dashboards_queries_and_each_alert_fires_as_it_should() {
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
