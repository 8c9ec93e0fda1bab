//! Draws the state with ratatui.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, BorderType, Clear, Paragraph};
use unicode_width::UnicodeWidthStr;

use super::figures::{percent, rate, time};
use super::state::{Column, Link, Row, State};
use crate::show;

/// How things look. Colours are the terminal's own, so that they suit its background.
#[derive(Clone, Copy, Debug)]
pub(super) struct Theme {
    accent: Style,
    warn: Style,
    bad: Style,
    dim: Style,
    bold: Style,
    selected: Style,
}

impl Theme {
    /// With colours.
    pub(super) fn colored() -> Theme {
        Theme {
            accent: Style::new().fg(Color::Blue),
            warn: Style::new().fg(Color::Yellow),
            bad: Style::new().fg(Color::Red),
            ..Theme::plain()
        }
    }

    /// Without: <https://no-color.org>.
    pub(super) fn plain() -> Theme {
        Theme {
            accent: Style::new(),
            warn: Style::new(),
            bad: Style::new().add_modifier(Modifier::BOLD),
            dim: Style::new().add_modifier(Modifier::DIM),
            bold: Style::new().add_modifier(Modifier::BOLD),
            selected: Style::new().add_modifier(Modifier::REVERSED),
        }
    }
}

/// Draws everything. `top` is the first row on the screen, kept from frame to frame so that the
/// list moves only when the selection would leave it.
pub(super) fn draw(frame: &mut Frame<'_>, state: &State, theme: Theme, top: &mut usize) {
    let [head, totals, _, heading, rows, foot] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(2),
        Constraint::Length(1),
        Constraint::Length(1),
        Constraint::Min(1),
        Constraint::Length(1),
    ])
    .areas(frame.area());
    frame.render_widget(header(state, theme, head.width), head);
    frame.render_widget(Paragraph::new(totals_lines(state, theme, totals.width)), totals);
    let columns = Columns::fit(rows.width);
    frame.render_widget(columns.heading(state, theme), heading);
    draw_rows(frame, state, theme, top, rows, &columns);
    frame.render_widget(footer(state, theme), foot);
    if state.is_help {
        draw_help(frame, theme);
    }
}

fn header<'a>(state: &'a State, theme: Theme, width: u16) -> Paragraph<'a> {
    let server = state.server.as_ref();
    let (word, style) = match &state.link {
        Link::Connecting => ("connecting".to_owned(), theme.dim),
        Link::Live => ("live".to_owned(), theme.accent),
        Link::Lost(why) => (format!("lost, retrying: {why}"), theme.bad),
    };
    let mut left = vec![Span::styled("submeter", theme.bold)];
    if let Some(server) = server {
        let up = state.at_ms.saturating_sub(server.started_ms) / 1000;
        left.push(Span::styled(format!("  {}  up {}", server.listen, uptime(up)), theme.dim));
        if !server.metering {
            left.push(Span::styled("  metering is off: only memory is known", theme.warn));
        }
    }
    let used: usize = left.iter().map(Span::width).sum();
    let gap = usize::from(width).saturating_sub(used + word.width());
    // A long reason pushes the rest out rather than being cut: it is what matters then.
    if gap < 2 && matches!(state.link, Link::Lost(_)) {
        return Paragraph::new(Line::styled(word, style));
    }
    left.push(Span::raw(" ".repeat(gap)));
    left.push(Span::styled(word, style));
    Paragraph::new(Line::from(left))
}

fn totals_lines<'a>(state: &State, theme: Theme, width: u16) -> Vec<Line<'a>> {
    let Some(root) = state.total() else { return Vec::new() };
    let row = &root.overview;
    let memory = match row.memory_limit_bytes {
        Some(limit) => {
            format!("{} of {}", show::bytes(row.memory_bytes), show::bytes(limit))
        }
        None => show::bytes(row.memory_bytes),
    };
    // The most telling first: what does not fit is left out, not cut.
    let facts = [
        ("requests/s", rate(row.requests_per_s)),
        ("hits", percent(row.hit_ratio)),
        ("p99", time(row.p99_ns)),
        ("memory", memory),
        ("cpu", percent(Some(row.cpu_cores))),
        ("evictions/s", rate(row.evictions_per_s)),
        ("tenants", show::count(state.tenants() as u64)),
    ];
    let width = usize::from(width);
    let mut spans: Vec<Span<'_>> = Vec::new();
    let mut used = 0;
    for (name, value) in facts {
        used += name.width() + value.width() + 4;
        if used > width + 3 {
            break;
        }
        spans.push(Span::styled(format!("{name} "), theme.dim));
        spans.push(Span::styled(format!("{value}   "), theme.bold));
    }
    let past: Vec<f64> = state.past("/").collect();
    vec![Line::from(spans), Line::styled(sparkline(&past, width), theme.accent)]
}

/// Which columns fit, widest rows first.
struct Columns {
    name: usize,
    past: usize,
    bar: usize,
    shown: Vec<(Column, usize)>,
}

impl Columns {
    /// Gives the name what is left after the figures; the least telling figures go first.
    fn fit(width: u16) -> Columns {
        const FIGURES: [(Column, usize, u16); 7] = [
            (Column::Requests, 12, 0),
            (Column::Hits, 8, 56),
            (Column::P99, 9, 46),
            (Column::Cpu, 8, 74),
            (Column::Memory, 11, 64),
            (Column::Evictions, 13, 100),
            (Column::Items, 10, 112),
        ];
        let fits = FIGURES.iter().filter(|(.., least)| width >= *least);
        let shown: Vec<(Column, usize)> = fits.map(|&(column, w, _)| (column, w)).collect();
        let past = if width >= 90 { 14 } else { 0 };
        let bar = if width >= 124 { 14 } else { 0 };
        let figures: usize = shown.iter().map(|(_, w)| w).sum();
        let rest = usize::from(width).saturating_sub(figures + past + bar);
        Columns { name: rest, past, bar, shown }
    }

    fn heading<'a>(&self, state: &State, theme: Theme) -> Paragraph<'a> {
        let mut spans = Vec::new();
        let title = |column: Column| {
            let title = heading_of(column);
            let arrow = if state.descending { "▼" } else { "▲" };
            if state.sort == column { format!("{title} {arrow}") } else { title.to_owned() }
        };
        let style = |column: Column| if state.sort == column { theme.bold } else { theme.dim };
        spans.push(Span::styled(pad(&title(Column::Name), self.name), style(Column::Name)));
        for &(column, width) in &self.shown {
            if column == Column::Requests {
                spans.push(Span::raw(" ".repeat(self.past)));
            }
            spans.push(Span::styled(right(&title(column), width), style(column)));
            if column == Column::Memory {
                spans.push(Span::raw(" ".repeat(self.bar)));
            }
        }
        Paragraph::new(Line::from(spans))
    }

    fn line<'a>(&self, state: &State, row: &Row<'_>, theme: Theme) -> Line<'a> {
        let figures = &row.node.overview;
        let mark = match (row.kids, row.is_open) {
            (0, _) => " ",
            (_, true) => "▾",
            (_, false) => "▸",
        };
        let mut name = format!("{}{mark} {}", "  ".repeat(row.depth), row.node.name());
        if row.kids > 0 && !row.is_open {
            name.push_str(&format!(" ({})", row.kids));
        }
        let name_style = match (row.is_match, row.kids) {
            (false, _) => theme.dim,
            (true, 0) => Style::new(),
            (true, _) => theme.bold,
        };
        let mut spans = vec![Span::styled(pad(&name, self.name), name_style)];
        for &(column, width) in &self.shown {
            let (text, style) = figure(column, figures, theme);
            if column == Column::Requests && self.past > 0 {
                let past: Vec<f64> = state.past(&row.node.path).collect();
                let line = sparkline(&past, self.past - 2);
                spans.push(Span::styled(format!("  {line}"), theme.accent));
            }
            spans.push(Span::styled(right(&text, width), style));
            if column == Column::Memory && self.bar > 0 {
                spans.extend(bar(
                    figures.memory_bytes,
                    figures.memory_limit_bytes,
                    self.bar,
                    theme,
                ));
            }
        }
        let line = Line::from(spans);
        if row.is_selected { line.patch_style(theme.selected) } else { line }
    }
}

fn draw_rows(
    frame: &mut Frame<'_>,
    state: &State,
    theme: Theme,
    top: &mut usize,
    area: Rect,
    columns: &Columns,
) {
    let height = usize::from(area.height);
    let (count, selected) = (state.rows().len(), state.selected());
    *top = (*top).min(count.saturating_sub(height)).min(selected);
    *top = (*top).max((selected + 1).saturating_sub(height));
    let lines: Vec<Line<'_>> =
        state.rows().skip(*top).take(height).map(|row| columns.line(state, &row, theme)).collect();
    let empty = if state.total().is_none() {
        "Waiting for the server."
    } else if !state.filter.is_empty() && count == 0 {
        "No tenant's path contains this. Esc clears the filter."
    } else {
        frame.render_widget(Paragraph::new(lines), area);
        return;
    };
    frame.render_widget(Paragraph::new(Line::styled(empty, theme.dim)), area);
}

fn footer<'a>(state: &State, theme: Theme) -> Paragraph<'a> {
    if state.is_typing || !state.filter.is_empty() {
        let cursor = if state.is_typing { "█" } else { "" };
        let hint = if state.is_typing { "Enter keeps" } else { "/ edits" };
        return Paragraph::new(Line::from(vec![
            Span::styled("filter ", theme.dim),
            Span::styled(format!("{}{cursor}", state.filter), theme.bold),
            Span::styled(format!("   {hint}, Esc clears"), theme.dim),
        ]));
    }
    let mut spans = Vec::new();
    for (key, what) in [
        ("↑↓", "move"),
        ("←→", "fold"),
        ("/", "filter"),
        ("s", "sort"),
        ("r", "reverse"),
        ("?", "help"),
        ("q", "quit"),
    ] {
        spans.push(Span::styled(format!("{key} "), theme.bold));
        spans.push(Span::styled(format!("{what}   "), theme.dim));
    }
    Paragraph::new(Line::from(spans))
}

fn draw_help(frame: &mut Frame<'_>, theme: Theme) {
    const KEYS: [(&str, &str); 11] = [
        ("↑ ↓  k j", "move"),
        ("PgUp PgDn Home End", "move far"),
        ("← →  h l", "close, open"),
        ("Space Enter", "close or open"),
        ("+ -", "open, close all"),
        ("s S", "sort by the next, previous column"),
        ("1 … 8", "sort by that column"),
        ("r", "reverse the order"),
        ("/", "filter by path"),
        ("Esc", "clear the filter"),
        ("q Ctrl-C", "quit"),
    ];
    let (width, height) = (58, KEYS.len() as u16 + 4);
    let area = frame.area();
    let [area] = Layout::horizontal([Constraint::Length(width)])
        .flex(ratatui::layout::Flex::Center)
        .areas(area);
    let [area] = Layout::vertical([Constraint::Length(height)])
        .flex(ratatui::layout::Flex::Center)
        .areas(area);
    let mut lines = vec![Line::default()];
    for (keys, what) in KEYS {
        lines.push(Line::from(vec![
            Span::styled(format!("  {}", pad(keys, 20)), theme.bold),
            Span::raw(what),
        ]));
    }
    let block = Block::bordered().border_type(BorderType::Rounded).title(" Keys ");
    frame.render_widget(Clear, area);
    frame.render_widget(Paragraph::new(lines).block(block), area);
}

fn heading_of(column: Column) -> &'static str {
    match column {
        Column::Name => "Tenant",
        Column::Requests => "Requests/s",
        Column::Hits => "Hits",
        Column::P99 => "p99",
        Column::Cpu => "CPU",
        Column::Memory => "Memory",
        Column::Evictions => "Evictions/s",
        Column::Items => "Items",
    }
}

/// A figure and how it stands out: nothing is dim, pressure is warm.
fn figure(column: Column, row: &crate::dashboard::wire::Overview, theme: Theme) -> (String, Style) {
    let text = match column {
        Column::Name => String::new(),
        Column::Requests => rate(row.requests_per_s),
        Column::Hits => percent(row.hit_ratio),
        Column::P99 => time(row.p99_ns),
        Column::Cpu => percent(Some(row.cpu_cores)),
        Column::Memory => show::bytes(row.memory_bytes),
        Column::Evictions => rate(row.evictions_per_s),
        Column::Items => show::count(row.items.max(0).cast_unsigned()),
    };
    let style = match text.as_str() {
        "0" | "–" | "0 %" | "0 B" => theme.dim,
        _ if column == Column::Evictions => theme.warn,
        _ => Style::new(),
    };
    (text, style)
}

/// A bar for what is held of a limit; nothing where there is no limit.
fn bar<'a>(held: u64, limit: Option<u64>, width: usize, theme: Theme) -> Vec<Span<'a>> {
    let inner = width - 2;
    let Some(limit) = limit else { return vec![Span::raw(" ".repeat(width))] };
    let share = if limit == 0 { 1.0 } else { (held as f64 / limit as f64).min(1.0) };
    let full = (share * inner as f64).round() as usize;
    let style = if share >= 0.97 { theme.warn } else { theme.accent };
    vec![
        Span::raw("  "),
        Span::styled("━".repeat(full), style),
        Span::styled("─".repeat(inner - full), theme.dim),
    ]
}

/// One character a sample, the newest to the right; the tallest fills its cell.
fn sparkline(values: &[f64], width: usize) -> String {
    const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let values = &values[values.len().saturating_sub(width)..];
    let most = values.iter().copied().fold(1.0, f64::max);
    let mut line = " ".repeat(width - values.len());
    line.extend(values.iter().map(|value| {
        let step = (value / most * (BARS.len() - 1) as f64).round();
        BARS[(step.max(0.0) as usize).min(BARS.len() - 1)]
    }));
    line
}

fn uptime(seconds: u64) -> String {
    match (seconds / 86_400, seconds / 3600 % 24, seconds / 60 % 60) {
        (0, 0, 0) => format!("{seconds} s"),
        (0, 0, minutes) => format!("{minutes} min {} s", seconds % 60),
        (0, hours, minutes) => format!("{hours} h {minutes} min"),
        (days, hours, _) => format!("{days} d {hours} h"),
    }
}

/// Fills to a width in cells, or cuts with an ellipsis; one cell is left free at the end.
fn pad(text: &str, width: usize) -> String {
    let room = width.saturating_sub(1);
    if text.width() <= room {
        return format!("{text}{}", " ".repeat(width - text.width()));
    }
    let mut cut = String::new();
    for c in text.chars() {
        cut.push(c);
        if cut.width() + 1 > room {
            cut.pop();
            break;
        }
    }
    cut.push('…');
    let used = cut.width();
    format!("{cut}{}", " ".repeat(width.saturating_sub(used)))
}

fn right(text: &str, width: usize) -> String {
    format!("{}{text}", " ".repeat(width.saturating_sub(text.width())))
}
