//! One opaque error for everything that can go wrong with groups, with predicates.

use std::fmt;

/// Says why an operation on a tree of groups was refused.
///
/// Ask with the predicates; the text names the group and the remedy.
#[derive(Debug)]
pub struct Error {
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    Name { name: String, reason: &'static str },
    Exists(String),
    NotFound(String),
    Busy { path: String, children: usize },
    Dead(String),
    Root,
    Full { max: usize },
    Depth(String),
    Storage(std::io::Error),
}

impl Error {
    /// The group exists already.
    #[must_use]
    pub fn is_exists(&self) -> bool {
        matches!(self.kind, Kind::Exists(_))
    }

    /// No such group, or no such parent.
    #[must_use]
    pub fn is_not_found(&self) -> bool {
        matches!(self.kind, Kind::NotFound(_))
    }

    /// The group still has children.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        matches!(self.kind, Kind::Busy { .. })
    }

    /// The group was killed.
    #[must_use]
    pub fn is_dead(&self) -> bool {
        matches!(self.kind, Kind::Dead(_))
    }

    /// The tree holds as many groups as it may.
    #[must_use]
    pub fn is_full(&self) -> bool {
        matches!(self.kind, Kind::Full { .. })
    }

    /// The name or path cannot be a group's.
    #[must_use]
    pub fn is_invalid_name(&self) -> bool {
        matches!(self.kind, Kind::Name { .. } | Kind::Depth(_))
    }

    /// Whether there is no room, which the dead may be taking up until a flush has seen them.
    pub(crate) fn wants_flush(&self) -> bool {
        match &self.kind {
            Kind::Full { .. } => true,
            Kind::Storage(cause) => cause.kind() == std::io::ErrorKind::OutOfMemory,
            _ => false,
        }
    }

    pub(crate) fn name(name: &str, reason: &'static str) -> Error {
        Error { kind: Kind::Name { name: name.to_owned(), reason } }
    }

    pub(crate) fn exists(path: String) -> Error {
        Error { kind: Kind::Exists(path) }
    }

    pub(crate) fn not_found(path: &str) -> Error {
        Error { kind: Kind::NotFound(path.to_owned()) }
    }

    pub(crate) fn busy(path: &str, children: usize) -> Error {
        Error { kind: Kind::Busy { path: path.to_owned(), children } }
    }

    pub(crate) fn dead(path: &str) -> Error {
        Error { kind: Kind::Dead(path.to_owned()) }
    }

    pub(crate) fn root() -> Error {
        Error { kind: Kind::Root }
    }

    pub(crate) fn full(max: usize) -> Error {
        Error { kind: Kind::Full { max } }
    }

    pub(crate) fn depth(path: &str) -> Error {
        Error { kind: Kind::Depth(path.to_owned()) }
    }

    pub(crate) fn storage(cause: std::io::Error) -> Error {
        Error { kind: Kind::Storage(cause) }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.kind {
            Kind::Name { name, reason } => write!(f, "{name:?} cannot name a group: {reason}"),
            Kind::Exists(path) => write!(f, "group {path} exists already"),
            Kind::NotFound(path) => write!(f, "no group {path}"),
            Kind::Busy { path, children } => {
                write!(f, "group {path} has {children} children: kill them first")
            }
            Kind::Dead(path) => write!(f, "group {path} was killed: it takes no children"),
            Kind::Root => write!(f, "the root group lives as long as its tree"),
            Kind::Full { max } => write!(f, "the tree holds {max} groups, the most it may"),
            Kind::Depth(path) => write!(f, "group {path} is too deep: 64 levels are the most"),
            Kind::Storage(cause) => write!(f, "no memory for per-CPU storage: {cause}"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &self.kind {
            Kind::Storage(cause) => Some(cause),
            _ => None,
        }
    }
}
