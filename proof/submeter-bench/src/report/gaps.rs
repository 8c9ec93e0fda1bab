//! Checks the definitions against a record.
//!
//! A definition describes a table's variants and parameters, and names our counterpart of each cell
//! of a document's table. Both become stale when a table changes and its definition does not; the
//! record of one quick run reveals that.

use std::collections::BTreeSet;

use super::definition::{Definition, Ours};
use super::record::Record;
use crate::row::Params;

/// Returns a line for each row of `record` that no definition explains, and for each cell of a
/// document's table whose named counterpart is missing.
pub(crate) fn gaps(record: &Record, definitions: &[Definition]) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for row in &record.rows {
        let table = &row.table;
        let Some(of) = definitions.iter().find(|of| of.table == *table) else {
            found.insert(format!("{table}: measured, but not defined"));
            continue;
        };
        if !of.variants.contains_key(&*row.variant) {
            found.insert(format!("{table}: the variant {} has no description", row.variant));
        }
        for name in row.params.names().filter(|name| !of.params.contains_key(*name)) {
            found.insert(format!("{table}: the parameter {name} has no description"));
        }
    }
    for definition in definitions {
        let table = &definition.table;
        if record.table(table).next().is_none() {
            found.insert(format!("{table}: defined, but not measured"));
        }
        let mut workloads: Vec<Params> =
            definition.answers.iter().map(|answer| answer.params.clone()).collect();
        if workloads.is_empty() {
            workloads.push(Params::default());
        }
        for ours in definition.cell.iter().filter_map(|cell| cell.ours.as_ref()) {
            let missing =
                workloads.iter().filter(|workload| !answers(record, table, ours, workload));
            found.extend(missing.map(|workload| {
                let all = [&ours.params, workload].map(Params::to_string).join(", ");
                format!("{table}: no row matches {}, {}", ours.variant, all.trim_end_matches(", "))
            }));
        }
    }
    found
}

/// Returns whether a row is the counterpart that a cell names, for this workload; it may have more
/// parameters. A reason for its absence is an answer too.
fn answers(record: &Record, table: &str, ours: &Ours, workload: &Params) -> bool {
    let is_absent =
        |absent: &super::record::Absent| absent.table == table && absent.variant == ours.variant;
    let mut rows = record.table(table).filter(|row| row.variant == ours.variant);
    rows.any(|row| row.params.has(&ours.params) && row.params.has(workload))
        || record.absent.iter().any(is_absent)
}

#[cfg(test)]
mod tests;
