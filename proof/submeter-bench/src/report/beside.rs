//! The ratios of two records side by side: those of a quiet machine and of a busy one, or of two
//! machines.

use super::block::{Block, Table};
use super::content::facts;
use super::definition::{Definition, Gate};
use super::format::{spread, times};
use super::markdown::written;
use super::paired;
use super::record::Record;
use super::rows;
use crate::row::Row;

/// Writes what differs between the machines, then each ratio that a definition gates and both
/// records have.
pub(crate) fn beside(one: &Record, other: &Record, definitions: &[Definition]) -> String {
    let mut blocks = vec![Block::Table(machines(one, other))];
    for definition in definitions {
        let found: Vec<[String; 5]> =
            definition.gate.iter().flat_map(|gate| ratios(definition, gate, one, other)).collect();
        if found.is_empty() {
            continue;
        }
        let better = format!("**{}** ({} is better)", definition.title, definition.better);
        let heading = ["what", "submeter", "÷", "the first", "the second"];
        blocks.push(Block::Paragraph(better));
        blocks.push(Block::Table(Table::new("tttnn", heading, found)));
    }
    written(&blocks)
}

fn machines(one: &Record, other: &Record) -> Table {
    let [ours, theirs] = [one, other].map(|record| facts(&record.machine));
    let find = |facts: &[(&str, String)], name: &str| {
        let found = facts.iter().find(|(own, _)| *own == name);
        found.map_or_else(|| "–".to_owned(), |(_, value)| value.clone())
    };
    let mut names: Vec<&str> = ours.iter().map(|(name, _)| *name).collect();
    names.extend(theirs.iter().map(|(name, _)| *name).filter(|name| find(&ours, name) == "–"));
    let line = |name| [str::to_owned(name), find(&ours, name), find(&theirs, name)];
    Table::new("ttt", ["", "the first", "the second"], names.into_iter().map(line))
}

/// Returns a line for each row of ours that the gate names.
fn ratios(definition: &Definition, gate: &Gate, one: &Record, other: &Record) -> Vec<[String; 5]> {
    let ours = one.table(&definition.table);
    let ours = ours.filter(|row| row.variant == gate.variant && row.params.has(&gate.params));
    let line = |row: &Row| {
        // The row with the same parameters in the other record, not the first one that the gate
        // names there.
        let same = other.table(&definition.table);
        let mut same = same.filter(|is| is.variant == row.variant && is.params == row.params);
        let ratios = [ratio(one, definition, gate, row)?, {
            let row = same.next()?;
            ratio(other, definition, gate, row)?
        }];
        let [first, second] = ratios;
        let [variant, against] = [&gate.variant, &gate.against.variant].map(String::clone);
        Some([row.params.to_string(), variant, against, first, second])
    };
    ours.filter_map(line).collect()
}

/// Returns the ratio of a row to its counterpart; if samples were taken alternately, half the width
/// of its 95 % confidence interval is added.
fn ratio(record: &Record, definition: &Definition, gate: &Gate, row: &Row) -> Option<String> {
    let params = gate.against.params.as_ref();
    let base = match params {
        Some(params) => record.find(&definition.table, &gate.against.variant, params)?,
        None => record
            .table(&definition.table)
            .find(|base| base.variant == gate.against.variant && base.params == row.params)?,
    };
    let verdict = rows::verdict(row, base)?;
    if verdict == rows::NOISY || !row.is_median() {
        return Some(verdict);
    }
    // Only samples of the same rounds form pairs.
    let paired = (row.samples.len() == base.samples.len())
        .then(|| paired::ratio(&row.samples, &base.samples))
        .flatten();
    Some(match paired {
        Some(found) => {
            format!(
                "{} {}",
                times(found.middle),
                spread((found.high - found.low) / 2.0 / found.middle)
            )
        }
        None => verdict,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A record in which our variant is `times` as fast as its baseline, in each of eight rounds.
    fn record(times: f64, busy: bool) -> Record {
        let row = |cpus: &str, variant: &str, factor: f64| {
            let drift: Vec<f64> = (0..8).map(|n| (100.0 + f64::from(n)) * factor).collect();
            format!(
                r#"{{"table":"t","params":{{"cpus":"{cpus}"}},"variant":"{variant}","unit":"1/s",
                "value":{},"samples":{drift:?}}}"#,
                drift[3]
            )
        };
        let rows = [row("1", "ours", times), row("1", "base", 1.0), row("all", "base", 10.0)];
        let text = format!(
            r#"{{"machine":{{"arch":"a","cpus":2,"kernel":"k","backend":"b","date":"d",
            "version":"v","busy":{busy}}},"rows":[{}]}}"#,
            rows.join(",")
        );
        Record::parse(&text).expect("a record")
    }

    fn lines(gate: &str) -> String {
        let definition = format!("table = 't'\ntitle = 'T'\nbetter = 'higher'\n{gate}");
        let definition = Definition::parse(&definition).expect("a definition");
        beside(&record(2.0, false), &record(3.0, true), &[definition])
    }

    #[test]
    fn each_gated_ratio_is_that_of_its_own_record() {
        let gate = "[[gate]]\nvariant = 'ours'\nagainst = { variant = 'base' }";
        let text = lines(gate);
        assert!(text.contains("**T** (higher is better)"), "{text}");
        assert!(text.contains("| cpus 1 | ours | base | 2\u{a0}× ±"), "{text}");
        assert!(text.contains("| 3\u{a0}× ±"), "{text}");
        assert!(text.contains("| load | – | the bench kept"), "{text}");
    }

    #[test]
    fn a_gate_may_name_the_other_sides_parameters() {
        let gate = "[[gate]]\nvariant = 'ours'\n\
            against = { variant = 'base', params = { cpus = 'all' } }";
        assert!(lines(gate).contains("| cpus 1 | ours | base | 0.200\u{a0}×"), "{}", lines(gate));
    }

    #[test]
    fn what_one_record_lacks_is_left_out() {
        let gate = "[[gate]]\nvariant = 'none'\nagainst = { variant = 'base' }";
        assert!(!lines(gate).contains("**T**"), "{}", lines(gate));
    }
}
