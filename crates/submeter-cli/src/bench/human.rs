//! The figures, for people.

use std::fmt::Write;

use super::row::{Param, Row};
use super::runner::Measured;
use super::{Outcome, Table};
use crate::show::{self, BOLD, DIM};

/// Beyond this distance between the quartiles, as a share of the median, two runs will not agree.
const SPREAD_MAX: f64 = 0.15;
/// Beyond this share of samples during which a thread was off its CPU, few are left for medians.
const DISTURBED_MAX: f64 = 0.1;
/// Beyond this load average for each CPU, others run most of the time.
const LOAD_MAX: f64 = 0.5;

/// Writes a table for each table, and what to know about them.
pub(crate) fn human(outcome: &Outcome, warnings: &[String]) -> String {
    let mut text = String::new();
    for (table, measured) in &outcome.tables {
        text.push_str(&figures(table, measured));
        for note in &measured.notes {
            // A `String` takes everything: writing to it cannot fail.
            let _ = writeln!(text, "{DIM}{note}{DIM:#}");
        }
        for absent in &measured.absent {
            let (variant, reason) = (absent.variant, &absent.reason);
            let _ = writeln!(text, "{DIM}not measured: {variant}: {reason}{DIM:#}");
        }
        text.push('\n');
    }
    if outcome.interrupted() {
        let _ =
            writeln!(text, "{BOLD}interrupted{BOLD:#}: figures are of what was measured so far");
    }
    for warning in warnings {
        show::paragraph(&mut text, "beware", warning);
    }
    text
}

/// Says what makes figures unreliable, and what to try.
pub(crate) fn warnings(outcome: &Outcome) -> Vec<String> {
    let machine = &outcome.machine;
    let mut warnings = Vec::new();
    if machine.debug_build {
        warnings.push(
            "this is a debug build: nothing is optimised, and its figures say nothing about \
             submeter. Build with --release."
                .to_owned(),
        );
    }
    if let Some([minute, ..]) =
        machine.load_average.filter(|l| l[0] > LOAD_MAX * machine.cpus as f64)
    {
        warnings.push(format!(
            "the load average was {minute:.1} on {} CPUs when it began: other programs ran \
             meanwhile. Variants were measured in turns, so ratios still compare; for absolute \
             figures stop the others, or wait.",
            machine.cpus
        ));
    }
    for (table, measured) in &outcome.tables {
        let disturbed = measured.disturbed as f64 / measured.taken.max(1) as f64;
        if disturbed > DISTURBED_MAX {
            warnings.push(format!(
                "{}: a measuring thread was off its CPU in {} of {} samples, which are left out. Give it \
                 more time with --seconds, or stop what else runs.",
                table.name, measured.disturbed, measured.taken
            ));
        }
        let poor = measured.poor.iter().filter_map(|&place| measured.rows.get(place));
        let poor: Vec<String> =
            poor.map(|row| format!("{} ({})", row.variant, params(row))).collect();
        if !poor.is_empty() {
            warnings.push(format!(
                "{}: of these cells only samples with a thread off its CPU are to be had, which say \
                 little: {}. Stop what else runs, or give it more time with --seconds.",
                table.name,
                poor.join("; ")
            ));
        }
        // Of its own figures a table says itself how far to trust them.
        if measured.human.is_some() {
            continue;
        }
        if let Some((row, spread)) = widest(&measured.rows).filter(|(_, s)| *s > SPREAD_MAX) {
            warnings.push(format!(
                "{}: the middle half of {} ({}) spreads over {:.0} % of its median. Give it more time \
                 with --seconds, or stop what else runs; a CPU that changes its frequency does this too.",
                table.name,
                row.variant,
                params(row),
                spread * 100.0
            ));
        }
    }
    warnings
}

/// Finds the median that is the least certain. Of other quantiles the middle half says nothing.
fn widest(rows: &[Row]) -> Option<(&Row, f64)> {
    let medians = rows.iter().filter(|row| is_median(row)).map(|row| (row, row.spread()));
    medians.max_by(|a, b| a.1.total_cmp(&b.1))
}

fn is_median(row: &Row) -> bool {
    let named = row.params.iter().find(|(name, _)| *name == "quantile");
    named.is_none_or(|(_, quantile)| *quantile == Param::Word("p50"))
}

fn params(row: &Row) -> String {
    let all: Vec<String> =
        row.params.iter().map(|(name, value)| format!("{name} {value}")).collect();
    all.join(", ")
}

/// Writes a line for each set of parameters, with a value and its ratio for each variant; where
/// parameters have other names, or variants that are new, under a heading of their own.
fn figures(table: &Table, measured: &Measured) -> String {
    let (unit, scale) = match measured.rows.first().map_or("", |row| row.unit) {
        "us" => ("µs".to_owned(), 1.0),
        unit => (format!("million {unit}"), 1e-6),
    };
    let mut text = format!("{BOLD}{}{BOLD:#}  {}\n", table.name, table.definition().about());
    if measured.rows.is_empty() {
        let _ = writeln!(text, "{DIM}nothing was measured{DIM:#}");
        return text;
    }
    if let Some(own) = &measured.human {
        let rounds = measured.rounds;
        let _ = writeln!(text, "{own}{DIM}{rounds} rounds{DIM:#}");
        return text;
    }
    let all = lines(&measured.rows);
    let mut from = 0;
    while let Some(first) = all.get(from) {
        let variants: Vec<&str> = first.iter().map(|row| row.variant).collect();
        let alike = |rows: &&&[Row]| {
            let known = rows.iter().all(|row| variants.contains(&row.variant));
            known && names(&rows[0]).eq(names(&first[0]))
        };
        let lines = &all[from..from + all[from..].iter().take_while(alike).count()];
        let mut heading: Vec<&str> = names(&first[0]).collect();
        heading.extend(&variants);
        heading.push("spread");
        let body: Vec<Vec<String>> =
            lines.iter().map(|rows| line(table, rows, &variants, scale)).collect();
        text.push_str(&show::table(&heading, &body, false));
        from += lines.len();
    }
    let rounds = measured.rounds;
    let _ = writeln!(
        text,
        "{DIM}{unit}, × {}; {rounds} rounds; spread: half of the middle half, of the worst{DIM:#}",
        table.definition().baseline()
    );
    if let Some(conclusion) = (table.conclusion)(&measured.rows) {
        let _ = writeln!(text, "{conclusion}");
    }
    text
}

/// Returns the names of the row's parameters.
fn names(row: &Row) -> impl Iterator<Item = &'static str> {
    row.params.iter().map(|(name, _)| *name)
}

/// Returns the rows that share their parameters, which follow each other.
fn lines(rows: &[Row]) -> Vec<&[Row]> {
    rows.chunk_by(|a, b| a.params == b.params).collect()
}

fn line(table: &Table, rows: &[Row], variants: &[&str], scale: f64) -> Vec<String> {
    let mut cells: Vec<String> =
        rows[0].params.iter().map(|(_, value)| value.to_string()).collect();
    let baseline = table.definition().baseline();
    let baseline = rows.iter().find(|row| row.variant == baseline);
    for variant in variants {
        cells.push(match (rows.iter().find(|row| row.variant == *variant), baseline) {
            (Some(row), Some(baseline)) if row.variant != baseline.variant => {
                format!("{} {}×", three(row.value * scale), three(row.value / baseline.value))
            }
            (Some(row), _) => three(row.value * scale),
            (None, _) => "–".to_owned(),
        });
    }
    let spread = rows.iter().filter(|row| is_median(row)).map(Row::spread).max_by(f64::total_cmp);
    cells.push(spread.map_or_else(|| "–".to_owned(), |s| format!("±{:.0} %", s * 50.0)));
    cells
}

/// Writes a figure with three digits.
fn three(value: f64) -> String {
    let digits = match value {
        0.0..0.0995 => 3,
        0.0995..9.995 => 2,
        9.995..99.95 => 1,
        _ => 0,
    };
    format!("{value:.digits$}")
}

#[cfg(test)]
#[path = "human_tests.rs"]
mod tests;
