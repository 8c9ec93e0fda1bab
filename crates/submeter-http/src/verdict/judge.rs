//! Finds what is true of one sample.

use std::collections::HashSet;

use super::super::history::History;
use super::super::sample::Row;
use super::super::views::{Role, Views};
use super::super::wire::VerdictKind;

/// A tenant bursts if it has so many times its usual rate and such a part of all; below is noise.
const BURSTS: f64 = 2.0;
const BURST_PART: f64 = 0.25;

/// A tenant does or finds less that has lost such a part of what it usually has.
const LOST: f64 = 0.3;

/// Who never had such a part of all is not asked what it lost, and of the others only so many:
/// to look at the past of ten thousand takes longer than a sample may.
const NOTICED: f64 = 0.002;
const NOTICED_MOST: usize = 200;

/// A wait is harm from so many nanoseconds and so many times the work on: a queue that nobody feels
/// has a few requests.
const WAIT_NS: f64 = 1e6;
const WAIT_TIMES: f64 = 10.0;

/// What is usually answered faster by such a factor is slow.
const SLOWER: f64 = 4.0;

/// Of pressure, an average that never falls to 0 again, less than such a part is noise.
const STALLED: f64 = 0.01;

/// So much of all memory, gained in so many samples, takes what others had.
const GAINED: f64 = 0.1;
const GAIN_SAMPLES: usize = 30;

/// Samples without which nothing is known to be usual.
const KNOWN: usize = 4;

/// One thing that is true of one tenant.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Finding {
    pub(super) kind: VerdictKind,
    pub(super) id: u32,
    /// By its place among the views.
    pub(super) view: usize,
    /// How much, and what it is compared with: what each is depends on the kind.
    pub(super) amount: f64,
    pub(super) than: f64,
    /// Of who is to blame: other views of which it has most, with its parts of them.
    pub(super) also: Vec<(usize, f64)>,
}

/// The tenants of one sample.
struct Scene<'a> {
    views: &'a Views,
    rows: &'a [Row],
    history: &'a History,
    /// Rows of groups without others below them; with them it is a level, not a tenant.
    tenants: Vec<usize>,
    /// What part each would have if all that do anything had the same.
    fair: f64,
}

/// Returns what is true of a sample, with the row that it is true of.
pub(super) fn judge(views: &Views, rows: &[Row], history: &History) -> Vec<(usize, Finding)> {
    let scene = Scene::new(views, rows, history);
    let mut found = scene.refused();
    let blamed = scene.blame();
    let harmed = scene.harmed(&blamed);
    // What harms nobody is no news.
    let fits = |finding: &Finding| harmed.iter().any(|harm| scene.explains(finding, harm));
    let blamed: Vec<_> = blamed.into_iter().filter(|(_, finding)| fits(finding)).collect();
    let is_new = |harm: &(usize, Finding)| {
        // A wait is harm by itself: where nobody is to blame, the whole server is too busy.
        let is_explained = blamed.iter().any(|(_, finding)| scene.explains(finding, harm));
        harm.1.kind == VerdictKind::Waits || is_explained
    };
    found.extend(harmed.iter().filter(|harm| is_new(harm)).cloned());
    found.extend(blamed);
    found
}

impl<'a> Scene<'a> {
    fn new(views: &'a Views, rows: &'a [Row], history: &'a History) -> Scene<'a> {
        let levels: HashSet<u32> = rows.iter().filter_map(|row| row.parent).collect();
        let is_tenant = |row: &Row| row.parent.is_some() && !levels.contains(&row.id);
        let tenants: Vec<usize> = (0..rows.len()).filter(|&at| is_tenant(&rows[at])).collect();
        let mut scene = Scene { views, rows, history, tenants, fair: 1.0 };
        if let Some(first) = views.with(Role::Contended).next() {
            let active = scene.tenants.iter().filter(|&&at| scene.part(at, first) > 0.0).count();
            scene.fair = 1.0 / active.max(1) as f64;
        }
        scene
    }

    fn figure(&self, row: usize, view: usize) -> Option<f64> {
        self.rows[row].figures[view].0
    }

    fn all(&self, view: usize) -> f64 {
        self.rows.first().and_then(|root| root.figures[view].0).unwrap_or(0.0)
    }

    fn part(&self, row: usize, view: usize) -> f64 {
        let all = self.all(view);
        if all > 0.0 { self.figure(row, view).unwrap_or(0.0) / all } else { 0.0 }
    }

    /// What a figure usually is: its median. By a lower quantile, who recovers from another's burst
    /// would seem to burst.
    fn usual(&self, row: usize, view: usize) -> Option<f64> {
        let mut line: Vec<f32> = self.history.line(self.rows[row].id, view).flatten().collect();
        if line.len() < KNOWN {
            return None;
        }
        let middle = line.len() / 2;
        let (_, usual, _) = line.select_nth_unstable_by(middle, f32::total_cmp);
        Some(f64::from(*usual))
    }

    fn finding(
        &self,
        row: usize,
        kind: VerdictKind,
        view: usize,
        amount: f64,
        than: f64,
    ) -> (usize, Finding) {
        let also = Vec::new();
        (row, Finding { kind, id: self.rows[row].id, view, amount, than, also })
    }

    /// Those whom a limit refuses or keeps waiting: by nobody's fault but their own.
    fn refused(&self) -> Vec<(usize, Finding)> {
        let mut found = Vec::new();
        for &row in &self.tenants {
            let most = |role: Role, least: f64| {
                let figures =
                    self.views.with(role).map(|view| (view, self.figure(row, view).unwrap_or(0.0)));
                figures.filter(|(_, n)| *n > 0.0 && *n >= least).max_by(|a, b| a.1.total_cmp(&b.1))
            };
            if let Some((view, amount)) = most(Role::Refusals, 0.0) {
                found.push(self.finding(row, VerdictKind::Refused, view, amount, 0.0));
            }
            if let Some((view, amount)) = most(Role::Pressure, STALLED) {
                found.push(self.finding(row, VerdictKind::Stalls, view, amount, 0.0));
            }
        }
        found
    }

    /// Those who could be to blame.
    fn blame(&self) -> Vec<(usize, Finding)> {
        let mut found: Vec<(usize, Finding)> = Vec::new();
        // Of one that has most of all, which is more than the fair part and half of the rest.
        let most = self.fair + (1.0 - self.fair) / 2.0;
        for view in self.views.with(Role::Contended) {
            let is_rate = self.views.is_rate(view);
            for &row in &self.tenants {
                let part = self.part(row, view);
                if part < BURST_PART.min(most) {
                    continue;
                }
                let usual = self.usual(row, view);
                let now = part * self.all(view);
                let kind = match usual {
                    Some(usual) if is_rate && part >= BURST_PART && now > usual * BURSTS => {
                        VerdictKind::Bursts
                    }
                    _ if self.tenants.len() > 1 && part >= most => VerdictKind::Takes,
                    _ if !is_rate && self.gain(row, view) >= GAINED => VerdictKind::Takes,
                    _ => continue,
                };
                let than = match usual {
                    Some(usual) if kind == VerdictKind::Bursts && usual > 0.0 => now / usual,
                    _ => 0.0,
                };
                match found.iter_mut().find(|(of, _)| *of == row) {
                    Some((_, known)) => known.also.push((view, part)),
                    None => found.push(self.finding(row, kind, view, part, than)),
                }
            }
        }
        found
    }

    /// Which part of all of a view a tenant has gained lately.
    fn gain(&self, row: usize, view: usize) -> f64 {
        let line: Vec<_> = self.history.line(self.rows[row].id, view).collect();
        let before = line.iter().rev().take(GAIN_SAMPLES).flatten().last();
        let all = self.all(view);
        before.map_or(0.0, |&before| {
            (self.figure(row, view).unwrap_or(0.0) - f64::from(before)) / all
        })
    }

    /// Those who have it worse than they should, each by the first of its harms.
    fn harmed(&self, blamed: &[(usize, Finding)]) -> Vec<(usize, Finding)> {
        let is_blamed: HashSet<usize> = blamed.iter().map(|(row, _)| *row).collect();
        let harmed = self.tenants.iter().copied().filter(|row| !is_blamed.contains(row));
        let waits = harmed.clone().filter_map(|row| self.waits(row));
        let mut found: Vec<_> = waits.collect();
        if blamed.is_empty() {
            return found;
        }
        let waiting: HashSet<usize> = found.iter().map(|(row, _)| *row).collect();
        let bursts = blamed.iter().any(|(_, finding)| finding.kind == VerdictKind::Bursts);
        let asked = harmed.filter(|row| !waiting.contains(row) && self.is_noticed(*row));
        found.extend(asked.take(NOTICED_MOST).filter_map(|row| {
            let less = || if bursts { self.gets_less(row) } else { None };
            self.slower(row).or_else(|| self.misses(row)).or_else(less)
        }));
        found
    }

    fn is_noticed(&self, row: usize) -> bool {
        let Some(first) = self.views.with(Role::Contended).next() else { return false };
        let least = self.all(first) * NOTICED;
        self.history.line(self.rows[row].id, first).flatten().any(|rate| f64::from(rate) >= least)
    }

    fn waits(&self, row: usize) -> Option<(usize, Finding)> {
        let view = self.views.with(Role::Wait).next()?;
        let work = self.figure(row, self.views.work(view)?)?;
        let wait = self.figure(row, view).filter(|&wait| wait >= WAIT_NS)?;
        let times = wait / work;
        (work > 0.0 && times >= WAIT_TIMES)
            .then(|| self.finding(row, VerdictKind::Waits, view, wait, times))
    }

    fn slower(&self, row: usize) -> Option<(usize, Finding)> {
        // Where waits are known, it is known that nobody waits.
        if self.views.with(Role::Wait).next().is_some() {
            return None;
        }
        let slow = |view: usize| {
            let (now, usual) = (self.figure(row, view)?, self.usual(row, view)?);
            let is_slow = now >= WAIT_NS && now >= usual * SLOWER;
            is_slow.then(|| self.finding(row, VerdictKind::Slower, view, now, usual))
        };
        self.views.with(Role::WorseHigh).find_map(slow)
    }

    fn misses(&self, row: usize) -> Option<(usize, Finding)> {
        let fewer = |view: usize| {
            let (now, usual) = (self.figure(row, view)?, self.usual(row, view)?);
            let is_less = now < usual * (1.0 - LOST);
            is_less.then(|| self.finding(row, VerdictKind::FindsLess, view, now, usual))
        };
        self.views.with(Role::WorseLow).find_map(fewer)
    }

    /// Who has less than usual suffers only while another bursts: else it has less to do.
    fn gets_less(&self, row: usize) -> Option<(usize, Finding)> {
        let view = self.views.with(Role::Contended).next()?;
        let usual = self.usual(row, view).filter(|&usual| usual > 0.0)?;
        let lost = 1.0 - self.figure(row, view).unwrap_or(0.0) / usual;
        (lost > LOST).then(|| self.finding(row, VerdictKind::GetsLess, view, lost, usual))
    }

    /// Whether what somebody takes can be why another has less: memory is why something is not
    /// found, and time is why somebody waits. Who takes more than a fair part of it has itself to
    /// blame.
    fn explains(&self, blamed: &Finding, (row, harm): &(usize, Finding)) -> bool {
        let views = blamed.also.iter().map(|(view, _)| *view).chain([blamed.view]);
        let mut views = views.filter(|&view| self.part(*row, view) <= self.fair);
        match harm.kind {
            VerdictKind::FindsLess => {
                views.any(|view| !self.views.is_rate(view) || blamed.kind == VerdictKind::Bursts)
            }
            _ => views.any(|view| self.views.is_rate(view)),
        }
    }
}
