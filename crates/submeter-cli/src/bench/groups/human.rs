//! The figures for people: operations down, sizes across.

use std::fmt::Write;

use crate::bench::row::{Param, Row};
use crate::show::{self, BOLD};

/// Writes a table for real trees and one for simulated machines.
pub(super) fn human(rows: &[Row]) -> String {
    let mut text = String::new();
    for (across, title) in [
        ("groups", "by the number of groups"),
        ("simulated_cpus", "simulated: by the number of CPUs, 1,000 groups"),
    ] {
        let rows: Vec<(&Row, Param)> =
            rows.iter().filter_map(|row| Some((row, param(row, across)?))).collect();
        if !rows.is_empty() {
            // A `String` takes everything: writing to it cannot fail.
            let _ = writeln!(text, "\n{BOLD}{title}{BOLD:#}\n{}", grid(&rows));
        }
    }
    text
}

fn grid(rows: &[(&Row, Param)]) -> String {
    let (mut operations, mut columns) = (Vec::new(), Vec::new());
    for (row, column) in rows {
        let operation = param(row, "operation");
        if !operations.contains(&operation) {
            operations.push(operation);
        }
        if !columns.contains(column) {
            columns.push(*column);
        }
    }
    let names: Vec<String> = columns.iter().map(|&column| number(column)).collect();
    let mut heading = vec!["operation"];
    heading.extend(names.iter().map(String::as_str));
    let line = |operation: &Option<Param>| {
        let name = operation.map_or_else(String::new, |name| name.to_string());
        let cell = |column: &Param| {
            let found =
                rows.iter().find(|(row, at)| at == column && param(row, "operation") == *operation);
            found.map_or_else(|| "–".to_owned(), |(row, _)| value(row))
        };
        std::iter::once(name).chain(columns.iter().map(cell)).collect()
    };
    let body: Vec<Vec<String>> = operations.iter().map(line).collect();
    show::table(&heading, &body, false)
}

fn param(row: &Row, wanted: &str) -> Option<Param> {
    row.params.iter().find(|(name, _)| *name == wanted).map(|&(_, value)| value)
}

fn number(param: Param) -> String {
    match param {
        Param::Number(n) => show::count(n),
        Param::Word(word) => word.to_owned(),
    }
}

fn value(row: &Row) -> String {
    match row.unit {
        "ns" if row.value < 99.5 => format!("{:.1} ns", row.value),
        "ns" => show::time(row.value.round() as u64),
        "bytes" => show::bytes(row.value.round() as u64),
        _ => format!("±{}", show::count(row.value.round() as u64)),
    }
}
