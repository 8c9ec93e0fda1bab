//! The figures for people: a line for each server.

use super::PIPELINES;
use super::record::QUANTILES;
use super::slice::CONNECTIONS;
use crate::bench::paired::{Interval, ratio};
use crate::bench::row::{Param, Row};
use crate::show::{self, BOLD, DIM};

/// The server that others are compared with.
const BASELINE: &str = "memcached_stats";

/// Writes all rows.
pub(super) fn human(rows: &[Row]) -> String {
    let mut text = String::new();
    for pipeline in PIPELINES {
        let s = if pipeline == 1 { "" } else { "s" };
        let table = table(rows, Some(Param::Number(pipeline as u64)));
        text.push_str(&format!(
            "\n{BOLD}{CONNECTIONS} connections with {pipeline} request{s} under way on each{BOLD:#}\n{table}"
        ));
    }
    text.push_str(&format!(
        "{DIM}CPU time is the server's alone; hit ratios and, where they are kept, counts by tenant were \
         checked after each slice{DIM:#}\n"
    ));
    text
}

/// Writes a line for each server.
fn table(rows: &[Row], pipeline: Option<Param>) -> String {
    let is = |row: &Row, measure, quantile| {
        // Memory is the same for all.
        let slice = param(row, "pipeline").is_none_or(|found| Some(found) == pipeline);
        let word = |word| Some(Param::Word(word));
        slice
            && param(row, "measure") == word(measure)
            && param(row, "quantile") == Option::and_then(quantile, word)
    };
    let throughput: Vec<&Row> = rows.iter().filter(|row| is(row, "throughput", None)).collect();
    let baseline = throughput.iter().find(|row| row.variant == BASELINE);
    let line = |row: &&Row| {
        let of = |measure, quantile| {
            let same = |other: &&Row| other.variant == row.variant && is(other, measure, quantile);
            rows.iter().find(same).map(|row| row.value)
        };
        let shown = |value: Option<f64>, digits: usize| {
            value.map_or_else(|| "–".to_owned(), |value| format!("{value:.digits$}"))
        };
        // Slice by slice, as they were driven one after the other.
        let found = baseline.filter(|other| other.variant != row.variant);
        let found = found.and_then(|other| ratio(&row.samples, &other.samples));
        let mut cells = vec![
            row.variant.to_owned(),
            show::count(row.value.round() as u64),
            format!("±{:.1} %", row.spread() * 50.0),
        ];
        cells.extend(match found {
            Some(Interval { middle, low, high }) => {
                [format!("{middle:.2}×"), format!("{low:.2} to {high:.2}")]
            }
            // Fewer slices have a ratio too, and no interval.
            None => {
                let other = baseline.filter(|other| other.variant != row.variant);
                let ratio = other.map(|other| row.value / other.value);
                [ratio.map_or_else(|| "–".to_owned(), |r| format!("{r:.2}×")), "–".to_owned()]
            }
        });
        cells.extend(QUANTILES.map(|(name, _)| shown(of("latency", Some(name)), 0)));
        cells.push(shown(of("cpu", None), 2));
        cells.push(shown(of("memory", None), 0));
        cells.push(shown(of("memory_overhead", None), 0));
        cells
    };
    let body: Vec<Vec<String>> = throughput.iter().map(line).collect();
    let ratio = format!("× {BASELINE}");
    let heading = [
        "",
        "requests/s",
        "spread",
        &ratio,
        "95 % interval",
        "p50 µs",
        "p99 µs",
        "p99.9 µs",
        "CPU µs/request",
        "bytes/item",
        "overhead",
    ];
    show::table(&heading, &body, false)
}

fn param(row: &Row, wanted: &str) -> Option<Param> {
    row.params.iter().find(|(name, _)| *name == wanted).map(|&(_, value)| value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_server_has_a_line_with_its_ratio() {
        let row = |variant, measure, samples: &[f64]| {
            let mut params = vec![("measure", Param::Word(measure))];
            if measure != "memory" {
                params.push(("pipeline", Param::Number(8)));
            }
            let (samples, value) = (samples.to_vec(), samples[0]);
            Row { table: "end_to_end", params, variant, value, unit: "", samples }
        };
        let rows = [
            row(BASELINE, "throughput", &[100_000.0; 8]),
            row("submeter", "throughput", &[125_000.0; 8]),
            row("submeter", "cpu", &[4.5]),
            row("submeter", "memory", &[321.0]),
        ];
        let text = anstream::adapter::strip_str(&human(&rows)).to_string();
        let words = |line: usize| -> Vec<&str> {
            text.lines().nth(line).expect("a line").split_whitespace().collect()
        };
        let nothing = ["–"; 8];
        assert_eq!(words(3), [&[BASELINE, "100,000", "±0.0", "%"][..], &nothing].concat());
        let ours = ["submeter", "125,000", "±0.0", "%", "1.25×", "1.25", "to", "1.25"];
        assert_eq!(words(4), [&ours[..], &["–", "–", "–", "4.50", "321", "–"]].concat());
    }
}
