//! The three parts of the table, for people.

use std::fmt::Write;

use crate::bench::paired::{Interval, ratio};
use crate::bench::row::{Param, Row};
use crate::show::{self, BOLD, DIM};

/// Writes all rows.
pub(super) fn human(rows: &[Row]) -> String {
    let mut text = String::new();
    for rows in rows.chunk_by(|a, b| part(a) == part(b)) {
        let (about, table) = match part(&rows[0]) {
            Some(Param::Word("response")) => {
                ("mean response time of the cache under load", response(rows))
            }
            Some(Param::Word("response_cpu")) => {
                ("CPU time of a request in the same slices, its client's included", response(rows))
            }
            Some(Param::Word("switch")) => {
                ("a switch to another group, ns, × one read of the clock", switch(rows))
            }
            _ => ("CPU time of groups, ms, and how much submeter's is off", accuracy(rows)),
        };
        // A `String` takes everything: writing to it cannot fail.
        let _ = writeln!(text, "\n{BOLD}{about}{BOLD:#}");
        text.push_str(&table);
    }
    text
}

fn param(row: &Row, wanted: &str) -> Option<Param> {
    row.params.iter().find(|(name, _)| *name == wanted).map(|(_, value)| *value)
}

fn part(row: &Row) -> Option<Param> {
    param(row, "part")
}

/// Returns the variants of some rows, in their order.
fn variants(rows: &[Row]) -> Vec<&'static str> {
    let mut variants = Vec::new();
    for row in rows {
        if !variants.contains(&row.variant) {
            variants.push(row.variant);
        }
    }
    variants
}

/// A line for each variant, with what it adds to `none`: slice by slice, as they were measured together.
fn response(rows: &[Row]) -> String {
    let none = rows.iter().find(|row| row.variant == "none");
    let line = |row: &Row| {
        let mut cells = vec![row.variant.to_owned(), format!("{:.2}", row.value)];
        let found = none.filter(|none| none.variant != row.variant);
        let found = found.and_then(|none| ratio(&row.samples, &none.samples));
        cells.extend(match found {
            Some(Interval { middle, low, high }) => {
                let percent = |ratio: f64| format!("{:+.2} %", (ratio - 1.0) * 100.0);
                [percent(middle), format!("{} to {}", percent(low), percent(high))]
            }
            None => ["–".to_owned(), "–".to_owned()],
        });
        cells.push(row.samples.len().to_string());
        cells
    };
    let body: Vec<Vec<String>> = rows.iter().map(line).collect();
    show::table(&["", "µs", "overhead", "95 % interval", "slices"], &body, false)
}

/// A line for each set of parameters.
fn switch(rows: &[Row]) -> String {
    const PARAMS: [&str; 4] = ["case", "groups", "depth", "events"];
    let clock = rows
        .iter()
        .find(|row| row.variant == "submeter" && param(row, "case") == Some(Param::Word("clock")));
    let variants = variants(rows);
    let line = |rows: &[Row]| {
        let shown = |name: &&str| param(&rows[0], name).map_or_else(String::new, |p| p.to_string());
        let mut cells: Vec<String> = PARAMS.iter().map(shown).collect();
        for variant in &variants {
            let row = rows.iter().find(|row| row.variant == *variant);
            cells.push(match (row, clock) {
                (Some(row), Some(clock)) if row.params != clock.params || row != clock => {
                    format!("{:.1} {:.2}×", row.value, row.value / clock.value)
                }
                (Some(row), _) => format!("{:.1}", row.value),
                (None, _) => "–".to_owned(),
            });
        }
        cells
    };
    let body: Vec<Vec<String>> = rows.chunk_by(|a, b| a.params == b.params).map(line).collect();
    let heading: Vec<&str> = PARAMS.into_iter().chain(variants.iter().copied()).collect();
    show::table(&heading, &body, false)
}

/// A line for each group, and the rate.
fn accuracy(rows: &[Row]) -> String {
    let times: Vec<Row> =
        rows.iter().filter(|row| param(row, "group").is_some()).cloned().collect();
    let variants = variants(&times);
    let line = |rows: &[Row]| {
        let mut cells = vec![param(&rows[0], "group").map_or_else(String::new, |p| p.to_string())];
        let ours = rows.iter().find(|row| row.variant == "submeter").map(|row| row.value);
        for variant in &variants {
            let row = rows.iter().find(|row| row.variant == *variant);
            cells.push(match (row, ours) {
                (Some(row), Some(ours)) if *variant != "submeter" => {
                    format!("{:.1} {:+.3} %", row.value, (ours / row.value - 1.0) * 100.0)
                }
                (Some(row), _) => format!("{:.1}", row.value),
                (None, _) => "–".to_owned(),
            });
        }
        cells
    };
    let body: Vec<Vec<String>> = times.chunk_by(|a, b| a.params == b.params).map(line).collect();
    let heading: Vec<&str> = std::iter::once("group").chain(variants.iter().copied()).collect();
    let mut text = show::table(&heading, &body, false);
    if let Some(rate) = rows.iter().find(|row| row.unit == "1/s") {
        let rate = show::count(rate.value as u64);
        let _ = writeln!(
            text,
            "{DIM}{rate} switches a second; \"all\" is the groups and what is in none, against the process's \
             clock{DIM:#}"
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(params: &[(&'static str, Param)], variant: &'static str, samples: &[f64]) -> Row {
        let value = samples.iter().sum::<f64>() / samples.len() as f64;
        let (params, samples) = (params.to_vec(), samples.to_vec());
        Row { table: "perf", params, variant, value, unit: "", samples }
    }

    #[test]
    fn each_part_has_its_table() {
        let word = |name, value| (name, Param::Word(value));
        let response = [word("part", "response")];
        let clock = [word("part", "switch"), word("case", "clock")];
        let number = |name, value| (name, Param::Number(value));
        let [groups, depth, events] =
            [number("groups", 6), number("depth", 1), number("events", 2)];
        let sibling = [word("part", "switch"), word("case", "sibling"), groups, depth, events];
        let accuracy = |group| [word("part", "accuracy"), word("group", group)];
        let rows = [
            row(&response, "none", &[100.0; 8]),
            row(&response, "submeter", &[100.5; 8]),
            row(&clock, "submeter", &[20.0]),
            row(&clock, "syscall", &[200.0]),
            row(&sibling, "unpatched", &[90.0]),
            row(&sibling, "submeter", &[30.0]),
            row(&accuracy("one"), "submeter", &[100.5]),
            row(&accuracy("one"), "cgroup_stat", &[100.0]),
            row(&accuracy("all"), "submeter", &[300.0]),
            row(&accuracy("all"), "process_clock", &[300.0]),
        ];
        let text = anstream::adapter::strip_str(&human(&rows)).to_string();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            lines,
            [
                "",
                "mean response time of the cache under load",
                "              µs  overhead       95 % interval  slices",
                "none      100.00         –                   –       8",
                "submeter  100.50   +0.50 %  +0.50 % to +0.50 %       8",
                "",
                "a switch to another group, ns, × one read of the clock",
                "case     groups  depth  events    submeter       syscall   unpatched",
                "clock                                 20.0  200.0 10.00×           –",
                "sibling       6      1       2  30.0 1.50×             –  90.0 4.50×",
                "",
                "CPU time of groups, ms, and how much submeter's is off",
                "group  submeter     cgroup_stat   process_clock",
                "one       100.5  100.0 +0.500 %               –",
                "all       300.0               –  300.0 +0.000 %",
            ]
        );
        assert_eq!(human(&[]), "");
    }
}
