//! Strip plots: a line for each variant, with its value and the spread of its samples.

use plotters::prelude::*;

use super::axis::Axis;
use super::canvas::{self, Canvas, Drawn, Frame, Look};
use crate::report::format::tick;

/// A variant's value and samples.
#[derive(Clone, Debug)]
pub(in crate::report) struct Strip {
    pub(in crate::report) name: String,
    /// Its place among the table's variants, which decides its colour in each plot.
    pub(in crate::report) look: usize,
    pub(in crate::report) value: f64,
    /// The quantiles 5 %, 25 %, 75 % and 95 % of the samples.
    pub(in crate::report) spread: Option<[f64; 4]>,
}

/// Draws a bar from zero for each value, or a point if values differ too much for bars; over it, a
/// box between the quartiles with whiskers to 5 % and 95 %.
pub(in crate::report) fn strips(frame: &Frame, strips: &[Strip]) -> Drawn<String> {
    let height = 60 + 30 * strips.len() as u32;
    canvas::svg(frame, height, |canvas| draw(canvas, frame, strips))
}

fn draw(canvas: &Canvas<'_>, frame: &Frame, strips: &[Strip]) -> Drawn {
    let values = strips.iter().flat_map(|strip| {
        let ends = strip.spread.into_iter().flat_map(|spread| [spread[0], spread[3]]);
        ends.chain([strip.value])
    });
    let axis = Axis::of_values(values);
    let (start, logarithmic) = (axis.start(), axis.is_logarithmic());
    let widest = strips.iter().map(|strip| canvas::label_width(&strip.name)).max();
    let mut chart = ChartBuilder::on(canvas)
        .margin(8)
        .margin_right(26)
        .x_label_area_size(40)
        .y_label_area_size(widest.unwrap_or_default().clamp(40, 200) + 14)
        .build_cartesian_2d(axis, Axis::of_lines(strips.len()))?;
    let name = |line: &f64| {
        let strip = strips.get(-*line as usize);
        strip.map(|strip| strip.name.clone()).unwrap_or_default()
    };
    chart
        .configure_mesh()
        .disable_y_mesh()
        .light_line_style(TRANSPARENT)
        .bold_line_style(BLACK.mix(0.15))
        .axis_style(BLACK.mix(0.5))
        .label_style(canvas::label_font())
        .x_label_formatter(&|value| tick(*value, &frame.across_unit))
        .y_label_formatter(&name)
        .x_desc(frame.across.as_str())
        .draw()?;
    for (line, strip) in strips.iter().enumerate() {
        let at = |value: f64| chart.backend_coord(&(value, -(line as f64)));
        let colour = Look::of(strip.look).colour();
        let (x, y) = at(strip.value);
        if !logarithmic {
            let (begin, _) = at(start);
            let bar = [(begin, y - 9), (x, y + 9)];
            canvas.draw(&Rectangle::new(bar, colour.mix(0.35).filled()))?;
        }
        if let Some([low, first, third, high]) = strip.spread {
            let whisker = vec![at(low), at(high)];
            canvas.draw(&PathElement::new(whisker, colour.stroke_width(1)))?;
            let (left, right) = (at(first).0, at(third).0);
            let quartiles = [(left, y - 6), (right.max(left + 1), y + 6)];
            canvas.draw(&Rectangle::new(quartiles, colour.mix(0.6).filled()))?;
        }
        let value = vec![(x, y - 9), (x, y + 9)];
        canvas.draw(&PathElement::new(value, colour.stroke_width(3)))?;
    }
    Ok(())
}
