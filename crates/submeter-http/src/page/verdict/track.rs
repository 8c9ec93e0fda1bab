//! How long something has been found.

use super::super::wire::VerdictDoc;
use super::judge::Finding;

/// How many samples in a row a finding must last to be reported: a second of noise means nothing.
const SAMPLES: u8 = 2;

/// The state of one finding about one group.
#[derive(Debug)]
pub(super) struct Track {
    pub(super) finding: Finding,
    pub(super) path: Box<str>,
    /// Samples in a row in which it was found, or was missing.
    pub(super) found: u8,
    pub(super) missed: u8,
    pub(super) since_ms: u64,
    /// The usual value when it began.
    pub(super) usual: Option<f64>,
}

impl Track {
    pub(super) fn is_said(&self) -> bool {
        self.found >= SAMPLES
    }

    /// Returns whether a sentence begins with this group.
    pub(super) fn is_named_in(&self, doc: &VerdictDoc) -> bool {
        self.finding.kind == doc.kind && *self.path == *doc.group
    }
}
