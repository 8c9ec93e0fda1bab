//! The events of the page, as compact as JSON gets: arrays in a fixed order instead of objects.
//!
//! The order of a row is in [`COLUMNS`], and the first event says it, so the page and the server
//! cannot disagree silently.

use serde_json::{Value, json};

use super::api;
use super::history::{History, round};
use super::sample::{Sample, unix_ms};
use super::wire::{Overview, ServerDoc};

/// What follows the id in a row.
pub(super) const COLUMNS: [&str; 11] = [
    "requests_per_s",
    "hit_ratio",
    "memory_bytes",
    "memory_limit_bytes",
    "p99_ns",
    "cpu_cores",
    "evictions_per_s",
    "refused_per_s",
    "items",
    "bytes_in_per_s",
    "bytes_out_per_s",
];

/// Encodes everything: what a page shows when it opens.
pub(super) fn full(sample: &Sample, history: &History, server: ServerDoc) -> String {
    let groups = sample.now.snapshot.groups().iter().zip(&sample.rows);
    let groups: Vec<Value> = groups
        .map(|(group, row)| json!([row.id, row.parent, group.name(), columns(&row.overview)]))
        .collect();
    let lines = sample.rows.iter().filter_map(|row| Some((row.id, history.lines(row.id)?)));
    let lines: Vec<Value> = lines.map(|(id, [requests, p99])| json!([id, requests, p99])).collect();
    let root = sample.rows.first().map(|root| history.of(root.id));
    json!({
        "number": sample.number,
        "at_ms": unix_ms(sample.now.snapshot.system_time()),
        "server": server,
        "schema": api::schema(sample.now.snapshot.schema()),
        "columns": COLUMNS,
        "groups": groups,
        "lines": lines,
        "root_history": root,
    })
    .to_string()
}

/// Encodes what changed since `before`.
pub(super) fn tick(sample: &Sample, before: Option<&Sample>, gone: &[u32]) -> String {
    let mut new = Vec::new();
    let mut rows = Vec::new();
    for (group, row) in sample.now.snapshot.groups().iter().zip(&sample.rows) {
        match before.and_then(|before| before.row(group.path())) {
            Some(earlier) if earlier.overview == row.overview => {}
            Some(_) => rows.push(json!([row.id, columns(&row.overview)])),
            None => {
                new.push(json!([row.id, row.parent, group.name(), columns(&row.overview)]));
            }
        }
    }
    json!({
        "number": sample.number,
        "at_ms": unix_ms(sample.now.snapshot.system_time()),
        "gone": gone,
        "new": new,
        "rows": rows,
    })
    .to_string()
}

/// A row in the order of [`COLUMNS`].
fn columns(row: &Overview) -> Value {
    json!([
        round(row.requests_per_s, 1),
        row.hit_ratio.map(|ratio| round(ratio, 4)),
        row.memory_bytes,
        row.memory_limit_bytes,
        row.p99_ns,
        round(row.cpu_cores, 4),
        round(row.evictions_per_s, 1),
        round(row.refused_per_s, 1),
        row.items,
        round(row.bytes_in_per_s, 0),
        round(row.bytes_out_per_s, 0),
    ])
}
