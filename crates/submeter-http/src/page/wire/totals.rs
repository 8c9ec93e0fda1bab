//! The answer of `/api/totals`: what to bill.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The version of the JSON: it changes when a member goes or gets another meaning.
pub const FORMAT: u32 = 1;

/// What a program has counted, and those before it whose totals it restored.
///
/// No count is in two readings. Of two with the same epoch, the one with the larger sequence has
/// all that the other has: who keeps the last of each epoch and adds up the epochs has each count
/// once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TotalsDoc<R = Vec<ReadingDoc>> {
    /// The [`FORMAT`] of the server.
    pub format: u32,
    /// The program's name among those that are billed together.
    pub member: String,
    /// The unit of each counter: `count`, `bytes` or `nanoseconds`.
    pub units: BTreeMap<String, String>,
    /// The program's own, then those of checkpoints.
    pub readings: R,
}

/// What one process has counted at one moment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReadingDoc<G = Vec<GroupTotalsDoc>> {
    /// The number of the tree among those of all processes, in hexadecimal: random, and never used
    /// again.
    pub epoch: String,
    /// The number of the moment among those of the tree.
    pub sequence: u64,
    /// When the process began, in ms since 1970; `None` for one whose totals were restored.
    pub started_ms: Option<u64>,
    /// When it was read, in ms since 1970.
    pub at_ms: u64,
    /// The epochs whose totals it restored, and which therefore have ended.
    pub follows: Vec<String>,
    /// Whether nothing was counted afterwards. If not, that is unknown.
    pub complete: bool,
    /// Root first, each before its children.
    pub groups: G,
}

/// What a group counted in one process, with its descendants: those that were deleted too.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupTotalsDoc {
    /// Another group that has the same path later has another one.
    pub id: u64,
    /// The id of the group above.
    pub parent: Option<u64>,
    /// From the root, as in `/acme/web`.
    pub path: String,
    /// By counter.
    pub totals: BTreeMap<String, u64>,
}
