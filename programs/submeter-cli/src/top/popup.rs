//! Boxes over the rows: the keys, and the choice of columns.

use anstyle::Style;
use submeter_terminal::{plain, width as cells};

use super::screen::{Line, Screen};
use super::state::State;
use super::theme::{Theme, pad};

/// Widths of the columns before what a key does, and before the name of a view.
const KEYS_WIDTH: usize = 20;
const TITLE_WIDTH: usize = 22;

const KEYS: [(&str, &str); 14] = [
    ("↑ ↓  k j  wheel", "move"),
    ("PgUp PgDn Home End", "move by page, to either end"),
    ("← →  h l", "collapse, expand"),
    ("Space Enter", "collapse or expand"),
    ("+ -", "expand, collapse all"),
    ("s S  click", "sort by next, previous, clicked"),
    ("1 … 9", "sort by that column"),
    ("r", "reverse the order"),
    ("c", "choose columns"),
    ("d", "detail below, full, off"),
    ("/", "filter by path"),
    ("m", "toggle mouse capture"),
    ("Esc", "clear the filter, close a box"),
    ("q Ctrl-C  Ctrl-Z", "quit, stop until fg"),
];

/// Draws what the keys do.
pub(super) fn draw_help(screen: &mut Screen, theme: Theme) {
    let line = |(keys, what): (&str, &str)| {
        let mut line = Line::default();
        line.push(format!("  {}", pad(keys, KEYS_WIDTH)), theme.bold);
        line.push(what, Style::new());
        line
    };
    draw(screen, "Keys", &KEYS.map(line));
}

/// Draws the columns to choose from, as many around the cursor as the screen has room for.
pub(super) fn draw_chooser(screen: &mut Screen, state: &State, theme: Theme) {
    let choices = state.choices();
    let at = state.chooser.unwrap_or(0).min(choices.len().saturating_sub(1));
    let room = screen.height().saturating_sub(5).max(1);
    let first = (at + 1).saturating_sub(room);
    let line = |(place, view): (usize, usize)| {
        let mut line = Line::default();
        let mark = if state.has_column(view) { "✓" } else { " " };
        line.push(format!(" {mark} {}", pad(&state.views[view].title, TITLE_WIDTH)), theme.bold);
        line.push(plain(&state.views[view].key), theme.dim);
        if place == at {
            line.patch(theme.selected);
        }
        line
    };
    let lines: Vec<Line> =
        choices.into_iter().enumerate().skip(first).take(room).map(line).collect();
    draw(screen, "Columns: Space selects, c closes", &lines);
}

/// Draws a box as wide as the longest line, or as the screen, which then cuts lines. If the screen
/// is too low for all of them, the last line says how many are missing.
fn draw(screen: &mut Screen, title: &str, lines: &[Line]) {
    let mut lines = lines.to_vec();
    let room = screen.height().saturating_sub(2).max(1);
    if lines.len() > room {
        let missing = lines.len() + 1 - room;
        lines.truncate(room - 1);
        let mut more = Line::default();
        more.push(format!("  … {missing} more lines"), Style::new());
        lines.push(more);
    }
    let longest = lines.iter().map(|line| line.width() + 1).max().unwrap_or(0);
    let width = longest.max(cells(title) + 3).min(screen.width().saturating_sub(2));
    let x = screen.width().saturating_sub(width + 2) / 2;
    let y = screen.height().saturating_sub(lines.len() + 2) / 2;
    let edge = |text: String| {
        let mut line = Line::default();
        line.push(text, Style::new());
        line
    };
    let rest = "─".repeat(width.saturating_sub(cells(title) + 2));
    screen.put(x, y, &edge(format!("╭ {title} {rest}")));
    screen.put(x + 1 + width, y, &edge("╮".to_owned()));
    for (at, line) in lines.iter().enumerate() {
        screen.put(x, y + 1 + at, &edge(format!("│{}", " ".repeat(width))));
        screen.put(x + 1, y + 1 + at, line);
        // Drawn over what did not fit.
        screen.put(x + 1 + width, y + 1 + at, &edge("│".to_owned()));
    }
    screen.put(x, y + 1 + lines.len(), &edge(format!("╰{}╯", "─".repeat(width))));
}
