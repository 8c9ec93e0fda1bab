//! Why a collector gave no answer.

use std::fmt;

/// Says why a [`Collector`](crate::Collector) refused. Ask with the predicates; the text has the remedy.
#[derive(Clone, Debug)]
pub struct CollectorError {
    collector: Box<str>,
    kind: Kind,
}

#[derive(Clone, Debug)]
enum Kind {
    Broken { path: Box<str>, message: Box<str> },
    Nested,
}

impl CollectorError {
    /// A callback panicked for this group, so that its total is wrong, for ever.
    #[must_use]
    pub fn is_broken(&self) -> bool {
        matches!(self.kind, Kind::Broken { .. })
    }

    /// Called from where waiting could last for ever: a collector's callback, or, for a flush, a read.
    #[must_use]
    pub fn is_nested(&self) -> bool {
        matches!(self.kind, Kind::Nested)
    }

    pub(super) fn broken(collector: &str, path: &str, message: &str) -> CollectorError {
        let kind = Kind::Broken { path: path.into(), message: message.into() };
        CollectorError { collector: collector.into(), kind }
    }

    pub(super) fn nested(collector: &str) -> CollectorError {
        CollectorError { collector: collector.into(), kind: Kind::Nested }
    }
}

impl fmt::Display for CollectorError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let collector = &self.collector;
        match &self.kind {
            Kind::Broken { path, message } => write!(
                f,
                "collector {collector} is broken for {path}: a callback panicked ({message}); mend the \
                 callback, and start again with a new collector or a new group"
            ),
            Kind::Nested => write!(
                f,
                "collector {collector} was asked from inside a collector's callback or read: ask once it \
                 has returned"
            ),
        }
    }
}

impl std::error::Error for CollectorError {}
