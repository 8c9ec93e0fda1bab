//! Draws the state.

use anstyle::{AnsiColor, Style};
use unicode_width::UnicodeWidthStr;

use super::screen::{Line, Screen};

use super::figures::{percent, rate, time};
use super::state::{Column, Link, Row, State};
use submeter_terminal as show;

/// The styles. Colours come from the terminal's palette, so that they suit its background.
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
    /// Returns the theme with colours.
    pub(super) fn colored() -> Theme {
        Theme {
            accent: AnsiColor::Blue.on_default(),
            warn: AnsiColor::Yellow.on_default(),
            bad: AnsiColor::Red.on_default(),
            ..Theme::plain()
        }
    }

    /// Returns the theme without colours: <https://no-color.org>.
    pub(super) fn plain() -> Theme {
        Theme {
            accent: Style::new(),
            warn: Style::new(),
            bad: Style::new().bold(),
            dim: Style::new().dimmed(),
            bold: Style::new().bold(),
            selected: Style::new().invert(),
        }
    }
}

/// Rows of the screen: the header, two rows of totals, an empty one, the heading, then the tenants.
const TOTALS: usize = 1;
const HEADING: usize = 4;
const ROWS: usize = 5;

/// Draws everything. `top` is the first visible row, kept between frames so that the list scrolls
/// only when the selection would leave the screen.
pub(super) fn draw(screen: &mut Screen, state: &State, theme: Theme, top: &mut usize) {
    screen.put(0, 0, &header(state, theme, screen.width()));
    for (y, line) in (TOTALS..).zip(totals_lines(state, theme, screen.width())) {
        screen.put(0, y, &line);
    }
    let columns = Columns::fit(screen.width());
    screen.put(0, HEADING, &columns.heading(state, theme));
    draw_rows(screen, state, theme, top, &columns);
    let last = screen.height().saturating_sub(1);
    screen.put(0, last.max(ROWS + 1), &footer(state, theme));
    if state.is_help {
        draw_help(screen, theme);
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
        if !server.metering {
            line.push("  metering is off: only memory is counted", theme.warn);
        }
    }
    let gap = width.saturating_sub(line.width() + word.width());
    // A long reason displaces the rest instead of being cut, because it matters more.
    if gap < 2 && matches!(state.link, Link::Lost(_)) {
        line = Line::default();
    } else {
        line.push(" ".repeat(gap), Style::new());
    }
    line.push(word, style);
    line
}

fn totals_lines(state: &State, theme: Theme, width: usize) -> Vec<Line> {
    let Some(root) = state.total() else { return Vec::new() };
    let row = &root.overview;
    let memory = match row.memory_limit_bytes {
        Some(limit) => {
            format!("{} of {}", show::bytes(row.memory_bytes), show::bytes(limit))
        }
        None => show::bytes(row.memory_bytes),
    };
    // The most important first: facts that do not fit are left out, not cut.
    let facts = [
        ("requests/s", rate(row.requests_per_s)),
        ("hits", percent(row.hit_ratio)),
        ("p99", time(row.p99_ns)),
        ("memory", memory),
        ("cpu", percent(Some(row.cpu_cores))),
        ("evictions/s", rate(row.evictions_per_s)),
        ("tenants", show::count(state.tenants() as u64)),
    ];
    let mut line = Line::default();
    let mut used = 0;
    for (name, value) in facts {
        used += name.width() + value.width() + 4;
        if used > width + 3 {
            break;
        }
        line.push(format!("{name} "), theme.dim);
        line.push(format!("{value}   "), theme.bold);
    }
    let past: Vec<f64> = state.past("/").collect();
    let mut below = Line::default();
    below.push(sparkline(&past, width), theme.accent);
    vec![line, below]
}

/// The columns that fit.
struct Columns {
    name: usize,
    past: usize,
    bar: usize,
    shown: Vec<(Column, usize)>,
}

impl Columns {
    /// Gives the name the width that the figures leave; the least important figures are dropped
    /// first.
    fn fit(width: usize) -> Columns {
        const FIGURES: [(Column, usize, usize); 7] = [
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
        let rest = width.saturating_sub(figures + past + bar);
        Columns { name: rest, past, bar, shown }
    }

    fn heading(&self, state: &State, theme: Theme) -> Line {
        let mut line = Line::default();
        let title = |column: Column| {
            let title = heading_of(column);
            let arrow = if state.descending { "▼" } else { "▲" };
            if state.sort == column { format!("{title} {arrow}") } else { title.to_owned() }
        };
        let style = |column: Column| if state.sort == column { theme.bold } else { theme.dim };
        line.push(pad(&title(Column::Name), self.name), style(Column::Name));
        for &(column, width) in &self.shown {
            if column == Column::Requests {
                line.push(" ".repeat(self.past), Style::new());
            }
            line.push(right(&title(column), width), style(column));
            if column == Column::Memory {
                line.push(" ".repeat(self.bar), Style::new());
            }
        }
        line
    }

    fn line(&self, state: &State, row: &Row<'_>, theme: Theme) -> Line {
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
        let mut line = Line::default();
        line.push(pad(&name, self.name), name_style);
        for &(column, width) in &self.shown {
            let (text, style) = figure(column, figures, theme);
            if column == Column::Requests && self.past > 0 {
                let past: Vec<f64> = state.past(&row.node.path).collect();
                line.push(format!("  {}", sparkline(&past, self.past - 2)), theme.accent);
            }
            line.push(right(&text, width), style);
            if column == Column::Memory && self.bar > 0 {
                bar(&mut line, figures, self.bar, theme);
            }
        }
        if row.is_selected {
            line.patch(theme.selected);
        }
        line
    }
}

fn draw_rows(screen: &mut Screen, state: &State, theme: Theme, top: &mut usize, columns: &Columns) {
    // The footer takes the last row; even a tiny terminal shows one row of tenants.
    let height = screen.height().saturating_sub(ROWS + 1).max(1);
    let (count, selected) = (state.rows().len(), state.selected());
    *top = (*top).min(count.saturating_sub(height)).min(selected);
    *top = (*top).max((selected + 1).saturating_sub(height));
    let empty = if state.total().is_none() {
        "Waiting for the server."
    } else if !state.filter.is_empty() && count == 0 {
        "No tenant's path contains this. Esc clears the filter."
    } else {
        for (y, row) in (ROWS..).zip(state.rows().skip(*top).take(height)) {
            screen.put(0, y, &columns.line(state, &row, theme));
        }
        return;
    };
    let mut line = Line::default();
    line.push(empty, theme.dim);
    screen.put(0, ROWS, &line);
}

fn footer(state: &State, theme: Theme) -> Line {
    let mut line = Line::default();
    if state.is_typing || !state.filter.is_empty() {
        let cursor = if state.is_typing { "█" } else { "" };
        let hint = if state.is_typing { "Enter keeps" } else { "/ edits" };
        line.push("filter ", theme.dim);
        line.push(format!("{}{cursor}", state.filter), theme.bold);
        line.push(format!("   {hint}, Esc clears"), theme.dim);
        return line;
    }
    for (key, what) in [
        ("↑↓", "move"),
        ("←→", "fold"),
        ("/", "filter"),
        ("s", "sort"),
        ("r", "reverse"),
        ("?", "help"),
        ("q", "quit"),
    ] {
        line.push(format!("{key} "), theme.bold);
        line.push(format!("{what}   "), theme.dim);
    }
    line
}

fn draw_help(screen: &mut Screen, theme: Theme) {
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
    const WIDTH: usize = 56;
    let (x, y) = (
        screen.width().saturating_sub(WIDTH + 2) / 2,
        screen.height().saturating_sub(KEYS.len() + 4) / 2,
    );
    let mut lines = vec![Line::default()];
    for (keys, what) in KEYS {
        let mut line = Line::default();
        line.push(format!("  {}", pad(keys, 20)), theme.bold);
        line.push(what, Style::new());
        lines.push(line);
    }
    lines.push(Line::default());
    let edge = |text: String| {
        let mut line = Line::default();
        line.push(text, Style::new());
        line
    };
    let below = y + lines.len() + 1;
    screen.put(x, y, &edge(format!("╭ Keys {}╮", "─".repeat(WIDTH - 6))));
    for (place, line) in lines.iter().enumerate() {
        screen.put(x, y + 1 + place, &edge(format!("│{}│", " ".repeat(WIDTH))));
        screen.put(x + 1, y + 1 + place, line);
    }
    screen.put(x, below, &edge(format!("╰{}╯", "─".repeat(WIDTH))));
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

/// Returns a figure and its style: dim for zero, a warm colour for pressure.
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

/// Appends a bar for usage of a limit; nothing if there is no limit.
fn bar(line: &mut Line, row: &crate::dashboard::wire::Overview, width: usize, theme: Theme) {
    let inner = width - 2;
    let Some(limit) = row.memory_limit_bytes else {
        line.push(" ".repeat(width), Style::new());
        return;
    };
    let held = row.memory_bytes as f64;
    let share = if limit == 0 { 1.0 } else { (held / limit as f64).min(1.0) };
    let full = (share * inner as f64).round() as usize;
    let style = if share >= 0.97 { theme.warn } else { theme.accent };
    line.push("  ", Style::new());
    line.push("━".repeat(full), style);
    line.push("─".repeat(inner - full), theme.dim);
}

/// Returns one character per sample, the newest to the right; the tallest fills its cell.
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

/// Pads to a width in cells, or cuts with an ellipsis; the last cell stays free.
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
