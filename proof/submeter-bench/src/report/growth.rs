//! How a cost grows: a straight line through the measurements, shown beside them, and where they
//! leave it. What a larger machine would pay is extrapolated from the line, never measured.

use super::contest::EVEN;
use super::definition::{Definition, Growth};
use super::format::{amount, digits, percent};
use super::record::Record;
use crate::row::Row;

pub(super) const TITLE: &str = "How it grows";

/// A measurement that exceeds the line through the earlier ones by this factor has left it: the
/// scatter of one row between runs stays below half of that.
const LEAVES: f64 = 1.5;
/// With fewer points it is unknown whether they are on a line.
const POINTS_MIN: usize = 3;

/// The costs of one variant: nanoseconds at each size, from the smallest.
struct Costs<'a> {
    variant: &'a str,
    points: Vec<(f64, f64)>,
}

/// A cost of `fixed + each * n`.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Line {
    fixed: f64,
    each: f64,
}

impl Line {
    /// Returns the line with the smallest sum of squared relative errors: with absolute errors the
    /// largest size alone would decide. No cost falls as sizes grow, and none is negative.
    fn through(points: &[(f64, f64)]) -> Option<Line> {
        let weighted = |of: &dyn Fn(f64, f64) -> f64| -> f64 {
            points.iter().map(|&(n, ns)| of(n, ns) / (ns * ns)).sum()
        };
        let (w, wn, wnn) = (weighted(&|_, _| 1.0), weighted(&|n, _| n), weighted(&|n, _| n * n));
        let (wy, wny) = (weighted(&|_, ns| ns), weighted(&|n, ns| n * ns));
        let determinant = w * wnn - wn * wn;
        let line = Line {
            fixed: (wy * wnn - wn * wny) / determinant,
            each: (w * wny - wn * wy) / determinant,
        };
        let line = match line {
            Line { each, .. } if each < 0.0 => Line { fixed: wy / w, each: 0.0 },
            Line { fixed, .. } if fixed < 0.0 => Line { fixed: 0.0, each: wny / wnn },
            line => line,
        };
        (points.len() >= POINTS_MIN && line.fixed.is_finite() && line.each.is_finite())
            .then_some(line)
    }

    fn at(self, n: f64) -> f64 {
        self.fixed + self.each * n
    }
}

impl Costs<'_> {
    /// Returns the line of the sizes before the first that leaves it, and that one.
    fn line(&self) -> Option<(Line, Option<(f64, f64)>)> {
        for end in POINTS_MIN..self.points.len() {
            let line = Line::through(&self.points[..end])?;
            let (n, ns) = self.points[end];
            if ns > LEAVES * line.at(n) {
                return Some((line, Some((n, ns))));
            }
        }
        Some((Line::through(&self.points)?, None))
    }
}

/// Returns a heading, and a line for each variant that the definition names and the record has.
pub(super) fn tables<'a>(
    record: &'a Record,
    definition: &'a Definition,
) -> impl Iterator<Item = ([String; 6], Vec<[String; 6]>)> {
    let table = |growth: &'a Growth| {
        let costs: Vec<Costs> = growth
            .variants
            .iter()
            .map(|variant| costs(record, definition, growth, variant))
            .filter(|costs| costs.points.len() >= POINTS_MIN)
            .collect();
        let by = growth.by.replace('_', " ");
        let heading = [
            growth.params.to_string(),
            "fixed".to_owned(),
            format!("for each of {by}"),
            "farthest from the line".to_owned(),
            "leaves the line".to_owned(),
            "ahead".to_owned(),
        ];
        let first = costs.first()?;
        let lines: Vec<_> = costs.iter().filter_map(|own| described(own, first)).collect();
        (!lines.is_empty()).then_some((heading, lines))
    };
    definition.growth.iter().filter_map(table)
}

fn costs<'a>(
    record: &Record,
    definition: &Definition,
    growth: &Growth,
    variant: &'a str,
) -> Costs<'a> {
    let rows = record.table(&definition.table);
    let rows = rows.filter(|row| row.variant == variant && row.params.has(&growth.params));
    let point = |row: &Row| Some((row.params.get(&growth.by)?.parse().ok()?, ns(row)?));
    let mut points: Vec<(f64, f64)> = rows.filter_map(point).collect();
    points.sort_by(|one, other| one.0.total_cmp(&other.0));
    Costs { variant, points }
}

/// Returns how long one operation of a row takes.
fn ns(row: &Row) -> Option<f64> {
    let value = row.figure().filter(|value| *value > 0.0)?;
    match &*row.unit {
        "ns" => Some(value),
        "us" => Some(value * 1e3),
        unit if unit.ends_with("/s") => Some(1e9 / value),
        _ => None,
    }
}

fn described(own: &Costs, first: &Costs) -> Option<[String; 6]> {
    let (line, left) = own.line()?;
    let on_it = own.points.iter().filter(|point| left.is_none_or(|left| point.0 < left.0));
    let errors = on_it.map(|&(n, ns)| (n, ns / line.at(n) - 1.0));
    let (at, error) = errors.max_by(|one, other| one.1.abs().total_cmp(&other.1.abs()))?;
    let left = left.map_or_else(
        || "–".to_owned(),
        |(n, ns)| format!("at {n}: {}, not {}", amount(ns, "ns"), amount(line.at(n), "ns")),
    );
    // A slope that is lost in the noise of the fixed part is not given with six decimals.
    let largest = own.points.last().map_or(0.0, |(n, _)| *n);
    let each = if line.each * largest < line.fixed / 100.0 { 0.0 } else { line.each };
    let sign = if error < 0.0 { "−" } else { "+" };
    Some([
        own.variant.to_owned(),
        amount(line.fixed, "ns"),
        amount(each, "ns"),
        format!("{sign}{} at {at}", percent(error.abs())),
        left,
        ahead(own, first),
    ])
}

/// Returns at which of the measured sizes the first variant is ahead of another.
fn ahead(own: &Costs, first: &Costs) -> String {
    if std::ptr::eq(own, first) {
        return "–".to_owned();
    }
    let both = own.points.iter().filter_map(|&(n, ns)| {
        let (_, of_first) = first.points.iter().find(|(size, _)| *size == n)?;
        Some((n, ns / *of_first))
    });
    let both: Vec<(f64, f64)> = both.collect();
    let at = |variant: &str, wins: &dyn Fn(f64) -> bool| {
        let sizes = both.iter().filter(|(_, ratio)| wins(*ratio)).map(|(n, _)| digits(*n));
        let sizes: Vec<String> = sizes.collect();
        match sizes.len() {
            0 => None,
            n if n == both.len() => Some(format!("{variant} at every size")),
            _ => Some(format!("{variant} at {}", sizes.join(", "))),
        }
    };
    let said = [
        at(first.variant, &|ratio| ratio > 1.0 + EVEN),
        at(own.variant, &|ratio| ratio < 1.0 - EVEN),
    ];
    let said: Vec<String> = said.into_iter().flatten().collect();
    if said.is_empty() { "neither".to_owned() } else { said.join("; ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn costs(points: &[(f64, f64)]) -> Costs<'static> {
        Costs { variant: "ours", points: points.to_vec() }
    }

    #[test]
    fn a_line_is_found_that_the_points_lie_on() {
        let points: Vec<(f64, f64)> =
            [1.0, 2.0, 8.0, 512.0].iter().map(|&n| (n, 20.0 + 3.0 * n)).collect();
        let (line, left) = costs(&points).line().expect("points");
        assert!((line.fixed - 20.0).abs() < 1e-6 && (line.each - 3.0).abs() < 1e-6, "{line:?}");
        assert_eq!(left, None);
    }

    #[test]
    fn what_leaves_the_line_does_not_bend_it() {
        let points = [(1.0, 23.0), (2.0, 26.0), (4.0, 32.0), (8.0, 44.0), (16.0, 200.0)];
        let (line, left) = costs(&points).line().expect("points");
        assert!((line.each - 3.0).abs() < 1e-6, "{line:?}");
        assert_eq!(left, Some((16.0, 200.0)));
        let said = described(&costs(&points), &costs(&points)).expect("a line");
        assert!(said[4].starts_with("at 16: 200\u{a0}ns, not 68"), "{said:?}");
    }

    /// A falling cost is treated as constant; one through zero has no fixed part.
    #[test]
    fn a_falling_cost_is_constant() {
        let falls = Line::through(&[(1.0, 10.0), (2.0, 9.9), (4.0, 9.8)]).expect("points");
        assert!(falls.each == 0.0 && (9.8..10.0).contains(&falls.fixed), "{falls:?}");
        let steep = Line::through(&[(1.0, 1.0), (2.0, 4.0), (4.0, 16.0)]).expect("points");
        assert!(steep.fixed == 0.0 && steep.each > 1.0, "{steep:?}");
    }

    #[test]
    fn two_points_are_no_line() {
        assert_eq!(Line::through(&[(1.0, 1.0), (2.0, 2.0)]), None);
        assert!(costs(&[(1.0, 1.0), (2.0, 2.0)]).line().is_none());
    }

    #[test]
    fn the_sizes_where_the_first_is_ahead_are_named() {
        let first = costs(&[(1.0, 1.0), (2.0, 2.0), (4.0, 9.0)]);
        let of = |points: &[(f64, f64)]| {
            ahead(&Costs { variant: "theirs", points: points.to_vec() }, &first)
        };
        assert_eq!(of(&[(1.0, 3.0), (2.0, 3.0), (4.0, 3.0)]), "ours at 1, 2; theirs at 4");
        assert_eq!(of(&[(1.0, 1.01), (2.0, 3.0)]), "ours at 2");
        assert_eq!(of(&[(1.0, 1.01)]), "neither");
        assert_eq!(of(&[(1.0, 3.0), (2.0, 3.0)]), "ours at every size");
        assert_eq!(of(&[(1.0, 0.5)]), "theirs at every size");
    }
}
