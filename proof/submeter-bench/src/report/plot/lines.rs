//! Line plots: how a figure changes with a parameter.

use plotters::prelude::*;

use super::axis::Axis;
use super::canvas::{self, Canvas, Drawn, Frame, Look};
use crate::report::format::tick;

/// A named series of points.
#[derive(Clone, Debug)]
pub(in crate::report) struct Series {
    pub(in crate::report) name: String,
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
pub(in crate::report) fn lines(frame: &Frame, series: &[Series]) -> Drawn<String> {
    let names: Vec<&str> = series.iter().map(|series| series.name.as_str()).collect();
    let (legend, legend_height) = canvas::legend_places(&names);
    canvas::svg(frame, 290 + legend_height, |canvas| {
        for (place, (&at, name)) in legend.iter().zip(&names).enumerate() {
            canvas::legend_entry(canvas, at, Look::of(place), name)?;
        }
        let (_, plot) = canvas.split_vertically(legend_height);
        curves(canvas, &plot, frame, series)
    })
}

fn curves(canvas: &Canvas<'_>, plot: &Canvas<'_>, frame: &Frame, series: &[Series]) -> Drawn {
    let points = || series.iter().flat_map(|series| &series.points);
    let x_axis = Axis::of_choices(points().map(|point| point.x));
    let y_axis = Axis::of_values(points().map(|point| point.y));
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
    for (place, series) in series.iter().enumerate() {
        let look = Look::of(place);
        let at = |x: f64, y: f64| chart.backend_coord(&(x, y));
        look.line(canvas, series.points.iter().map(|point| at(point.x, point.y)).collect())?;
        for point in &series.points {
            if let Some((low, high)) = point.quartiles {
                let ends = vec![at(point.x, low), at(point.x, high)];
                canvas.draw(&PathElement::new(ends, look.colour().stroke_width(1)))?;
            }
            canvas.draw(&Circle::new(at(point.x, point.y), 3, look.colour().filled()))?;
        }
    }
    Ok(())
}
