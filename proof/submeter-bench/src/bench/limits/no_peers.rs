//! The peers in a build without the feature `peers`.

use super::{Expected, Setting};
use crate::bench::runner::{Absent, Cell};
use crate::row::Params;

/// No peers, and the reason.
pub(super) struct Peers {
    pub(super) absent: Vec<Absent>,
}

impl Peers {
    /// Makes the list of absent peers, with the command that builds them.
    pub(super) fn new() -> Peers {
        Peers { absent: Absent::peers().into_iter().collect() }
    }

    /// Returns none.
    pub(super) fn cells(&self, _: &Params, _: &Setting<'_>, _: Expected) -> Vec<Cell> {
        Vec::new()
    }
}
