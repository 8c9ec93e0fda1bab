//! Our own figures as tables: one line per set of parameters, one column per variant.

use super::definition::Definition;
use super::format::{amount, spread, times};
use super::record::grouped;
use crate::row::{Params, Row};

/// Puts rows together that make one table.
pub(super) fn groups<'a>(rows: &[&'a Row]) -> Vec<Vec<&'a Row>> {
    grouped(rows, kind)
}

/// Returns half the distance between the quartiles as a share of the value. `None` if the value is
/// not between them: then it is not a median, and they do not describe its spread.
fn half_spread(row: &Row, value: f64) -> Option<f64> {
    let (low, high) = row.quartiles()?;
    let meaningful = (low..=high).contains(&value) && value != 0.0 && high > low;
    meaningful.then(|| (high - low) / 2.0 / value.abs())
}

/// The key by which rows form a table: the parameters' names, the unit, and what is measured.
fn kind(row: &Row) -> (Vec<&str>, &str, [Option<&str>; 4]) {
    let of = ["workload", "part", "measure", "figure"].map(|name| row.params.get(name));
    (row.params.names().collect(), &row.unit, of)
}

/// Returns a table's caption: the parameters that are the same in all its rows, and those that
/// differ.
pub(super) fn summary(group: &[&Row]) -> String {
    let first = group[0];
    let common = first.params.0.iter().filter(|(name, value)| {
        group.iter().all(|row| row.params.get(name) == Some(value.as_str()))
    });
    let common: Vec<String> =
        common.map(|(name, value)| format!("{} {value}", name.replace('_', " "))).collect();
    let varying: Vec<String> = varying(group).iter().map(|name| name.replace('_', " ")).collect();
    let common = if common.is_empty() { "all rows".to_owned() } else { common.join(", ") };
    match varying.is_empty() {
        true => common,
        false => format!("{common}: by {}", varying.join(", ")),
    }
}

/// Returns the names of the parameters that are not the same in all rows.
pub(super) fn varying<'a>(group: &[&'a Row]) -> Vec<&'a str> {
    let first = group[0];
    let differs =
        |name: &&str| group.iter().any(|row| row.params.get(name) != first.params.get(name));
    first.params.names().filter(differs).collect()
}

/// The value columns of a table.
enum Table<'a> {
    /// One per variant.
    Variants(Vec<&'a str>),
    /// One per value of this parameter, if there is only one variant.
    Values(&'a str, Vec<&'a str>),
}

impl<'a> Table<'a> {
    /// Chooses the columns for a group of rows.
    fn of(group: &[&'a Row]) -> Table<'a> {
        let first = |values: Vec<&'a str>| {
            let mut once: Vec<&str> = Vec::new();
            values.into_iter().for_each(|value| {
                if !once.contains(&value) {
                    once.push(value)
                }
            });
            once
        };
        let variants = first(group.iter().map(|row| row.variant.as_ref()).collect());
        match varying(group).as_slice() {
            [_, .., last] if variants.len() == 1 => {
                let values = group.iter().filter_map(|row| row.params.get(last)).collect();
                Table::Values(last, first(values))
            }
            _ => Table::Variants(variants),
        }
    }

    /// Returns the rows of each line.
    fn lines<'b>(&self, group: &[&'b Row]) -> Vec<Vec<&'b Row>> {
        let line = |row: &Row| -> Params {
            match self {
                Table::Variants(_) => row.params.clone(),
                Table::Values(name, _) => row.params.without(name),
            }
        };
        grouped(group, line)
    }

    /// Returns the names of the parameters to the left.
    fn names(&self, group: &[&'a Row]) -> Vec<&'a str> {
        let mut names = varying(group);
        if let Table::Values(across, _) = self {
            names.retain(|name| name != across);
        }
        names
    }

    /// Returns the heading of each value column.
    fn columns(&self) -> Vec<String> {
        match self {
            Table::Variants(variants) => variants.iter().map(|v| (*v).to_owned()).collect(),
            Table::Values(name, values) => {
                values.iter().map(|value| format!("{} {value}", name.replace('_', " "))).collect()
            }
        }
    }

    /// Finds the row of a line in the column at `place`.
    fn at<'b>(&self, place: usize, line: &[&'b Row]) -> Option<&'b Row> {
        let wanted = |row: &Row| match self {
            Table::Variants(variants) => row.variant == variants[place],
            Table::Values(name, values) => row.params.get(name) == Some(values[place]),
        };
        line.iter().copied().find(|row| wanted(row))
    }
}

/// Rows laid out as a table.
pub(super) struct Grid {
    /// The parameters that are the same in all its rows, and those that differ.
    pub(super) title: String,
    /// The names of the parameters, then the headings of the values.
    pub(super) heading: Vec<String>,
    /// How many of the columns are parameters.
    pub(super) params: usize,
    /// A cell for each column.
    pub(super) lines: Vec<Vec<String>>,
}

/// Lays out the rows of a group.
pub(super) fn grid(definition: &Definition, group: &[&Row]) -> Grid {
    let table = Table::of(group);
    let (names, columns) = (table.names(group), table.columns());
    let line = |rows: &Vec<&Row>| {
        let params = names.iter().map(|name| rows[0].params.get(name).unwrap_or("–"));
        let values = (0..columns.len()).map(|place| {
            table.at(place, rows).map_or_else(
                || "–".to_owned(),
                |row| {
                    let ratio = ratio(definition, rows, row).map(|ratio| format!(" ({ratio})"));
                    figure(row) + &ratio.unwrap_or_default()
                },
            )
        });
        params.map(str::to_owned).chain(values).collect()
    };
    let heads = names.iter().map(|name| name.replace('_', " "));
    Grid {
        title: summary(group),
        heading: heads.chain(columns.iter().cloned()).collect(),
        params: names.len(),
        lines: table.lines(group).iter().map(line).collect(),
    }
}

/// Writes a row's value and the spread of its samples.
pub(super) fn figure(row: &Row) -> String {
    let Some(value) = row.figure() else { return "no value".to_owned() };
    let half = half_spread(row, value).map(|half| format!(" {}", spread(half)));
    amount(value, &row.unit) + &half.unwrap_or_default()
}

/// Writes a row's ratio to the baseline of the same line.
fn ratio(definition: &Definition, line: &[&Row], row: &Row) -> Option<String> {
    let is_base = |other: &&&Row| {
        other.variant == definition.baseline
            && row.variant != other.variant
            && row.params == other.params
    };
    let base = line.iter().find(is_base)?;
    verdict(row, base)
}

/// The text in place of a figure that is too noisy.
pub(super) const NOISY: &str = "too noisy";
/// The widest range of a ratio, as the quotient of its ends, that is still informative: a ratio
/// between a half and two says nothing.
const RANGE_MAX: f64 = 4.0;

/// Writes a row's value as a multiple of another row's, or that it is too noisy, if the quartiles
/// of both allow for a half as well as for two.
pub(super) fn verdict(row: &Row, base: &Row) -> Option<String> {
    let ratio = row.figure()? / base.figure()?;
    let ranges = row.quartiles().zip(base.quartiles());
    let range =
        ranges.map(|((low, high), (base_low, base_high))| (high / base_low) / (low / base_high));
    match range {
        // A row compared with itself is equal, however noisy it is.
        Some(range) if range > RANGE_MAX && !std::ptr::eq(row, base) => Some(NOISY.to_owned()),
        _ => Some(ratio).filter(|ratio| ratio.is_finite()).map(times),
    }
}
