//! Plots as SVG, drawn by plotters.
//!
//! Of the crates that write SVG, plotters has the most users and no dependency but its own two
//! parts when its features are off: no fonts, no system library, three small crates to compile.
//! charming brings a browser's engine or a script that a reader must run; poloto draws no boxes;
//! hand-written SVG would make axes and labels ours to keep. What is here is what differs from
//! other people's plots: shapes and dashes beside colours, so that lines can be told apart in print
//! and by colour-blind eyes.

mod axis;
mod canvas;
mod lines;
mod strips;

pub(super) use canvas::Frame;
pub(super) use lines::{Curve, Point, Series, lines};
pub(super) use strips::{Strip, strips};
