//! What it costs to reach a limit and to leave it, with a thousand leaves that were charged.
//!
//! A design that reserves room on each CPU or at each leaf has to collect it here. A design that
//! keeps usage in atomics has nothing to collect.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use submeter_sys::cpu::set_affinity;
use submeter_sys::membarrier;

use super::USUAL;
use super::limiter::{AMOUNT, Limiter, Shape, check_empty};
use super::variants::{Groups, MutexTree, Pools};
use crate::bench::record::Reading;
use crate::bench::runner::{Cell, Sample};
use crate::bench::threads::Preemptions;
use crate::row::{Param, Params};

/// Leaves that were charged before, and are charged after.
const LEAVES: usize = 1000;
/// The root's limit.
const LIMIT: u64 = 1 << 30;
/// How long nothing is at the limit before it is crossed: longer than a design may stay exact after
/// a crossing to avoid the next one.
const CALM: Duration = Duration::from_millis(15);

/// Adds the cells, alone and while the other CPUs charge.
pub(super) fn cells(cpus: &[usize], groups: &mut Vec<Vec<Cell>>) -> io::Result<()> {
    // A kernel without membarrier has nothing to compare with.
    let barrier = membarrier::register_rseq().is_ok();
    let mut loads = vec![("idle", cpus[..1].to_vec())];
    if cpus.len() > 1 {
        loads.push(("charging", cpus.to_vec()));
    }
    for (load, cpus) in loads {
        let params =
            Params::from([("crossing", Param::word("root")), ("others", Param::word(load))]);
        let mut cells = vec![
            cell::<Groups>("submeter", &params, &cpus)?,
            cell::<Pools>("pool_per_level", &params, &cpus)?,
            cell::<MutexTree>("mutex_tree", &params, &cpus)?,
        ];
        if barrier {
            cells.push(barrier_cell(&params, &cpus)?);
        }
        groups.push(cells);
    }
    Ok(())
}

fn limiter<L: Limiter>(cpus: &[usize]) -> io::Result<Arc<L>> {
    // A leaf for each of the other CPUs, after the thousand.
    let shape = Shape { root_limit: LIMIT, ..Shape::far(USUAL, LEAVES + cpus.len() - 1) };
    L::new(shape).map(Arc::new)
}

fn cell<L: Limiter>(variant: &'static str, params: &Params, cpus: &[usize]) -> io::Result<Cell> {
    let (limiter, cpus) = (limiter::<L>(cpus)?, cpus.to_vec());
    Ok(Cell::new(params.clone(), variant, move || {
        thread::sleep(CALM);
        let act = || crossed(variant, &*limiter, cpus.len() as u64);
        let (parts, disturbed) = with_load(&*limiter, &cpus, &act)?;
        check_empty(variant, &limiter.used())?;
        let reading = |(part, us)| Reading::of("us", vec![us]).with("part", part);
        let readings = parts.into_iter().map(reading).collect();
        Ok(Sample { readings, disturbed, notes: Vec::new() })
    }))
}

fn barrier_cell(params: &Params, cpus: &[usize]) -> io::Result<Cell> {
    let (limiter, cpus) = (limiter::<Groups>(cpus)?, cpus.to_vec());
    Ok(Cell::new(params.clone(), "membarrier", move || {
        let act = || {
            let from = Instant::now();
            membarrier::rseq_barrier()?;
            Ok(us(from))
        };
        let (us, disturbed) = with_load(&*limiter, &cpus, &act)?;
        let readings = vec![Reading::of("us", vec![us]).with("part", "in")];
        Ok(Sample { readings, disturbed, notes: Vec::new() })
    }))
}

/// Microseconds of the parts of one crossing.
type Parts = [(&'static str, f64); 4];

/// Crosses into the root's limit and leaves it.
///
/// # Errors
/// When a charge was granted that does not fit, or one was refused that fits.
fn crossed<L: Limiter>(variant: &str, limiter: &L, cpus: u64) -> io::Result<Parts> {
    let wrong = |what: &str| io::Error::other(format!("{variant} {what}, which is a bug"));
    let every_leaf = || {
        let from = Instant::now();
        let granted = |n: &usize| limiter.charge(limiter.leaf(*n), AMOUNT).is_some();
        let all = (0..LEAVES).filter(granted).count();
        (us(from), all)
    };
    // Twice: what the leaves need for their first charge is not part of the cost of a crossing.
    every_leaf();
    let (before, granted) = every_leaf();
    if granted < LEAVES {
        return Err(wrong("refused charges far from the limit"));
    }
    // What the other CPUs may hold at this moment: one charge each.
    let others = (cpus - 1) * AMOUNT;
    let from = Instant::now();
    let large = limiter.charge(limiter.leaf(0), LIMIT - others);
    let second = limiter.charge(limiter.leaf(1), others + AMOUNT);
    let into = us(from);
    if large.is_none() {
        return Err(wrong("refused a charge that fits exactly"));
    }
    if second.is_some() {
        return Err(wrong("granted a charge beyond the limit"));
    }
    let from = Instant::now();
    drop(large);
    let back = us(from);
    let (after, granted) = every_leaf();
    if granted < LEAVES {
        return Err(wrong("refused charges after the limit was left"));
    }
    Ok([("in", into), ("back", back), ("leaves_before", before), ("leaves_after", after)])
}

/// Runs `act` on the first of `cpus` while the others charge and release; also returns whether a
/// thread was preempted.
fn with_load<L: Limiter, T: Send>(
    limiter: &L,
    cpus: &[usize],
    act: &(dyn Fn() -> io::Result<T> + Sync),
) -> io::Result<(T, bool)> {
    let (begun, ended) = (std::sync::Barrier::new(cpus.len()), AtomicBool::new(false));
    thread::scope(|scope| {
        let (begun, ended) = (&begun, &ended);
        let load = |(place, &cpu): (usize, &usize)| {
            scope.spawn(move || {
                let pinned = set_affinity(&[cpu]);
                let leaf = limiter.leaf(LEAVES + place);
                let preemptions = Preemptions::count();
                begun.wait();
                // Relaxed: hands over nothing; the threads are joined.
                while !ended.load(Ordering::Relaxed) {
                    // Refused while the limit is reached.
                    drop(limiter.charge(leaf, AMOUNT));
                }
                pinned.map(|()| preemptions.any())
            })
        };
        let load: Vec<_> = cpus[1..].iter().enumerate().map(load).collect();
        let timed = scope.spawn(move || {
            let pinned = set_affinity(&cpus[..1]);
            begun.wait();
            let preemptions = Preemptions::count();
            let found = pinned.and_then(|()| act());
            let disturbed = preemptions.any();
            // Relaxed: as above.
            ended.store(true, Ordering::Relaxed);
            found.map(|found| (found, disturbed))
        });
        let (found, mut disturbed) = timed.join().expect("it panics nowhere")?;
        for thread in load {
            disturbed |= thread.join().expect("it panics nowhere")?;
        }
        Ok((found, disturbed))
    })
}

fn us(from: Instant) -> f64 {
    from.elapsed().as_nanos() as f64 / 1e3
}
