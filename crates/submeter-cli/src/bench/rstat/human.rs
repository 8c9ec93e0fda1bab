//! The figures of the table for people: for each workload the distributions side by side, then the rest.

use std::fmt::Write;

use super::record::BUCKETS;
use crate::bench::row::{Param, Row};
use crate::show::{self, BOLD, DIM};

/// What the distributions are of, in the order in which they are shown.
const DISTRIBUTIONS: [(&str, &str); 2] = [
    ("hold", "how often a lock that updates may wait for was held so long, µs"),
    ("wait", "how often an update took so long, µs"),
];
/// Parameters that say what of a workload is measured, not which workload.
const OF_FIGURES: [&str; 4] = ["measure", "bucket_us", "quantile", "figure"];

/// Writes all rows.
pub(super) fn human(rows: &[Row]) -> String {
    let mut text = String::new();
    for workload in rows.chunk_by(|a, b| cell(a) == cell(b)) {
        let name: Vec<String> =
            cell(&workload[0]).iter().map(|(name, value)| format!("{name} {value}")).collect();
        let _ = writeln!(text, "\n{BOLD}{}{BOLD:#}", name.join(", "));
        for (measure, about) in DISTRIBUTIONS {
            distribution(&mut text, workload, measure, about);
        }
        figures(&mut text, workload);
    }
    if let Some(tail) = tail(rows) {
        let _ = writeln!(text, "\n{tail}");
    }
    text
}

/// The parameters that name the workload.
fn cell(row: &Row) -> Vec<(&'static str, Param)> {
    row.params.iter().copied().filter(|(name, _)| !OF_FIGURES.contains(name)).collect()
}

fn param(row: &Row, wanted: &str) -> Option<Param> {
    row.params.iter().find(|(name, _)| *name == wanted).map(|(_, value)| *value)
}

/// Returns the variants of some rows, in their order.
fn variants<'a>(rows: impl IntoIterator<Item = &'a Row>) -> Vec<&'static str> {
    let mut variants = Vec::new();
    for row in rows {
        if !variants.contains(&row.variant) {
            variants.push(row.variant);
        }
    }
    variants
}

/// Writes a line for each bucket, up to the last that is not empty.
fn distribution(text: &mut String, workload: &[Row], measure: &'static str, about: &str) {
    let of = |row: &&Row| {
        param(row, "measure") == Some(Param::Word(measure)) && param(row, "bucket_us").is_some()
    };
    let rows: Vec<&Row> = workload.iter().filter(of).collect();
    let has_any = |variant: &&str| rows.iter().any(|r| r.variant == *variant && r.value > 0.0);
    let variants: Vec<&str> =
        variants(rows.iter().copied()).into_iter().filter(|v| has_any(v)).collect();
    let mut body = Vec::new();
    for (bucket, _) in BUCKETS {
        let mut line = vec![bucket.to_owned()];
        for variant in &variants {
            let row = rows.iter().find(|row| {
                row.variant == *variant && param(row, "bucket_us") == Some(Param::Word(bucket))
            });
            line.push(row.map_or_else(|| "–".to_owned(), |row| show::count(row.value as u64)));
        }
        body.push(line);
    }
    let is_empty = |line: &Vec<String>| line[1..].iter().all(|cell| ["0", "–"].contains(&&**cell));
    while body.last().is_some_and(is_empty) {
        body.pop();
    }
    if body.is_empty() {
        return;
    }
    let _ = writeln!(text, "{DIM}{about}{DIM:#}");
    let heading: Vec<&str> = std::iter::once(measure).chain(variants).collect();
    text.push_str(&show::table(&heading, &body, false));
}

/// Writes a line for each figure that is no bucket.
fn figures(text: &mut String, workload: &[Row]) {
    let rows: Vec<&Row> = workload.iter().filter(|row| param(row, "bucket_us").is_none()).collect();
    if rows.is_empty() {
        return;
    }
    let variants = variants(rows.iter().copied());
    let lines = rows.chunk_by(|a, b| a.params == b.params && a.unit == b.unit);
    let line = |rows: &[&Row]| {
        let names = OF_FIGURES.iter().filter_map(|name| param(rows[0], name));
        let name: Vec<String> = names.map(|value| value.to_string().replace('_', " ")).collect();
        let (unit, scale) = match rows[0].unit {
            "us" => ("µs", 1.0),
            "updates/s" => ("million/s", 1e-6),
            unit => (unit, 1.0),
        };
        let mut cells = vec![format!("{}, {unit}", name.join(" "))];
        for variant in &variants {
            let row = rows.iter().find(|row| row.variant == *variant);
            cells.push(row.map_or_else(|| "–".to_owned(), |row| figure(row.value * scale, unit)));
        }
        cells
    };
    let body: Vec<Vec<String>> = lines.map(line).collect();
    let heading: Vec<&str> = std::iter::once("").chain(variants.iter().copied()).collect();
    text.push_str(&show::table(&heading, &body, false));
}

/// Writes a figure with three digits; a share that is nearly all keeps those that make the difference.
fn figure(value: f64, unit: &str) -> String {
    match value {
        99.0..100.0 if unit == "%" => format!("{value:.4}"),
        ..1000.0 => {
            let digits = if value < 9.995 { 2 } else { usize::from(value < 99.95) };
            format!("{value:.digits$}")
        }
        _ => show::count(value as u64),
    }
}

/// Says what share of submeter's updates is fast, and what the others are.
fn tail(rows: &[Row]) -> Option<String> {
    let workload = |row: &&Row| param(row, "workload") == Some(Param::Word("trace"));
    let first = rows.iter().find(workload).or(rows.first())?;
    let value = |variant, figure| {
        let is_it = |row: &&Row| {
            row.variant == variant
                && cell(row) == cell(first)
                && param(row, "figure") == Some(Param::Word(figure))
        };
        rows.iter().find(is_it).map(|row| row.value)
    };
    let per_s = |variant| value(variant, "over_1us_per_busy_s");
    let below = value("submeter", "below_1us_percent")?;
    let (ours, nothing, barrier) = (per_s("submeter")?, per_s("control")?, per_s("barrier")?);
    let workload = param(first, "workload")?;
    Some(format!(
        "{workload}: {below:.3} % of submeter's updates took less than a microsecond. In a second of updating \
         {ours:.0} took longer; where nothing is updated, {nothing:.0} of the same stamps do, and {barrier:.0} where \
         the flusher only interrupts the other CPUs, as a flush's barrier does."
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(
        extra: (&'static str, &'static str),
        variant: &'static str,
        value: f64,
        unit: &'static str,
    ) -> Row {
        let word = |(name, value)| (name, Param::Word(value));
        let measure = if unit == "ns" { "update" } else { "wait" };
        let mut params = vec![word(("workload", "trace")), word(("measure", measure))];
        params.extend((!extra.0.is_empty()).then(|| word(extra)));
        Row { table: "rstat", params, variant, value, unit, samples: vec![value] }
    }

    #[test]
    fn a_workload_has_its_distributions_and_then_its_figures() {
        let rows = [
            row(("bucket_us", "0-1"), "before", 123_456.0, "count"),
            row(("bucket_us", "0-1"), "submeter", 234_567.0, "count"),
            row(("bucket_us", "1-5"), "before", 12.0, "count"),
            row(("bucket_us", "1-5"), "submeter", 0.0, "count"),
            row(("bucket_us", "5-10"), "before", 0.0, "count"),
            row(("figure", "below_1us_percent"), "before", 97.5543, "%"),
            row(("figure", "below_1us_percent"), "submeter", 99.99634, "%"),
            row(("figure", "over_1us_per_busy_s"), "submeter", 716.0, "1/s"),
            row(("figure", "over_1us_per_busy_s"), "control", 700.0, "1/s"),
            row(("figure", "over_1us_per_busy_s"), "barrier", 810.0, "1/s"),
            row(("", ""), "submeter", 1.2345, "ns"),
        ];
        let text = anstream::adapter::strip_str(&human(&rows)).to_string();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            lines,
            [
                "",
                "workload trace",
                "how often an update took so long, µs",
                "wait   before  submeter",
                "0-1   123,456   234,567",
                "1-5        12         0",
                "                               before  submeter  control  barrier",
                "wait below 1us percent, %        97.6   99.9963        –        –",
                "wait over 1us per busy s, 1/s       –       716      700      810",
                "update, ns                          –      1.23        –        –",
                "",
                "trace: 99.996 % of submeter's updates took less than a microsecond. In a second of updating 716 \
                 took longer; where nothing is updated, 700 of the same stamps do, and 810 where the flusher only \
                 interrupts the other CPUs, as a flush's barrier does.",
            ]
        );
        assert_eq!(human(&[]), "");
    }
}
