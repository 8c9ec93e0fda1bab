//! A sample: one copy of the tree, with everything computed from it and the copy before.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use submeter::{GroupValues, Snapshot};

use super::views::Views;
use super::wire::Figure;

/// One copy of the tree with everything computed from it.
pub(super) struct Sample {
    pub(super) number: u64,
    pub(super) now: Arc<Indexed>,
    pub(super) window: Duration,
    pub(super) views: Views,
    /// By the group's index in the snapshot.
    pub(super) rows: Vec<Row>,
    /// CPU time of the whole process at that moment, in nanoseconds.
    pub(super) process_ns: u64,
    /// Processors that the process used since the sample before.
    pub(super) process: f64,
    /// The previous sample, against which rates are computed.
    pub(super) before: Option<Arc<Indexed>>,
}

/// A snapshot whose groups are found by path at once.
pub(super) struct Indexed {
    pub(super) snapshot: Snapshot,
    pub(super) index: HashMap<Box<str>, usize>,
}

impl Indexed {
    /// Indexes a snapshot.
    pub(super) fn new(snapshot: Snapshot) -> Indexed {
        let groups = snapshot.groups().iter().enumerate();
        let index = groups.map(|(at, group)| (group.path().into(), at)).collect();
        Indexed { snapshot, index }
    }

    /// Finds a group of another snapshot. A killed group is not the same as its successor of that
    /// path.
    pub(super) fn same(&self, group: &GroupValues) -> Option<&GroupValues> {
        self.place(group).map(|at| &self.snapshot.groups()[at])
    }

    /// Returns the index of that group.
    pub(super) fn place(&self, group: &GroupValues) -> Option<usize> {
        let at = self.index.get(group.path()).copied();
        at.filter(|&at| self.snapshot.groups()[at].id() == group.id())
    }
}

/// One group in a sample.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Row {
    /// Stays the same as long as a group of this path exists.
    pub(super) id: u32,
    pub(super) parent: Option<u32>,
    /// In the order of the views.
    pub(super) figures: Box<[Figure]>,
}

/// Whether two snapshots of a tree have the same metrics.
pub(super) fn have_same_metrics(one: &Snapshot, other: &Snapshot) -> bool {
    // A schema only grows.
    one.schema().metrics().len() == other.schema().metrics().len()
}

impl Sample {
    /// The values of a group one sample earlier.
    pub(super) fn before(&self, group: &GroupValues) -> Option<&GroupValues> {
        self.before.as_ref()?.same(group)
    }

    /// Whether the tree has the same metrics as one sample earlier.
    pub(super) fn has_same_metrics(&self) -> bool {
        let before = self.before.as_deref();
        before.is_some_and(|before| have_same_metrics(&before.snapshot, &self.now.snapshot))
    }

    /// Wall-clock time, in ms since 1970.
    pub(super) fn at_ms(&self) -> u64 {
        unix_ms(self.now.snapshot.system_time())
    }

    /// The row of a group.
    pub(super) fn row(&self, path: &str) -> Option<&Row> {
        self.now.index.get(path).map(|&at| &self.rows[at])
    }
}

/// Milliseconds since 1970, as JavaScript counts.
pub(super) fn unix_ms(time: SystemTime) -> u64 {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
