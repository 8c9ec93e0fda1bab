//! The format of figures and tables on a terminal.

use std::fmt::Write as _;
use std::io;
use std::time::Duration;

use anstyle::Style;
use rustix::termios::tcgetwinsize;

use crate::{isolated, plain, shortened, width};

/// The style of headings and totals.
pub const BOLD: Style = Style::new().bold();
/// The style of explanations.
pub const DIM: Style = Style::new().dimmed();

/// Writes a time with three digits: `812 ns`, `12.3 µs`, `4.56 ms`, `1.20 s`.
pub fn time(ns: u64) -> String {
    match ns {
        0..1_000 => format!("{ns} ns"),
        1_000..1_000_000 => scaled(ns, 1e3, "µs"),
        1_000_000..1_000_000_000 => scaled(ns, 1e6, "ms"),
        _ => scaled(ns, 1e9, "s"),
    }
}

/// Writes a number of bytes with three digits: `512 B`, `1.50 KiB`, `64.0 MiB`.
pub fn bytes(n: u64) -> String {
    match n {
        0..1024 => format!("{n} B"),
        1024..1_048_576 => scaled(n, 1024.0, "KiB"),
        1_048_576..1_073_741_824 => scaled(n, 1_048_576.0, "MiB"),
        _ => scaled(n, 1_073_741_824.0, "GiB"),
    }
}

/// Spaces between the columns of a table.
const GAP: usize = 2;

/// Cells that a terminal leaves to the names of a table, if the figures leave fewer.
const NAME_LEAST: usize = 24;

fn scaled(n: u64, unit: f64, name: &str) -> String {
    format!("{} {name}", three_digits(n as f64 / unit))
}

/// Writes three significant digits, never as a power of ten, and all digits before the point if
/// there are more: `0.00123`, `1.20`, `12.3`, `4287`.
pub fn three_digits(value: f64) -> String {
    if value == 0.0 || !value.is_finite() {
        return format!("{value}");
    }
    let before = value.abs().log10().floor();
    // A value that rounds up to the next power of ten has one more digit before its point.
    let before = if value.abs() >= 9.995 * 10f64.powf(before) { before + 1.0 } else { before };
    let decimals = (2.0 - before).clamp(0.0, 9.0) as usize;
    format!("{value:.decimals$}")
}

/// Writes a count with separators: `1,234,567`.
pub fn count(n: u64) -> String {
    let digits = n.to_string();
    let mut text = String::new();
    for (at, digit) in digits.char_indices() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Writes a rate of events per second.
pub fn rate(n: u64, took: Duration) -> String {
    format!("{}/s", count((n as f64 / took.as_secs_f64().max(1e-9)).round() as u64))
}

/// Writes a hit ratio; a dash if there were no requests.
pub fn ratio(part: u64, rest: u64) -> String {
    let all = part + rest;
    if all == 0 { "–".to_owned() } else { format!("{:.1} %", part as f64 * 100.0 / all as f64) }
}

/// Lays out rows below a heading: the first column left-aligned, numbers right-aligned, and the
/// last row bold if it is a `total`. Spaces before the text of a first column stay, because they
/// indent the levels of a tree; invisible characters are shown as by [`plain`].
///
/// Where standard output is a terminal, the texts of the first column are [`isolated`].
pub fn table(heading: &[&str], rows: &[Vec<String>], total: bool) -> String {
    laid_out(heading, rows, total, columns().map(|_| usize::MAX))
}

/// Lays out a [`table`] of which the lines are as wide as the terminal at most, if standard output
/// is one: long names are [`shortened`], and two of them may look the same.
pub fn table_within(heading: &[&str], rows: &[Vec<String>]) -> String {
    laid_out(heading, rows, false, columns())
}

/// Returns the width of standard output, if it is a terminal.
fn columns() -> Option<usize> {
    let width = usize::from(tcgetwinsize(io::stdout()).ok()?.ws_col);
    // A terminal that does not tell its width says 0.
    Some(if width == 0 { usize::MAX } else { width })
}

/// Lays out a table for a terminal of that width, or for programs.
fn laid_out(
    heading: &[&str],
    rows: &[Vec<String>],
    total: bool,
    terminal: Option<usize>,
) -> String {
    let heading = heading.iter().map(|&title| title.to_owned()).collect();
    let rows = rows.iter().map(|row| row.iter().map(|cell| plain(cell).into_owned()).collect());
    let mut lines: Vec<Vec<String>> = [heading].into_iter().chain(rows).collect();
    let mut widths: Vec<usize> = vec![0; lines.iter().map(Vec::len).max().unwrap_or(0)];
    for line in &lines {
        for (widest, cell) in widths.iter_mut().zip(line) {
            *widest = width(cell).max(*widest);
        }
    }
    if let (Some(terminal), [names, figures @ ..]) = (terminal, &mut widths[..]) {
        let taken: usize = figures.iter().map(|width| GAP + width).sum();
        *names = terminal.saturating_sub(taken).max(NAME_LEAST).min(*names);
        for name in lines.iter_mut().filter_map(|line| line.first_mut()) {
            *name = isolated(&shortened(name, *names)).into_owned();
        }
    }
    let last = lines.len() - 1;
    let styled = lines.iter().enumerate().map(|(index, cells)| {
        let mut line = String::new();
        for (column, (cell, widest)) in cells.iter().zip(&widths).enumerate() {
            let blank = " ".repeat(widest - width(cell));
            match column {
                0 => line += &format!("{cell}{blank}"),
                _ => line += &format!("{:GAP$}{blank}{cell}", ""),
            }
        }
        let line = line.trim_end();
        match index {
            0 => format!("{DIM}{line}{DIM:#}\n"),
            index if total && index == last => format!("{BOLD}{line}{BOLD:#}\n"),
            _ => format!("{line}\n"),
        }
    });
    styled.collect()
}

/// Appends a labelled line, wrapped at 96 columns and indented below its label.
pub fn paragraph(text: &mut String, label: &str, words: &str) {
    const INDENT: usize = 6;
    let _ = write!(text, "{BOLD}{label:<INDENT$}{BOLD:#}");
    wrap(text, INDENT, INDENT, words);
}

/// Appends the rest of a line of which `column` columns are written, each word after a space:
/// wrapped at 96 columns, and then indented.
pub fn wrap(text: &mut String, mut column: usize, indent: usize, words: &str) {
    const WIDTH: usize = 96;
    for word in words.split_whitespace() {
        let len = 1 + word.chars().count();
        if column + len > WIDTH {
            let _ = write!(text, "\n{:indent$}", "");
            column = indent;
        }
        let _ = write!(text, " {word}");
        column += len;
    }
    text.push('\n');
}

/// Maximum accepted time: practically forever, and far from where times overflow.
const TIME_MAX: Duration = Duration::from_secs(3_000_000_000);

/// Parses a duration in seconds; fractions are allowed.
pub fn seconds(text: &str) -> Result<Duration, String> {
    let number = text.parse::<f64>().ok().filter(|&s| s > 0.0);
    let number = number.ok_or_else(|| format!("{text:?} is not a number of seconds above 0"))?;
    let time = Duration::try_from_secs_f64(number).ok().filter(|&time| time <= TIME_MAX);
    time.ok_or_else(|| {
        format!("{text:?} seconds are too many: the maximum is 3e9, a hundred years")
    })
}

/// Says when a program ends: after a time, if one is given, or on a signal.
pub fn end(seconds: Option<Duration>) -> String {
    match seconds {
        Some(seconds) => format!("after {} s, or Ctrl-C", seconds.as_secs_f64()),
        None => "Ctrl-C".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    /// No line is longer than a terminal is wide, and no word is lost.
    #[test]
    fn long_lines_are_wrapped_and_indented() {
        let words = ["barrier"; 60].join(" ");
        let mut text = "self-test   ".to_owned();
        wrap(&mut text, 12, 12, &words);
        assert!(text.lines().all(|line| line.chars().count() <= 96), "{text}");
        assert!(
            text.lines().skip(1).all(|line| line.starts_with("             barrier")),
            "{text}"
        );
        assert_eq!(text.matches("barrier").count(), 60);
    }

    #[test]
    fn figures_have_three_digits() {
        for (ns, text) in [
            (0, "0 ns"),
            (999, "999 ns"),
            (1_000, "1.00 µs"),
            (12_345, "12.3 µs"),
            (999_400, "999 µs"),
            (4_560_000, "4.56 ms"),
            (61_000_000_000, "61.0 s"),
        ] {
            assert_eq!(time(ns), text);
        }
        for (n, text) in [(1023, "1023 B"), (1536, "1.50 KiB"), (64 << 20, "64.0 MiB")] {
            assert_eq!(bytes(n), text);
        }
        assert_eq!(count(1_234_567), "1,234,567");
        assert_eq!(ratio(3, 1), "75.0 %");
        assert_eq!(ratio(0, 0), "–");
    }

    #[test]
    fn three_digits_are_significant_after_rounding() {
        for (value, text) in [
            (0.0, "0"),
            (0.001_234, "0.00123"),
            (-0.5, "-0.500"),
            (0.999_6, "1.00"),
            (9.994, "9.99"),
            (9.996, "10.0"),
            (99.96, "100"),
            (4286.9, "4287"),
        ] {
            assert_eq!(three_digits(value), text);
        }
    }

    #[test]
    fn columns_line_up() {
        let rows = [["a", "1 µs"], ["longer", "10.0 µs"]].map(|row| row.map(String::from).to_vec());
        let text =
            anstream::adapter::strip_str(&table(&["tenant", "p50"], &rows, false)).to_string();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines, ["tenant      p50", "a          1 µs", "longer  10.0 µs"]);
    }

    /// In a terminal, names neither widen the lines beyond it nor move the figures; programs get
    /// whole names and nothing invisible.
    #[test]
    fn names_give_way_to_the_figures_in_a_terminal() {
        let rows = ["/".to_owned(), "  שלום".to_owned(), format!("  {}", "سلا".repeat(80))];
        let rows = rows.map(|name| vec![name, "1,234".to_owned(), "10.0 µs".to_owned()]);
        let lines = |terminal| -> Vec<String> {
            let text = laid_out(&["tenant", "requests", "p50"], &rows, true, terminal);
            let text = anstream::adapter::strip_str(&text).to_string();
            text.lines().map(str::to_owned).collect()
        };
        for (terminal, most) in [(60, 60), (20, NAME_LEAST + 19)] {
            let shown = lines(Some(terminal));
            assert!(shown.iter().all(|line| width(line) <= most), "{terminal}: {shown:#?}");
            assert!(shown[2].starts_with("  \u{2068}שלום\u{2069}  "), "{shown:#?}");
            assert!(shown[3].contains("…\u{2069}  "), "{shown:#?}");
            let ends = shown[1..].iter().map(|line| width(&line[..line.find("4 ").expect("one")]));
            assert_eq!(ends.collect::<HashSet<_>>().len(), 1, "{shown:#?}");
        }
        let whole = lines(None);
        assert!(whole.iter().all(|line| !line.contains(submeter::is_hidden)), "{whole:#?}");
        assert!(whole[3].starts_with(&rows[2][0]), "{whole:#?}");
        assert!(lines(Some(usize::MAX))[3].contains(&rows[2][0][2..]), "of unknown width");
    }

    /// A table has only spaces before a name, and nothing invisible.
    #[test]
    fn a_table_has_no_invisible_characters() {
        let rows = ["/", "  acme", "    we\u{202e}b\u{2800}"].map(|name| vec![name.to_owned()]);
        let text = anstream::adapter::strip_str(&table(&["tenant"], &rows, false)).to_string();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines, ["tenant", "/", "  acme", r"    we\u{202e}b\u{2800}"]);
    }

    #[test]
    fn seconds_are_positive_and_finite() {
        assert_eq!(seconds("0.5"), Ok(Duration::from_millis(500)));
        for text in ["0", "-1", "nan", "inf", "1e300", "soon"] {
            assert!(seconds(text).is_err(), "{text}");
        }
        for text in ["3000000001", "1e20", "1e308", "inf"] {
            let error = seconds(text).expect_err(text);
            assert!(error.contains("are too many: the maximum is 3e9"), "{error}");
        }
    }
}
