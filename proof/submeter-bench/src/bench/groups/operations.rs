//! The cost of each operation.

use std::hint::black_box;
use std::io;
use std::rc::Rc;
use std::time::{Duration, Instant};

use submeter::Group;

use super::crowd::{Crowd, Made};
use super::{VARIANT, ns_each, params};
use crate::bench::runner::Cell;

/// How long one sample of a short operation runs.
const SAMPLE: Duration = Duration::from_millis(3);
/// Operations between two clock reads, for those that take nanoseconds and for those that take
/// microseconds.
const SHORT: usize = 512;
const LONG: usize = 8;
/// Groups that are created or killed in one sample.
const BATCH: usize = 64;

/// Does one operation, given its number.
type Act = fn(&Made, usize);

/// Operations that run in a loop: name, operations between two clock reads, and the operation.
const LOOPED: [(&str, usize, Act); 7] = [
    ("add_one", SHORT, |made, _| made.leaves[0].add(made.counter, 1)),
    ("add_any", SHORT, |made, n| made.any(n).add(made.counter, 1)),
    ("enter_one", SHORT, |made, _| made.leaves[0].run(|| black_box(()))),
    ("enter_any", SHORT, |made, n| made.any(n).run(|| black_box(()))),
    ("read_any", SHORT, |made, n| _ = black_box(made.any(n).read(made.counter))),
    ("sum_any", LONG, |made, n| {
        let group = made.any(n);
        group.add(made.counter, 1);
        black_box(group.sum(made.counter));
    }),
    ("flush_one", LONG, |made, n| {
        made.any(n).add(made.counter, 1);
        black_box(made.tree.flush());
    }),
];

/// Measures once, in nanoseconds.
type Once = fn(&Made) -> io::Result<f64>;

/// Operations that need untimed preparation or cleanup.
const PREPARED: [(&str, Once); 4] =
    [("flush_all", flush_all), ("create", create), ("kill", kill), ("kill_subtree", kill_subtree)];

/// Returns the cells of all operations on one tree.
pub(super) fn cells(cpu: usize, crowd: &Rc<Crowd>) -> Vec<Vec<Cell>> {
    let mut groups = Vec::new();
    for (name, batch, act) in LOOPED {
        groups.push(cell(cpu, crowd, name, move |made| Ok(looped(made, batch, act))));
    }
    for (name, once) in PREPARED {
        groups.push(cell(cpu, crowd, name, once));
    }
    groups
}

fn cell(
    cpu: usize,
    crowd: &Rc<Crowd>,
    name: &'static str,
    measure: impl Fn(&Made) -> io::Result<f64> + Send + Sync + 'static,
) -> Vec<Cell> {
    let (params, crowd) = (params(name, "groups", crowd.size()), Rc::clone(crowd));
    let measure = move || {
        // Created by the first cell, outside the timed part.
        let made = crowd.get()?;
        super::pinned(cpu, "ns", &|| measure(&made))
    };
    vec![Cell::new(params, VARIANT, measure)]
}

fn looped(made: &Made, batch: usize, act: Act) -> f64 {
    // The group to return to. Entering it also starts the thread's clock outside the timed part.
    let _home = made.tree.root().enter();
    let mut done = 0;
    let mut some = || {
        (done..done + batch).for_each(|n| act(made, n));
        done += batch;
        done
    };
    let warmed = some();
    let start = Instant::now();
    while start.elapsed() < SAMPLE {
        some();
    }
    ns_each(start, some() - warmed)
}

fn flush_all(made: &Made) -> io::Result<f64> {
    made.tree.flush();
    made.leaves.iter().for_each(|leaf| leaf.add(made.counter, 1));
    let start = Instant::now();
    let report = made.tree.flush();
    let ns = ns_each(start, made.leaves.len());
    assert!(report.groups > made.leaves.len(), "every leaf, and every group above one");
    Ok(ns)
}

fn create(made: &Made) -> io::Result<f64> {
    let (parent, names) = temporary_parent(made)?;
    let start = Instant::now();
    for name in &names {
        parent.create_child(name).map_err(io::Error::other)?;
    }
    let ns = ns_each(start, names.len());
    end(made, &parent)?;
    Ok(ns)
}

fn kill(made: &Made) -> io::Result<f64> {
    let (parent, names) = temporary_parent(made)?;
    let create = |name: &String| parent.create_child(name).map_err(io::Error::other);
    let groups = names.iter().map(create).collect::<io::Result<Vec<Group>>>()?;
    let start = Instant::now();
    for group in groups {
        drop(group.kill().map_err(io::Error::other)?);
    }
    let ns = ns_each(start, names.len());
    end(made, &parent)?;
    Ok(ns)
}

fn kill_subtree(made: &Made) -> io::Result<f64> {
    let (parent, names) = temporary_parent(made)?;
    for name in &names {
        parent.create_child(name).map_err(io::Error::other)?;
    }
    let start = Instant::now();
    drop(parent.kill_subtree().map_err(io::Error::other)?);
    let ns = ns_each(start, names.len() + 1);
    drop(parent);
    made.tree.flush();
    Ok(ns)
}

/// A parent for groups that are created and killed, and their names.
fn temporary_parent(made: &Made) -> io::Result<(Group, Vec<String>)> {
    let parent = made.tree.create("/temporary_parent").map_err(io::Error::other)?;
    Ok((parent, (0..BATCH).map(|n| n.to_string()).collect()))
}

/// Restores the tree, and frees the words for reuse.
fn end(made: &Made, parent: &Group) -> io::Result<()> {
    parent.kill_subtree().map_err(io::Error::other)?;
    made.tree.flush();
    Ok(())
}
