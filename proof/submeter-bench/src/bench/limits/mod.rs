//! The `limits` table: what a charge against limits costs, far from them, at them and on the way in
//! and out, and what it takes in memory.
//!
//! Each limiter is checked in the run: what it grants and refuses in every sample, that nothing is
//! held afterwards, and, with a thread on each CPU that charges until it is refused, that exactly
//! the charges that fit were granted. A limiter that is wrong ends the run with an error.

mod crossing;
mod limiter;
mod memory;
#[cfg_attr(not(feature = "peers"), path = "no_peers.rs")]
mod peers;
mod variants;

use std::io;
use std::sync::Arc;

use super::runner::{Cell, Plan, Sample};
use super::threads::{rates, settings};
use crate::row::{Param, Params};
use limiter::{
    AMOUNT, Expected, FILL, Limiter, Shape, Tallies, Tally, check_empty, every_second_refused,
    fill, pairs,
};
use peers::Peers;
use variants::{Exchange, Flat, Groups, MutexTree, TwoAdds};

pub(super) use variants::Pools;

pub(crate) use memory::measure_quota_memory;

const TABLE: &str = "limits";
/// Levels with a limit, from the leaf to the root.
const LEVELS: [usize; 4] = [1, 4, 16, 64];
/// The levels of tenants with a service, a user and a session, for instance.
const USUAL: usize = 4;
/// How long a thread may run between two clock reads, in nanoseconds: long compared with the read,
/// and short compared with the gap that reveals a preemption.
const BATCH_NS: f64 = 30_000.0;
/// Operations between two clock reads, before it is known how long one takes.
const BATCH_FIRST: u32 = 8;

/// Returns the table's plan.
///
/// # Errors
/// When the CPUs of this process cannot be determined, or there is no memory for a tree.
pub(crate) fn plan() -> io::Result<Plan> {
    let [(one, first), (all, cpus)] = settings()?;
    let peers = Peers::new();
    let mut groups = Vec::new();
    for levels in LEVELS {
        for (name, cpus, own) in [(one, &first, false), (all, &cpus, true), (all, &cpus, false)] {
            // With one level there is only one leaf.
            if levels > 1 || !own {
                groups.push(far(&Setting { levels, name, cpus, own }, &peers)?);
            }
        }
    }
    for (levels, name, cpus, at_leaf) in [
        (1, one, &first, false),
        (1, all, &cpus, false),
        (USUAL, one, &first, true),
        (USUAL, all, &cpus, true),
        (USUAL, all, &cpus, false),
    ] {
        groups.push(at_limit(&Setting { levels, name, cpus, own: true }, at_leaf, &peers)?);
    }
    crossing::cells(&cpus, &mut groups)?;
    groups.push(memory::cells());
    Ok(Plan { mixed: true, notes: notes(), absent: peers.absent, ..Plan::new(TABLE, groups) })
}

/// Returns notes that a reader needs to understand the rows.
fn notes() -> Vec<String> {
    let notes = [
        "levels, leaves: charge and release of 64 bytes, far from the limit that every level has",
        "limit at: of two charges the second is refused, because one fills the limit of the leaf or the root; then the \
         first is released; refused charges count as charges",
        "crossing: into the root's limit by one large charge and a refused one (in), the release (back), and a charge and \
         release at each of 1,000 leaves before and after",
        "memory: growth of a fresh process per leaf; limited: with a limit on each; active: after a charge and its \
         release, or an add and its opposite, on one CPU or on each",
    ];
    notes.map(str::to_owned).to_vec()
}

/// Where a cell runs, and on what.
struct Setting<'a> {
    levels: usize,
    name: &'static str,
    cpus: &'a [usize],
    /// Whether each CPU has a leaf of its own.
    own: bool,
}

impl Setting<'_> {
    fn leaves(&self) -> usize {
        if self.own && self.levels > 1 { self.cpus.len() } else { 1 }
    }

    fn params(&self, name: &'static str, word: &'static str) -> Params {
        let levels = Param::number(self.levels as u64);
        let cpus = Param::word(self.name);
        Params::from([("levels", levels), ("cpus", cpus), (name, Param::word(word))])
    }
}

/// Returns the cells of one setting, far from the limits.
fn far(setting: &Setting<'_>, peers: &Peers) -> io::Result<Vec<Cell>> {
    let shape = Shape::far(setting.levels, setting.leaves());
    let params = setting.params("leaves", if setting.own { "own" } else { "one" });
    let mut subjects = vec![
        subject::<Groups>("submeter", shape)?,
        resized(shape)?,
        subject::<Pools>("pool_per_level", shape)?,
        subject::<MutexTree>("mutex_tree", shape)?,
        subject::<TwoAdds>("two_adds", shape)?,
        subject::<Exchange>("atomic_exchange", shape)?,
    ];
    if setting.levels == 1 {
        subjects.push(subject::<Flat>("limited_counter", shape)?);
    }
    let cell = |subject| cell(subject, &params, setting.cpus, Expected::Granted, no_check());
    let mut cells: Vec<Cell> = subjects.into_iter().map(cell).collect();
    cells.extend(peers.cells(&params, setting, Expected::Granted));
    Ok(cells)
}

/// Returns the cells of one setting, at the limit of each leaf or at that of the root.
fn at_limit(setting: &Setting<'_>, at_leaf: bool, peers: &Peers) -> io::Result<Vec<Cell>> {
    let params = setting.params("limit_at", if at_leaf { "leaf" } else { "root" });
    let alone = at_leaf || setting.cpus.len() == 1;
    let expected = if alone { Expected::Half } else { Expected::AtMostHalf };
    let shape = |charges| {
        let far = Shape::far(setting.levels, setting.leaves());
        match at_leaf {
            true => Shape { leaf_limit: charges * AMOUNT, ..far },
            false => Shape { root_limit: charges * AMOUNT, ..far },
        }
    };
    let (one, many, shared) = (shape(1), shape(FILL), !at_leaf);
    let cell = |(subject, check)| cell(subject, &params, setting.cpus, expected, check);
    let mut cells = vec![
        cell(limited::<Groups>("submeter", one, many, shared)?),
        cell(limited::<Pools>("pool_per_level", one, many, shared)?),
        cell(limited::<MutexTree>("mutex_tree", one, many, shared)?),
    ];
    if setting.levels == 1 {
        cells.push(cell(limited::<Flat>("limited_counter", one, many, shared)?));
    }
    cells.extend(peers.cells(&params, setting, expected));
    Ok(cells)
}

/// What is measured: a limiter and its loop.
struct Subject {
    variant: &'static str,
    work: Work,
    used: Box<dyn Fn() -> Vec<u64>>,
}

/// Runs the loop at a place that many times, and returns the result.
type Work = Box<dyn Fn(usize, u32) -> Tally + Sync>;

/// Checks the limiter on these CPUs, apart from what its loop was granted.
type Check = Box<dyn Fn(&[usize]) -> io::Result<()>>;

fn no_check() -> Check {
    Box::new(|_| Ok(()))
}

fn subject<L: Limiter>(variant: &'static str, shape: Shape) -> io::Result<Subject> {
    let limiter = Arc::new(L::new(shape)?);
    let own = Arc::clone(&limiter);
    let work = Box::new(move |place, times| pairs(&*own, place, times));
    Ok(Subject { variant, work, used: Box::new(move || limiter.used()) })
}

/// Makes the variant that resizes a charge: the guard and the handle in it stay.
fn resized(shape: Shape) -> io::Result<Subject> {
    let limiter = Arc::new(Groups::new(shape)?);
    let own = Arc::clone(&limiter);
    let work = move |place: usize, times: u32| {
        let quota = own.quota();
        let mut tally = Tally::default();
        // Once per batch, as a connection would do once in its life.
        let Ok(mut charge) = own.leaf(place).try_charge(quota, 0) else { return tally };
        for _ in 0..times {
            let grown = charge.resize(AMOUNT).is_ok();
            let shrunk = charge.resize(0).is_ok();
            tally.granted += u64::from(grown && shrunk);
        }
        tally.refused = u64::from(times) - tally.granted;
        tally
    };
    let used = Box::new(move || limiter.used());
    Ok(Subject { variant: "submeter_resize", work: Box::new(work), used })
}

/// Makes a limiter in which one charge fits, and the check of one in which [`FILL`] charges fit.
fn limited<L: Limiter>(
    variant: &'static str,
    one: Shape,
    many: Shape,
    shared: bool,
) -> io::Result<(Subject, Check)> {
    let (limiter, filled) = (Arc::new(L::new(one)?), L::new(many)?);
    let own = Arc::clone(&limiter);
    let work = Box::new(move |place, times| every_second_refused(&*own, place, times));
    let used = Box::new(move || limiter.used());
    let check: Check = Box::new(move |cpus| fill(variant, &filled, cpus, shared));
    Ok((Subject { variant, work, used }, check))
}

/// Returns the unit of rates: of a charge with its release, or of charges that may be refused.
fn unit(expected: Expected) -> &'static str {
    if expected == Expected::Granted { "pairs/s" } else { "charges/s" }
}

/// Makes a cell that measures the rate of all `cpus`, and checks what was granted.
fn cell(
    subject: Subject,
    params: &Params,
    cpus: &[usize],
    expected: Expected,
    check: Check,
) -> Cell {
    let (cpus, tallies) = (cpus.to_vec(), Tallies::new(cpus.len()));
    let Subject { variant, work, used } = subject;
    let unit = unit(expected);
    let mut batch = BATCH_FIRST;
    Cell::new(params.clone(), variant, move || {
        let work = &*work;
        let (rates, disturbed) =
            rates(&cpus, batch, &|place, times| tallies.add(place, work(place, times)))?;
        expected.check(variant, tallies.sum())?;
        check_empty(variant, &used())?;
        check(&cpus)?;
        let rate = rates.iter().sum::<f64>().round();
        // The first sample is a warm-up. A batch is even, because of pairs of charges.
        if batch == BATCH_FIRST {
            let each_ns = 1e9 * cpus.len() as f64 / rate.max(1.0);
            batch = (BATCH_NS / each_ns).clamp(f64::from(BATCH_FIRST) + 2.0, 8192.0) as u32 & !1;
        }
        Ok(Sample::of(unit, rate, disturbed))
    })
}

#[cfg(test)]
mod tests;
