//! The detail of the selected group: every metric, and what happened at its limits.

use anstyle::Style;
use submeter_http::wire::{MetricDoc, Placement, PressureDoc, Shape, StallDoc, ValueDoc};
use submeter_terminal as show;

use super::figures::{figure, in_a_sentence};
use super::screen::Line;
use super::state::{Node, State};
use super::theme::{Theme, pad, right};

/// Widths of the columns: the metric's name, its total, its own value and its rate.
const NAME: usize = 26;
const AMOUNT: usize = 12;

/// Cells before what is said about a metric, and after each figure of a view.
const INDENT: usize = 4;
const GAP: usize = 3;

/// Returns the lines of the detail; none without a selected group.
pub(super) fn lines(state: &State, theme: Theme, width: usize) -> Vec<Line> {
    let Some(node) = state.current() else { return Vec::new() };
    let mut lines = vec![title(node, theme, width)];
    lines.extend(figures(state, node, theme, width));
    lines.push(heading(theme));
    let values = state.schema.iter().filter_map(|metric| {
        let value = node.values.get(&metric.name)?;
        Some((metric, value))
    });
    // Metrics that are zero come last: where lines are cut, they are the least loss.
    let (some, none): (Vec<_>, Vec<_>) = values.partition(|(_, value)| size(value) != 0);
    for (metric, value) in some.into_iter().chain(none) {
        lines.push(measured(state, node, (metric, value), theme));
        let more = quantiles(metric, value, theme).into_iter();
        for line in more.chain(at_the_limit(metric, value, theme)) {
            lines.extend(line.wrapped(width.saturating_sub(INDENT)).into_iter().map(indented));
        }
    }
    lines
}

fn title(node: &Node, theme: Theme, width: usize) -> Line {
    let mut line = Line::default();
    line.push("── ", theme.dim);
    line.push(show::isolated(node.title()), theme.bold);
    let below = match node.kids.len() {
        0 => String::new(),
        1 => ", 1 group below".to_owned(),
        n => format!(", {} groups below", show::count(n as u64)),
    };
    line.push(format!("{below} "), theme.dim);
    let rest = width.saturating_sub(line.width());
    line.push("─".repeat(rest), theme.dim);
    line
}

/// Returns what the views show, each with its limit, as many in a line as it has room for.
fn figures(state: &State, node: &Node, theme: Theme, width: usize) -> Vec<Line> {
    let mut lines = vec![Line::default()];
    let views = state.views.iter().enumerate();
    for (at, view) in views.filter(|(_, view)| view.place != Placement::Nowhere) {
        let Some(value) = node.figures[at] else { continue };
        let value = figure(view.shape, Some(value));
        let limit = state.limit(node, at).map(|limit| figure(view.shape, Some(limit)));
        let limit = limit.map_or_else(String::new, |limit| format!(" of {limit}"));
        let mut fact = Line::default();
        fact.push(format!("{} ", in_a_sentence(&view.title)), theme.dim);
        fact.push(format!("{value}{limit}   "), Style::new());
        match lines.last_mut().filter(|line| line.width() + fact.width() <= width + GAP) {
            Some(line) => line.append(fact),
            None => lines.push(fact),
        }
    }
    lines.retain(|line| line.width() > 0);
    lines
}

fn indented(line: Line) -> Line {
    let mut indented = Line::default();
    indented.push(" ".repeat(INDENT), Style::new());
    indented.append(line);
    indented
}

/// Writes a metric's name as a title, as the page does.
fn titled(name: &str) -> String {
    let name = show::plain(name).replace('_', " ");
    let first = name.chars().next().map(char::to_uppercase);
    first.into_iter().flatten().chain(name.chars().skip(1)).collect()
}

fn heading(theme: Theme) -> Line {
    let mut line = Line::default();
    line.push(pad("Metric", NAME), theme.dim);
    for title in ["Total", "Own", "Per second"] {
        line.push(right(title, AMOUNT), theme.dim);
    }
    line
}

fn measured(
    state: &State,
    node: &Node,
    (metric, value): (&MetricDoc, &ValueDoc),
    theme: Theme,
) -> Line {
    let mut line = Line::default();
    let total = size(value);
    line.push(pad(&titled(&metric.name), NAME), Style::new());
    let shape = match value {
        ValueDoc::Histogram { .. } => Shape::Count,
        _ => shape(metric),
    };
    let mut put = |text: String, is_zero: bool| {
        line.push(right(&text, AMOUNT), if is_zero { theme.dim } else { Style::new() });
    };
    put(amount(shape, total), total == 0);
    // The total less that of living groups below: what the group counted itself, plus what deleted
    // groups counted. The server knows each group's own value, but sending it for all groups would
    // double the page.
    let below = state.kids(node).filter_map(|kid| kid.values.get(&metric.name)).map(size);
    let own = match value {
        // Each group's value is read at its own moment.
        ValueDoc::Quota { .. } => (total - below.sum::<i128>()).max(0),
        _ => total - below.sum::<i128>(),
    };
    put(amount(shape, own), own == 0);
    if let Some(&rate) = node.rates.get(&metric.name) {
        let text = match shape {
            Shape::Bytes => figure(Shape::ByteRate, Some(rate)),
            Shape::Time => figure(Shape::Time, Some(rate)),
            _ => figure(Shape::Rate, Some(rate)),
        };
        put(text, rate == 0.0);
    }
    line
}

/// Returns the quantiles of a histogram that is not empty.
fn quantiles(metric: &MetricDoc, value: &ValueDoc, theme: Theme) -> Option<Line> {
    let ValueDoc::Histogram { p50: Some(p50), p90, p99, p999, .. } = *value else { return None };
    let mut line = Line::default();
    for (name, n) in [("p50", Some(p50)), ("p90", p90), ("p99", p99), ("p99.9", p999)] {
        line.push(format!("{name} "), theme.dim);
        line.push(format!("{}  ", figure(shape(metric), n.map(|n| n as f64))), Style::new());
    }
    Some(line)
}

/// Returns what happened at a quota's limit, and for how long charges waited. What did not happen
/// has no line.
fn at_the_limit(metric: &MetricDoc, value: &ValueDoc, theme: Theme) -> Vec<Line> {
    let ValueDoc::Quota { peak, limit, soft, high, pressure, .. } = value else {
        return Vec::new();
    };
    let ValueDoc::Quota { refused, overdrafts, paused, reclaimed, reclaimed_low, .. } = value
    else {
        return Vec::new();
    };
    let show = |n: u64| figure(shape(metric), Some(n as f64));
    let mut facts = Vec::new();
    if let Some(limit) = limit {
        facts.push(format!("{}limit {}", if *soft { "soft " } else { "" }, show(*limit)));
    }
    facts.extend(high.map(|high| format!("high {}", show(high))));
    if *peak > 0 {
        facts.push(format!("peak {}", show(*peak)));
    }
    let mut lines = Vec::new();
    let mut add = |text: String, style: Style| {
        let mut line = Line::default();
        line.push(text, style);
        lines.push(line);
    };
    if !facts.is_empty() {
        add(facts.join(", "), theme.dim);
    }
    let events = [
        (*refused, show::count(*refused), "refused"),
        (*overdrafts, show::count(*overdrafts), "beyond the limit"),
        (*paused, show::count(*paused), "paused"),
        (*reclaimed, show(*reclaimed), "reclaimed"),
        (*reclaimed_low, show::count(*reclaimed_low), "times despite low"),
    ];
    let events = events.into_iter().filter(|(n, ..)| *n > 0);
    let events: Vec<String> = events.map(|(_, n, what)| format!("{n} {what}")).collect();
    if !events.is_empty() {
        add(events.join(", "), theme.warn);
    }
    if let Some(PressureDoc { some, full }) = pressure {
        add(
            format!("waited for room: {}; {}", stall("some", some), stall("full", full)),
            theme.warn,
        );
    }
    lines
}

fn stall(name: &str, stall: &StallDoc) -> String {
    let StallDoc { avg10, avg60, total_us, .. } = stall;
    let total = show::time(total_us.saturating_mul(1000));
    format!("{name} {avg10:.1} % of 10 s, {avg60:.1} % of a minute, {total} in all")
}

/// Returns the number by which totals of a metric are compared.
fn size(value: &ValueDoc) -> i128 {
    match *value {
        ValueDoc::Unsigned(n) | ValueDoc::Histogram { count: n, .. } => n.into(),
        ValueDoc::Signed(n) => n.into(),
        ValueDoc::Quota { current, .. } => current.into(),
    }
}

fn amount(shape: Shape, n: i128) -> String {
    let sign = if n < 0 { "−" } else { "" };
    format!("{sign}{}", figure(shape, Some(n.unsigned_abs() as f64)))
}

fn shape(metric: &MetricDoc) -> Shape {
    match metric.unit.as_str() {
        "bytes" => Shape::Bytes,
        "nanoseconds" => Shape::Time,
        _ => Shape::Count,
    }
}
