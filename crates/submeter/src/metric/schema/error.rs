//! The error of a schema.

use std::fmt;

use super::{METRICS_MAX, SECTIONS_MAX, THREAD_COUNTS, WORDS_MAX};

/// The error of an invalid schema.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SchemaError {
    /// The name is not `[a-z][a-z0-9_]*`.
    Name(String),
    /// Two metrics have this name.
    Repeated(String),
    /// A second counter of CPU time, of time off the CPU, or of errors, or a second budget of CPU
    /// time, was declared.
    CpuTimeTwice(String),
    /// The counter belongs to a second [`ThreadMeter`](crate::switch::ThreadMeter), or to a count
    /// that already has a counter or does not exist.
    ThreadCount(String),
    /// A counter of time off the CPU, or of errors, or a budget of CPU time, was declared without a
    /// counter of CPU time.
    CpuTimeMissing(String),
    /// The name of a section is not `[a-z][a-z0-9_]*`.
    SectionName(String),
    /// There are more than [`SECTIONS_MAX`] sections.
    TooManySections {
        /// How many there are.
        sections: usize,
    },
    /// The metrics of a section need more than [`WORDS_MAX`] words.
    TooLarge {
        /// The number of words that they need.
        words: usize,
    },
    /// The tree already has a different metric with that name.
    Clash {
        /// The name of both.
        name: String,
        /// The metric in the tree, such as `a counter of bytes`.
        is: String,
        /// The metric that was to be declared.
        declared: String,
    },
    /// This can only be in the schema that a tree is made with; it cannot be declared later.
    Late {
        /// Its name.
        name: String,
        /// Its kind, such as `a quota`.
        what: &'static str,
    },
    /// There are more than [`METRICS_MAX`] metrics.
    TooMany {
        /// How many there are.
        metrics: usize,
    },
}

/// The remedy for an invalid name.
const NAME_REMEDY: &str = "use lowercase letters, digits and underscores, starting with a letter";

impl fmt::Display for SchemaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SchemaError::Name(name) => {
                write!(f, "metric name {name:?} is not of the form [a-z][a-z0-9_]*: {NAME_REMEDY}")
            }
            SchemaError::Repeated(name) => {
                write!(f, "two metrics are named {name:?}: rename one, or declare it once")
            }
            SchemaError::CpuTimeTwice(name) => {
                write!(
                    f,
                    "{name:?} is a second CPU time counter, off-CPU counter, CPU error counter or \
                     CPU budget: declare only one of each"
                )
            }
            SchemaError::CpuTimeMissing(name) => {
                write!(
                    f,
                    "{name:?} is measured along with CPU time: declare a CPU time counter too"
                )
            }
            SchemaError::ThreadCount(name) => write!(
                f,
                "{name:?} cannot be a thread count: a schema has one meter, with counts 0 to {} \
                 and one counter for each",
                THREAD_COUNTS - 1
            ),
            SchemaError::SectionName(name) => {
                write!(f, "section name {name:?} is not of the form [a-z][a-z0-9_]*: {NAME_REMEDY}")
            }
            SchemaError::TooManySections { sections } => {
                write!(
                    f,
                    "{sections} sections are too many: declare at most {SECTIONS_MAX}; each set \
                     added to a tree is one, so add fewer, larger sets"
                )
            }
            SchemaError::TooLarge { words } => write!(
                f,
                "the metrics need {words} words, more than the maximum of {WORDS_MAX}: use fewer \
                 quotas, fewer or coarser histograms, or sections"
            ),
            SchemaError::Clash { name, is, declared } => write!(
                f,
                "the tree already has {name:?}, {is}, but it is now declared as {declared}: \
                 rename one, or give the set a prefix"
            ),
            SchemaError::Late { name, what } => write!(
                f,
                "{name:?} is {what}, which cannot be added to a tree later: declare it in the \
                 schema that the tree is made with"
            ),
            SchemaError::TooMany { metrics } => {
                write!(f, "{metrics} metrics are too many: declare at most {METRICS_MAX}")
            }
        }
    }
}

impl std::error::Error for SchemaError {}
