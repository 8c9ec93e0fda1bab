//! Which tenants are at a limit, and who shares that limit.
//!
//! What a level's own limit refuses is counted at that level alone, so it is known who takes most
//! of the limit, but not which of the others was refused. Counting it in the group that asked as
//! well would give every group a second counter for each limit above it, even in trees without such
//! limits. A program that wants to know counts in the tenant that it turns away and shows that as
//! a view that [`lacks`](crate::View::lacks) what is limited, as the cache does with
//! its memory; who asks while a level's rate is used up is refused in proportion to what it asks.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::iter::successors;

use super::{Finding, Scene, UNFAIR, UNFAIR_HELD};
use crate::page::views::Role;
use crate::page::wire::VerdictKind;

/// What is held fills its limit from this part on: an item that finds no room leaves some.
const FULL: f64 = 0.9;

/// Pressure below this part is noise: it is an average that never falls to 0 again.
const STALLED: f64 = 0.01;

/// What is short at a level.
#[derive(Default)]
struct Short {
    /// The rows that are refused for that.
    refused: Vec<usize>,
    /// Whether a limit refuses some of them, rather than that others leave them no room.
    is_limit: bool,
}

impl Scene<'_> {
    /// Returns the groups that a limit refuses or keeps waiting, through no fault but their own.
    pub(super) fn refused(&self) -> Vec<Finding> {
        let mut found = Vec::new();
        for &row in &self.levels {
            let own = self.refusals.iter().map(|(view, own)| (*view, own[row]));
            let most = own.filter(|(_, n)| *n > 0.0).max_by(|a, b| a.1.total_cmp(&b.1));
            found.extend(most.map(|(view, n)| self.refusal(row, view, n)));
        }
        for &row in &self.tenants {
            let most = self.most_of(row, Role::Refusals).filter(|(_, n)| *n > 0.0);
            let most = most.map(|(view, n)| self.refusal(row, view, n));
            let stall = |(view, part)| self.finding(row, VerdictKind::Stalls, view, part, 0.0);
            found.extend(self.stall(row).map(stall));
            found.extend(most);
        }
        found
    }

    fn refusal(&self, row: usize, view: usize, amount: f64) -> Finding {
        let limit = self.views.refusing(view).and_then(|limit| self.figure(row, limit));
        let kind = match self.views.delays(view) {
            true => VerdictKind::Throttled,
            false => VerdictKind::Refused,
        };
        self.finding(row, kind, view, amount, limit.unwrap_or(f64::NAN))
    }

    /// Returns how often each group's own limit refuses.
    pub(super) fn own_refusals(&self, view: usize) -> Vec<f64> {
        let all = (0..self.rows.len()).map(|row| self.figure(row, view).unwrap_or(0.0));
        let mut own: Vec<f64> = all.collect();
        for row in 0..own.len() {
            if let Some(parent) = self.parents[row] {
                own[parent] -= self.figure(row, view).unwrap_or(0.0);
            }
        }
        for &level in &self.levels {
            // Less is the rounding of sums.
            own[level] = if own[level] < 1.0 { 0.0 } else { own[level] };
        }
        own
    }

    /// Adds who takes most of a limit that refuses others, where nobody to blame is near.
    pub(super) fn add_crowding(&self, found: &mut Vec<Finding>, blamed: &[Finding]) {
        let mut crowding = self.crowding(found);
        let rows: HashSet<usize> = crowding.iter().map(|finding| finding.row).collect();
        // Who leaves others no room is no victim of that.
        found.retain(|of| !rows.contains(&of.row) || self.lacked(of).is_none());
        crowding.retain(|finding| {
            let is_near = |other: &Finding| {
                self.is_within(finding.row, other.row) || self.is_within(other.row, finding.row)
            };
            !blamed.iter().any(is_near)
        });
        found.extend(crowding);
    }

    /// Returns who takes most of a limit that refuses others: of a level's own limit, or of one
    /// that leaves others no room.
    fn crowding(&self, refused: &[Finding]) -> Vec<Finding> {
        // By the level and the view.
        let mut short: HashMap<(usize, usize), Short> = HashMap::new();
        for of in refused.iter().filter(|of| !of.kind.is_about_two()) {
            let lacked = self.lacked(of);
            let level = match lacked {
                Some(held) => self.full(of.row, held),
                None => Some(of.row).filter(|row| self.levels.contains(row)),
            };
            let key = level.zip(lacked.or_else(|| self.views.refused(of.view)));
            if let Some(key) = key {
                let short = short.entry(key).or_default();
                short.refused.push(of.row);
                short.is_limit |= lacked.is_none();
            }
        }
        if short.is_empty() {
            return Vec::new();
        }
        let views: BTreeSet<usize> = short.keys().map(|&(_, view)| view).collect();
        let mut found: Vec<Finding> = Vec::new();
        for &row in self.tenants.iter().chain(&self.levels) {
            let crowds = |&view: &usize| {
                let mut above = successors(self.parents[row], |&row| self.parents[row]);
                above.find_map(|level| {
                    let short = short.get(&(level, view))?;
                    self.crowds(row, view, level, short)
                })
            };
            // Of several as great, the first view.
            let crowds = views.iter().rev().filter_map(crowds);
            found.extend(crowds.max_by(|a, b| a.amount.total_cmp(&b.amount)));
        }
        // The one below says more.
        let above = |of: &Finding| successors(self.parents[of.row], |&row| self.parents[row]);
        let levels: HashSet<usize> = found.iter().flat_map(above).collect();
        found.retain(|of| !levels.contains(&of.row));
        found
    }

    /// Whether a group takes far more than its fair part of what a level may have, and is itself
    /// neither the only one to be refused nor at a limit of its own.
    fn crowds(&self, row: usize, view: usize, level: usize, short: &Short) -> Option<Finding> {
        let has_others = || short.refused.iter().any(|&of| !self.is_within(of, row));
        let is_limited = short.is_limit && self.refusals.iter().any(|(_, own)| own[row] > 0.0);
        let [own, all] = [row, level].map(|row| self.figure(row, view).unwrap_or(0.0));
        let is_rate = self.views.is_rate(view);
        if is_limited || own >= all || !is_rate && self.is_protected(row, view) {
            return None;
        }
        let fair = (self.fair[row] / self.fair[level].max(self.fair[row])).min(1.0);
        let most = fair + (1.0 - fair) * if is_rate { UNFAIR } else { UNFAIR_HELD };
        let limit = self.views.limit(view).and_then(|limit| self.figure(level, limit));
        let finding = || {
            let limit = limit.unwrap_or(f64::NAN);
            self.finding(row, VerdictKind::Takes, view, own / all, limit)
        };
        (own / all >= most && has_others()).then(|| Finding { level: Some(level), ..finding() })
    }

    /// Returns the view of what others leave a refused group no room for.
    fn lacked(&self, of: &Finding) -> Option<usize> {
        #[cfg(test)]
        crate::page::verdict::tests::look();
        self.views.lacked(of.view)
    }

    /// Returns the nearest group above a row that may have no more of what is held.
    fn full(&self, row: usize, view: usize) -> Option<usize> {
        let mut groups = successors(Some(row), |&row| self.parents[row]);
        groups.find(|&row| self.is_full(row, view)).filter(|&full| full != row)
    }

    /// Whether others may lack what a group holds: some group above it is full, or it is unknown
    /// how much they may hold.
    pub(super) fn is_short(&self, row: usize, view: usize) -> bool {
        let limit = |row: usize| self.figure(row, self.views.limit(view)?);
        let mut above = successors(self.parents[row], |&row| self.parents[row]);
        above.clone().all(|row| limit(row).is_none()) || above.any(|row| self.is_full(row, view))
    }

    fn is_full(&self, row: usize, view: usize) -> bool {
        let limit = self.views.limit(view).and_then(|limit| self.figure(row, limit));
        limit.is_some_and(|limit| self.figure(row, view).unwrap_or(0.0) >= limit * FULL)
    }

    /// Returns for which part of the time a tenant waits for room, if it does.
    fn stall(&self, row: usize) -> Option<(usize, f64)> {
        self.most_of(row, Role::Pressure).filter(|(_, part)| *part >= STALLED)
    }

    /// Returns the view of that role in which a group has the most, and how much.
    fn most_of(&self, row: usize, role: Role) -> Option<(usize, f64)> {
        let figures =
            self.views.with(role).filter_map(|view| Some((view, self.figure(row, view)?)));
        figures.max_by(|a, b| a.1.total_cmp(&b.1))
    }

    /// Returns, for each row, the group within which another tenant can be why it waits or does
    /// less: the nearest one on the way to the root whose own limit refuses, or else the root. A
    /// tenant at its own limit has itself to blame. So has one that waits for room, as it is not
    /// known at which limit it waits.
    pub(super) fn shares(&self) -> Vec<usize> {
        let mut is_limited = vec![false; self.rows.len()];
        for (_, own) in &self.refusals {
            is_limited.iter_mut().zip(own).for_each(|(is, n)| *is |= *n > 0.0);
        }
        for &row in &self.tenants {
            is_limited[row] |= self.stall(row).is_some();
        }
        // A parent stands before its children.
        let mut shares = vec![0; self.rows.len()];
        for row in 0..shares.len() {
            let Some(parent) = self.parents[row] else { continue };
            shares[row] = if is_limited[row] { row } else { shares[parent] };
        }
        shares
    }

    /// Returns the group within which another tenant can have taken what this one held: the nearest
    /// one on the way to the root that lately held more than its limit allows now, or else the
    /// root.
    pub(super) fn shares_held(&self, row: usize, view: usize) -> usize {
        let is_cut = |&row: &usize| {
            let limit = self.views.limit(view).and_then(|limit| self.figure(row, limit));
            limit.is_some_and(|limit| self.most(row, view) > limit as f32)
        };
        successors(Some(row), |&row| self.parents[row]).find(is_cut).unwrap_or(0)
    }
}
