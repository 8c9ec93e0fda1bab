//! Whether what one tenant takes is why another is harmed.

use super::{Finding, LOST, Scene};
use crate::page::views::Role;
use crate::page::wire::VerdictKind;

/// If at least `MANY` tenants could wait for another, a queue that one of them made holds up at
/// least the part `SHARED` of them.
const MANY: usize = 4;
const SHARED: f64 = 0.15;

/// The least that others wait in a shared queue, as a part of what a tenant waits that sends all
/// its requests at once. If they wait less, the queue is there only for the moments after it sends.
const LASTS: f64 = 0.1;

/// Less than this part of what the greatest tenant has is little beside it.
const SMALL: f64 = 0.25;

/// A loss begins when a tenant holds less than the part `LOST_FROM` of the most that it held.
/// Another took it if it gained at least the part `GAINED_OF_LOST` in the same samples.
const LOST_FROM: f64 = 0.95;
const GAINED_OF_LOST: f64 = 0.5;

impl Scene<'_> {
    /// Whether what one tenant takes can be why another has less: items are missing because of
    /// memory, and requests wait because of time. A tenant that takes more than its fair part, and
    /// not little beside the one that has most, has itself to blame.
    pub(super) fn explains(&self, blamed: &Finding, harm: &Finding) -> bool {
        // A level may harm what is below it.
        if self.is_within(harm.row, blamed.row) {
            return false;
        }
        let is_among = |level: usize| self.is_within(blamed.row, level);
        let views = blamed.views();
        let is_less = |&(view, most): &(usize, f64)| {
            self.part(harm.row, view) <= self.fair[harm.row].max(most * SMALL)
        };
        let mut views = views.filter(is_less).map(|(view, _)| view);
        match harm.kind {
            VerdictKind::FindsLess => views.any(|view| match self.views.is_rate(view) {
                true => blamed.kind == VerdictKind::Bursts && !self.is_memory_known(),
                false => {
                    is_among(self.shares_held(harm.row, view))
                        && self.has_lost_to(blamed.row, harm.row, view)
                }
            }),
            _ => is_among(self.shares[harm.row]) && views.any(|view| self.views.is_rate(view)),
        }
    }

    /// Whether the tenants of a group wait for the rest of a queue that was there a sample ago: it
    /// is half as long now or, where it is known who made it, shorter at all. Tenants that waited
    /// in it are served late and so seem to take the most.
    pub(super) fn is_rest(&self, group: usize, is_known: bool) -> bool {
        let tenants = self.tenants.iter().filter(|&&row| self.shares[row] == group);
        let waits = tenants.filter_map(|&row| {
            let before = (self.before.said)(VerdictKind::Waits, self.rows[row].id)?;
            Some((before, self.figure(row, self.wait?)?))
        });
        let (before, now) = waits.fold((0.0, 0.0), |(a, b), (before, now)| (a + before, b + now));
        now < if is_known { before } else { before / 2.0 }
    }

    /// Whether a tenant was not said to be to blame a sample ago.
    pub(super) fn is_new(&self, blamed: &Finding) -> bool {
        let mut kinds = VerdictKind::ALL.into_iter().filter(|kind| kind.is_blame());
        kinds.all(|kind| (self.before.said)(kind, blamed.id).is_none())
    }

    /// Whether enough tenants of a group wait that one of them can be why: few feel nothing of a
    /// queue that all share. Left out are tenants at a limit of their own, which wait in no such
    /// queue, and waits for the moments in which another sends all its requests at once.
    pub(super) fn is_shared(&self, blamed: usize, group: usize) -> bool {
        let is_other = |&row: &usize| {
            self.shares[row] == group && !self.is_within(row, blamed) && self.is_busy(row)
        };
        let others = || self.tenants.iter().copied().filter(is_other);
        let least = others().filter_map(|row| self.own_wait(row)).fold(0.0, f64::max) * LASTS;
        let waits = |row| self.waits(row).is_some_and(|finding| finding.amount >= least);
        let waits: Vec<bool> = others().map(waits).collect();
        let waiting = waits.iter().filter(|&&waits| waits).count();
        waits.len() < MANY || waiting as f64 >= waits.len() as f64 * SHARED
    }

    /// Returns how long a tenant waits, in nanoseconds, if it can have made the queue itself: if at
    /// least as much work was done for it.
    fn own_wait(&self, row: usize) -> Option<f64> {
        let wait = self.figure(row, self.wait?)?;
        let worked = self.figure(row, self.cpu?)? * self.window_s * 1e9;
        (worked >= wait).then_some(wait)
    }

    /// Whether it is known who holds what: then a tenant that took nothing is not why items are
    /// missing.
    fn is_memory_known(&self) -> bool {
        self.views.with(Role::Contended).any(|view| !self.views.is_rate(view))
    }

    /// Whether a tenant holds less than it did lately because another took it, and so gained while
    /// it lost, in more than one sample: others fill later the room of what was deleted.
    fn has_lost_to(&self, blamed: usize, row: usize, view: usize) -> bool {
        let line = |row: usize| {
            let line = self.history.line(self.rows[row].id, view);
            line.map(|held| f64::from(held.unwrap_or(0.0)))
        };
        let most = line(row).fold(0.0, f64::max);
        let both: Vec<(f64, f64)> = line(row).zip(line(blamed)).collect();
        let began = both.iter().rposition(|(held, _)| *held >= most * LOST_FROM).unwrap_or(0);
        let steps = both[began..].windows(2).map(|of| {
            let fell = of[0].0 - of[1].0;
            (fell, fell.min(of[1].1 - of[0].1).max(0.0))
        });
        // The greatest loss may be its own deletion, and in the same sample another may gain as
        // much by chance.
        let greatest = steps.clone().max_by(|a, b| a.0.total_cmp(&b.0)).unwrap_or_default();
        let lost = most - self.figure(row, view).unwrap_or(most) - greatest.0;
        let took = steps.map(|(_, took)| took).sum::<f64>() - greatest.1;
        lost > most * LOST && took >= lost * GAINED_OF_LOST
    }
}
