//! Verdicts: which tenant is harmed, by which other, and why.
//!
//! Each sample is judged once, from the figures of all tenants, for everything that shows verdicts:
//! the page, `/api/tree`, `submeter top` and the metrics. A tenant is harmed if it waits, or if it
//! is slower, finds less or does less than usual. A tenant that takes far more than a fair part of
//! what all share while another is harmed is to blame. Use that harms no tenant is no news, however
//! large.

mod judge;
mod say;
#[cfg(test)]
mod tests;
mod track;

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet, VecDeque};

use serde::Serialize;
use submeter::GroupValues;
use submeter::export::Format;

use self::judge::Before;
pub(super) use self::judge::Case;
use self::say::Said;
use self::track::Track;
use super::panel::{self, Column, Panel};
use super::wire::{CellDoc, Shape, VerdictDoc, VerdictKind};

/// How many samples in a row a finding must be absent before its verdict ends: a finding that comes
/// and goes at the edge of an overload is one verdict, not one every few seconds.
const ENDS: u8 = 4;

/// How long a verdict is still reported, in the past tense, after it ended: people who look up from
/// other work should not have to wait for the next one.
const HELD_MS: u64 = 6_500;

/// How long a figure is compared with what was usual before. After that, the new value is usual.
const BEFORE_MS: u64 = 600_000;

/// How many past verdicts are kept.
const KEPT: usize = 20;

/// What a page shows in addition to the sentences; it seldom changes.
#[derive(Debug, Serialize)]
pub(super) struct Rest<'a> {
    marks: &'a [(u32, VerdictKind)],
    earlier: &'a VecDeque<VerdictDoc>,
}

/// The verdicts that hold now, and those before.
#[derive(Debug, Default)]
pub(super) struct Verdicts {
    /// By what they say of a group: a tenant is to blame or not, by whichever kind.
    tracks: HashMap<(VerdictKind, u32), Track>,
    /// Verdicts of this moment: harm first by its kind, then the worst.
    said: Vec<Said>,
    marks: Vec<(u32, VerdictKind)>,
    past: VecDeque<VerdictDoc>,
    /// Whether marks or past differ from a sample earlier.
    has_changed: bool,
}

/// Returns the kind under which a track is kept.
fn slot(kind: VerdictKind) -> VerdictKind {
    if kind.is_blame() { VerdictKind::Takes } else { kind }
}

impl Verdicts {
    /// Judges a sample that its history already has; `groups` are the groups of its rows.
    pub(super) fn judge(&mut self, at_ms: u64, case: Case<'_>, groups: &[GroupValues]) {
        self.take(at_ms, case, |row| groups[row].path());
    }

    /// Forgets the verdicts in progress, as the views' indices have changed.
    pub(super) fn forget(&mut self) {
        self.tracks.clear();
    }

    /// Ends the verdicts on a group that is gone, whose id may be reused.
    pub(super) fn end(&mut self, id: u32) {
        for kind in VerdictKind::ALL {
            self.tracks.remove(&(slot(kind), id));
        }
    }

    fn take<'a>(&mut self, at_ms: u64, case: Case<'_>, path: impl Fn(usize) -> &'a str) {
        let usual = |kind, id, view| {
            let track = self.tracks.get(&(slot(kind), id))?;
            let is_old = at_ms.saturating_sub(track.since_ms) >= BEFORE_MS;
            let (of, usual) = track.usual.filter(|_| !is_old)?;
            (of == view).then_some(usual)
        };
        let said = |kind, id| {
            let track = self.tracks.get(&(slot(kind), id)).filter(|track| track.is_said())?;
            Some(track.finding.amount)
        };
        let findings = judge::judge(case, Before { usual: &usual, said: &said });
        for track in self.tracks.values_mut() {
            track.missed += 1;
        }
        for finding in findings {
            let row = &case.rows[finding.row];
            // The root has no name in a sentence.
            let level = finding.level.map(|level| if level == 0 { "" } else { path(level) });
            let level = level.map(Into::into);
            match self.tracks.entry((slot(finding.kind), finding.id)) {
                Entry::Occupied(mut track) => track.get_mut().find(at_ms, finding, level, row),
                Entry::Vacant(place) => {
                    let path = path(finding.row);
                    place.insert(Track::new(at_ms, path, finding, level, row));
                }
            }
        }
        // A finding in every other sample is never found twice in a row.
        self.tracks.retain(|_, t| t.missed == 0 || t.is_said() && t.missed < ENDS);
        self.say(at_ms, case);
    }

    /// Makes sentences of what is true, and moves those that no longer hold to the past.
    fn say(&mut self, at_ms: u64, case: Case<'_>) {
        let mut now: Vec<&Track> = self.tracks.values().filter(|track| track.is_said()).collect();
        // One tenant harmed for one sample, and then another, do not make anybody to blame.
        let has_harm = now.iter().any(|track| track.finding.kind.is_harm());
        let has_refusal = now.iter().any(|track| !track.finding.kind.is_about_two());
        now.retain(|track| {
            let has_reason = has_harm || has_refusal && track.level.is_some();
            has_reason || !track.finding.kind.is_blame()
        });
        let said = |track: &Track| self.said.iter().any(|said| track.is_named_in(&said.doc));
        // A level and one below it are one to blame. Who is named stays so until that is over.
        let mut blamed: Vec<&Track> =
            now.iter().copied().filter(|track| track.finding.kind.is_blame()).collect();
        blamed.sort_by_key(|track| (!said(track), track.missed));
        let (mut named, mut above, mut doubles) = (HashSet::new(), HashSet::new(), HashSet::new());
        for track in blamed {
            if above.contains(&*track.path) || track.levels().any(|level| named.contains(level)) {
                doubles.insert(track.finding.id);
            }
            named.insert(&*track.path);
            above.extend(track.levels());
        }
        now.retain(|track| !(track.finding.kind.is_blame() && doubles.contains(&track.finding.id)));
        // A tenant that was named stays named: of two similar ones, either may be worse at a
        // moment.
        now.sort_by(|a, b| {
            let worst = b.finding.amount.total_cmp(&a.finding.amount);
            let kind = a.finding.kind.cmp(&b.finding.kind);
            kind.then(said(b).cmp(&said(a))).then(worst).then_with(|| a.path.cmp(&b.path))
        });
        let marks: Vec<_> =
            now.iter().map(|track| (track.finding.id, track.finding.kind)).collect();
        self.has_changed = self.marks != marks;
        self.marks = marks;
        let said = say::sentences(&now, case);
        for over in std::mem::replace(&mut self.said, said) {
            let Said { mut doc, past } = over;
            // It still holds for the tenant, though the sentence may name another.
            if !now.iter().any(|track| track.is_named_in(&doc)) {
                [doc.text, doc.short] = past;
                doc.remedy = None;
                doc.ended_ms = Some(at_ms);
                self.past.push_front(doc);
                self.has_changed = true;
            }
        }
        self.past.truncate(KEPT);
    }

    /// Returns the verdicts of a sample taken at `at_ms`: those that are true and, if no tenant is
    /// to blame for anything now, those on tenants that were until a moment ago.
    pub(super) fn said(&self, at_ms: u64) -> Vec<VerdictDoc> {
        let is_recent = |doc: &&VerdictDoc| {
            let ended = doc.ended_ms.unwrap_or(at_ms);
            // A clock that was set back tells nothing.
            at_ms.checked_sub(ended).is_some_and(|ago| ago < HELD_MS)
        };
        let mut said: Vec<_> = self.said.iter().map(|said| said.doc.clone()).collect();
        if said.iter().all(|doc| !doc.kind.is_about_two()) {
            let past = self.past.iter().filter(|doc| doc.kind.is_about_two());
            let mut past: Vec<_> = past.take_while(is_recent).cloned().collect();
            // Of those who were harmed alike, the last.
            past.sort_by_key(|doc| doc.kind);
            past.dedup_by_key(|doc| doc.kind);
            said.splice(0..0, past);
        }
        said
    }

    /// Returns the groups with verdicts, and the past verdicts, newest first.
    pub(super) fn rest(&self) -> Rest<'_> {
        Rest { marks: &self.marks, earlier: &self.past }
    }

    /// Returns the rest if it differs from a sample earlier.
    pub(super) fn new_rest(&self) -> Option<Rest<'_>> {
        self.has_changed.then(|| self.rest())
    }

    /// Appends the number of tenants of each verdict to an exposition of the tree.
    pub(super) fn expose(&self, prefix: &str, format: Format, text: &mut String) {
        let count = |kind| self.marks.iter().filter(|(_, of)| *of == kind).count() as u64;
        let row = |kind: &VerdictKind| {
            vec![kind.key().into(), CellDoc::figure(count(*kind), Shape::Count)]
        };
        let rows: Vec<Vec<CellDoc>> = VerdictKind::ALL.iter().map(row).collect();
        let columns = vec![
            Column::label("verdict", "Verdict"),
            Column::gauge("tenants", "Tenants", "Tenants of which the verdict is true now"),
        ];
        let panel = Panel::new("verdict", "Verdicts", columns).rows(move || rows.clone());
        panel::expose(&[panel], prefix, format, text);
    }
}
