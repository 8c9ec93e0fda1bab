//! The series of numbers that only grow and have no sum over groups: stalls, and reclaimed amounts.
//!
//! When charges of several children wait at the same time, their parent stalls once. And what the
//! callbacks of a group gave back is counted beside the group and not in words that are flushed up
//! the tree, because a callback is rare and each word takes space on every CPU. Therefore there is
//! no `other` for the amounts that a new series must not begin with: what a group had before it was
//! first shown is in no series, except for stalls, which are in its parent's too.

use std::time::SystemTime;

/// Two such numbers of one quota at one path. While both are 0 there are no series: they begin with
/// the first event.
#[derive(Clone, Debug)]
pub(super) struct Unsummed {
    /// The value at the last scrape.
    last: [u64; 2],
    /// The value since the series began, or is going to begin.
    total: [u64; 2],
    /// The number of scrapes for which its series still shows 0, with which it begins.
    pub(super) held: u32,
    created: Option<SystemTime>,
}

impl Unsummed {
    /// Returns those of a path that was not shown before, whose group has `now`. In the very first
    /// scrape that counts, as everything does.
    pub(super) fn new(now: [u64; 2], first: bool) -> Unsummed {
        let last = if first { [0; 2] } else { now };
        Unsummed { last, total: [0; 2], held: 0, created: None }
    }

    /// Adds what is new. `same` says that the group is that of the last scrape. Otherwise it was
    /// created again under its name, and everything that it has is new.
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

    /// Returns both values, if there are series, and when they began to count.
    pub(super) fn shown(&self) -> Option<([u64; 2], SystemTime)> {
        let total = if self.held > 0 { [0; 2] } else { self.total };
        self.created.map(|created| (total, created))
    }
}
