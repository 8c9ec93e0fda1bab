//! Writes snapshots in formats that other systems read.

mod names;
mod openmetrics;

pub use openmetrics::{OPENMETRICS_CONTENT_TYPE, openmetrics, openmetrics_backend};
