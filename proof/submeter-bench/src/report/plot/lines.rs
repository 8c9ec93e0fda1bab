//! Line plots: how a figure changes with a parameter, and how often each time occurred.

use maud::Markup;
use plotters::prelude::*;

use super::axis::Axis;
use super::canvas::{self, Canvas, Drawn, Frame, Look};
use crate::report::format::tick;

/// How points are connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::report) enum Curve {
    /// Measured points with straight lines between them.
    Points,
    /// Steps: each value holds from its point to the next.
    Steps,
}

/// A named series of points with one look.
#[derive(Clone, Debug)]
pub(in crate::report) struct Series {
    pub(in crate::report) name: String,
    /// Its place among the table's variants, which decides how it looks in each plot.
    pub(in crate::report) look: usize,
    /// In ascending order.
    pub(in crate::report) points: Vec<Point>,
}

/// A measured point, and the quartiles of its samples.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in crate::report) struct Point {
    pub(in crate::report) x: f64,
    pub(in crate::report) y: f64,
    pub(in crate::report) quartiles: Option<(f64, f64)>,
}

/// Draws series over one pair of axes.
pub(in crate::report) fn lines(frame: &Frame, curve: Curve, series: &[Series]) -> Markup {
    let names: Vec<&str> = series.iter().map(|series| series.name.as_str()).collect();
    let (legend, legend_height) = canvas::legend_places(&names);
    canvas::figure(frame, 290 + legend_height, |canvas| {
        for (&at, series) in legend.iter().zip(series) {
            let marked = curve == Curve::Points;
            canvas::legend_entry(canvas, at, Look::of(series.look), &series.name, marked)?;
        }
        let (_, plot) = canvas.split_vertically(legend_height);
        curves(canvas, &plot, frame, curve, series)
    })
}

fn curves(
    canvas: &Canvas<'_>,
    plot: &Canvas<'_>,
    frame: &Frame,
    curve: Curve,
    series: &[Series],
) -> Drawn {
    let points = || series.iter().flat_map(|series| &series.points);
    let (x_axis, y_axis) = match curve {
        Curve::Points => (
            Axis::of_choices(points().map(|point| point.x)),
            Axis::of_values(points().map(|point| point.y)),
        ),
        // Most times are short, and the few long ones matter: only logarithmic axes show both.
        Curve::Steps => {
            let ends = |of: fn(&Point) -> f64| {
                let values = points().map(of).filter(|value| *value > 0.0);
                let low = values.clone().fold(f64::INFINITY, f64::min);
                (low, values.fold(low, f64::max))
            };
            let ((left, right), (bottom, top)) = (ends(|point| point.x), ends(|point| point.y));
            let right = right.max(left * 1.01);
            (Axis::logarithmic(left, right), Axis::logarithmic(bottom / 2.0, top * 1.5))
        }
    };
    let mut chart = ChartBuilder::on(plot)
        .margin(8)
        .margin_right(18)
        .x_label_area_size(40)
        .y_label_area_size(58)
        .build_cartesian_2d(x_axis, y_axis)?;
    chart
        .configure_mesh()
        .light_line_style(TRANSPARENT)
        .bold_line_style(BLACK.mix(0.15))
        .axis_style(BLACK.mix(0.5))
        .label_style(canvas::label_font())
        .x_label_formatter(&|value| tick(*value, &frame.across_unit))
        .y_label_formatter(&|value| tick(*value, &frame.up_unit))
        .x_desc(frame.across.as_str())
        .y_desc(frame.up.as_str())
        .draw()?;
    for series in series {
        let look = Look::of(series.look);
        let at = |x: f64, y: f64| chart.backend_coord(&(x, y));
        let mut path = Vec::new();
        for (before, point) in before_each(&series.points) {
            if let (Curve::Steps, Some(before)) = (curve, before) {
                path.push(at(point.x, before.y));
            }
            path.push(at(point.x, point.y));
        }
        look.line(canvas, path)?;
        for point in series.points.iter().filter(|_| curve == Curve::Points) {
            if let Some((low, high)) = point.quartiles {
                let ends = vec![at(point.x, low), at(point.x, high)];
                canvas.draw(&PathElement::new(ends, look.colour().stroke_width(1)))?;
            }
            look.mark(canvas, at(point.x, point.y))?;
        }
    }
    Ok(())
}

/// Returns each point with the one before it.
fn before_each(points: &[Point]) -> impl Iterator<Item = (Option<&Point>, &Point)> {
    let before = std::iter::once(None).chain(points.iter().map(Some));
    before.zip(points)
}
