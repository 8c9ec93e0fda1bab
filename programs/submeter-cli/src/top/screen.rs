//! A screen of styled text, and its output to the terminal.
//!
//! A terminal library with layouts and widgets would be too much: this view is a list of lines, and
//! such a library accounted for a quarter of the command's dependencies.

use std::io::{self, Write};

use anstyle::Style;
use crossterm::cursor::{Hide, MoveTo, Show};
use crossterm::event::{DisableMouseCapture, EnableMouseCapture};
use crossterm::execute;
use crossterm::terminal::{self, EnterAlternateScreen, LeaveAlternateScreen};
use submeter_terminal as show;
use unicode_width::UnicodeWidthChar;

/// A line of text; each piece has its own style.
#[derive(Clone, Debug, Default)]
pub(super) struct Line(Vec<(String, Style)>);

impl Line {
    /// Appends a piece.
    pub(super) fn push(&mut self, text: impl Into<String>, style: Style) {
        self.0.push((text.into(), style));
    }

    /// Appends the pieces of another line.
    pub(super) fn append(&mut self, other: Line) {
        self.0.extend(other.0);
    }

    /// Returns its width in cells.
    pub(super) fn width(&self) -> usize {
        self.0.iter().map(|(text, _)| show::width(text)).sum()
    }

    /// Breaks it between words into lines of at most `width` cells; a longer word has a line of its
    /// own.
    pub(super) fn wrapped(&self, width: usize) -> Vec<Line> {
        let mut lines = vec![Line::default()];
        let words = |(text, style): &(String, Style)| {
            let words = text.split_inclusive(' ').map(|word| (word.to_owned(), *style));
            words.collect::<Vec<_>>()
        };
        for (word, style) in self.0.iter().flat_map(words) {
            let line = lines.last_mut().filter(|line| {
                line.width() == 0 || line.width() + show::width(word.trim_end()) <= width
            });
            match line {
                Some(line) => line.push(word, style),
                None if word.trim_end().is_empty() => {}
                None => lines.push(Line(vec![(word, style)])),
            }
        }
        lines
    }

    /// Ends a wrapped line, of which each piece is a word, with an ellipsis in place of what
    /// follows. Words for which that leaves no room go as well; the first stays.
    pub(super) fn end_early(&mut self, width: usize) {
        let mark = |(word, style): (String, Style)| (format!("{}…", word.trim_end()), style);
        while let Some(last) = self.0.pop() {
            let whole = self.width();
            self.0.push(mark(last));
            if self.width() <= width || whole == 0 {
                return;
            }
            self.0.pop();
        }
    }

    /// Adds the effects of `style` to each piece.
    pub(super) fn patch(&mut self, style: Style) {
        for (_, own) in &mut self.0 {
            *own = own.effects(own.get_effects() | style.get_effects());
        }
    }
}

/// One cell: a character with its combining characters, or the second half of a wide one, which is
/// empty.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Cell {
    text: String,
    style: Style,
}

/// The cells of one frame.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Screen {
    width: usize,
    rows: Vec<Vec<Cell>>,
}

impl Screen {
    /// Makes an empty screen.
    pub(super) fn new(width: u16, height: u16) -> Screen {
        let blank = Cell { text: " ".to_owned(), style: Style::new() };
        let row = vec![blank; usize::from(width)];
        Screen { width: usize::from(width), rows: vec![row; usize::from(height)] }
    }

    /// Returns the number of columns.
    pub(super) fn width(&self) -> usize {
        self.width
    }

    /// Returns the number of rows.
    pub(super) fn height(&self) -> usize {
        self.rows.len()
    }

    /// Draws a line starting at `x`. What is beyond the edge is clipped, and an ellipsis says so
    /// unless it is blank.
    pub(super) fn put(&mut self, x: usize, y: usize, line: &Line) {
        let Some(row) = self.rows.get_mut(y) else { return };
        let mut at = x;
        for (piece, (text, style)) in line.0.iter().enumerate() {
            for (place, c) in text.char_indices() {
                let width = c.width().unwrap_or(0);
                if width == 0 {
                    // It combines with the previous character.
                    if let Some(cell) = at.checked_sub(1).and_then(|before| row.get_mut(before)) {
                        cell.text.push(c);
                    }
                    continue;
                }
                if at + width > row.len() {
                    let rest = line.0[piece + 1..].iter().map(|(text, _)| text.as_str());
                    if [&text[place..]].into_iter().chain(rest).any(|text| !text.trim().is_empty())
                    {
                        let from = x.min(row.len());
                        end_early(&mut row[from..], *style);
                    }
                    return;
                }
                row[at] = Cell { text: c.to_string(), style: *style };
                for half in &mut row[at + 1..at + width] {
                    *half = Cell { text: String::new(), style: *style };
                }
                at += width;
            }
        }
    }

    /// Returns a row with terminal codes, which are written only where the style changes.
    fn painted(&self, y: usize) -> String {
        let runs = self.rows[y].chunk_by(|a, b| a.style == b.style);
        let run = |cells: &[Cell]| {
            let (text, style) = (cells.iter().map(|cell| cell.text.as_str()), cells[0].style);
            format!("{style}{}{style:#}", text.collect::<String>())
        };
        runs.map(run).collect()
    }

    /// Returns the text of a row.
    #[cfg(test)]
    pub(super) fn text(&self, y: usize) -> String {
        self.rows[y].iter().map(|cell| cell.text.as_str()).collect()
    }

    /// Returns the character of a cell and its style.
    #[cfg(test)]
    pub(super) fn cell(&self, x: usize, y: usize) -> (&str, Style) {
        (&self.rows[y][x].text, self.rows[y][x].style)
    }
}

/// Writes an ellipsis over the last character of a row, which may be two cells wide.
fn end_early(row: &mut [Cell], style: Style) {
    let Some(at) = row.iter().rposition(|cell| !cell.text.is_empty()) else { return };
    row[at..].fill(Cell { text: " ".to_owned(), style });
    "…".clone_into(&mut row[at].text);
}

/// The terminal while it shows frames. Dropping it restores the terminal, even in a panic.
pub(super) struct Terminal {
    shown: Screen,
    has_mouse: bool,
}

impl Terminal {
    /// Takes over the terminal.
    ///
    /// # Errors
    /// When standard output or input is not a terminal.
    pub(super) fn new() -> io::Result<Terminal> {
        terminal::enable_raw_mode()?;
        // A panic message would be written to the screen that is about to disappear.
        let hook = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            restore();
            hook(info);
        }));
        // Created first, so that any failure from here on restores the terminal.
        let mut taken = Terminal { shown: Screen::default(), has_mouse: false };
        taken.take()?;
        Ok(taken)
    }

    /// Takes over the terminal again, whatever its modes are now; the next frame is drawn whole.
    ///
    /// # Errors
    /// When the terminal cannot be written to.
    pub(super) fn take(&mut self) -> io::Result<()> {
        // Raw mode is entered only where it was left.
        terminal::disable_raw_mode()?;
        terminal::enable_raw_mode()?;
        (self.shown, self.has_mouse) = (Screen::default(), false);
        execute!(io::stdout(), EnterAlternateScreen, Hide)
    }

    /// Takes the mouse, or leaves it to the terminal, which then selects text with it.
    ///
    /// # Errors
    /// When the terminal cannot be written to.
    pub(super) fn take_mouse(&mut self, take: bool) -> io::Result<()> {
        if std::mem::replace(&mut self.has_mouse, take) == take {
            return Ok(());
        }
        match take {
            true => execute!(io::stdout(), EnableMouseCapture),
            false => execute!(io::stdout(), DisableMouseCapture),
        }
    }

    /// Shows what `draw` draws. Unchanged rows are not written.
    ///
    /// # Errors
    /// When the terminal cannot be written to.
    pub(super) fn draw(&mut self, draw: impl FnOnce(&mut Screen)) -> io::Result<()> {
        let (width, height) = terminal::size()?;
        let mut screen = Screen::new(width, height);
        draw(&mut screen);
        let resized =
            (screen.width(), screen.height()) != (self.shown.width(), self.shown.height());
        let mut out = io::stdout().lock();
        for (y, row) in screen.rows.iter().enumerate() {
            if resized || self.shown.rows[y] != *row {
                let line = u16::try_from(y).unwrap_or(u16::MAX);
                write!(out, "{}{}", MoveTo(0, line), screen.painted(y))?;
            }
        }
        out.flush()?;
        self.shown = screen;
        Ok(())
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        restore();
    }
}

/// Leaves the terminal as it was.
pub(super) fn restore() {
    // A terminal that is gone needs no restoring.
    let _ = execute!(io::stdout(), DisableMouseCapture, LeaveAlternateScreen, Show);
    let _ = terminal::disable_raw_mode();
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Text beyond the edges is clipped, and wide characters take two cells.
    #[test]
    fn text_is_clipped_by_its_width() {
        let mut screen = Screen::new(5, 1);
        let mut line = Line::default();
        line.push("a租", Style::new());
        line.push("租x", Style::new().bold());
        screen.put(0, 0, &line);
        assert_eq!(screen.text(0), "a租… ", "more followed");
        screen.put(2, 0, &line);
        assert_eq!(screen.text(0), "a租a… ", "the second half of a wide one is overwritten");
        screen.put(0, 7, &line);
        screen.put(9, 0, &line);
        let mut line = Line::default();
        line.push("four ", Style::new());
        line.push("   ", Style::new());
        screen.put(0, 0, &line);
        assert_eq!(screen.text(0), "four ", "nothing that is seen is missing");
    }

    #[test]
    fn a_style_is_written_where_it_changes() {
        let mut screen = Screen::new(4, 1);
        let mut line = Line::default();
        line.push("ab", Style::new());
        line.push("cd", Style::new().bold());
        screen.put(0, 0, &line);
        assert_eq!(screen.painted(0), "ab\u{1b}[1mcd\u{1b}[0m");
    }
}
