//! A document's histogram beside ours, as shares: counts of different runs cannot be compared.

use maud::{Markup, html};

use super::definition::{Cell, Definition};
use super::format::{amount, percent};
use super::record::Record;
use crate::row::Params;

/// Writes a line for each bucket, and for each of the document's variants its share and ours.
pub(super) fn table(record: &Record, definition: &Definition) -> Markup {
    let cells = &definition.cell;
    let (mut lines, mut variants): (Vec<&Params>, Vec<&str>) = (Vec::new(), Vec::new());
    for cell in cells {
        if !lines.contains(&&cell.params) {
            lines.push(&cell.params);
        }
        if !variants.contains(&cell.variant.as_str()) {
            variants.push(&cell.variant);
        }
    }
    let find = |params: &Params, variant: &str| {
        cells.iter().find(|cell| cell.params == *params && cell.variant == variant)
    };
    html! {
        h3 { "The document's table, and ours" }
        p class="small" {
            @if !definition.ratio.is_empty() { "What a ratio means: " (definition.ratio) " · " }
            "Counts of different runs are compared as shares of their column; below each share "
            "is its count. Our rows: " (rows(cells)) "."
        }
        div class="scroll" tabindex="0" role="region" aria-label="The document's table" {
            table class="document" {
                thead {
                    tr {
                        th rowspan="2" scope="col" { (lines[0].names().next().unwrap_or("case").replace('_', " ")) }
                        @for variant in &variants { th colspan="2" scope="colgroup" { (variant) } }
                    }
                    tr { @for _ in &variants {
                        th scope="col" class="n" { "document" }
                        th scope="col" class="n" { "ours" }
                    } }
                }
                tbody { @for params in &lines { tr {
                    th scope="row" { @for (_, value) in &params.0 { (value.as_str()) } }
                    @for variant in &variants {
                        @match find(params, variant) {
                            Some(cell) => {
                                td class="n" { (share(cell.value, theirs(cells, variant))) }
                                (ours(record, definition, cell))
                            }
                            None => { td { "–" } td { "–" } }
                        }
                    }
                } } }
            }
        }
    }
}

fn ours(record: &Record, definition: &Definition, cell: &Cell) -> Markup {
    if let (None, Some(reason)) = (&cell.ours, &cell.reason) {
        return html! { td { (reason) } };
    }
    let count = |cell: &Cell| {
        let ours = cell.ours.as_ref()?;
        record.find(&definition.table, &ours.variant, &ours.params)?.figure()
    };
    let column = definition.cell.iter().filter(|other| other.variant == cell.variant);
    match count(cell) {
        Some(own) => html! { td class="n" { (share(Some(own), column.filter_map(count).sum())) } },
        None => html! { td class="missing" { "not in this record" } },
    }
}

fn theirs(cells: &[Cell], variant: &str) -> f64 {
    cells.iter().filter(|cell| cell.variant == variant).filter_map(|cell| cell.value).sum()
}

fn share(count: Option<f64>, all: f64) -> Markup {
    let Some(count) = count else { return html! { "–" } };
    let part = if all > 0.0 { count / all } else { 0.0 };
    html! { (percent(part)) br; small { data value=(count) { (amount(count, "count")) } } }
}

/// Returns the parameters that our rows have in common.
fn rows(cells: &[Cell]) -> Params {
    let mut all = cells.iter().filter_map(|cell| cell.ours.as_ref());
    let Some(first) = all.next() else { return Params::default() };
    let common = first.params.0.iter().filter(|(name, value)| {
        let mut ours = cells.iter().filter_map(|cell| cell.ours.as_ref());
        ours.all(|ours| ours.params.get(name) == Some(value.as_str()))
    });
    Params(common.cloned().collect())
}
