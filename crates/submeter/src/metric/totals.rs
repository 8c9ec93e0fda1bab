//! The totals of a process, as they are read and restored.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::SystemTime;

/// The totals of one process at one moment, as [`Tree::totals`](crate::Tree::totals) returns them.
///
/// Totals only grow. Of two with the same epoch, the one with the larger sequence includes the
/// other. So a reader that keeps the latest totals of each epoch and adds up the epochs has each
/// count once, even if some were read twice, late or not at all.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Totals {
    /// A number that identifies the tree among those of all processes: random, and never used
    /// again.
    ///
    /// A forked child has its parent's number and counts, so a reader takes the two for one. If
    /// totals are to be added up, make trees after the fork.
    pub epoch: u64,
    /// The number of the moment among those of the tree.
    pub sequence: u64,
    /// When the totals were read, by the clock of the process.
    pub at: SystemTime,
    /// The epochs whose totals were restored, and which therefore have ended.
    pub follows: Vec<u64>,
    /// Whether nothing was counted afterwards. If `false`, that is unknown.
    pub is_complete: bool,
    /// Root first, each before its children.
    pub groups: Vec<GroupTotals>,
}

/// The counts of one group in one process, with its descendants, killed ones included.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct GroupTotals {
    /// The same as [`GroupValues::id`](crate::GroupValues::id): a later group with the same path
    /// has another id.
    pub id: u64,
    /// The id of the group above.
    pub parent: Option<u64>,
    /// The path.
    pub path: Arc<str>,
    /// The value of each counter, in the order of the schema.
    pub counters: Vec<u64>,
}

/// Totals of a checkpoint, in the tree that they were added to.
pub(crate) struct Restored {
    /// The counts of the process that wrote the checkpoint, then of those before it.
    pub(crate) past: Vec<Totals>,
    /// The amounts added to groups of this tree, descendants included, by the group's id, in the
    /// form of a snapshot's words.
    pub(crate) base: HashMap<u64, Box<[i64]>>,
    /// The same without descendants.
    #[cfg(feature = "export")]
    pub(crate) own: HashMap<u64, Box<[i64]>>,
}
