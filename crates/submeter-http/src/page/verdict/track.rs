//! How long something has been found.

use super::super::sample::Row;
use super::super::wire::{Figure, VerdictDoc, VerdictKind};
use super::judge::Finding;

/// How many samples in a row a finding must last to be reported: a second of noise means nothing.
const SAMPLES: u8 = 2;

/// How long the greatest moment of a finding counts that lasts. Its last sample is none to judge
/// by: it may have ended at the sample's start.
const PEAK_MS: u64 = 10_000;

/// The state of one finding about one group.
#[derive(Debug)]
pub(super) struct Track {
    /// What was last found.
    pub(super) finding: Finding,
    pub(super) peak: Peak,
    pub(super) path: Box<str>,
    /// The level of whose limit it has most.
    pub(super) level: Option<Box<str>>,
    /// Samples in a row in which it was found, or was missing.
    pub(super) found: u8,
    pub(super) missed: u8,
    pub(super) since_ms: u64,
    /// The view in which it began, and the usual value then.
    pub(super) usual: Option<(usize, f64)>,
}

/// Whether something is so in the newest sample, or was so a moment ago.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Tense {
    Present,
    Past,
}

/// The greatest moment of a finding lately.
#[derive(Debug)]
pub(super) struct Peak {
    pub(super) finding: Finding,
    /// The level of whose limit it had most.
    pub(super) level: Option<Box<str>>,
    /// The group's figures then, in the order of the views.
    pub(super) figures: Box<[Figure]>,
    at_ms: u64,
}

impl Peak {
    fn new(at_ms: u64, finding: Finding, level: Option<Box<str>>, row: &Row) -> Peak {
        Peak { finding, level, figures: row.figures.clone(), at_ms }
    }

    /// Returns how much a tenant did that a limit would end.
    fn size(finding: &Finding, figures: &[Figure]) -> f64 {
        match finding.kind {
            kind if kind.is_blame() => figures[finding.view].0.unwrap_or(0.0),
            VerdictKind::Refused => finding.amount,
            // Of anything else the last sample says most.
            _ => 0.0,
        }
    }
}

impl Track {
    pub(super) fn new(
        at_ms: u64,
        path: &str,
        finding: Finding,
        level: Option<Box<str>>,
        row: &Row,
    ) -> Track {
        Track {
            path: path.into(),
            found: 1,
            missed: 0,
            since_ms: at_ms,
            usual: finding.usual.map(|usual| (finding.view, usual)),
            peak: Peak::new(at_ms, finding.clone(), level.clone(), row),
            finding,
            level,
        }
    }

    /// It was found again.
    pub(super) fn find(
        &mut self,
        at_ms: u64,
        finding: Finding,
        level: Option<Box<str>>,
        row: &Row,
    ) {
        self.found = self.found.saturating_add(1);
        self.missed = 0;
        // It begins anew as a burst.
        if finding.kind != self.finding.kind && finding.kind == VerdictKind::Bursts {
            self.usual = finding.usual.map(|usual| (finding.view, usual));
            self.since_ms = at_ms;
        }
        let Peak { finding: most, figures, at_ms: since_ms, .. } = &self.peak;
        let is_more = Peak::size(&finding, &row.figures) >= Peak::size(most, figures);
        if is_more || at_ms.saturating_sub(*since_ms) >= PEAK_MS {
            self.peak = Peak::new(at_ms, finding.clone(), level.clone(), row);
        }
        (self.finding, self.level) = (finding, level);
    }

    pub(super) fn is_said(&self) -> bool {
        self.found >= SAMPLES
    }

    pub(super) fn tense(&self) -> Tense {
        if self.missed == 0 { Tense::Present } else { Tense::Past }
    }

    /// Returns whether a sentence begins with this group.
    pub(super) fn is_named_in(&self, doc: &VerdictDoc) -> bool {
        let is_alike =
            self.finding.kind == doc.kind || self.finding.kind.is_blame() && doc.kind.is_blame();
        is_alike && *self.path == *doc.group
    }

    /// Returns the paths of the levels above the group.
    pub(super) fn levels(&self) -> impl Iterator<Item = &str> {
        #[cfg(test)]
        super::tests::look();
        self.path.match_indices('/').map(|(at, _)| &self.path[..at])
    }
}
