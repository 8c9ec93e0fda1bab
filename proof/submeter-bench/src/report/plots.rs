//! Chooses and draws the plots that suit a table's figures.

use std::collections::BTreeSet;

use super::definition::Definition;
use super::format::axis_unit;
use super::plot::{Drawn, Frame, Point, Series, Strip, lines, strips};
use super::record::{Record, grouped};
use super::rows;
use crate::row::{Params, Row, quantile};

/// The parameter that holds the bounds of a histogram's bucket.
pub(super) const BUCKET: &str = "bucket_us";

/// More bars go into several plots.
const BARS_MAX: usize = 24;
/// More lines cannot be told apart.
const LINES_MAX: usize = 12;
/// Fewer points make no line.
const POINTS_MIN: usize = 3;

/// A plot, or why it could not be drawn.
pub(super) struct Plot {
    pub(super) title: String,
    pub(super) svg: Drawn<String>,
}

/// Draws the rows of a group: lines over the parameter with the most numbers, with a plot for each
/// value of the others; or bars.
pub(super) fn plots(record: &Record, definition: &Definition, rows: &[&Row]) -> Vec<Plot> {
    let known: Vec<&Row> = rows.iter().copied().filter(|row| row.figure().is_some()).collect();
    let Some(first) = known.first() else { return Vec::new() };
    let Some(across) = across(record, &known) else { return all_bars(definition, &known) };
    let groups = match known.iter().all(|row| row.variant == first.variant) {
        true => vec![known],
        false => grouped(&known, |row| row.params.without(across)),
    };
    groups.iter().filter_map(|group| over(record, definition, across, group)).collect()
}

/// Returns the parameter with the most numbers. Those of a test are names.
fn across<'a>(record: &Record, rows: &[&'a Row]) -> Option<&'a str> {
    let values = |name: &str| {
        let numbers = rows.iter().map(|row| number(record, name, row).map(f64::to_bits));
        numbers.collect::<Option<BTreeSet<u64>>>().map_or(0, |numbers| numbers.len())
    };
    let names = rows::varying(rows).into_iter().filter(|name| *name != "test");
    let most = names.map(|name| (values(name), name)).max_by_key(|(count, _)| *count);
    most.filter(|(count, _)| *count >= POINTS_MIN).map(|(_, name)| name)
}

/// Reads a parameter as a number: of a bucket its start, of `all` CPUs how many the machine has.
fn number(record: &Record, name: &str, row: &Row) -> Option<f64> {
    match (name, row.params.get(name)?) {
        ("cpus", "all") => Some(record.machine.cpus as f64),
        // A logarithmic axis has no zero; the first bucket begins at a tenth.
        (BUCKET, ends) => ends.split('-').next()?.parse().ok().map(|start: f64| start.max(0.1)),
        (_, value) => value.parse().ok(),
    }
}

fn over(record: &Record, definition: &Definition, across: &str, rows: &[&Row]) -> Option<Plot> {
    let one_variant = rows.iter().all(|row| row.variant == rows[0].variant);
    let mut series: Vec<Series> = Vec::new();
    for row in rows {
        let (x, y) = (number(record, across, row)?, row.figure()?);
        let name = match (one_variant, values(&row.params.without(across), rows)) {
            (true, others) if !others.is_empty() => others,
            _ => row.variant.to_string(),
        };
        // An empty bucket has no place on a logarithmic axis.
        if across == BUCKET && y <= 0.0 {
            continue;
        }
        let point = Point { x, y, quartiles: around(row, y) };
        match series.iter_mut().find(|series| series.name == name) {
            Some(series) => series.points.push(point),
            None => series.push(Series { name, points: vec![point] }),
        }
    }
    series.iter_mut().for_each(|series| series.points.sort_by(|a, b| a.x.total_cmp(&b.x)));
    let unit = definition.params.get(across).and_then(|about| about.unit.clone());
    let frame = Frame {
        title: format!("{}, by {}", title(definition, rows), across.replace('_', " ")),
        across: across.replace('_', " "),
        across_unit: unit.unwrap_or_default(),
        up: axis_unit(&rows[0].unit),
        up_unit: rows[0].unit.to_string(),
        ..Frame::default()
    };
    (1..=LINES_MAX)
        .contains(&series.len())
        .then(|| Plot { svg: lines(&frame, &series), title: frame.title })
}

/// Draws bars for rows; where these are too many, a plot for each value of their first parameter.
fn all_bars(definition: &Definition, rows: &[&Row]) -> Vec<Plot> {
    match rows::varying(rows).first() {
        _ if rows.len() < 2 => Vec::new(),
        Some(first) if rows.len() > BARS_MAX => grouped(rows, |row| row.params.get(first))
            .iter()
            .flat_map(|rows| all_bars(definition, rows))
            .collect(),
        _ => vec![bars(definition, rows)],
    }
}

fn bars<'a>(definition: &Definition, rows: &[&'a Row]) -> Plot {
    let mut variants: Vec<&'a str> = Vec::new();
    let strip = |row: &&'a Row| {
        let params = values(&row.params, rows);
        let place = variants.iter().position(|name| *name == row.variant);
        let look = place.unwrap_or_else(|| {
            variants.push(&row.variant);
            variants.len() - 1
        });
        self::strip(row, format!("{params} {}", row.variant).trim(), look)
    };
    let strips: Vec<Strip> = rows.iter().filter_map(strip).collect();
    let frame = Frame {
        title: title(definition, rows),
        across: axis_unit(&rows[0].unit),
        across_unit: rows[0].unit.to_string(),
        ..Frame::default()
    };
    Plot { svg: self::strips(&frame, &strips), title: frame.title }
}

/// Returns a row's bar.
pub(super) fn strip(row: &Row, name: &str, look: usize) -> Option<Strip> {
    let value = row.figure()?;
    let sorted = row.sorted();
    let end = |part| quantile(&sorted, part);
    let spread =
        around(row, value).and_then(|(first, third)| Some([end(0.05)?, first, third, end(0.95)?]));
    Some(Strip { name: name.to_owned(), look, value, spread })
}

/// Returns the quartiles, if they enclose the value: otherwise they do not describe it.
fn around(row: &Row, value: f64) -> Option<(f64, f64)> {
    row.quartiles().filter(|(low, high)| (*low..=*high).contains(&value))
}

/// Returns the values of the parameters in which `rows` differ.
fn values(params: &Params, rows: &[&Row]) -> String {
    let varying = rows::varying(rows);
    let values: Vec<&str> = varying.iter().filter_map(|name| params.get(name)).collect();
    values.join(" ")
}

/// Returns the parameters that `rows` have in common.
fn title(definition: &Definition, rows: &[&Row]) -> String {
    let varying = rows::varying(rows);
    let common = |params: Params, name: &&str| params.without(name);
    let common = varying.iter().fold(rows[0].params.clone(), common).to_string();
    if common.is_empty() { definition.title.clone() } else { common }
}
