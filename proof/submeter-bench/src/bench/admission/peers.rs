//! Limiters of other libraries, in this process.

use submeter_peers::gates::{Gate, gates};

use super::Call;
use crate::bench::runner::Absent;

/// Returns a call for each of them.
pub(super) fn calls() -> Vec<Call> {
    gates().map(|Gate { variant, start }| (variant, start)).to_vec()
}

/// Returns none: all are compiled in.
pub(super) fn absent() -> Vec<Absent> {
    Vec::new()
}
