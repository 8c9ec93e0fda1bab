//! The peers, as the table takes them.

use super::{Case, Subject};

/// Returns all peers that count in this process.
pub(super) fn subjects() -> impl Iterator<Item = Subject> {
    submeter_peers::peers().into_iter().map(|peer| {
        let submeter_peers::Peer { variant, case, count, totals } = peer;
        let case = match case {
            submeter_peers::Case::Held => Case::Held,
            submeter_peers::Case::Lookup => Case::Lookup,
            submeter_peers::Case::Levels => Case::Levels,
        };
        Subject { variant, case, count, totals }
    })
}
