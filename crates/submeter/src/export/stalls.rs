//! The series of a group's stalls: time that only grows, and of which no sum over groups is made.
//!
//! When charges of several children wait at the same time, their parent stalls once. Therefore
//! there is no `other` that could take what a new series must not begin with: what a group stalled
//! before it was first shown is in no series but that of its parent.

use std::time::SystemTime;

/// The stalls of one quota at one path. Idle ones have no series: it begins with the first stall.
#[derive(Clone, Debug)]
pub(super) struct Stalls {
    /// As of the last scrape: some, full.
    last: [u64; 2],
    /// In nanoseconds, since the series began, or is going to begin.
    total: [u64; 2],
    /// For how many scrapes its series still shows 0, with which it begins.
    pub(super) held: u32,
    created: Option<SystemTime>,
}

impl Stalls {
    /// Those of a path that was not shown before, with what its group has stalled up to now. That
    /// counts in the first scrape of all, as everything does.
    pub(super) fn new(now: [u64; 2], first: bool) -> Stalls {
        let last = if first { [0; 2] } else { now };
        Stalls { last, total: [0; 2], held: 0, created: None }
    }

    /// Adds what is new. `same`: the group is that of the last scrape, and not one that was created
    /// again under its name, which has stalled all its time since.
    pub(super) fn take(&mut self, now: [u64; 2], same: bool, held: u32, created: SystemTime) {
        for ((total, last), now) in self.total.iter_mut().zip(&mut self.last).zip(now) {
            let before = if same { *last } else { 0 };
            *total += now.saturating_sub(before);
            *last = now;
        }
        if self.created.is_none() && self.total != [0; 2] {
            (self.held, self.created) = (held, Some(created));
        }
    }

    /// Returns for how long some and all stalled, if there is a series, and since when it counts.
    pub(super) fn shown(&self) -> Option<([u64; 2], SystemTime)> {
        let total = if self.held > 0 { [0; 2] } else { self.total };
        self.created.map(|created| (total, created))
    }
}
