//! The peers.

use submeter_peers::Peer;

use super::{Case, Subject};

/// Returns new counters of all peers.
pub(super) fn subjects() -> impl Iterator<Item = Subject> {
    submeter_peers::peers().into_iter().map(|Peer { variant, case, count, totals }| {
        let case = match case {
            submeter_peers::Case::Held => Case::Held,
            submeter_peers::Case::Lookup => Case::Lookup,
            submeter_peers::Case::Levels => Case::Levels,
        };
        Subject { variant, case, count, totals }
    })
}
