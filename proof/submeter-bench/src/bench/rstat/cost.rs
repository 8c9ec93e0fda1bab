//! The cost of one operation when nothing disturbs it, and the memory of a group that is never
//! used.

use std::cell::RefCell;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use submeter_percpu::{Area, Block};

use super::clock::Clock;
use super::designs::{
    Before, Control, Design, DoublyLinked, Patch1, Patch1To2, Patch1To3, Shape, Submeter, WalkUp,
};
use super::synthetic::METRICS;
use super::{cells, reading, team, variants};
use crate::bench::proc_memory::{available_bytes, resident_bytes};
use crate::bench::runner::{Cell, Measure, Sample};
use crate::bench::threads::{Preemptions, Work, rate, settings};
use crate::row::{Param, Params};

/// Idle groups whose memory is measured, in a full run and in a quick one.
const IDLE: [usize; 2] = [100_000, 10_000];
/// Idle groups beside those that are flushed, in a full run and in a quick one.
const CLEAN: [usize; 2] = [1_000_000, 10_000];
/// With less available memory there are fewer clean groups.
const MEMORY_BYTES_MIN: u64 = 2 << 30;
/// Children per parent, if there are many groups.
const SIBLINGS: usize = 1000;
/// The length of the order in which leaves are updated repeatedly.
const ORDER: usize = 1024;
/// Flushes per sample.
const FLUSHES: usize = 8;

/// Returns the cells, and notes on what is not measured as planned.
///
/// # Errors
/// When there is no address space for a tree.
pub(super) fn groups(quick: bool) -> io::Result<(Vec<Vec<Cell>>, Vec<String>)> {
    let mut notes = Vec::new();
    let (idle, mut clean) = (IDLE[usize::from(quick)], CLEAN[usize::from(quick)]);
    if available_bytes().is_some_and(|bytes| bytes < MEMORY_BYTES_MIN) && clean > idle {
        notes.push(format!("{idle} clean groups, because less than 2 GiB of memory are free"));
        clean = idle;
    }
    let crowd = Rc::new(RefCell::new(None));
    let mut groups = vec![idle_group(&crowd, idle)];
    let params = Params::from([("workload", Param::word("marks"))]);
    groups.push(cells(&params, variants!(marks)));
    for (name, cpus) in settings()? {
        for leaf in ["one", "random"] {
            let params = Params::from([
                ("workload", Param::word("update")),
                ("cpus", Param::word(name)),
                ("leaf", Param::word(leaf)),
            ]);
            let cell = |updates: Updates| (updates.variant, update(&cpus, updates));
            let variants = updates(leaf == "one")?.into_iter().map(cell).collect();
            groups.push(cells(&params, variants));
        }
    }
    let params = |clean: usize| {
        Params::from([
            ("workload", Param::word("flush")),
            ("clean_groups", Param::number(clean as u64)),
        ])
    };
    groups.push(cells(&params(0), flushes()));
    let crowded = flush(move || crowded(&crowd, clean));
    groups.push(cells(&params(clean), vec![("submeter", crowded)]));
    Ok((groups, notes))
}

// ---- updates -----------------------------------------------------------------------------------

/// A loop of updates, and their total.
struct Updates {
    variant: &'static str,
    work: Work,
    /// Read while no thread updates.
    total: Box<dyn Fn() -> i64>,
}

impl Updates {
    fn new(
        variant: &'static str,
        work: impl Fn(u32) + Send + Sync + 'static,
        total: impl Fn() -> i64 + 'static,
    ) -> Updates {
        Updates { variant, work: Arc::new(work), total: Box::new(total) }
    }
}

/// The loops: each adds 1 to the first metric of one leaf, or of leaves in scattered order.
fn updates(one: bool) -> io::Result<Vec<Updates>> {
    let shape = Shape::tens(METRICS);
    let leaves = order(&shape);
    let area = Area::new(|_| 0)?;
    let blocks: Vec<Block> =
        (0..shape.groups()).map(|_| area.block(METRICS)).collect::<io::Result<_>>()?;
    let (blocks, walk_up) = (Arc::new(blocks), Arc::new(WalkUp::new(&shape)?));
    let groups = Arc::new(Submeter::new(&shape)?);
    let (leaf, root) = (leaves[0], shape.root());
    let (counted, walked) = (Arc::clone(&blocks), Arc::clone(&walk_up));
    let grouped = Arc::clone(&groups);
    let counted = move || counted.iter().map(|block| block.sum(0)).sum();
    let walked = move || walked.total(root, 0);
    let grouped = move || grouped.exact(root, 0);
    if !one {
        let increment = over(&leaves, move |leaf| blocks[leaf as usize].add(0, 1));
        let walk_up = over(&leaves, move |leaf| walk_up.update((), leaf, 0, 1));
        let group = over(&leaves, move |leaf| groups.update((), leaf, 0, 1));
        return Ok(vec![
            Updates::new("rseq_add", increment, counted),
            Updates::new("walk_up", walk_up, walked),
            Updates::new("submeter_group", group, grouped),
        ]);
    }
    let increment = move |n| {
        let block = &blocks[leaf as usize];
        (0..n).for_each(|_| block.add(0, 1));
    };
    let walk_up = move |n| (0..n).for_each(|_| walk_up.update((), leaf, 0, 1));
    let group = move |n| {
        let (group, metric) = groups.pair(leaf, 0);
        (0..n).for_each(|_| group.adjust(metric, 1));
    };
    Ok(vec![
        Updates::new("rseq_add", increment, counted),
        Updates::new("walk_up", walk_up, walked),
        Updates::new("submeter_group", group, grouped),
    ])
}

/// Makes the loop over leaves.
fn over(
    leaves: &[u32],
    act: impl Fn(u32) + Send + Sync + 'static,
) -> impl Fn(u32) + Send + Sync + 'static {
    let leaves = leaves.to_vec();
    move |n| leaves.iter().cycle().take(n as usize).for_each(|&leaf| act(leaf))
}

/// Returns leaves in scattered order, each about equally often.
fn order(shape: &Shape) -> Vec<u32> {
    let leaves = shape.groups() - SIBLINGS;
    // 367 and 1,000 have no common divisor: consecutive leaves are far apart, and each comes once
    // per thousand.
    (0..ORDER).map(|n| (leaves + n * 367 % SIBLINGS) as u32).collect()
}

fn update(cpus: &[usize], updates: Updates) -> Measure {
    let (cpus, done) = (cpus.to_vec(), AtomicU64::new(0));
    let Updates { variant, work, total } = updates;
    Box::new(move || {
        let counted = |n: u32| {
            work(n);
            // Relaxed: read below, after the threads were joined. Once per batch, so its cost is
            // negligible.
            done.fetch_add(u64::from(n), Ordering::Relaxed);
        };
        let (per_s, disturbed) = rate(&cpus, &counted)?;
        // Relaxed: as above.
        let done = done.load(Ordering::Relaxed).cast_signed();
        assert_eq!(total(), done, "{variant} counts every update");
        let ns = cpus.len() as f64 * 1e9 / per_s;
        let readings = vec![reading("update", "ns", ns), reading("rate", "updates/s", per_s)];
        Ok(Sample { readings, disturbed, notes: Vec::new() })
    })
}

// ---- flushes -----------------------------------------------------------------------------------

/// The designs that flush.
fn flushes() -> Vec<(&'static str, Measure)> {
    fn of<D: Design>(_counts: bool) -> Measure {
        flush(|| D::new(&Shape::tens(METRICS)).map(Rc::new))
    }
    let mut designs = variants!(of);
    designs.retain(|(variant, _)| !["walk_up", "control", "barrier"].contains(variant));
    designs
}

/// Measures flushes of a tree in which every metric of every leaf was updated, on the CPU that
/// updated them.
fn flush<D: Design>(make: impl Fn() -> io::Result<Rc<D>> + 'static) -> Measure {
    let (mut design, mut flushes) = (None, 0);
    Box::new(move || {
        if design.is_none() {
            design = Some(make()?);
        }
        let design: &D = design.as_ref().expect("made above");
        let (cpus, clock) = (submeter_sys::cpu::affinity()?, Clock::new());
        let leaves = order(&Shape::tens(METRICS));
        let work = |_, slot| {
            let (preemptions, mut holds_ns) = (Preemptions::count(), Vec::new());
            let flush = |_| {
                for &leaf in &leaves {
                    (0..METRICS).for_each(|metric| design.update(slot, leaf, metric, 1));
                }
                let from = clock.ticks();
                let nodes = design.flush(0, &mut holds_ns);
                let ns = clock.since_ns(from) as f64 / nodes.max(1) as f64;
                reading("flush_per_node", "ns", ns)
            };
            let readings = (0..FLUSHES).map(flush).collect();
            Sample { readings, disturbed: preemptions.any(), notes: Vec::new() }
        };
        let found = team::together(&cpus[..1], |_| design.register(), work)?;
        flushes += FLUSHES;
        for metric in 0..METRICS {
            let expected = (flushes * ORDER) as i64;
            assert_eq!(design.total(0, metric), expected, "flushes leave no update behind");
        }
        Ok(found.into_iter().next().expect("one thread, one result"))
    })
}

// ---- memory ------------------------------------------------------------------------------------

/// A tree, and how many groups were added to it.
type Crowd = Rc<RefCell<Option<(Rc<Submeter>, usize)>>>;

/// Returns the tree, after adding groups until there are at least `groups`.
fn crowded(crowd: &Crowd, groups: usize) -> io::Result<Rc<Submeter>> {
    let mut crowd = crowd.borrow_mut();
    if crowd.is_none() {
        *crowd = Some((Rc::new(Submeter::new(&Shape::tens(METRICS))?), 0));
    }
    let (submeter, created) = crowd.as_mut().expect("made above");
    while *created < groups {
        let path = format!("/crowd-{}", *created / SIBLINGS);
        let parent = submeter.tree().get_or_create(&path).map_err(io::Error::other)?;
        let (from, until) = (*created % SIBLINGS, groups - (*created - *created % SIBLINGS));
        // The parent counts as the first of its thousand.
        for child in from.max(1)..until.min(SIBLINGS) {
            parent.create_child(&child.to_string()).map_err(io::Error::other)?;
        }
        *created += until.min(SIBLINGS) - from;
    }
    // A flush makes the tree's flush state grow, which belongs to the cost.
    submeter.tree().flush();
    Ok(Rc::clone(submeter))
}

/// Measures the memory of an unused group by the growth of the process. Once, because freed memory
/// would be reused.
fn idle_group(crowd: &Crowd, groups: usize) -> Vec<Cell> {
    let params =
        Params::from([("workload", Param::word("idle")), ("groups", Param::number(groups as u64))]);
    let crowd = Rc::clone(crowd);
    let measure = move || {
        crowded(&crowd, 0)?;
        let before = resident_bytes();
        crowded(&crowd, groups)?;
        let grown = before.zip(resident_bytes()).map(|(before, after)| {
            let bytes = (after as f64 - before as f64) / groups as f64;
            reading("bytes_per_group", "bytes", bytes)
        });
        Ok(Sample::kept(grown.into_iter().collect()))
    };
    vec![Cell::once(params, "submeter", measure)]
}

fn marks<D: Design>(_counts: bool) -> Measure {
    Box::new(|| {
        let bytes = D::mark_bytes(&Shape::tens(METRICS));
        Ok(Sample::kept(vec![reading("bytes_per_group_and_cpu", "bytes", bytes)]))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_order_has_every_leaf() {
        let shape = Shape::tens(METRICS);
        let mut leaves = order(&shape);
        leaves.sort_unstable();
        leaves.dedup();
        assert_eq!(leaves, (111..1111).collect::<Vec<u32>>());
    }

    #[test]
    fn a_crowd_grows_to_its_size() {
        let crowd = Crowd::default();
        for groups in [0, 1500, 2500] {
            let tree = crowded(&crowd, groups).expect("address space");
            assert_eq!(tree.tree().group_count(), 1111 + groups);
        }
    }
}
