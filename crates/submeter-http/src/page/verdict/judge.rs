//! Finds out what is true of one sample.

mod explain;
mod limits;

use std::collections::{HashMap, HashSet};

use super::super::dashboard::Remedy;
use super::super::history::History;
use super::super::sample::Row;
use super::super::views::{Role, Views};
use super::super::wire::{Shape, VerdictKind};

/// A tenant bursts at this many times its usual rate and this part of all; anything below is noise.
const BURSTS: f64 = 2.0;
const BURST_PART: f64 = 0.25;

/// A tenant does less or finds less if it has lost this part of its usual figure.
const LOST: f64 = 0.3;

/// A tenant takes most if it has its fair part and this part of the rest: of time, and of what is
/// held. Memory in use always has a holder, so a smaller part would accuse any large tenant.
const UNFAIR: f64 = 0.25;
const UNFAIR_HELD: f64 = 1.0 / 3.0;

/// With fewer requests in a sample, results and latencies are chance.
const FEW: f64 = 30.0;

/// How many tenants, those with the most requests, are checked for losses: looking at the past of
/// ten thousand takes longer than a sample may.
const NOTICED_MOST: usize = 200;

/// A wait is harm from this many nanoseconds and this many times the work on: a queue that nobody
/// notices has a few requests.
const WAIT_NS: f64 = 1e6;
const WAIT_TIMES: f64 = 10.0;

/// A tenant is slow if it is usually answered faster by this factor.
const SLOWER: f64 = 4.0;

/// A gain of this part of all memory, in this many samples, takes from what others had.
const GAINED: f64 = 0.1;
const GAIN_SAMPLES: usize = 30;

/// A server whose CPU time is below this part of the usual lacks what the machine gives to others:
/// none of its tenants is why requests wait.
const STARVED: f64 = 0.5;

/// Who uses less than this of one processor leaves all others time enough: if they wait, it is for
/// something else on the machine. But where little time is left for all, a queue of this many
/// requests still keeps others waiting.
const CORES: f64 = 0.1;
const QUEUED: f64 = 100.0;

/// The weight of a group that declares none.
const WEIGHT: f64 = 100.0;

/// Minimum number of samples from which a usual value is known.
const KNOWN: usize = 4;

/// One thing that is true of one tenant.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Finding {
    pub(super) kind: VerdictKind,
    /// The tenant's row in the sample.
    pub(super) row: usize,
    pub(super) id: u32,
    /// The index of the view.
    pub(super) view: usize,
    /// How much, and what it is compared with. The meaning of both depends on the kind.
    pub(super) amount: f64,
    pub(super) than: f64,
    /// What the view's figure usually is, if the finding is based on it.
    pub(super) usual: Option<f64>,
    /// For a tenant to blame: other views of which it has most, with its parts of them.
    pub(super) also: Vec<(usize, f64)>,
    /// The row of the level of whose limit it has most. `amount` is a part of that level's, and
    /// `than` the limit.
    pub(super) level: Option<usize>,
}

impl Finding {
    /// Returns the views of which the tenant has most, with its parts of them.
    fn views(&self) -> impl Iterator<Item = (usize, f64)> + '_ {
        self.also.iter().copied().chain([(self.view, self.amount)])
    }

    /// Adds what the view's figure usually is.
    fn usually(self, usual: f64) -> Finding {
        Finding { usual: Some(usual), ..self }
    }
}

/// What is known from earlier samples.
#[derive(Clone, Copy)]
pub(super) struct Before<'a> {
    /// Returns what was usual in a view when a verdict began that still lasts. Otherwise the
    /// verdict's own figures would become usual.
    pub(super) usual: &'a dyn Fn(VerdictKind, u32, usize) -> Option<f64>,
    /// Returns the amount in a group's current verdict.
    pub(super) said: &'a dyn Fn(VerdictKind, u32) -> Option<f64>,
}

/// Everything that a sample is judged by.
#[derive(Clone, Copy)]
pub(in super::super) struct Case<'a> {
    pub(in super::super) views: &'a Views,
    pub(in super::super) rows: &'a [Row],
    /// The length of the sample, in seconds.
    pub(in super::super) window_s: f64,
    pub(in super::super) history: &'a History,
    pub(in super::super) remedy: Option<&'a Remedy>,
}

/// The tenants of one sample.
struct Scene<'a> {
    views: &'a Views,
    rows: &'a [Row],
    window_s: f64,
    history: &'a History,
    before: Before<'a>,
    /// For each row, the row of its parent.
    parents: Vec<Option<usize>>,
    /// Rows of groups that have none below them: a group with others below it is a level, not a
    /// tenant.
    tenants: Vec<usize>,
    /// Rows of levels below the root: whole subtrees, which are compared with their siblings.
    levels: Vec<usize>,
    /// The view that tells how busy a tenant is, that of waits, that of the work waited for, and
    /// that of processors, if tenants contend for them.
    first: Option<usize>,
    wait: Option<usize>,
    work: Option<usize>,
    cpu: Option<usize>,
    /// For each row, the part that it would have if all active tenants shared by weight; without
    /// weights, equally.
    fair: Vec<f64>,
    /// For each view of refusals, how often each group's own limit refuses.
    refusals: Vec<(usize, Vec<f64>)>,
    /// For each row, the group within which another tenant may keep it waiting: see
    /// [`shares`](Scene::shares).
    shares: Vec<usize>,
}

/// Returns what is true of a sample.
pub(super) fn judge(case: Case<'_>, before: Before<'_>) -> Vec<Finding> {
    let scene = Scene::new(case, before);
    let mut found = scene.refused();
    let blamed = scene.blame();
    let harmed = scene.harmed(&blamed);
    // Computed once for each group: all of ten thousand tenants may wait.
    let waiting = || harmed.iter().filter(|harm| harm.kind == VerdictKind::Waits);
    let groups: HashSet<usize> = waiting().map(|harm| scene.shares[harm.row]).collect();
    let pairs = || {
        let pairs = blamed.iter().flat_map(|of| groups.iter().map(|&group| (of.row, group)));
        pairs.filter(|&(row, group)| scene.is_within(row, group))
    };
    let shared: HashSet<(usize, usize)> =
        pairs().filter(|&(row, group)| scene.is_shared(row, group)).collect();
    let is_known = blamed.iter().any(|finding| !scene.is_new(finding));
    let rests: HashSet<usize> = pairs().map(|(_, group)| group).collect();
    let rests: HashSet<usize> =
        rests.into_iter().filter(|&group| scene.is_rest(group, is_known)).collect();
    let explains = |finding: &Finding, harm: &Finding| {
        let group = scene.shares[harm.row];
        let may_wait = || {
            shared.contains(&(finding.row, group))
                && !(rests.contains(&group) && scene.is_new(finding))
        };
        (harm.kind != VerdictKind::Waits || may_wait()) && scene.explains(finding, harm)
    };
    // Use that harms no tenant is no news. While another bursts, a tenant at its usual rate is not
    // why.
    let is_burst = blamed.iter().any(|finding| {
        let is_why = || harmed.iter().any(|harm| explains(finding, harm));
        finding.kind == VerdictKind::Bursts && is_why()
    });
    let is_as_always = |finding: &Finding, harm: &Finding| {
        let is_of_time = harm.kind != VerdictKind::FindsLess;
        is_burst && is_of_time && finding.kind == VerdictKind::Takes && scene.is_new(finding)
    };
    let fits = |finding: &Finding| {
        harmed.iter().any(|harm| explains(finding, harm) && !is_as_always(finding, harm))
    };
    let blamed: Vec<_> = blamed.into_iter().filter(fits).collect();
    // If a level and a group below it are both to blame, the one below is more precise.
    let is_within = |other: &Finding, level: &Finding| {
        other.row != level.row && scene.is_within(other.row, level.row)
    };
    let is_exact = |level: &&Finding| !blamed.iter().any(|other| is_within(other, level));
    let blamed: Vec<_> = blamed.iter().filter(is_exact).cloned().collect();
    // If none is to blame and several wait, the whole server is too busy. A tenant that waits alone
    // waits behind its own requests. Waits at a limit that refuses are reported with that limit.
    let waits_for_all = |harm: &&Finding| scene.shares[harm.row] == 0;
    let is_too_busy = waiting().filter(waits_for_all).count() > 1;
    let is_new = |harm: &&Finding| {
        let is_explained = blamed.iter().any(|finding| explains(finding, harm));
        is_explained || is_too_busy && harm.kind == VerdictKind::Waits && waits_for_all(harm)
    };
    found.extend(harmed.iter().filter(is_new).cloned());
    scene.add_crowding(&mut found, &blamed);
    found.extend(blamed);
    found
}

impl<'a> Scene<'a> {
    fn new(case: Case<'a>, before: Before<'a>) -> Scene<'a> {
        let Case { views, rows, window_s, history, remedy: _ } = case;
        let rows_by_id: HashMap<u32, usize> =
            rows.iter().enumerate().map(|(at, row)| (row.id, at)).collect();
        let parents: Vec<Option<usize>> =
            rows.iter().map(|row| rows_by_id.get(&row.parent?).copied()).collect();
        let with_children: HashSet<usize> = parents.iter().flatten().copied().collect();
        let below_root = (0..rows.len()).filter(|&at| parents[at].is_some());
        let (levels, tenants) = below_root.partition(|at| with_children.contains(at));
        let [first, wait] = [Role::Contended, Role::Wait].map(|role| views.with(role).next());
        let work = wait.and_then(|wait| views.work(wait));
        let cpu = views.divided().filter(|&view| views.shape(view) == Shape::Cores);
        let (fair, refusals, shares) = (Vec::new(), Vec::new(), Vec::new());
        let mut scene = Scene {
            views,
            rows,
            window_s,
            history,
            before,
            parents,
            tenants,
            levels,
            first,
            wait,
            work,
            cpu,
            fair,
            refusals,
            shares,
        };
        scene.fair = scene.fair_parts();
        let of_view = |view| (view, scene.own_refusals(view));
        scene.refusals = views.with(Role::Refusals).map(of_view).collect();
        scene.shares = scene.shares();
        scene
    }

    fn fair_parts(&self) -> Vec<f64> {
        let mut fair = vec![0.0; self.rows.len()];
        let weight = self.views.with(Role::Weight).next();
        let weight = |row: usize| weight.and_then(|view| self.figure(row, view)).unwrap_or(WEIGHT);
        // A parent comes before its children.
        let mut weights = vec![1.0; self.rows.len()];
        for row in 0..self.rows.len() {
            if let Some(parent) = self.parents[row] {
                weights[row] = weights[parent] * weight(row) / WEIGHT;
            }
        }
        let is_active = |row: usize| self.first.is_some_and(|first| self.part(row, first) > 0.0);
        let active = || self.tenants.iter().copied().filter(|&row| is_active(row));
        let all: f64 = active().map(|row| weights[row]).sum();
        for tenant in active() {
            let mut next = Some(tenant);
            while let Some(row) = next {
                fair[row] += weights[tenant] / all;
                next = self.parents[row];
            }
        }
        // An idle tenant would have as much as any other.
        let one = 1.0 / active().count().max(1) as f64;
        for &row in &self.tenants {
            if !is_active(row) {
                fair[row] = one;
            }
        }
        fair
    }

    /// Whether a row is another, or below it.
    fn is_within(&self, row: usize, level: usize) -> bool {
        #[cfg(test)]
        super::tests::look();
        std::iter::successors(Some(row), |&row| self.parents[row]).any(|row| row == level)
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

    /// Returns what a figure usually is: its median, or the value from before it was found. With a
    /// lower quantile, a tenant that recovers from another's burst would seem to burst.
    fn usual(&self, kind: VerdictKind, row: usize, view: usize) -> Option<f64> {
        let id = self.rows[row].id;
        if let Some(before) = (self.before.usual)(kind, id, view) {
            return Some(before);
        }
        // Before its past begins, a tenant did nothing.
        let idle = (self.views.is_rate(view) && !self.history.is_full()).then_some(0.0);
        let line = self.history.line(id, view);
        let mut line: Vec<f32> = line.filter_map(|value| value.or(idle)).collect();
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
    ) -> Finding {
        let (id, also) = (self.rows[row].id, Vec::new());
        Finding { kind, row, id, view, amount, than, usual: None, also, level: None }
    }

    /// Returns the findings on tenants that could be to blame.
    fn blame(&self) -> Vec<Finding> {
        let mut found: Vec<Finding> = Vec::new();
        let cpu = self.cpu;
        let usual = cpu.and_then(|cpu| Some((cpu, self.usual(VerdictKind::Waits, 0, cpu)?)));
        let is_starved = usual.is_some_and(|(cpu, usual)| self.all(cpu) < usual * STARVED);
        for view in self.views.with(Role::Contended) {
            let is_rate = self.views.is_rate(view);
            if is_rate && is_starved {
                continue;
            }
            for &row in self.tenants.iter().chain(&self.levels) {
                let part = self.part(row, view);
                // More than its fair part, by a good part of the rest. A tenant that holds no more
                // than its protection holds only its own, and so does one while there is room.
                let fair = self.fair[row];
                let most = fair + (1.0 - fair) * if is_rate { UNFAIR } else { UNFAIR_HELD };
                let is_own = || self.is_protected(row, view) || !self.is_short(row, view);
                if part < BURST_PART.min(most) || !is_rate && is_own() {
                    continue;
                }
                let usual = self.usual(VerdictKind::Bursts, row, view);
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
                match found.iter_mut().find(|of| of.row == row) {
                    Some(known) => known.also.push((view, part)),
                    None => {
                        let usual = usual.filter(|_| kind == VerdictKind::Bursts);
                        found.push(Finding { usual, ..self.finding(row, kind, view, part, than) });
                    }
                }
            }
        }
        // If it is known which tenant has the processors, many requests alone keep no other
        // waiting.
        let Some(cpu) = cpu else { return found };
        let with_reason = found.into_iter().filter_map(|finding| {
            let is_large = self.figure(finding.row, cpu).is_some_and(|cores| cores >= CORES);
            let is_large = is_large || self.queued(finding.row) >= QUEUED;
            if is_large && finding.views().any(|(view, _)| view == cpu) {
                return Some(finding);
            }
            let (view, amount) = finding.views().find(|(view, _)| !self.views.is_rate(*view))?;
            Some(Finding { kind: VerdictKind::Takes, view, amount, also: Vec::new(), ..finding })
        });
        with_reason.collect()
    }

    /// Returns how many requests of a group wait, on average: as many as come while one waits.
    fn queued(&self, row: usize) -> f64 {
        let figure = |view: Option<usize>| self.figure(row, view?);
        figure(self.first).zip(figure(self.wait)).map_or(0.0, |(rate, wait)| rate * wait / 1e9)
    }

    fn is_protected(&self, row: usize, view: usize) -> bool {
        let protection = self.views.protection(view).and_then(|view| self.figure(row, view));
        protection.is_some_and(|own| self.figure(row, view).is_some_and(|held| held <= own))
    }

    /// Returns which part of the whole a tenant has gained lately.
    fn gain(&self, row: usize, view: usize) -> f64 {
        let line: Vec<_> = self.history.line(self.rows[row].id, view).collect();
        let before = line.iter().rev().take(GAIN_SAMPLES).flatten().last();
        let all = self.all(view);
        before.map_or(0.0, |&before| {
            (self.figure(row, view).unwrap_or(0.0) - f64::from(before)) / all
        })
    }

    /// Returns the tenants that fare worse than they should, each with the first of its harms.
    fn harmed(&self, blamed: &[Finding]) -> Vec<Finding> {
        let blamed_for = |is_rate: bool| -> HashSet<usize> {
            let is_for = |finding: &&Finding| {
                finding.views().any(|(view, _)| self.views.is_rate(view) == is_rate)
            };
            blamed.iter().filter(is_for).map(|finding| finding.row).collect()
        };
        // A tenant that takes others' time waits for itself; one that holds much may wait for
        // others.
        let [for_time, for_memory] = [true, false].map(blamed_for);
        let all = || self.tenants.iter().copied();
        let mut found: Vec<_> =
            all().filter(|row| !for_time.contains(row)).filter_map(|row| self.waits(row)).collect();
        if blamed.is_empty() {
            return found;
        }
        let waiting: HashSet<usize> = found.iter().map(|finding| finding.row).collect();
        let bursts = blamed.iter().any(|finding| finding.kind == VerdictKind::Bursts);
        let asked = all().filter(|row| !waiting.contains(row));
        let mut asked: Vec<(f32, usize)> =
            asked.filter_map(|row| Some((self.noticed(row)?, row))).collect();
        if asked.len() > NOTICED_MOST {
            asked.select_nth_unstable_by(NOTICED_MOST, |a, b| b.0.total_cmp(&a.0));
            asked.truncate(NOTICED_MOST);
        }
        found.extend(asked.into_iter().filter_map(|(_, row)| {
            // If waits are measured, this tenant is known not to wait: it wants less.
            let waits_are_known = self.wait.is_some();
            let wants_less = waits_are_known || for_time.contains(&row);
            let slower = || if wants_less { None } else { self.slower(row) };
            let less = || if bursts && !wants_less { self.gets_less(row) } else { None };
            let finds = || if for_memory.contains(&row) { None } else { self.finds_less(row) };
            slower().or_else(finds).or_else(less)
        }));
        found
    }

    /// Returns the most of a view that a tenant had lately.
    fn most(&self, row: usize, view: usize) -> f32 {
        self.history.line(self.rows[row].id, view).flatten().fold(0.0, f32::max)
    }

    /// Returns the most requests that a tenant made lately, if they are enough to judge by.
    fn noticed(&self, row: usize) -> Option<f32> {
        let most = self.most(row, self.first?);
        self.is_enough(f64::from(most)).then_some(most)
    }

    /// Whether a rate has enough requests to make the sample's other figures meaningful.
    fn is_enough(&self, rate: f64) -> bool {
        rate * self.window_s >= FEW
    }

    /// Whether a tenant made enough requests to make its figures meaningful.
    fn is_busy(&self, row: usize) -> bool {
        self.first
            .and_then(|first| self.figure(row, first))
            .is_some_and(|rate| self.is_enough(rate))
    }

    fn waits(&self, row: usize) -> Option<Finding> {
        // At a limit of its own it waits for no other tenant.
        if self.shares[row] == row {
            return None;
        }
        let view = self.wait?;
        let wait = self.figure(row, view).filter(|&wait| wait >= WAIT_NS)?;
        let work = self.figure(row, self.work?).filter(|&work| work > 0.0)?;
        (wait / work >= WAIT_TIMES)
            .then(|| self.finding(row, VerdictKind::Waits, view, wait, wait / work))
    }

    fn slower(&self, row: usize) -> Option<Finding> {
        if !self.is_busy(row) {
            return None;
        }
        let slow = |view: usize| {
            let usual = self.usual(VerdictKind::Slower, row, view)?;
            let now = self.figure(row, view)?;
            let is_slow = now >= WAIT_NS && now >= usual * SLOWER;
            is_slow.then(|| self.finding(row, VerdictKind::Slower, view, now, usual).usually(usual))
        };
        self.views.with(Role::WorseHigh).find_map(slow)
    }

    fn finds_less(&self, row: usize) -> Option<Finding> {
        if !self.is_busy(row) {
            return None;
        }
        let fewer = |view: usize| {
            let usual = self.usual(VerdictKind::FindsLess, row, view)?;
            let now = self.figure(row, view)?;
            let is_less = now < usual * (1.0 - LOST);
            is_less
                .then(|| self.finding(row, VerdictKind::FindsLess, view, now, usual).usually(usual))
        };
        self.views.with(Role::WorseLow).find_map(fewer)
    }

    /// A tenant with less than usual suffers only while another bursts: otherwise it has less to
    /// do. A tenant that does next to nothing wants nothing: it is a job that has ended.
    fn gets_less(&self, row: usize) -> Option<Finding> {
        if !self.is_busy(row) {
            return None;
        }
        let view = self.first?;
        let usual = self.usual(VerdictKind::GetsLess, row, view)?;
        let lost = 1.0 - self.figure(row, view).unwrap_or(0.0) / usual;
        (self.is_enough(usual) && lost > LOST)
            .then(|| self.finding(row, VerdictKind::GetsLess, view, lost, 0.0).usually(usual))
    }
}
