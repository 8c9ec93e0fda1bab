//! Plots as SVG, drawn by plotters.
//!
//! Of the crates that write SVG, plotters has the most users and, with its features off, no
//! dependencies but its own two parts: no fonts, no system library, three small crates to compile.
//! charming needs a browser engine or a script in the page; poloto draws no boxes; with
//! hand-written SVG we would maintain axes and labels ourselves. This module adds what plotters
//! lacks: dashes in addition to colours, so that lines can be told apart in print and by
//! colour-blind readers.

mod axis;
mod canvas;
mod lines;
mod strips;

pub(super) use canvas::{Drawn, Frame};
pub(super) use lines::{Point, Series, lines};
pub(super) use strips::{Strip, strips};
