//! Tests of order, folding, filter and selection, without a terminal.

use std::collections::BTreeMap;

use super::state::{Action, Column, Link, Pane, State};
use submeter_http::wire::{
    DetailDoc, FORMAT, Figure, GroupDoc, HistoryDoc, MetricDoc, Placement, PressureDoc, ServerDoc,
    Shape, StallDoc, TreeDoc, ValueDoc, VerdictDoc, VerdictKind, ViewDoc,
};

const VIEWS: [(&str, &str, Shape, Placement); 8] = [
    ("requests_per_s", "Requests/s", Shape::Rate, Placement::Headline),
    ("p99_ns", "p99", Shape::Time, Placement::Headline),
    ("hit_ratio", "Hits", Shape::Share, Placement::Headline),
    ("cpu_cores", "CPU", Shape::Cores, Placement::Headline),
    ("memory_bytes", "Memory", Shape::Bytes, Placement::Headline),
    ("memory_limit_bytes", "Memory limit", Shape::Bytes, Placement::Nowhere),
    ("refused_per_s", "Refused/s", Shape::Rate, Placement::Headline),
    ("items", "Items", Shape::Count, Placement::Table),
];

fn views() -> Vec<ViewDoc> {
    let view = |&(key, title, shape, place): &(&str, &str, Shape, Placement)| ViewDoc {
        key: key.to_owned(),
        title: title.to_owned(),
        help: String::new(),
        shape,
        place,
        limit: (key == "memory_bytes").then(|| "memory_limit_bytes".to_owned()),
        is_trouble: key == "refused_per_s",
        is_pressure: false,
        is_contended: false,
        is_refusal: key == "refused_per_s",
    };
    VIEWS.iter().map(view).collect()
}

fn overview(figures: [Option<f64>; 8]) -> BTreeMap<String, Figure> {
    let named = VIEWS.iter().zip(figures);
    named.map(|((key, ..), figure)| ((*key).to_owned(), Figure(figure))).collect()
}

fn schema() -> Vec<MetricDoc> {
    let metric = |(name, kind, unit): (&str, &str, &str)| MetricDoc {
        name: name.to_owned(),
        kind: kind.to_owned(),
        unit: unit.to_owned(),
        help: String::new(),
    };
    [
        ("requests", "counter", "count"),
        ("latency", "histogram", "nanoseconds"),
        ("memory", "quota", "bytes"),
    ]
    .map(metric)
    .into()
}

/// Every group has a total of a hundred requests for each per second, and one request of `/b` has
/// waited.
fn values(path: &str, requests_per_s: f64) -> BTreeMap<String, ValueDoc> {
    let requests = requests_per_s as u64 * 100;
    let stall = |avg10| StallDoc { avg10, avg60: 0.5, avg300: 0.1, total_us: 3_000_000 };
    let is_b = path == "/b";
    let memory = ValueDoc::Quota {
        current: requests * 10,
        peak: requests * 20,
        limit: (path == "/" || is_b).then_some(4_194_304),
        refused: if is_b { 12 } else { 0 },
        overdrafts: 0,
        soft: false,
        high: None,
        paused: 0,
        reclaimed: if is_b { 2048 } else { 0 },
        reclaimed_low: u64::from(is_b),
        pressure: is_b.then(|| PressureDoc { some: stall(2.5), full: stall(0.0) }),
    };
    let latency = ValueDoc::Histogram {
        count: requests,
        sum: requests,
        p50: (requests > 0).then_some(90_000),
        p90: (requests > 0).then_some(150_000),
        p99: (requests > 0).then_some(180_000),
        p999: (requests > 0).then_some(190_000),
    };
    let named =
        [("requests", ValueDoc::Unsigned(requests)), ("latency", latency), ("memory", memory)];
    named.map(|(name, value)| (name.to_owned(), value)).into()
}

/// Returns the past that a server has kept of a group.
pub(super) fn kept(path: &str, key: &str, past: &[Option<f64>]) -> DetailDoc {
    let doc = tree(&[("/", 1.0)]);
    let mut group = doc.groups[0].clone();
    path.clone_into(&mut group.path);
    let series = BTreeMap::from([(key.to_owned(), past.iter().copied().map(Figure).collect())]);
    DetailDoc {
        at_ms: doc.at_ms,
        window_s: 1.0,
        children: 0,
        group,
        histograms: BTreeMap::new(),
        history: HistoryDoc { ago_s: vec![0.0; past.len()], series },
    }
}

/// Makes a tree of groups given by path and requests per second; parents must come first.
pub(super) fn tree(groups: &[(&str, f64)]) -> TreeDoc {
    let parent_of = |path: &str| match path.rsplit_once('/') {
        _ if path == "/" => None,
        Some(("", _)) => Some("/".to_owned()),
        Some((parent, _)) => Some(parent.to_owned()),
        None => None,
    };
    let groups = groups
        .iter()
        .map(|&(path, requests_per_s)| GroupDoc {
            path: path.to_owned(),
            depth: if path == "/" { 0 } else { path.matches('/').count() },
            parent: parent_of(path)
                .map(|parent| groups.iter().position(|(p, _)| *p == parent).expect("a parent")),
            overview: overview([
                Some(requests_per_s),
                (requests_per_s > 0.0).then_some(180_000.0),
                (requests_per_s > 0.0).then_some(0.925),
                Some(requests_per_s / 10_000.0),
                Some(requests_per_s * 1024.0),
                (path == "/").then_some(4_194_304.0),
                Some(if path == "/b" { 12.0 } else { 0.0 }),
                Some(requests_per_s),
            ]),
            values: values(path, requests_per_s),
            rates: BTreeMap::from([("requests".to_owned(), requests_per_s)]),
        })
        .collect();
    TreeDoc {
        format: FORMAT,
        server: ServerDoc {
            version: "0.0.0".to_owned(),
            listen: "127.0.0.1:11211".to_owned(),
            started_ms: 0,
            cpus: 2,
            notice: None,
            first_steps: None,
            limit_example: None,
            sets_limits: false,
            asks_token: false,
        },
        at_ms: 75_000,
        window_s: 1.0,
        schema: schema(),
        views: views(),
        verdicts: Vec::new(),
        panels: Vec::new(),
        groups,
    }
}

pub(super) const GROUPS: [(&str, f64); 6] =
    [("/", 2100.0), ("/a", 900.0), ("/a/x", 300.0), ("/a/y", 600.0), ("/b", 1200.0), ("/c", 0.0)];

pub(super) fn state() -> State {
    let mut state = State::new();
    state.update(tree(&GROUPS));
    state
}

fn paths(state: &State) -> Vec<&str> {
    state.rows().map(|row| row.node.path.as_str()).collect()
}

fn selected(state: &State) -> &str {
    let row = state.rows().find(|row| row.is_selected).expect("something is selected");
    row.node.path.as_str()
}

#[test]
fn siblings_are_ordered_below_their_parent() {
    let mut state = state();
    assert_eq!(paths(&state), ["/", "/b", "/a", "/a/y", "/a/x", "/c"]);
    state.act(Action::Reverse);
    assert_eq!(paths(&state), ["/", "/c", "/a", "/a/x", "/a/y", "/b"]);
    state.act(Action::SortBy(Column::Name));
    assert_eq!(paths(&state), ["/", "/a", "/a/x", "/a/y", "/b", "/c"]);
    state.act(Action::Sort(-1));
    assert_eq!(state.sort, Column::View(7), "items");
    assert_eq!(paths(&state), ["/", "/b", "/a", "/a/y", "/a/x", "/c"]);
    state.act(Action::Sort(1));
    assert_eq!(state.sort, Column::Name);
}

/// Rows are ordered by the figures that are shown, not by those of the seconds before.
#[test]
fn rows_are_ordered_by_what_is_shown() {
    let mut state = State::new();
    for (p, q) in [(900.0, 1.0), (900.0, 1.0), (6.0, 7.0)] {
        state.update(tree(&[("/", 907.0), ("/p", p), ("/q", q)]));
        let first = if p > q { "/p" } else { "/q" };
        assert_eq!(paths(&state)[1], first, "{p} and {q}");
    }
}

#[test]
fn rows_are_ordered_by_the_first_chosen_column() {
    let mut doc = tree(&[("/", 9.0), ("/p", 1.0), ("/q", 2.0)]);
    doc.groups[1].overview.insert("items".to_owned(), Figure(Some(2.0)));
    doc.groups[2].overview.insert("items".to_owned(), Figure(Some(1.0)));
    let mut state = State::new();
    state.update(doc);
    assert_eq!(paths(&state), ["/", "/q", "/p"], "by requests");
    state.choose(&["items".to_owned()]).expect("it exists");
    assert_eq!(paths(&state), ["/", "/p", "/q"]);
}

#[test]
fn every_column_orders_by_its_own_figure() {
    let mut doc = tree(&[("/", 9.0), ("/p", 1.0), ("/q", 2.0)]);
    let (p, q) = (1, 2);
    // Higher in every figure except requests.
    let high = [1.0, 0.9, 90.0, 0.9, 90.0, 90.0, 9.0, 9.0].map(Some);
    doc.groups[p].overview = overview(high);
    doc.groups[q].overview = overview([2.0, 0.1, 9.0, 0.0, 0.0, 0.0, 0.0, 0.0].map(Some));
    let mut state = State::new();
    state.update(doc);
    let columns = state.columns();
    assert_eq!(columns.len(), 8, "the name, and every view but the limit");
    for column in columns {
        state.act(Action::SortBy(column));
        let first = if column == Column::View(0) { "/q" } else { "/p" };
        assert_eq!(paths(&state)[1], first, "{column:?}");
    }
}

#[test]
fn a_fold_moves_the_selection_to_a_visible_row() {
    let mut state = state();
    state.act(Action::Move(3));
    assert_eq!(selected(&state), "/a/y");
    // A leaf cannot be closed: the selection goes to its parent, which is then closed.
    state.act(Action::Close);
    assert_eq!(selected(&state), "/a");
    state.act(Action::Close);
    assert_eq!(paths(&state), ["/", "/b", "/a", "/c"]);
    state.act(Action::Open);
    state.act(Action::Open);
    assert_eq!(selected(&state), "/a/y", "opening an open row enters it");
    state.act(Action::CloseAll);
    assert_eq!((paths(&state).len(), selected(&state)), (4, "/a"));
    state.act(Action::OpenAll);
    assert_eq!(paths(&state).len(), 6);
    state.act(Action::First);
    state.act(Action::Toggle);
    assert_eq!(paths(&state), ["/"]);
}

#[test]
fn a_filter_shows_matches_and_their_ancestors() {
    let mut state = state();
    state.act(Action::SortBy(Column::Name));
    state.act(Action::CloseAll);
    state.act(Action::Filter);
    for c in "A/Y".chars() {
        state.act(Action::Type(c));
    }
    assert_eq!(paths(&state), ["/", "/a", "/a/y"]);
    let matches: Vec<bool> = state.rows().map(|row| row.is_match).collect();
    assert_eq!(matches, [false, false, true]);
    state.act(Action::Type('!'));
    assert_eq!(paths(&state), [""; 0]);
    state.act(Action::Erase);
    state.act(Action::Keep);
    assert!(!state.is_typing);
    assert_eq!(paths(&state).len(), 3);
    state.act(Action::Escape);
    assert_eq!(paths(&state), ["/", "/a", "/b", "/c"], "folded as before");
}

/// The selection stays within the rows and with its tenant.
#[test]
fn the_selection_stays_with_its_tenant() {
    let mut state = state();
    state.act(Action::Move(-5));
    assert_eq!(selected(&state), "/");
    state.act(Action::Last);
    state.act(Action::Move(99));
    assert_eq!(selected(&state), "/c");
    // The selection follows a tenant that becomes the busiest.
    let busy = [("/", 9e9), ("/a", 900.0), ("/b", 1200.0), ("/c", 9e9)];
    state.update(tree(&busy));
    assert_eq!((selected(&state), paths(&state)[1]), ("/c", "/c"));
    // When the selected tenant is killed, the selection moves to a remaining row.
    state.update(tree(&[("/", 1.0), ("/a", 1.0)]));
    assert_eq!(selected(&state), "/");
}

#[test]
fn a_lost_server_leaves_its_last_figures() {
    let mut state = state();
    state.set_lost("cannot reach".to_owned());
    assert_eq!(state.link, Link::Lost("cannot reach".to_owned()));
    assert_eq!(paths(&state).len(), 6);
    state.update(tree(&GROUPS));
    assert_eq!(state.link, Link::Live);
}

#[test]
fn past_samples_are_bounded_and_go_with_tenants() {
    let mut state = state();
    for _ in 0..200 {
        state.update(tree(&GROUPS));
    }
    assert_eq!(state.past("/b").count(), super::state::PAST);
    state.update(tree(&[("/", 1.0)]));
    assert_eq!(state.past("/b").count(), 0);
}

#[test]
fn a_servers_text_cannot_control_the_terminal() {
    let mut state = State::new();
    let mut doc = tree(&[("/", 1.0), ("/\u{1b}[2Jx", 1.0)]);
    doc.views[0].title.push('\u{1b}');
    doc.server.listen.push('\u{1b}');
    doc.server.notice = Some("busy\u{1b}".to_owned());
    state.update(doc);
    let node = state.rows().nth(1).expect("a row").node;
    assert_eq!((node.title(), node.name()), (r"/\u{1b}[2Jx", r"\u{1b}[2Jx"));
    assert_eq!(node.path, "/\u{1b}[2Jx", "by which the server knows it");
    assert_eq!(state.views[0].title, r"Requests/s\u{1b}");
    let server = state.server.as_ref().expect("it answered");
    assert_eq!(server.listen, r"127.0.0.1:11211\u{1b}");
    assert_eq!(server.notice.as_deref(), Some(r"busy\u{1b}"));
    state.set_lost("it says \u{1b}".to_owned());
    assert_eq!(state.link, Link::Lost(r"it says \u{1b}".to_owned()));
}

#[test]
fn a_limit_that_is_not_among_the_views_is_none() {
    let mut doc = tree(&GROUPS);
    doc.views[4].limit = Some("elsewhere".to_owned());
    let mut state = State::new();
    state.update(doc);
    assert_eq!(state.limit(state.total().expect("a root"), 4), None);
}

#[test]
fn columns_are_those_named_in_that_order() {
    let mut state = state();
    let named = |keys: &[&str]| keys.iter().map(|&key| key.to_owned()).collect::<Vec<_>>();
    state.choose(&named(&["items", "cpu_cores", "items"])).expect("they exist");
    assert_eq!(state.columns(), [Column::Name, Column::View(7), Column::View(3)]);
    assert_eq!(state.sort, Column::View(7), "that of before has no column");
    for wrong in ["Items", ""] {
        let why = state.choose(&named(&["items", wrong])).expect_err("no such column");
        assert!(why.contains(&format!("{wrong:?}")) && why.contains("requests_per_s"), "{why}");
        assert!(why.contains("memory_limit_bytes,"), "a limit may have one: {why}");
    }
    assert_eq!(state.columns().len(), 3, "a wrong choice changes nothing");
    // A program without these views, at the same address.
    let mut doc = tree(&GROUPS);
    doc.views.truncate(1);
    state.update(doc);
    assert_eq!(state.columns(), [Column::Name]);
}

/// Columns are chosen from a list, which takes the keys from the rows in the meantime.
#[test]
fn an_open_list_of_columns_takes_the_keys() {
    let mut state = state();
    state.act(Action::Choose);
    state.act(Action::Toggle);
    assert!(!state.has_column(0));
    assert_eq!(state.sort, Column::View(1), "the first that is left");
    state.act(Action::Move(99));
    state.act(Action::Move(-1));
    state.act(Action::Toggle);
    assert!(!state.has_column(6), "the one but last");
    state.act(Action::Toggle);
    assert_eq!(state.columns().last(), Some(&Column::View(6)), "it comes back at the end");
    assert_eq!((selected(&state), paths(&state).len()), ("/", 6));
    for ignored in [Action::Close, Action::Filter, Action::Detail, Action::SortBy(Column::Name)] {
        state.act(ignored);
    }
    assert!(!state.is_typing && state.pane == Pane::Closed && state.sort == Column::View(1));
    state.act(Action::Help);
    state.act(Action::Escape);
    assert!(state.chooser.is_some() && !state.is_help, "the uppermost closes first");
    state.act(Action::Escape);
    state.act(Action::Move(1));
    assert_ne!(selected(&state), "/");
}

#[test]
fn a_limit_may_have_a_column_of_its_own() {
    let mut state = state();
    assert_eq!(state.limit_beside(4), Some(5));
    let keys = ["memory_bytes", "memory_limit_bytes"].map(str::to_owned);
    state.choose(&keys).expect("both exist");
    assert_eq!(state.columns(), [Column::Name, Column::View(4), Column::View(5)]);
    assert_eq!(state.limit_beside(4), None, "not twice");
}

#[test]
fn who_is_judged_is_known_while_it_holds() {
    let mut doc = tree(&GROUPS);
    let verdict = |kind: &str, group: &str| {
        VerdictDoc {
        group: group.to_owned(),
        ..serde_json::from_str(&format!(
            r#"{{"kind":"{kind}","group":"","tenants":1,"text":"","short":"","why":"","since_ms":0}}"#
        ))
        .expect("a verdict")
    }
    };
    doc.verdicts = ["takes", "waits"].map(|kind| verdict(kind, "/b")).to_vec();
    doc.verdicts.push(VerdictDoc { ended_ms: Some(1), ..verdict("waits", "/c") });
    let mut state = State::new();
    state.update(doc);
    let judged: Vec<_> = state.rows().map(|row| state.judged(row.node)).collect();
    let expected = [None, Some(VerdictKind::Takes), None, None, None, None];
    assert_eq!(judged, expected, "the worst of /b; that of /c has ended");
}

#[test]
fn without_any_column_names_remain() {
    let mut state = state();
    state.choose(&["items".to_owned()]).expect("it exists");
    state.act(Action::Choose);
    state.act(Action::Last);
    state.act(Action::Toggle);
    assert_eq!((state.columns(), state.sort), (vec![Column::Name], Column::Name));
    assert_eq!(state.graphed(), None);
    state.act(Action::Sort(1));
    assert_eq!(paths(&state).len(), 6);
}

/// The past is the server's, or what was seen of the selected group.
#[test]
fn the_past_is_the_servers_or_what_was_seen() {
    let mut state = state();
    assert_eq!(state.selected_past(7), [Some(2100.0)]);
    state.update(tree(&GROUPS));
    assert_eq!(state.selected_past(7), [Some(2100.0); 2], "nobody keeps it but we");
    state.remember(kept("/", "requests_per_s", &[None, Some(7.0)]));
    assert_eq!(state.selected_past(0), [None, Some(7.0)]);
    state.remember(kept("/b", "requests_per_s", &[Some(9.0)]));
    assert_eq!(state.selected_past(0), [None, Some(7.0)], "late, of another group");
    // The past of another group starts again.
    state.act(Action::Move(1));
    assert_eq!((selected(&state), state.selected_past(0)), ("/b", vec![Some(1200.0)]));
    // The server keeps nothing of an idle group.
    state.remember(kept("/b", "requests_per_s", &[None, None]));
    assert_eq!(state.selected_past(0), [Some(1200.0)]);
    for _ in 0..200 {
        state.update(tree(&GROUPS));
    }
    assert_eq!(state.selected_past(7).len(), super::state::PAST);
}

/// The graph shows the column that rows are ordered by.
#[test]
fn the_graph_is_of_the_ordering_column() {
    let mut state = state();
    assert_eq!(state.graphed(), Some(0));
    state.act(Action::SortBy(Column::View(4)));
    assert_eq!(state.graphed(), Some(4));
    state.act(Action::SortBy(Column::Name));
    assert_eq!(state.graphed(), Some(0));
    assert_eq!(State::new().graphed(), None);
}
