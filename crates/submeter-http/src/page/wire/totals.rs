//! The answer of `/api/totals`: everything to bill.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The version of the JSON: it changes when a member is removed or changes its meaning.
pub const FORMAT: u32 = 1;

/// The counts of a program, and of programs before it whose totals it restored.
///
/// No count is in two readings. Of two readings with the same epoch, the one with the larger
/// sequence contains everything in the other: keeping the last reading of each epoch and adding up
/// the epochs yields each count once.
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

/// What one process had counted at one moment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReadingDoc<G = Vec<GroupTotalsDoc>> {
    /// The number of the tree among those of all processes, in hexadecimal: random, and never used
    /// again.
    pub epoch: String,
    /// The number of the moment among those of the tree.
    pub sequence: u64,
    /// When the process began, in ms since 1970; `None` for one whose totals were restored.
    pub started_ms: Option<u64>,
    /// Time of the reading, in ms since 1970.
    pub at_ms: u64,
    /// The epochs whose totals it restored, and which therefore have ended.
    pub follows: Vec<String>,
    /// Whether nothing was counted afterwards. If false, that is unknown.
    pub complete: bool,
    /// Root first, each before its children.
    pub groups: G,
}

/// What a group counted in one process, with its descendants, including deleted ones.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupTotalsDoc {
    /// A later group of the same path has a different id.
    pub id: u64,
    /// The id of the group above.
    pub parent: Option<u64>,
    /// From the root, as in `/acme/web`.
    pub path: String,
    /// By counter.
    pub totals: BTreeMap<String, u64>,
}
