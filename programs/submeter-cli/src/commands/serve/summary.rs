//! The table at the end of `submeter serve`: what each tenant did and what it cost.

use std::cmp::Reverse;
use std::time::Duration;

use submeter::{GroupValues, Snapshot, visible};
use submeter_cache::Metrics;

use crate::commands::load::report;
use submeter_load::drive::Outcome;
use submeter_load::tally::Tally;
use submeter_terminal::{self as show, DIM};

/// Number of tenants that are listed; the rest is in the total.
const ROWS_MAX: usize = 40;

/// Writes the table from the server's own meters: tenants without children, then the total.
pub(super) fn table(snapshot: &Snapshot, metrics: &Metrics, took: Duration) -> String {
    let groups = snapshot.groups();
    let mut has_children = vec![false; groups.len()];
    for parent in groups.iter().filter_map(GroupValues::parent) {
        has_children[parent] = true;
    }
    let leaves = || groups.iter().zip(&has_children).skip(1).filter(|(_, parent)| !**parent);
    let mut busiest: Vec<&GroupValues> = leaves().map(|(group, _)| group).collect();
    let left_out = busiest.len().saturating_sub(ROWS_MAX);
    if left_out > 0 {
        busiest.sort_by_key(|group| Reverse(requests(group, metrics)));
        busiest.truncate(ROWS_MAX);
    }
    let row = |name: &str, group: &GroupValues| row(name, group, metrics, took);
    let mut rows: Vec<Vec<String>> =
        busiest.iter().map(|g| row(&visible(g.path()).to_string(), g)).collect();
    rows.extend(groups.first().map(|root| row("total", root)));
    let heading = [
        "tenant",
        "requests",
        "throughput",
        "hits",
        "p50",
        "p99",
        "p99.9",
        "memory",
        "evictions",
        "CPU",
    ];
    let mut text = show::table(&heading, &rows, true);
    if left_out > 0 {
        text.push_str(&format!(
            "{DIM}{left_out} less busy tenants are included only in the total{DIM:#}\n"
        ));
    }
    text.push('\n');
    text
}

/// Writes what the clients saw: the latency from sending to the answer, and whether values were
/// right.
pub(super) fn clients(outcome: &Outcome, total: &Tally) -> String {
    let quantile = |q| show::time(total.latency_ns.value_at_quantile(q));
    format!(
        "{DIM}clients{DIM:#} {} requests, {}; time to answer p50 {}, p99 {}, p99.9 {}\n{}{}",
        show::count(total.requests()),
        show::rate(total.requests(), outcome.took),
        quantile(0.5),
        quantile(0.99),
        quantile(0.999),
        report::refusals(total),
        report::verdict(outcome, total),
    )
}

/// Says how many requests came from clients that are not the load's, if any.
pub(super) fn others(snapshot: &Snapshot, metrics: &Metrics, load: &Tally) -> String {
    let all = snapshot.groups().first().map_or(0, |root| requests(root, metrics));
    match all.saturating_sub(load.requests()) {
        0 => String::new(),
        n => format!("{DIM}others{DIM:#}  {} requests by other clients\n", show::count(n)),
    }
}

fn row(name: &str, group: &GroupValues, metrics: &Metrics, took: Duration) -> Vec<String> {
    let latency = group.histogram(metrics.latency);
    let quantile = |q| latency.quantile(q).map_or_else(|| "–".to_owned(), show::time);
    let requests = requests(group, metrics);
    vec![
        name.to_owned(),
        show::count(requests),
        show::rate(requests, took),
        show::ratio(group.counter(metrics.get_hits), group.counter(metrics.get_misses)),
        quantile(0.5),
        quantile(0.99),
        quantile(0.999),
        show::bytes(group.usage(metrics.memory).current),
        show::count(group.counter(metrics.evictions)),
        show::time(group.counter(metrics.cpu)),
    ]
}

/// Requests of every kind.
fn requests(group: &GroupValues, metrics: &Metrics) -> u64 {
    [
        metrics.cmd_get,
        metrics.cmd_set,
        metrics.cmd_delete,
        metrics.cmd_touch,
        metrics.cmd_arithmetic,
        metrics.cmd_debug,
    ]
    .into_iter()
    .map(|counter| group.counter(counter))
    .sum()
}
