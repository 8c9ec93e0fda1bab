//! The stream of `POST /api/stat`: a line of JSON per interval, and more in between, with totals
//! since the connection was made.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// The content type of the stream: one JSON object per line.
pub const NDJSON: &str = "application/x-ndjson";

/// All totals at one point in time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StatDoc {
    /// The time since the count began.
    pub elapsed_ns: u64,
    /// Whether an interval ends here. If not, the totals are for a reader that stops before the
    /// interval ends.
    pub is_due: bool,
    /// The number of threads that have counted.
    pub threads: usize,
    /// In the order of the request, event by event.
    pub counts: Vec<CountDoc>,
}

/// The count of one event.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CountDoc {
    /// The group's path; `None` for the whole process.
    pub group: Option<String>,
    /// The event in perf's syntax.
    pub event: String,
    /// The outcome.
    #[serde(flatten)]
    pub state: StateDoc,
    /// How long it could have counted, in CPU time of threads.
    pub enabled_ns: u64,
    /// How much of that time it did count.
    pub running_ns: u64,
}

/// The result of counting an event.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum StateDoc {
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

impl StatDoc {
    /// Returns the time since the count began.
    #[must_use]
    pub fn elapsed(&self) -> Duration {
        Duration::from_nanos(self.elapsed_ns)
    }
}
