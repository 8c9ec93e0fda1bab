//! What operations cost here, and what a program without submeter would do instead.

use std::sync::atomic::{AtomicU64, Ordering, compiler_fence};

use crossbeam_utils::CachePadded;
use serde::Serialize;
use submeter::refs::PercpuRef;
use submeter::switch::clock::thread_cpu_ns;
use submeter::{Bytes, Count, Schema, Tree};

use super::measure::{Spread, Work, measure};

/// Levels of the tree, and of the equivalent without submeter.
const LEVELS: usize = 4;
/// What one charge asks for, and a limit that is never close.
const AMOUNT: u64 = 64;
const FAR: u64 = 1 << 40;

/// The operations, with the nanoseconds of each in the best world. They are those of the README's
/// table, which is generated from a record.
const BEST_NS: [(&str, f64); 4] = [
    ("Group::add", 1.95),
    ("PercpuRef, get and put", 1.79),
    ("charge and release", 6.46),
    ("switch", 16.4),
];

/// One operation's figures.
#[derive(Debug, Serialize)]
pub(crate) struct Operation {
    pub(crate) name: &'static str,
    /// Cost here.
    pub(crate) here_ns: Spread,
    /// Cost in the best world, on the machine of the record.
    pub(crate) best_ns: f64,
    /// Cost here of what a program without submeter would do instead.
    pub(crate) without_ns: Spread,
}

/// Measures every operation and, in turns with them, the equivalent of each without submeter. The
/// error says why there can be no tree here.
pub(crate) fn measured() -> Result<Vec<Operation>, String> {
    let ([a, b, c, d], [e, f, g, h]) = (ours()?, without());
    let spreads = measure([a, b, c, d, e, f, g, h]);
    let (here, without) = spreads.split_at(BEST_NS.len());
    let each = BEST_NS.into_iter().zip(here).zip(without);
    let operation = |(((name, best_ns), &here_ns), &without_ns)| Operation {
        name,
        here_ns,
        best_ns,
        without_ns,
    };
    Ok(each.map(operation).collect())
}

/// Returns the operations in the order of [`BEST_NS`].
fn ours() -> Result<[Work; 4], String> {
    let text = |error: &dyn std::fmt::Display| error.to_string();
    let mut schema = Schema::builder();
    schema.cpu_time("cpu", "CPU time used");
    let requests = schema.counter::<Count>("requests", "Requests");
    let memory = schema.quota::<Bytes>("memory", "Memory held");
    let schema = schema.build().map_err(|error| text(&error))?;
    let tree = Tree::new(schema).map_err(|error| text(&error))?;
    let group = |path| tree.get_or_create(path).map_err(|error| text(&error));
    let (leaf, sibling) = (group("/a/b/c")?, group("/a/b/d")?);
    let levels = std::iter::successors(Some(leaf.clone()), |group| group.parent().cloned());
    levels.for_each(|group| _ = group.set_limit(memory, Some(FAR)));
    let counted = PercpuRef::new(|| ()).map_err(|error| text(&error))?;
    let (charged, entered) = (leaf.clone(), leaf.clone());
    Ok([
        Box::new(move |times| (0..times).for_each(|_| leaf.add(requests, 1))),
        Box::new(move |times| {
            for _ in 0..times {
                counted.get();
                held();
                counted.put();
            }
        }),
        Box::new(move |times| {
            for _ in 0..times {
                let charge = charged.try_charge(memory, AMOUNT);
                held();
                drop(charge);
            }
        }),
        // Entering a group and returning are two operations. The closure keeps the tree alive.
        Box::new(move |times| {
            let _alive = &tree;
            let _from = sibling.enter();
            (0..times / 2).for_each(|_| entered.run(held));
        }),
    ])
}

/// Returns the equivalents: an atomic for each level, for a reference and for each level's limit,
/// and the kernel's clock.
fn without() -> [Work; 4] {
    let words = || -> [CachePadded<AtomicU64>; LEVELS] { Default::default() };
    let (levels, pools, references) = (words(), words(), CachePadded::new(AtomicU64::new(1)));
    [
        Box::new(move |times| {
            for _ in 0..times {
                // Relaxed: a statistic.
                levels.iter().for_each(|level| _ = level.fetch_add(1, Ordering::Relaxed));
            }
        }),
        Box::new(move |times| {
            for _ in 0..times {
                // Relaxed, Release: the orderings of a reference count that frees nothing.
                references.fetch_add(1, Ordering::Relaxed);
                held();
                references.fetch_sub(1, Ordering::Release);
            }
        }),
        Box::new(move |times| {
            let grown = |used: u64| used.checked_add(AMOUNT).filter(|used| *used <= FAR);
            // Relaxed: a limit concerns only its own count.
            let take = |pool: &CachePadded<AtomicU64>| {
                pool.fetch_update(Ordering::Relaxed, Ordering::Relaxed, grown).is_ok()
            };
            for _ in 0..times {
                let granted = pools.iter().all(take);
                held();
                debug_assert!(granted, "far below the limit");
                // Relaxed: as in `take`.
                pools.iter().for_each(|pool| _ = pool.fetch_sub(AMOUNT, Ordering::Relaxed));
            }
        }),
        Box::new(|times| {
            (0..times).for_each(|_| _ = std::hint::black_box(thread_cpu_ns()));
        }),
    ]
}

/// Keeps the compiler from cancelling what precedes it against what follows it.
fn held() {
    // SeqCst: for the compiler only; it emits no instruction.
    compiler_fence(Ordering::SeqCst);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_operation_and_its_peer_is_measured() {
        let operations = measured().expect("address space");
        assert_eq!(operations.len(), BEST_NS.len());
        for Operation { name, here_ns, without_ns, .. } in operations {
            assert!([here_ns, without_ns].iter().all(|spread| spread.low > 0.0), "{name}");
        }
    }

    #[test]
    fn the_best_world_costs_what_readme_says() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../README.md");
        let Ok(readme) = std::fs::read_to_string(path) else {
            println!("skipped: README's figures: they are in the repository");
            return;
        };
        let cells = |line: &str| line.split('|').map(str::trim).map(str::to_owned).collect();
        let table: Vec<Vec<String>> = readme.lines().map(cells).collect();
        let heading = table.iter().find(|line| line.get(1).is_some_and(|cell| cell == "ns"));
        let best = heading.and_then(|line| line.iter().position(|cell| cell == "best"));
        for (name, ns) in BEST_NS {
            let line = table.iter().find(|line| line.get(1).is_some_and(|cell| cell == name));
            let figure = line.zip(best).and_then(|(line, best)| line[best].split(' ').next());
            assert_eq!(figure.and_then(|figure| figure.parse().ok()), Some(ns), "{name}");
        }
    }
}
