//! Chooses and draws the plots that suit a table's figures.

use std::collections::{BTreeMap, BTreeSet};

use maud::{Markup, html};

use super::definition::Definition;
use super::format::{amount, axis_unit, times};
use super::plot::{Curve, Frame, Point, Series, Strip, lines, strips};
use super::record::{Record, grouped};
use crate::row::{Name, Param, Params, Row, quantile};

/// The number of plots that are shown at once; the others are folded.
const OPEN: usize = 4;
/// The number of lines that can be told apart in one plot.
const TOGETHER: usize = 5;
/// The parameter that holds the bounds of a histogram's bucket.
pub(super) const BUCKET: &str = "bucket_us";

/// Draws the plots of a table; those with counterparts of the document's cells come first.
pub(super) fn plots(definition: &Definition, record: &Record, rows: &[&Row]) -> Markup {
    let mut found: Vec<(bool, Markup)> = Vec::new();
    let variants = looks(definition, rows);
    for facet in facets(definition, record, rows) {
        let answers = |row: &&Row| {
            let ours = definition.cell.iter().filter_map(|cell| cell.ours.as_ref());
            let mut ours = ours.filter(|ours| ours.variant == row.variant);
            ours.any(|ours| row.params.has(&ours.params))
        };
        let wanted = facet.rows.iter().any(answers);
        // Bars for every figure without a curve would bury the plots that matter.
        if facet.shape == Shape::Strips && !wanted && definition.plot == "histogram" {
            continue;
        }
        found.push((wanted, facet.draw(definition, record, &variants)));
    }
    found.sort_by_key(|(wanted, _)| !wanted);
    let (open, folded) = found.split_at(found.len().min(OPEN));
    let all = |plots: &[(bool, Markup)]| html! { div class="plots" { @for (_, plot) in plots { (plot) } } };
    html! {
        @if !open.is_empty() { (all(open)) }
        @if !folded.is_empty() {
            details { summary { (folded.len()) " more plots" } (all(folded)) }
        }
    }
}

/// Draws the one plot that shows `row`.
pub(super) fn plot_of(definition: &Definition, record: &Record, row: &Row) -> Option<Markup> {
    let rows: Vec<&Row> = record.table(&definition.table).collect();
    let facets = facets(definition, record, &rows);
    let shows = |facet: &&Facet<'_>| facet.rows.iter().any(|shown| std::ptr::eq(*shown, row));
    Some(facets.iter().find(shows)?.draw(definition, record, &looks(definition, &rows)))
}

/// Returns the variants in the order of their looks, our own first.
fn looks<'a>(definition: &Definition, rows: &[&'a Row]) -> Vec<&'a str> {
    let mut variants: Vec<&str> = Vec::new();
    for row in rows {
        if !variants.contains(&row.variant.as_ref()) {
            variants.push(&row.variant);
        }
    }
    let ours = |name: &str| name.starts_with("submeter") || name.starts_with(&definition.table);
    variants.sort_by_key(|name| !ours(name));
    variants
}

/// The kind of plot.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Shape {
    /// A curve over the parameter of this name.
    Over(String),
    /// Counts over times, from rows of the record.
    Buckets,
    /// Counts over times, computed from the samples.
    Samples,
    Strips,
}

/// Rows that one plot shows.
struct Facet<'a> {
    shape: Shape,
    params: Params,
    rows: Vec<&'a Row>,
}

/// Splits rows into plots.
fn facets<'a>(definition: &Definition, record: &Record, rows: &[&'a Row]) -> Vec<Facet<'a>> {
    let mut facets: Vec<Facet<'_>> = Vec::new();
    for group in grouped(rows, |row| (row.params.names().collect::<Vec<_>>(), &row.unit)) {
        let Some(shape) = shape(definition, record, &group) else { continue };
        let first = facets.len();
        for row in group.iter().filter(|row| shape != Shape::Samples || is_median(row)) {
            let params = match &shape {
                Shape::Over(name) => row.params.without(name),
                Shape::Buckets => row.params.without(BUCKET),
                Shape::Samples | Shape::Strips => row.params.clone(),
            };
            let same = |facet: &&mut Facet<'_>| {
                facet.params == params && facet.shape == shape && facet.rows[0].unit == row.unit
            };
            match facets[first..].iter_mut().find(same) {
                Some(facet) => facet.rows.push(row),
                None => facets.push(Facet { shape: shape.clone(), params, rows: vec![row] }),
            }
        }
        let variant = &group[0].variant;
        if matches!(shape, Shape::Over(_)) && group.iter().all(|row| row.variant == *variant) {
            let alone = facets.split_off(first);
            // As few plots as possible, with about the same number of lines in each.
            let plots = alone.len().div_ceil(TOGETHER).max(1);
            let lines = alone.len().div_ceil(plots).max(1);
            facets.extend(alone.chunks(lines).map(Facet::together));
        }
    }
    facets
}

/// Chooses the shape for rows whose parameters have the same names.
fn shape(definition: &Definition, record: &Record, group: &[&Row]) -> Option<Shape> {
    let names: Vec<&str> = group[0].params.names().collect();
    if names.contains(&BUCKET) {
        return Some(Shape::Buckets);
    }
    if names.contains(&"quantile") {
        let times = definition.plot == "histogram" && group.iter().any(|r| r.samples.len() >= 200);
        return times.then_some(Shape::Samples);
    }
    if names.contains(&"figure") {
        return None;
    }
    // Of several numeric parameters, the one with the most values becomes the horizontal axis.
    let values = |name: &str| {
        let mut facets: BTreeMap<Params, BTreeSet<String>> = BTreeMap::new();
        for row in group {
            let value = number(record, name, row).map(|number| number.to_string());
            facets.entry(row.params.without(name)).or_default().extend(value);
        }
        facets.values().map(BTreeSet::len).max().unwrap_or_default()
    };
    let numeric = |name: &&&str| group.iter().all(|row| number(record, name, row).is_some());
    let over = names.iter().filter(numeric).filter(|name| **name != "test");
    let over = over.map(|name| (values(name), *name)).max_by_key(|(count, _)| *count);
    match over {
        Some((count, name)) if count >= 2 && definition.plot != "box" => {
            Some(Shape::Over(name.to_owned()))
        }
        Some((count, name)) if count >= 3 => Some(Shape::Over(name.to_owned())),
        _ => Some(Shape::Strips),
    }
}

/// Reads a parameter as a number; `all` stands for the machine's number of CPUs.
fn number(record: &Record, name: &str, row: &Row) -> Option<f64> {
    match (name, row.params.get(name)?) {
        ("cpus", "all") => Some(record.machine.cpus as f64),
        (_, value) => value.parse().ok(),
    }
}

fn is_median(row: &&&Row) -> bool {
    row.is_median()
}

impl<'a> Facet<'a> {
    /// Merges plots that have one line each.
    fn together(facets: &[Facet<'a>]) -> Facet<'a> {
        let first = &facets[0];
        let same = |(name, value): &&(Name, Param)| {
            facets.iter().all(|facet| facet.params.get(name) == Some(value.as_str()))
        };
        let params = Params(first.params.0.iter().filter(same).cloned().collect());
        let rows = facets.iter().flat_map(|facet| facet.rows.iter().copied()).collect();
        Facet { shape: first.shape.clone(), params, rows }
    }

    /// Returns the name of a row's line: its variant, or the parameters in which lines differ.
    fn line(&self, row: &Row) -> String {
        let Shape::Over(across) = &self.shape else { return row.variant.to_string() };
        let own = |(name, _): &&(Name, Param)| name != across && self.params.get(name).is_none();
        let values: Vec<&str> = row.params.0.iter().filter(own).map(|(_, v)| v.as_str()).collect();
        if values.is_empty() { row.variant.to_string() } else { values.join(" ") }
    }

    fn draw(&self, definition: &Definition, record: &Record, looks: &[&str]) -> Markup {
        let unit = self.rows[0].unit.to_string();
        let mut frame = Frame { title: self.title(definition), ..Frame::default() };
        match &self.shape {
            Shape::Over(name) => {
                let series = self.by_variant(looks, |row| {
                    let (x, y) = (number(record, name, row)?, row.figure()?);
                    let quartiles =
                        row.quartiles().filter(|(low, high)| (*low..=*high).contains(&y));
                    Some(Point { x, y, quartiles })
                });
                frame.description = self.description(definition);
                let about = definition.params.get(name).and_then(|about| about.unit.as_deref());
                frame.across = name.replace('_', " ");
                frame.across_unit = about.unwrap_or_default().to_owned();
                frame.up = axis_unit(&unit);
                frame.up_unit = unit;
                lines(&frame, Curve::Points, &series)
            }
            Shape::Buckets => {
                let series = self.by_variant(looks, |row| {
                    let ends = row.params.get(BUCKET)?;
                    let start: f64 = ends.split('-').next()?.parse().ok()?;
                    // A logarithmic axis has no zero; the first bucket begins at a tenth.
                    Some(Point { x: start.max(0.1), y: row.figure()?, quartiles: None })
                });
                // On a logarithmic axis, zero would look like a few.
                let (series, none): (Vec<Series>, Vec<Series>) =
                    series.into_iter().partition(|s| s.points.iter().any(|point| point.y > 0.0));
                if !none.is_empty() {
                    let names: Vec<String> = none.into_iter().map(|series| series.name).collect();
                    frame.title = format!("{}; none at all: {}", frame.title, names.join(", "));
                }
                frame.description = self.description(definition);
                frame.across = "time from".to_owned();
                frame.across_unit = "us".to_owned();
                frame.up = unit.clone();
                frame.up_unit = unit;
                lines(&frame, Curve::Steps, &series)
            }
            Shape::Samples => self.histogram(frame, looks),
            Shape::Strips => {
                let strip = |row: &&Row| {
                    let sorted = row.sorted();
                    let at = |part| quantile(&sorted, part);
                    let value = row.figure()?;
                    let spread = row.quartiles().filter(|(l, h)| (*l..=*h).contains(&value));
                    let spread =
                        spread.and_then(|(low, high)| Some([at(0.05)?, low, high, at(0.95)?]));
                    Some(Strip {
                        name: row.variant.to_string(),
                        look: look(row, looks),
                        value,
                        spread,
                    })
                };
                let all: Vec<Strip> = self.rows.iter().filter_map(strip).collect();
                frame.description = self.description(definition);
                frame.across = axis_unit(&unit);
                frame.across_unit = unit;
                strips(&frame, &all)
            }
        }
    }

    /// Draws how many samples fell into each bucket of a quarter of an octave.
    fn histogram(&self, mut frame: Frame, looks: &[&str]) -> Markup {
        const PER_OCTAVE: f64 = 4.0;
        let mut all = Vec::new();
        for row in &self.rows {
            let samples = row.sorted();
            let bucket = |sample: &f64| (sample.max(1e-9).log2() * PER_OCTAVE).floor() as i64;
            let mut counts: BTreeMap<i64, f64> = BTreeMap::new();
            for sample in &samples {
                *counts.entry(bucket(sample)).or_default() += 1.0;
                // After the last bucket in a row the count drops to zero.
                counts.entry(bucket(sample) + 1).or_default();
            }
            let start = |bucket: i64| (bucket as f64 / PER_OCTAVE).exp2();
            let point = |(bucket, y)| Point { x: start(bucket), y, quartiles: None };
            let points = counts.into_iter().map(point).collect();
            all.push(Series { name: row.variant.to_string(), look: look(row, looks), points });
        }
        frame.description = self
            .rows
            .iter()
            .filter_map(|row| Some(described(&row.variant, row, row.figure()?)))
            .collect();
        frame.title =
            frame.title.replace(", quantile p50", "").replace("quantile p50", "all samples");
        frame.across = "time".to_owned();
        frame.across_unit = self.rows[0].unit.to_string();
        frame.up = "samples".to_owned();
        frame.up_unit = "samples".to_owned();
        lines(&frame, Curve::Steps, &all)
    }

    fn by_variant(&self, looks: &[&str], point: impl Fn(&Row) -> Option<Point>) -> Vec<Series> {
        let mut all: Vec<Series> = Vec::new();
        for row in &self.rows {
            let Some(point) = point(row) else { continue };
            let name = self.line(row);
            let lines = all.len();
            match all.iter_mut().find(|series| series.name == name) {
                Some(series) => series.points.push(point),
                None => {
                    let look = if name == row.variant { look(row, looks) } else { lines };
                    all.push(Series { name, look, points: vec![point] });
                }
            }
        }
        for series in &mut all {
            series.points.sort_by(|a, b| a.x.total_cmp(&b.x));
        }
        all
    }

    fn title(&self, definition: &Definition) -> String {
        let params = self.params.to_string();
        let title = if params.is_empty() { definition.title.clone() } else { params };
        match &self.shape {
            Shape::Over(name) => format!("{title}, by {}", name.replace('_', " ")),
            _ => title,
        }
    }

    /// Describes the plot in words: each variant's smallest and largest value.
    fn description(&self, definition: &Definition) -> String {
        let mut text = String::new();
        let mut described_lines: Vec<String> = Vec::new();
        for row in &self.rows {
            let line = self.line(row);
            if described_lines.contains(&line) {
                continue;
            }
            let of_variant = self.rows.iter().filter(|other| self.line(other) == line);
            let values = of_variant.filter_map(|row| row.figure());
            let ends = values.map(|v| (v, v)).reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)));
            match ends {
                Some((low, high)) if low < high => {
                    let (low, high) = (amount(low, &row.unit), amount(high, &row.unit));
                    text.push_str(&format!("{line}: from {low} to {high}. "));
                }
                Some((value, _)) => text.push_str(&described(&line, row, value)),
                None => {}
            }
            described_lines.push(line);
        }
        let find = |variant: &str| self.rows.iter().find(|row| row.variant == variant);
        if let (Shape::Strips, Some(base)) = (&self.shape, find(&definition.baseline)) {
            let others = self.rows.iter().filter(|row| row.variant != base.variant);
            for row in others {
                if let (Some(value), Some(base_value)) = (row.figure(), base.figure()) {
                    let ratio = times(value / base_value);
                    text.push_str(&format!("{} is {ratio} {}. ", row.variant, base.variant));
                }
            }
        }
        text.trim_end().to_owned()
    }
}

fn look(row: &Row, looks: &[&str]) -> usize {
    looks.iter().position(|name| *name == row.variant).unwrap_or_default()
}

fn described(line: &str, row: &Row, value: f64) -> String {
    format!("{line}: {}. ", amount(value, &row.unit))
}
