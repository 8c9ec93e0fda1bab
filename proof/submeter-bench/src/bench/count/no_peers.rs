//! The peers in a build without the feature `peers`.

use super::{Case, Subject};
use crate::bench::runner::{Absent, Cell};

/// No peers, and the reason.
pub(super) struct Peers {
    /// The absent peers.
    pub(super) absent: Vec<Absent>,
}

impl Peers {
    /// Makes the list of absent peers, with the command that builds them.
    pub(super) fn new() -> Peers {
        let reason = "this program was built without peers: cargo build --release -p submeter-bench \
            --features peers";
        Peers { absent: vec![Absent { variant: "peers", reason: reason.to_owned() }] }
    }

    /// Returns none.
    pub(super) fn subjects(&self) -> Vec<Subject> {
        Vec::new()
    }

    /// Returns none.
    pub(super) fn cells(&self, _: Case, _: &'static str, _: &[usize]) -> Vec<Cell> {
        Vec::new()
    }
}
