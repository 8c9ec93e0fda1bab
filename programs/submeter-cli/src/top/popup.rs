//! Boxes over the rows: the keys, and the choice of columns.

use anstyle::Style;
use submeter_terminal::plain;

use super::screen::{Line, Screen};
use super::state::State;
use super::view::{Theme, pad};

const WIDTH: usize = 56;

const KEYS: [(&str, &str); 14] = [
    ("↑ ↓  k j  wheel", "move"),
    ("PgUp PgDn Home End", "move far"),
    ("← →  h l", "close, open"),
    ("Space Enter", "close or open"),
    ("+ -", "open, close all"),
    ("s S  click", "sort by the next, previous, that column"),
    ("1 … 9", "sort by that column"),
    ("r", "reverse the order"),
    ("c", "choose columns"),
    ("d", "detail: below the rows, alone, closed"),
    ("/", "filter by path"),
    ("m", "leave the mouse to the terminal, take it"),
    ("Esc", "clear the filter, close a box"),
    ("q Ctrl-C", "quit"),
];

/// Draws what the keys do.
pub(super) fn draw_help(screen: &mut Screen, theme: Theme) {
    let line = |(keys, what): (&str, &str)| {
        let mut line = Line::default();
        line.push(format!("  {}", pad(keys, 20)), theme.bold);
        line.push(what, Style::new());
        line
    };
    draw(screen, "Keys", &KEYS.map(line));
}

/// Draws the columns that may be chosen, as many around the cursor as the screen has room for.
pub(super) fn draw_chooser(screen: &mut Screen, state: &State, theme: Theme) {
    let choices = state.choices();
    let at = state.chooser.unwrap_or(0).min(choices.len().saturating_sub(1));
    let room = screen.height().saturating_sub(5).max(1);
    let first = (at + 1).saturating_sub(room);
    let line = |(place, view): (usize, usize)| {
        let mut line = Line::default();
        let mark = if state.has_column(view) { "✓" } else { " " };
        line.push(format!(" {mark} {}", pad(&state.views[view].title, 22)), theme.bold);
        line.push(pad(&plain(&state.views[view].key), WIDTH - 26), theme.dim);
        if place == at {
            line.patch(theme.selected);
        }
        line
    };
    let lines: Vec<Line> =
        choices.into_iter().enumerate().skip(first).take(room).map(line).collect();
    draw(screen, "Columns: Space chooses, c closes", &lines);
}

fn draw(screen: &mut Screen, title: &str, lines: &[Line]) {
    let x = screen.width().saturating_sub(WIDTH + 2) / 2;
    let y = screen.height().saturating_sub(lines.len() + 2) / 2;
    let edge = |text: String| {
        let mut line = Line::default();
        line.push(text, Style::new());
        line
    };
    let rest = "─".repeat(WIDTH.saturating_sub(title.chars().count() + 2));
    screen.put(x, y, &edge(format!("╭ {title} {rest}╮")));
    for (at, line) in lines.iter().enumerate() {
        screen.put(x, y + 1 + at, &edge(format!("│{}│", " ".repeat(WIDTH))));
        screen.put(x + 1, y + 1 + at, line);
    }
    screen.put(x, y + 1 + lines.len(), &edge(format!("╰{}╯", "─".repeat(WIDTH))));
}
