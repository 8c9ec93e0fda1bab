//! The events of the page, as compact as JSON gets: arrays in a fixed order instead of objects.
//!
//! A row has its figures in the order of the views, which the first event describes, so the page
//! and the server cannot silently disagree.

use std::collections::HashSet;

use serde::Serialize;
use submeter::GroupValues;

use super::api;
use super::dashboard::Dashboard;
use super::frame;
use super::history::History;
use super::panel::Panel;
use super::sample::{Row, Sample};
use super::verdict::{Rest, Verdicts};
use super::views::Views;
use super::wire::{
    Each, Figure, HistoryDoc, MetricDoc, PanelDoc, ServerDoc, Shape, VerdictDoc, ViewDoc,
};

/// Number of tenants sent with a past at the start: more than a band of two minutes can tell apart.
const LINES_MAX: usize = 24;

/// Number of rows in one event. A page parses an event without a pause: all rows of ten thousand
/// tenants took it half a frame.
const ROWS_MAX: usize = 1000;

#[derive(Serialize)]
struct Full<'a, G> {
    number: u64,
    at_ms: u64,
    server: ServerDoc,
    schema: Vec<MetricDoc>,
    views: Vec<&'a ViewDoc>,
    groups: G,
    /// The key of the view by which the server is divided, and its past for the tenants with the
    /// most.
    divided: Option<&'a str>,
    lines: Vec<(u32, Vec<Figure>)>,
    root_history: Option<HistoryDoc>,
    /// Processors that the whole process used.
    process: Vec<Figure>,
    panels: Vec<PanelDoc>,
    verdicts: Vec<VerdictDoc>,
    #[serde(flatten)]
    rest: Rest<'a>,
}

#[derive(Serialize)]
struct Changed<'a, N> {
    number: u64,
    at_ms: u64,
    gone: &'a [u32],
    new: N,
    rows: Vec<(u32, Vec<Figure>)>,
    process: Figure,
    /// The notices of this moment.
    notice: Option<String>,
    panels: Vec<PanelDoc>,
    verdicts: Vec<VerdictDoc>,
    #[serde(flatten)]
    rest: Option<Rest<'a>>,
}

/// Encodes everything: what a page shows when it opens.
pub(super) fn full(
    sample: &Sample,
    history: &History,
    verdicts: &Verdicts,
    shown: &Dashboard,
) -> String {
    let views = &sample.views;
    let groups = || sample.now.snapshot.groups().iter().zip(&sample.rows);
    let divided = views.divided();
    let levels: HashSet<u32> = sample.rows.iter().filter_map(|row| row.parent).collect();
    let tenants = sample.rows.iter().map(|row| row.id).filter(|id| !levels.contains(id));
    let lines = divided.map(|view| history.greatest(view, tenants, LINES_MAX)).unwrap_or_default();
    json(&Full {
        number: sample.number,
        at_ms: sample.at_ms(),
        server: shown.server(),
        schema: api::schema(sample.now.snapshot.schema()),
        views: views.docs().collect(),
        groups: Each(|| groups().map(|(group, row)| named(views, group, row))),
        divided: divided.and_then(|at| Some(views.docs().nth(at)?.key.as_str())),
        lines,
        root_history: sample.rows.first().map(|root| history.of(root.id)),
        process: history.process(),
        panels: panels(shown),
        verdicts: verdicts.said(sample.at_ms()),
        rest: verdicts.rest(),
    })
}

/// Writes the events of what changed since `before`: rows in parts, and a tick with the last of
/// them and the rest.
pub(super) fn tick(
    sample: &Sample,
    before: Option<&Sample>,
    gone: &[u32],
    verdicts: &Verdicts,
    shown: &Dashboard,
) -> Vec<u8> {
    let views = &sample.views;
    let groups = || {
        let groups = sample.now.snapshot.groups().iter().zip(&sample.rows);
        groups.map(|(group, row)| (before.and_then(|before| before.row(group.path())), group, row))
    };
    let new = || groups().filter(|(earlier, ..)| earlier.is_none());
    let changed = |(earlier, _, row): (Option<&Row>, _, &Row)| {
        let has_changed = earlier.is_some_and(|earlier| earlier.figures != row.figures);
        has_changed.then(|| (row.id, columns(views, row)))
    };
    let mut events = Vec::new();
    let mut rows = groups().filter_map(changed);
    let mut part = || rows.by_ref().take(ROWS_MAX).collect::<Vec<_>>();
    let mut last = part();
    while last.len() == ROWS_MAX {
        frame::next("rows", &json(&last), &mut events);
        last = part();
    }
    let tick = json(&Changed {
        number: sample.number,
        at_ms: sample.at_ms(),
        gone,
        new: Each(|| new().map(|(_, group, row)| named(views, group, row))),
        rows: last,
        process: Figure(Some(sample.process)).rounded(Shape::Cores),
        notice: shown.notices(),
        panels: panels(shown),
        verdicts: verdicts.said(sample.at_ms()),
        rest: verdicts.new_rest(),
    });
    frame::next("tick", &tick, &mut events);
    events
}

fn json(event: &impl Serialize) -> String {
    serde_json::to_string(event).expect("numbers and strings under string keys")
}

/// A group that the page does not know yet.
fn named<'a>(views: &Views, group: &'a GroupValues, row: &Row) -> impl Serialize + use<'a> {
    (row.id, row.parent, group.name(), columns(views, row))
}

fn panels(shown: &Dashboard) -> Vec<PanelDoc> {
    shown.panels.iter().map(Panel::doc).collect()
}

/// A row in the order of the views.
fn columns(views: &Views, row: &Row) -> Vec<Figure> {
    let figures = views.docs().zip(&row.figures);
    figures.map(|(view, figure)| figure.rounded(view.shape)).collect()
}
