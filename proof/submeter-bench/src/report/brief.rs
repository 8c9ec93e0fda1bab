//! The figures of a single table, for a document with little room: without spreads, ratios and
//! words.

use super::block::{Block, Table};
use super::format::digits;
use super::markdown::written;
use super::record::{Record, grouped};
use crate::row::Row;

/// Writes a line for each value of the first parameter of `table`, with a column for each variant.
/// Where other parameters differ, their figures follow in parentheses, in the record's order.
///
/// # Errors
/// One line: the record has nothing of this table.
pub(crate) fn brief(record: &Record, table: &str) -> Result<String, String> {
    let rows: Vec<&Row> = record.table(table).collect();
    let first = rows.first().and_then(|row| Some((row.params.0.first()?.0.as_ref(), &row.unit)));
    let Some((param, unit)) = first else {
        return Err(format!("no rows of the table {table}: name a record that has some"));
    };
    let variants: Vec<&str> =
        grouped(&rows, |row| &row.variant).iter().map(|of| of[0].variant.as_ref()).collect();
    let line = |rows: Vec<&Row>| -> Vec<String> {
        let named = rows[0].params.get(param).unwrap_or_default().to_owned();
        std::iter::once(named).chain(variants.iter().map(|variant| cell(&rows, variant))).collect()
    };
    let lines = grouped(&rows, |row| row.params.get(param)).into_iter().map(line).collect();
    let names = variants.iter().map(|variant| variant.replace('_', " "));
    let heading = std::iter::once(unit.to_string()).chain(names).collect();
    let columns = "t".to_owned() + &"n".repeat(variants.len());
    Ok(written(&[Block::Table(Table { columns, heading, lines })]))
}

fn cell(rows: &[&Row], variant: &str) -> String {
    let of = rows.iter().filter(|row| row.variant == variant).filter_map(|row| row.figure());
    let figures: Vec<String> = of.map(digits).collect();
    match figures.split_first() {
        None => "–".to_owned(),
        Some((figure, [])) => figure.clone(),
        Some((figure, others)) => format!("{figure} ({})", others.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Figures are arranged by variant, with those of other settings in parentheses.
    #[test]
    fn figures_stand_by_variant() {
        let row = |operation: &str, cpus: &str, variant: &str, value: f64| {
            format!(
                r#"{{"table":"worlds","params":{{"operation":"{operation}","cpus":"{cpus}"}},
                "variant":"{variant}","value":{value},"unit":"ns","samples":[]}}"#
            )
        };
        let rows = [
            row("add", "1", "naive", 9.216),
            row("add", "1", "no_rseq", 13.0),
            row("switch", "1", "naive", 1234.0),
            row("add", "all", "naive", 61.04),
        ];
        let record = format!(
            r#"{{"machine":{{"arch":"a","cpus":2,"kernel":"k","backend":"b","date":"d"}},"rows":[{}]}}"#,
            rows.join(",")
        );
        let record = Record::parse(&record).expect("a record");
        let expected = "| ns | naive | no rseq |\n|---|--:|--:|\n\
                        | add | 9.22 (61.0) | 13 |\n| switch | 1,234 | – |\n";
        assert_eq!(brief(&record, "worlds").expect("rows"), expected);
        let error = brief(&record, "perf").expect_err("none");
        assert!(error.contains("perf") && !error.contains('\n'), "{error}");
    }
}
