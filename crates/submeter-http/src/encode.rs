//! The events of the page, as compact as JSON gets: arrays in a fixed order instead of objects.
//!
//! A row has its figures in the order of the views, which the first event describes, so the page
//! and the server cannot disagree silently.

use serde_json::{Value, json};

use super::api;
use super::history::History;
use super::panel::Panel;
use super::sample::{Row, Sample, unix_ms};
use super::shown::Shown;
use super::views::Views;
use super::wire::{Figure, PanelDoc, ViewDoc};

/// Encodes everything: what a page shows when it opens.
pub(super) fn full(sample: &Sample, history: &History, shown: &Shown) -> String {
    let (views, server) = (&sample.views, &shown.server);
    let groups = sample.now.snapshot.groups().iter().zip(&sample.rows);
    let groups: Vec<Value> = groups
        .map(|(group, row)| json!([row.id, row.parent, group.name(), columns(views, row)]))
        .collect();
    let lines = sample.rows.iter().filter_map(|row| Some((row.id, history.lines(row.id)?)));
    let lines: Vec<Value> = lines.map(|(id, lines)| json!([id, lines])).collect();
    let root = sample.rows.first().map(|root| history.of(root.id));
    json!({
        "number": sample.number,
        "at_ms": unix_ms(sample.now.snapshot.system_time()),
        "server": server,
        "schema": api::schema(sample.now.snapshot.schema()),
        "views": views.docs().collect::<Vec<&ViewDoc>>(),
        "groups": groups,
        "lines": lines,
        "root_history": root,
        "panels": panels(shown),
    })
    .to_string()
}

/// Encodes what changed since `before`.
pub(super) fn tick(
    sample: &Sample,
    before: Option<&Sample>,
    gone: &[u32],
    shown: &Shown,
) -> String {
    let views = &sample.views;
    let mut new = Vec::new();
    let mut rows = Vec::new();
    for (group, row) in sample.now.snapshot.groups().iter().zip(&sample.rows) {
        match before.and_then(|before| before.row(group.path())) {
            Some(earlier) if earlier.figures == row.figures => {}
            Some(_) => rows.push(json!([row.id, columns(views, row)])),
            None => new.push(json!([row.id, row.parent, group.name(), columns(views, row)])),
        }
    }
    json!({
        "number": sample.number,
        "at_ms": unix_ms(sample.now.snapshot.system_time()),
        "gone": gone,
        "new": new,
        "rows": rows,
        "panels": panels(shown),
    })
    .to_string()
}

fn panels(shown: &Shown) -> Vec<PanelDoc> {
    shown.panels.iter().map(Panel::doc).collect()
}

/// A row in the order of the views.
fn columns(views: &Views, row: &Row) -> Vec<Figure> {
    let figures = views.docs().zip(&row.figures);
    figures.map(|(view, figure)| figure.rounded(view.shape)).collect()
}
