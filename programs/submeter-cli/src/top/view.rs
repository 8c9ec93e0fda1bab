//! Draws the state.

use std::ops::Range;

use anstyle::Style;

use super::figures::{figure as figure_text, in_a_sentence};
use super::layout::{self, Layout};
use super::screen::{Line, Screen};
use super::state::{Column, Link, Pane, Row, State};
use super::theme::{Theme, pad, right};
use super::{graph, pane, popup};
use submeter_http::wire::{Placement, Shape, VerdictDoc, VerdictKind, ViewDoc};
use submeter_terminal as show;

/// Cells of a sparkline, with the space before it.
const PAST_WIDTH: usize = 14;

/// The share of a limit from which it has a colour.
const FULL: f64 = 0.97;

/// The share of time from which waiting for room is coloured; the page uses the same.
const STALLED: f64 = 0.01;

/// Cells that a name keeps when there are several figures.
const NAME_LEAST: usize = 20;

/// Draws everything. `layout` is kept between frames, and says what a click hits.
pub(super) fn draw(screen: &mut Screen, state: &State, theme: Theme, layout: &mut Layout) {
    let columns = Columns::fit(state, screen.width());
    let pane = match state.pane {
        Pane::Closed => Vec::new(),
        _ => pane::lines(state, theme, screen.width()),
    };
    let said = said(state, theme, screen);
    layout.fit(state, screen.height(), said.len(), pane.len());
    layout.heads = columns.heads();
    screen.put(0, 0, &header(state, theme, screen.width()));
    screen.put(0, layout::TOTALS, &totals(state, theme, screen.width()));
    layout.said.clone().zip(&said).for_each(|(y, line)| screen.put(0, y, line));
    draw_graph(screen, state, theme, layout);
    screen.put(0, layout.heading, &columns.heading(state, theme));
    draw_rows(screen, state, theme, layout, &columns);
    draw_pane(screen, state, theme, layout, &pane);
    screen.put(0, layout.footer, &footer(state, theme));
    if state.chooser.is_some() {
        popup::draw_chooser(screen, state, theme);
    }
    if state.is_help {
        popup::draw_help(screen, theme);
    }
}

fn header(state: &State, theme: Theme, width: usize) -> Line {
    let server = state.server.as_ref();
    let (word, style) = match &state.link {
        Link::Connecting => ("connecting".to_owned(), theme.dim),
        Link::Live => ("live".to_owned(), theme.accent),
        Link::Lost(why) => (format!("lost, retrying: {why}"), theme.bad),
    };
    let mut line = Line::default();
    line.push("submeter", theme.bold);
    if let Some(server) = server {
        let up = state.at_ms.saturating_sub(server.started_ms) / 1000;
        line.push(format!("  {}  up {}", server.listen, uptime(up)), theme.dim);
    }
    let gap = width.saturating_sub(line.width() + show::width(&word));
    // A long reason displaces the rest instead of being cut, because it matters more.
    if gap < 2 && matches!(state.link, Link::Lost(_)) {
        line = Line::default();
    } else {
        line.push(" ".repeat(gap), Style::new());
    }
    line.push(word, style);
    line
}

fn totals(state: &State, theme: Theme, width: usize) -> Line {
    let mut line = Line::default();
    let Some(root) = state.total() else { return line };
    // In the order of the views: facts that do not fit are left out, not cut.
    let views = state.views.iter().enumerate();
    let headlines = views.filter(|(_, view)| view.place == Placement::Headline);
    let facts = headlines.map(|(at, view)| {
        let value = figure_text(view.shape, root.figures[at]);
        let value = match state.limit(root, at) {
            Some(limit) => format!("{value} of {}", figure_text(view.shape, Some(limit))),
            None => value,
        };
        (in_a_sentence(&view.title), value)
    });
    let tenants = ("tenants".to_owned(), show::count(state.tenants() as u64));
    let mut used = 0;
    for (name, value) in facts.chain([tenants]) {
        used += show::width(&name) + show::width(&value) + 4;
        if used > width + 3 {
            break;
        }
        line.push(format!("{name} "), theme.dim);
        line.push(format!("{value}   "), theme.bold);
    }
    line
}

/// Returns the messages: what everyone who looks must know, who is harmed by whom, and who is at a
/// limit. Verdicts take at most an eighth of the lines; the least important do not fit, and an
/// ellipsis says so.
fn said(state: &State, theme: Theme, screen: &Screen) -> Vec<Line> {
    let mut notice = Line::default();
    notice.push(state.notice().unwrap_or_default(), theme.warn);
    let mut verdicts = Line::default();
    for verdict in &state.verdicts {
        verdicts.push(format!("{}  ", sentence(verdict, true)), blamed(verdict.kind, theme));
    }
    let shown = |line: Line| match line.width() {
        0 => Vec::new(),
        _ => line.wrapped(screen.width()),
    };
    let mut verdicts = shown(verdicts);
    let room = (screen.height() / 8).max(1);
    if verdicts.len() > room {
        verdicts.truncate(room);
        verdicts[room - 1].end_early(screen.width());
    }
    [shown(notice), verdicts].concat()
}

/// Writes a verdict after the name that it begins with, both made printable: for programs, or for a
/// terminal.
pub(super) fn sentence(verdict: &VerdictDoc, is_terminal: bool) -> String {
    let group = show::displayed(&verdict.group, is_terminal);
    // Non-breaking spaces become ordinary ones, at which a script can split.
    format!("{group}{}", show::plain(&verdict.text.replace('\u{a0}', " ")))
}

/// Draws the past of the selected group, and below it what it shows and what its top stands for.
fn draw_graph(screen: &mut Screen, state: &State, theme: Theme, layout: &Layout) {
    let (Some(view), Some(node)) = (state.graphed(), state.current()) else { return };
    let (past, limit) = (state.selected_past(view), state.limit(node, view));
    let most = graph::most(&past, limit);
    let size = (screen.width(), layout.graph.len());
    for (y, row) in layout.graph.clone().zip(graph::rows(&past, most, size)) {
        let mut line = Line::default();
        line.push(row, theme.accent);
        screen.put(0, y, &line);
    }
    let ViewDoc { title, shape, .. } = &state.views[view];
    let of = show::isolated(node.title());
    let mut line = Line::default();
    line.push(format!("{} of {of}", in_a_sentence(title)), theme.bold);
    let limit = if limit == Some(most) { ", its limit" } else { "" };
    line.push(format!(", up to {}{limit}", figure_text(*shape, Some(most))), theme.dim);
    screen.put(0, layout.graph.end, &line);
}

/// The columns that fit.
struct Columns {
    name: usize,
    past: usize,
    shown: Vec<Shown>,
}

/// A view with a column.
struct Shown {
    view: usize,
    width: usize,
    /// The view that stands beside it as its limit, with the width that this takes.
    limit: Option<(usize, usize)>,
}

impl Columns {
    /// Gives the name the width that the figures leave; the last figures are dropped first.
    fn fit(state: &State, width: usize) -> Columns {
        let past = if width >= 90 && state.has_column(0) { PAST_WIDTH } else { 0 };
        let mut rest = width.saturating_sub(past);
        let mut shown = Vec::new();
        let columns = state.columns();
        let views: Vec<usize> = columns
            .iter()
            .filter_map(|column| match *column {
                Column::View(view) => Some(view),
                Column::Name => None,
            })
            .collect();
        // After the first view, refusals of late have precedence over the rest.
        let (urgent, calm): (Vec<usize>, Vec<usize>) =
            views.iter().skip(1).partition(|&&view| state.is_refusing(view));
        for view in views.iter().take(1).copied().chain(urgent).chain(calm) {
            let ViewDoc { title, shape, .. } = &state.views[view];
            let wide = figure_width(*shape).max(show::width(title) + 2);
            // The first view is shown wherever it leaves any room for the name.
            let least = if shown.is_empty() { 1 } else { NAME_LEAST };
            if rest < wide + least {
                break;
            }
            rest -= wide;
            // A limit that a tenant has comes before further figures. That of all tenants is among
            // the totals.
            let has_one = |&limit: &usize| state.figures(limit).skip(1).flatten().next().is_some();
            let limit = state.limit_beside(view).filter(has_one);
            let limit = limit.map(|limit| (limit, limit_width(*shape)));
            let limit = limit.filter(|&(_, width)| rest >= width + NAME_LEAST);
            rest -= limit.map_or(0, |(_, width)| width);
            shown.push(Shown { view, width: wide, limit });
        }
        shown.sort_by_key(|shown| views.iter().position(|&view| view == shown.view));
        Columns { name: rest, past, shown }
    }

    /// Returns the cells of the heading that belong to each column.
    fn heads(&self) -> Vec<(Range<usize>, Column)> {
        let mut heads = vec![(0..self.name, Column::Name)];
        let mut x = self.name;
        for &Shown { view, width, limit } in &self.shown {
            let past = if view == 0 { self.past } else { 0 };
            let end = x + past + width + limit.map_or(0, |(_, width)| width);
            heads.push((x..end, Column::View(view)));
            x = end;
        }
        heads
    }

    fn heading(&self, state: &State, theme: Theme) -> Line {
        let mut line = Line::default();
        let title = |title: &str, column: Column| {
            let arrow = if state.descending { "▼" } else { "▲" };
            if state.sort == column { format!("{title} {arrow}") } else { title.to_owned() }
        };
        let style = |column: Column| if state.sort == column { theme.bold } else { theme.dim };
        line.push(pad(&title("Tenant", Column::Name), self.name), style(Column::Name));
        for &Shown { view, width, limit } in &self.shown {
            let column = Column::View(view);
            if view == 0 {
                line.push(" ".repeat(self.past), Style::new());
            }
            line.push(right(&title(&state.views[view].title, column), width), style(column));
            line.push(" ".repeat(limit.map_or(0, |(_, width)| width)), Style::new());
        }
        line
    }

    fn line(&self, state: &State, row: &Row<'_>, theme: Theme) -> Line {
        let mark = match (row.kids, row.is_open) {
            (0, _) => " ",
            (_, true) => "▾",
            (_, false) => "▸",
        };
        let lead = format!("{}{mark}", "  ".repeat(row.depth));
        let mut name = show::isolated(row.node.name()).into_owned();
        if row.kids > 0 && !row.is_open {
            name.push_str(&format!(" ({})", row.kids));
        }
        let name_style = match (row.is_match, row.kids) {
            (false, _) => theme.dim,
            (true, 0) => Style::new(),
            (true, _) => theme.bold,
        };
        let mut line = Line::default();
        let room = self.name.saturating_sub(show::width(&lead) + 1);
        line.push(lead, name_style);
        // Beside the name, because a long name is cut.
        match state.judged(row.node) {
            Some(kind) => line.push("!", blamed(kind, theme)),
            None => line.push(" ", name_style),
        }
        line.push(pad(&name, room), name_style);
        for &Shown { view, width, limit } in &self.shown {
            let value = row.node.figures[view];
            if view == 0 && self.past > 0 {
                let past: Vec<Option<f64>> = state.past(&row.node.path).map(Some).collect();
                let size = (self.past - 2, 1);
                for row in graph::rows(&past, graph::most(&past, None), size) {
                    line.push(format!("  {row}"), theme.accent);
                }
            }
            let (text, style) = figure(&state.views[view], value, theme);
            line.push(right(&text, width), style);
            if let Some((limit, width)) = limit {
                let (limit, shape) = (row.node.figures[limit], state.views[view].shape);
                let text = limit.map(|limit| format!(" of {}", figure_text(shape, Some(limit))));
                let text = text.unwrap_or_default();
                let is_full = value.zip(limit).is_some_and(|(held, limit)| held >= limit * FULL);
                let style = match is_full {
                    true if state.views[view].is_trouble => theme.warn,
                    true => theme.accent,
                    false => theme.dim,
                };
                let blank = " ".repeat(width.saturating_sub(show::width(&text)));
                line.push(text + &blank, style);
            }
        }
        if row.is_selected {
            line.patch(theme.selected);
        }
        line
    }
}

fn draw_rows(screen: &mut Screen, state: &State, theme: Theme, layout: &Layout, columns: &Columns) {
    let empty = if state.total().is_none() {
        "Waiting for the server."
    } else if !state.filter.is_empty() && state.rows().len() == 0 {
        "No tenant's path contains this. Esc clears the filter."
    } else {
        for (y, row) in layout.rows.clone().zip(state.rows().skip(layout.top)) {
            screen.put(0, y, &columns.line(state, &row, theme));
        }
        return;
    };
    let mut line = Line::default();
    line.push(empty, theme.dim);
    screen.put(0, layout.rows.start, &line);
}

fn draw_pane(screen: &mut Screen, state: &State, theme: Theme, layout: &Layout, lines: &[Line]) {
    let (count, room) = (lines.len(), layout.pane.len());
    let fits = if count > room { room.saturating_sub(1) } else { count };
    let first = layout.scrolled;
    for (y, line) in layout.pane.clone().zip(lines.iter().skip(first).take(fits)) {
        screen.put(0, y, line);
    }
    if fits < count && room > 0 {
        let more = match state.pane {
            Pane::Alone => format!("lines {} to {} of {count}: ↑↓", first + 1, first + fits),
            _ => format!("and {} more lines: d shows them", count - fits),
        };
        let mut line = Line::default();
        line.push(format!("  {more}"), theme.dim);
        screen.put(0, layout.pane.end - 1, &line);
    }
}

fn footer(state: &State, theme: Theme) -> Line {
    let mut line = Line::default();
    if state.is_typing || !state.filter.is_empty() {
        let cursor = if state.is_typing { "█" } else { "" };
        let hint = if state.is_typing { "Enter keeps" } else { "/ edits" };
        line.push("filter ", theme.dim);
        line.push(format!("{}{cursor}", show::plain(&state.filter)), theme.bold);
        line.push(format!("   {hint}, Esc clears"), theme.dim);
        return line;
    }
    for (key, what) in [
        ("↑↓", if state.pane == Pane::Alone { "scroll" } else { "move" }),
        ("←→", "fold"),
        ("/", "filter"),
        ("s", "sort"),
        ("c", "columns"),
        ("d", "detail"),
        ("?", "help"),
        ("q", "quit"),
    ] {
        line.push(format!("{key} "), theme.bold);
        line.push(format!("{what}   "), theme.dim);
    }
    line
}

/// Returns the width of a figure's column, with the space before it.
fn figure_width(shape: Shape) -> usize {
    match shape {
        Shape::Share | Shape::Cores => 8,
        Shape::Time => 9,
        Shape::Rate | Shape::Count => 10,
        Shape::Bytes => 11,
        Shape::ByteRate => 13,
    }
}

/// Returns the width of " of " and a limit: as wide as any, because leases change each second.
fn limit_width(shape: Shape) -> usize {
    match shape {
        Shape::Rate => 9,
        Shape::Share | Shape::Cores => 10,
        Shape::Time => 11,
        Shape::Bytes => 12,
        Shape::ByteRate | Shape::Count => 14,
    }
}

/// Returns a figure and its style: dim for zero, a warm colour for trouble.
fn figure(view: &ViewDoc, value: Option<f64>, theme: Theme) -> (String, Style) {
    let style = match value {
        None | Some(0.0) => theme.dim,
        // An average that never falls to zero again.
        Some(share) if view.is_pressure && share < STALLED => theme.dim,
        _ if view.is_trouble => theme.warn,
        _ => Style::new(),
    };
    (figure_text(view.shape, value), style)
}

/// Returns the style of who is to blame, or of who is harmed or at a limit.
fn blamed(kind: VerdictKind, theme: Theme) -> Style {
    if kind.is_blame() { theme.bad } else { theme.warn }
}

fn uptime(seconds: u64) -> String {
    match (seconds / 86_400, seconds / 3600 % 24, seconds / 60 % 60) {
        (0, 0, 0) => format!("{seconds} s"),
        (0, 0, minutes) => format!("{minutes} min {} s", seconds % 60),
        (0, hours, minutes) => format!("{hours} h {minutes} min"),
        (days, hours, _) => format!("{days} d {hours} h"),
    }
}
