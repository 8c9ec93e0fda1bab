//! What the server sends: a line of JSON each interval and between, with totals since the
//! connection was made.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// All totals at one moment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct TotalsDoc {
    /// Since the count began.
    pub(crate) elapsed_ns: u64,
    /// Whether an interval ends here; if not, the totals are for a reader that stops before one
    /// does.
    pub(crate) is_due: bool,
    /// Threads that have counted.
    pub(crate) threads: usize,
    /// In the order in which they were asked for, event by event.
    pub(crate) counts: Vec<CountDoc>,
}

/// What one event has counted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct CountDoc {
    /// The group's path, or nothing for the whole process.
    pub(crate) group: Option<String>,
    /// In perf's syntax.
    pub(crate) event: String,
    #[serde(flatten)]
    pub(crate) state: StateDoc,
    /// How long it could have counted, in CPU time of threads.
    pub(crate) enabled_ns: u64,
    /// How long of that it did.
    pub(crate) running_ns: u64,
}

/// What came of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub(crate) enum StateDoc {
    /// It was on a counter for `running_ns`.
    Counted {
        /// As it was read: not scaled.
        value: u64,
    },
    /// It never was.
    NotCounted,
    /// It cannot be counted.
    NotSupported {
        /// And what would help.
        reason: String,
    },
    /// Something is missing; how much is unknown.
    Error {
        /// And what would help.
        reason: String,
    },
}

impl TotalsDoc {
    pub(crate) fn elapsed(&self) -> Duration {
        Duration::from_nanos(self.elapsed_ns)
    }
}
