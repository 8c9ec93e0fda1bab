//! The server's stream: a line of JSON per interval, and more in between, with totals since the
//! connection was made.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// All totals at one point in time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct TotalsDoc {
    /// The time since the count began.
    pub(crate) elapsed_ns: u64,
    /// Whether an interval ends here. If not, the totals are for a reader that stops before the
    /// interval ends.
    pub(crate) is_due: bool,
    /// The number of threads that have counted.
    pub(crate) threads: usize,
    /// In the order of the request, event by event.
    pub(crate) counts: Vec<CountDoc>,
}

/// The count of one event.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct CountDoc {
    /// The group's path; `None` for the whole process.
    pub(crate) group: Option<String>,
    /// The event in perf's syntax.
    pub(crate) event: String,
    #[serde(flatten)]
    pub(crate) state: StateDoc,
    /// How long it could have counted, in CPU time of threads.
    pub(crate) enabled_ns: u64,
    /// How long of that it did.
    pub(crate) running_ns: u64,
}

/// The result of counting an event.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub(crate) enum StateDoc {
    /// It was on a counter for `running_ns`.
    Counted {
        /// The raw value, not scaled.
        value: u64,
    },
    /// It was never on a counter.
    NotCounted,
    /// It cannot be counted.
    NotSupported {
        /// The reason and the remedy.
        reason: String,
    },
    /// Part of the count is missing; how much is unknown.
    Error {
        /// The reason and the remedy.
        reason: String,
    },
}

impl TotalsDoc {
    pub(crate) fn elapsed(&self) -> Duration {
        Duration::from_nanos(self.elapsed_ns)
    }
}
