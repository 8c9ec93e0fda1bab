//! The error of a checkpoint.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// The error of saving or restoring a checkpoint. Its text names the file and the remedy.
#[derive(Debug)]
pub struct CheckpointError {
    path: PathBuf,
    kind: Kind,
}

#[derive(Debug)]
pub(super) enum Kind {
    Locked,
    Restored,
    Unrestored,
    OfAnother,
    Damaged { line: usize, problem: String },
    Metric { name: String, problem: String },
    Group(crate::Error),
    Io { act: &'static str, cause: io::Error },
}

impl Kind {
    pub(super) fn in_file(self, path: &Path) -> CheckpointError {
        CheckpointError { path: path.to_owned(), kind: self }
    }
}

impl CheckpointError {
    /// Returns whether another handle, in this or another process, has the file.
    #[must_use]
    pub fn is_locked(&self) -> bool {
        matches!(self.kind, Kind::Locked)
    }

    /// Returns whether a tree already has the file's totals, because it restored or saved them.
    #[must_use]
    pub fn is_already_restored(&self) -> bool {
        matches!(self.kind, Kind::Restored)
    }

    /// Returns whether the file has totals that this tree lacks: nothing restored them, or another
    /// tree has them.
    #[must_use]
    pub fn is_not_restored(&self) -> bool {
        matches!(self.kind, Kind::Unrestored | Kind::OfAnother)
    }

    /// Returns whether the file's content is not a complete checkpoint.
    #[must_use]
    pub fn is_damaged(&self) -> bool {
        matches!(self.kind, Kind::Damaged { .. })
    }

    /// Returns whether the file has a metric that the tree's schema lacks.
    #[must_use]
    pub fn is_schema(&self) -> bool {
        matches!(self.kind, Kind::Metric { .. })
    }
}

impl fmt::Display for CheckpointError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.path.display();
        match &self.kind {
            Kind::Locked => {
                write!(
                    f,
                    "checkpoint {path} is in use: stop the other process, or use another file"
                )
            }
            Kind::Restored => {
                write!(
                    f,
                    "a tree already has the totals of checkpoint {path}: restoring would count \
                     them twice"
                )
            }
            Kind::Unrestored => write!(
                f,
                "checkpoint {path} has totals that were not restored: restore them, or move the \
                 file away"
            ),
            Kind::OfAnother => write!(
                f,
                "checkpoint {path} has the totals of another tree: use another file for this one"
            ),
            Kind::Damaged { line, problem } => write!(
                f,
                "checkpoint {path}, line {line}: {problem}: the file is damaged; move it away to \
                 start from zero"
            ),
            Kind::Metric { name, problem } => write!(
                f,
                "checkpoint {path} has the metric {name:?}, {problem}: before restoring, declare \
                 it as it was, or move the file away"
            ),
            Kind::Group(cause) => write!(f, "checkpoint {path} cannot be restored: {cause}"),
            Kind::Io { act, cause } => write!(f, "cannot {act} checkpoint {path}: {cause}"),
        }
    }
}

impl std::error::Error for CheckpointError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &self.kind {
            Kind::Group(cause) => Some(cause),
            Kind::Io { cause, .. } => Some(cause),
            _ => None,
        }
    }
}
