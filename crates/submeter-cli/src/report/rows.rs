//! Our own figures as tables: a line for each set of parameters, a column for each variant.

use maud::{Markup, html};

use super::definition::Definition;
use super::format::{amount, spread, times};
use super::record::Row;

/// Beyond so many lines in all, tables wait folded until somebody asks.
const OPEN_LINES: usize = 40;

/// Writes all rows, where parameters have other names in a table of their own.
pub(super) fn tables(definition: &Definition, rows: &[&Row]) -> Markup {
    let groups: Vec<&[&Row]> = rows.chunk_by(|a, b| kind(a) == kind(b)).collect();
    let lines: usize = groups.iter().map(|group| in_lines(group).len()).sum();
    let all = |open: bool| {
        html! { @for group in &groups { details open[open] { summary { (summary(group)) } (table(definition, group)) } } }
    };
    html! {
        @if lines > OPEN_LINES {
            details {
                summary { "All that was measured: " (rows.len()) " rows in " (groups.len()) " tables" }
                (all(false))
            }
        } @else if lines > 0 {
            h3 { "All that was measured" }
            (all(true))
        }
    }
}

/// Writes a row's value, and how far its samples spread.
pub(super) fn value(row: &Row) -> Markup {
    let Some(value) = row.value else { return html! { "no value" } };
    let half = half_spread(row, value);
    html! {
        data value=(value) { (amount(value, &row.unit)) }
        @if let Some(half) = half { " " small { (spread(half)) } }
    }
}

/// Returns half of the distance between the quartiles as a share of the value. Where that is not
/// between them it is no median, and they say nothing of it.
fn half_spread(row: &Row, value: f64) -> Option<f64> {
    let (low, high) = row.quartiles()?;
    let says = (low..=high).contains(&value) && value != 0.0 && high > low;
    says.then(|| (high - low) / 2.0 / value.abs())
}

/// What makes rows one table: names of parameters, the unit, and what they are a measure of.
fn kind(row: &Row) -> (Vec<&str>, &str, [Option<&str>; 4]) {
    let of = ["workload", "part", "measure", "figure"].map(|name| row.params.get(name));
    (row.params.names().collect(), &row.unit, of)
}

fn summary(group: &[&Row]) -> String {
    let first = group[0];
    let common = first.params.0.iter().filter(|(name, value)| {
        group.iter().all(|row| row.params.get(name) == Some(value.as_str()))
    });
    let common: Vec<String> =
        common.map(|(name, value)| format!("{} {value}", name.replace('_', " "))).collect();
    let varying: Vec<String> = varying(group).iter().map(|name| name.replace('_', " ")).collect();
    let common = if common.is_empty() { "all rows".to_owned() } else { common.join(", ") };
    match varying.is_empty() {
        true => common,
        false => format!("{common}: by {}", varying.join(", ")),
    }
}

/// Returns the names of the parameters that are not the same in all rows.
fn varying<'a>(group: &[&'a Row]) -> Vec<&'a str> {
    let first = group[0];
    let differs =
        |name: &&str| group.iter().any(|row| row.params.get(name) != first.params.get(name));
    first.params.names().filter(differs).collect()
}

fn in_lines<'a, 'b>(group: &'a [&'b Row]) -> Vec<&'a [&'b Row]> {
    group.chunk_by(|a, b| a.params == b.params).collect()
}

fn table(definition: &Definition, group: &[&Row]) -> Markup {
    let names = varying(group);
    let mut variants: Vec<&str> = Vec::new();
    for row in group {
        if !variants.contains(&row.variant.as_str()) {
            variants.push(&row.variant);
        }
    }
    html! {
        div class="scroll" tabindex="0" role="region" aria-label=(summary(group)) {
            table {
                thead { tr {
                    @for name in &names { th scope="col" { (name.replace('_', " ")) } }
                    @for variant in &variants {
                        th scope="col" {
                            (variant)
                            @if *variant == definition.baseline { " " small { "baseline" } }
                        }
                    }
                } }
                tbody { @for line in in_lines(group) { tr {
                    @for name in &names {
                        th scope="row" { (line[0].params.get(name).unwrap_or("–")) }
                    }
                    @for variant in &variants { (cell(definition, line, variant)) }
                } } }
            }
        }
    }
}

fn cell(definition: &Definition, line: &[&Row], variant: &str) -> Markup {
    let Some(row) = line.iter().find(|row| row.variant == variant) else {
        return html! { td class="n" { "–" } };
    };
    let base = line.iter().find(|row| row.variant == definition.baseline && row.variant != variant);
    let ratio = base.and_then(|base| Some(row.value? / base.value?)).filter(|r| r.is_finite());
    html! {
        td class="n" {
            (value(row))
            @if let Some(ratio) = ratio { br; small class="ratio" { (times(ratio)) } }
        }
    }
}
