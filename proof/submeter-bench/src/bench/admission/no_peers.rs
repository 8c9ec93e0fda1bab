//! The peers in a build without the feature `peers`.

use super::Call;
use crate::bench::runner::Absent;

/// Returns none.
pub(super) fn calls() -> Vec<Call> {
    Vec::new()
}

/// Returns why, with the command that builds them.
pub(super) fn absent() -> Vec<Absent> {
    let reason = "this program was built without peers: cargo build --release -p submeter-bench \
        --features peers";
    vec![Absent { variant: "peers", reason: reason.to_owned() }]
}
