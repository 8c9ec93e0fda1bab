//! A document's histogram beside ours, as shares: counts of different runs cannot be compared.

use maud::{Markup, html};

use super::definition::{Answer, Cell, Definition};
use super::format::{amount, percent};
use super::record::Record;
use crate::row::Params;

/// A document's histogram, with the shares of our workloads that answer it.
pub(super) struct Histogram<'a> {
    /// The name of the buckets.
    pub(super) buckets: String,
    /// The document's variants.
    pub(super) variants: Vec<&'a str>,
    /// The columns of each variant: the document, then our workloads.
    pub(super) columns: Vec<&'a str>,
    pub(super) lines: Vec<Line<'a>>,
}

/// A bucket: for each variant, what is in its columns.
pub(super) struct Line<'a> {
    pub(super) bucket: &'a str,
    pub(super) shares: Vec<Vec<Share<'a>>>,
}

/// What is in a bucket of a histogram.
pub(super) enum Share<'a> {
    /// So many of so many.
    Of(f64, f64),
    /// The document says nothing.
    Unsaid,
    /// The record has no such row.
    Missing,
    /// Why there is no counterpart.
    Because(&'a str),
}

impl<'a> Histogram<'a> {
    /// Puts the document's cells beside our rows.
    pub(super) fn new(record: &'a Record, definition: &'a Definition) -> Histogram<'a> {
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
        let line = |params: &&'a Params| {
            let of = |variant: &&str| {
                let mut all = cells.iter();
                match all.find(|cell| cell.params == **params && cell.variant == *variant) {
                    Some(cell) => {
                        let answers = ours.iter().map(|(_, ours)| ours.share(cell));
                        std::iter::once(theirs(cells, cell)).chain(answers).collect()
                    }
                    None => (0..=ours.len()).map(|_| Share::Unsaid).collect(),
                }
            };
            let bucket = params.0.first().map_or("", |(_, value)| value.as_str());
            Line { bucket, shares: variants.iter().map(of).collect() }
        };
        let name = buckets.first().and_then(|params| params.names().next()).unwrap_or("case");
        Histogram {
            buckets: name.replace('_', " "),
            columns: std::iter::once("document")
                .chain(ours.iter().map(|(name, _)| *name))
                .collect(),
            lines: buckets.iter().map(line).collect(),
            variants,
        }
    }
}

/// Our rows of one workload.
struct Ours<'a> {
    record: &'a Record,
    definition: &'a Definition,
    /// `None` where the cells themselves name all that is to be known.
    answer: Option<&'a Answer>,
}

impl Ours<'_> {
    fn share<'b>(&self, cell: &'b Cell) -> Share<'b> {
        if let (None, Some(reason)) = (&cell.ours, &cell.reason) {
            return Share::Because(reason);
        }
        let column = self.definition.cell.iter().filter(|other| other.variant == cell.variant);
        match self.count(cell) {
            Some(own) => Share::Of(own, column.filter_map(|cell| self.count(cell)).sum()),
            None => Share::Missing,
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

fn theirs<'a>(cells: &[Cell], cell: &'a Cell) -> Share<'a> {
    let column = cells.iter().filter(|other| other.variant == cell.variant);
    let all = column.filter_map(|cell| cell.value).sum();
    cell.value.map_or(Share::Unsaid, |count| Share::Of(count, all))
}

impl Share<'_> {
    /// Writes the share alone.
    pub(super) fn text(&self) -> String {
        match self {
            Share::Of(count, all) => percent(if *all > 0.0 { count / all } else { 0.0 }),
            Share::Unsaid => "–".to_owned(),
            Share::Missing => "not in this record".to_owned(),
            Share::Because(reason) => (*reason).to_owned(),
        }
    }

    /// Writes the share above its count.
    fn cell(&self) -> Markup {
        match self {
            Share::Of(count, _) => html! {
                td class="n" {
                    (self.text()) br; small { data value=(count) { (amount(*count, "count")) } }
                }
            },
            Share::Missing => html! { td class="missing" { (self.text()) } },
            Share::Unsaid | Share::Because(_) => html! { td { (self.text()) } },
        }
    }
}

/// Writes a line for each bucket, and for each of the document's variants its share and ours.
pub(super) fn table(record: &Record, definition: &Definition) -> Markup {
    let histogram = Histogram::new(record, definition);
    let columns = histogram.columns.len();
    html! {
        h3 { "The document's table, and ours" }
        p class="small" {
            @if !definition.ratio.is_empty() { "What a ratio means: " (definition.ratio) " · " }
            "Counts of different runs are compared as shares of their column; below each share "
            "is its count. Our rows: " (rows(&definition.cell)) "."
        }
        div class="scroll" tabindex="0" role="region" aria-label="The document's table" {
            table class="document" {
                thead {
                    tr {
                        th rowspan="2" scope="col" { (histogram.buckets) }
                        @for variant in &histogram.variants {
                            th colspan=(columns) scope="colgroup" { (variant) }
                        }
                    }
                    tr { @for _ in &histogram.variants { @for column in &histogram.columns {
                        th scope="col" class="n" { (column) }
                    } } }
                }
                tbody { @for line in &histogram.lines { tr {
                    th scope="row" { (line.bucket) }
                    @for share in line.shares.iter().flatten() { (share.cell()) }
                } } }
            }
        }
    }
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
