//! The common parts of all plots: a size, the looks of series, and words for screen readers.

use std::error::Error;

use maud::html;
use plotters::coord::Shift;
use plotters::element::DashedPathElement;
use plotters::prelude::*;
use plotters::style::FontDesc;

/// A plot's area. Writing to a string cannot fail, but plotters' types say that it can.
pub(super) type Canvas<'a> = DrawingArea<SVGBackend<'a>, Shift>;
pub(in crate::report) type Drawn<T = ()> = Result<T, Box<dyn Error>>;

/// Two plots fit side by side on a screen or on paper, and one is still legible on a phone.
pub(super) const WIDTH: u32 = 500;

/// The texts around a plot.
#[derive(Clone, Debug, Default)]
pub(in crate::report) struct Frame {
    /// Its caption.
    pub(in crate::report) title: String,
    /// A description in words, where no table is beside it.
    pub(in crate::report) description: String,
    /// The horizontal axis's label.
    pub(in crate::report) across: String,
    pub(in crate::report) across_unit: String,
    /// The vertical axis's label.
    pub(in crate::report) up: String,
    pub(in crate::report) up_unit: String,
}

/// Draws `height` pixels with `draw`, on white, as the text of a file.
pub(super) fn svg(
    frame: &Frame,
    height: u32,
    draw: impl FnOnce(&Canvas<'_>) -> Drawn,
) -> Drawn<String> {
    let mut svg = String::new();
    {
        let canvas = SVGBackend::with_string(&mut svg, (WIDTH, height)).into_drawing_area();
        canvas.fill(&WHITE)?;
        draw(&canvas)?;
        canvas.present()?;
    }
    let described = html! {
        title { (frame.title) }
        @if !frame.description.is_empty() { desc { (frame.description) } }
    };
    let described = described.into_string();
    let (tag, rest) = svg.split_once('>').ok_or("plotters drew nothing")?;
    Ok(format!("{tag}>{described}{rest}"))
}

/// Returns the text style of labels. Plotters divides the given size by 1.24.
pub(super) fn label_font() -> FontDesc<'static> {
    ("sans-serif", 15).into_font()
}

/// Returns the approximate width of a label of `text`.
pub(super) fn label_width(text: &str) -> u32 {
    text.chars().count() as u32 * 7
}

/// The look of a series, which its place among the others decides.
#[derive(Clone, Copy, Debug)]
pub(super) struct Look {
    place: usize,
}

/// Colours that colour-blind eyes tell apart (after Okabe and Ito), none too light for paper.
const COLOURS: [RGBColor; 8] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 0, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(230, 159, 0),
    RGBColor(86, 180, 233),
    RGBColor(120, 120, 120),
];

/// Dashes, as pixels drawn and left out.
const DASHES: [Option<(u32, u32)>; 3] = [None, Some((7, 4)), Some((2, 3))];

impl Look {
    pub(super) fn of(place: usize) -> Look {
        Look { place }
    }

    pub(super) fn colour(self) -> RGBColor {
        COLOURS[self.place % COLOURS.len()]
    }

    /// Draws a line through `points`; the first series is the thickest.
    pub(super) fn line(self, canvas: &Canvas<'_>, points: Vec<(i32, i32)>) -> Drawn {
        let width = if self.place == 0 { 3 } else { 2 };
        let style = self.colour().stroke_width(width);
        match DASHES[self.place % DASHES.len()] {
            None => canvas.draw(&PathElement::new(points, style))?,
            Some((drawn, left)) => {
                let path = DashedPathElement::new(points, drawn, left, style);
                canvas.draw(&path)?;
            }
        }
        Ok(())
    }
}

/// Returns the places of a legend's entries, and its height.
pub(super) fn legend_places(names: &[&str]) -> (Vec<(i32, i32)>, u32) {
    const LINE: u32 = 20;
    let (mut x, mut y) = (8, LINE / 2);
    let mut places = Vec::new();
    for name in names {
        let width = 40 + label_width(name) + 10;
        if x > 8 && x + width > WIDTH {
            (x, y) = (8, y + LINE);
        }
        places.push((x as i32, y as i32));
        x += width;
    }
    (places, y + LINE / 2 + 4)
}

/// Draws an entry of a legend.
pub(super) fn legend_entry(
    canvas: &Canvas<'_>,
    (x, y): (i32, i32),
    look: Look,
    name: &str,
) -> Drawn {
    look.line(canvas, vec![(x, y), (x + 32, y)])?;
    canvas.draw(&Text::new(name.to_owned(), (x + 38, y - 5), label_font()))?;
    Ok(())
}
