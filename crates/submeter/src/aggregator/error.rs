//! The error of aggregators.

use std::fmt;

/// The error of an [`Aggregator`](crate::Aggregator). The predicates tell the causes apart; the
/// text has the remedy.
#[derive(Clone, Debug)]
pub struct AggregatorError {
    aggregator: Box<str>,
    kind: AggregatorErrorKind,
}

#[derive(Clone, Debug)]
enum AggregatorErrorKind {
    Broken { path: Box<str>, message: Box<str> },
    Nested,
}

impl AggregatorError {
    /// Returns whether a callback panicked for this group, so that its total stays wrong.
    #[must_use]
    pub fn is_broken(&self) -> bool {
        matches!(self.kind, AggregatorErrorKind::Broken { .. })
    }

    /// Returns whether the call came from a place where it could deadlock: an aggregator's callback
    /// or, for a flush, a read.
    #[must_use]
    pub fn is_nested(&self) -> bool {
        matches!(self.kind, AggregatorErrorKind::Nested)
    }

    pub(super) fn broken(aggregator: &str, path: &str, message: &str) -> AggregatorError {
        let kind = AggregatorErrorKind::Broken { path: path.into(), message: message.into() };
        AggregatorError { aggregator: aggregator.into(), kind }
    }

    pub(super) fn nested(aggregator: &str) -> AggregatorError {
        AggregatorError { aggregator: aggregator.into(), kind: AggregatorErrorKind::Nested }
    }
}

impl fmt::Display for AggregatorError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let aggregator = &self.aggregator;
        match &self.kind {
            AggregatorErrorKind::Broken { path, message } => write!(
                f,
                "aggregator {aggregator} is broken for {path}: a callback panicked ({message}); fix the \
                 callback, and use a new aggregator or a new group"
            ),
            AggregatorErrorKind::Nested => write!(
                f,
                "aggregator {aggregator} was called from inside an aggregator's callback or read: call it after that \
                 has returned"
            ),
        }
    }
}

impl std::error::Error for AggregatorError {}
