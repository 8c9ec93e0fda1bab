//! A document's histogram beside ours, as shares: counts of different runs cannot be compared.

use super::block::Table;
use super::definition::{Answer, Cell, Definition};
use super::format::percent;
use super::record::Record;
use crate::row::Params;

/// Returns a line for each bucket, with the shares of the document's variants and of our workloads
/// that answer it.
pub(super) fn table(record: &Record, definition: &Definition) -> Table {
    let cells = &definition.cell;
    let (mut buckets, mut variants): (Vec<&Params>, Vec<&str>) = (Vec::new(), Vec::new());
    for cell in cells {
        if !buckets.contains(&&cell.params) {
            buckets.push(&cell.params);
        }
        if !variants.contains(&cell.variant.as_str()) {
            variants.push(&cell.variant);
        }
    }
    let ours = workloads(record, definition);
    let columns = ["document"].into_iter().chain(ours.iter().map(|(name, _)| *name));
    let columns: Vec<&str> = columns.collect();
    let line = |params: &&Params| {
        let bucket = params.0.first().map_or("", |(_, value)| value.as_str());
        let shares = variants.iter().flat_map(|variant| {
            match cells.iter().find(|cell| cell.params == **params && cell.variant == *variant) {
                Some(cell) => {
                    let answers = ours.iter().map(|(_, ours)| ours.share(cell));
                    [theirs(cells, cell)].into_iter().chain(answers).collect()
                }
                None => vec!["–".to_owned(); columns.len()],
            }
        });
        [bucket.to_owned()].into_iter().chain(shares).collect()
    };
    let name = buckets.first().and_then(|params| params.names().next()).unwrap_or("case");
    let of = |variant: &&str| -> Vec<String> {
        columns.iter().map(|column| format!("{variant}, {column}")).collect()
    };
    let heading: Vec<String> =
        [name.replace('_', " ")].into_iter().chain(variants.iter().flat_map(of)).collect();
    Table {
        columns: format!("t{}", "n".repeat(heading.len() - 1)),
        heading,
        lines: buckets.iter().map(line).collect(),
    }
}

/// Our rows of one workload.
struct Ours<'a> {
    record: &'a Record,
    definition: &'a Definition,
    /// `None` where the cells alone name everything needed.
    answer: Option<&'a Answer>,
}

impl Ours<'_> {
    fn share(&self, cell: &Cell) -> String {
        if let (None, Some(reason)) = (&cell.ours, &cell.reason) {
            return reason.clone();
        }
        let column = self.definition.cell.iter().filter(|other| other.variant == cell.variant);
        match self.count(cell) {
            Some(own) => share(own, column.filter_map(|cell| self.count(cell)).sum()),
            None => "not in this record".to_owned(),
        }
    }

    fn count(&self, cell: &Cell) -> Option<f64> {
        let ours = cell.ours.as_ref()?;
        let mut rows = self.record.table(&self.definition.table);
        let answers = |params: &Params| self.answer.is_none_or(|answer| params.has(&answer.params));
        let wanted = |params: &Params| params.has(&ours.params) && answers(params);
        rows.find(|row| row.variant == ours.variant && wanted(&row.params))?.figure()
    }
}

/// Returns our rows of each workload that answers the cells, with its name.
fn workloads<'a>(record: &'a Record, definition: &'a Definition) -> Vec<(&'a str, Ours<'a>)> {
    let of = |answer: Option<&'a Answer>| Ours { record, definition, answer };
    match definition.answers.as_slice() {
        [] => vec![("ours", of(None))],
        all => all.iter().map(|answer| (answer.name.as_str(), of(Some(answer)))).collect(),
    }
}

fn theirs(cells: &[Cell], cell: &Cell) -> String {
    let column = cells.iter().filter(|other| other.variant == cell.variant);
    let all = column.filter_map(|cell| cell.value).sum();
    cell.value.map_or_else(|| "–".to_owned(), |count| share(count, all))
}

fn share(count: f64, all: f64) -> String {
    percent(if all > 0.0 { count / all } else { 0.0 })
}
