//! The variants that need no other crate: submeter's own ways to count, and std atomics.

use std::collections::HashMap;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, RwLock};

use crossbeam_utils::CachePadded;
use submeter::counter::PercpuCounter;
use submeter::{Count as Requests, Counter, Group, Quota, Schema, Tree};

use super::{Case, Subject};
use crate::bench::limits::Pools;

/// The leaf under which a request of [`Case::Levels`] is counted; the root is its fourth level.
const LEAF: &str = "/acme/web/checkout";
/// The tenant of [`Case::Held`].
const TENANT: &str = "/acme";

/// Returns the subjects, in the order in which they are shown.
///
/// # Errors
/// When there is no memory for per-CPU counters.
pub(super) fn subjects(tenants: &[String]) -> io::Result<Vec<Subject>> {
    let mut subjects = submeter(tenants)?;
    subjects.push(map_of_groups(tenants)?);
    subjects.push(charge()?);
    subjects.extend(percpu_counter()?);
    subjects.extend(std_atomic(tenants));
    subjects.push(pool_per_level());
    Ok(subjects)
}

fn subject(
    variant: &'static str,
    case: Case,
    count: impl Fn(&[String]) + Send + Sync + 'static,
    totals: impl Fn(&[String]) -> Vec<u64> + Send + Sync + 'static,
) -> Subject {
    Subject { variant, case, count: Box::new(count), totals: Box::new(totals) }
}

/// Makes a tree whose groups count requests and have a limited quota.
fn tree() -> io::Result<(Tree, Counter<Requests>, Quota<Requests>)> {
    let mut schema = Schema::builder();
    let requests = schema.counter::<Requests>("requests", "Requests answered");
    let quota = schema.quota::<Requests>("quota", "Requests in flight");
    let schema = schema.build().map_err(io::Error::other)?;
    Ok((Tree::new(schema).map_err(io::Error::other)?, requests, quota))
}

/// Returns the group and its ancestors.
fn levels(leaf: &Group) -> Vec<Group> {
    std::iter::successors(Some(leaf.clone()), |group| group.parent().cloned()).collect()
}

fn submeter(tenants: &[String]) -> io::Result<Vec<Subject>> {
    let mut subjects = Vec::new();
    for (case, path) in [(Case::Held, TENANT), (Case::Levels, LEAF)] {
        let (tree, requests, _) = tree()?;
        let group = tree.get_or_create(path).map_err(io::Error::other)?;
        let own = group.clone();
        let add = move |asked: &[String]| asked.iter().for_each(|_| group.add(requests, 1));
        let wanted = case.totals();
        let totals = move |_: &[String]| {
            levels(&own).iter().take(wanted).map(|group| group.sum(requests)).collect()
        };
        subjects.push(subject("submeter_group", case, add, totals));
    }
    let (tree, requests, _) = tree()?;
    for tenant in tenants {
        tree.root().create_child(tenant).map_err(io::Error::other)?;
    }
    let root = tree.root().clone();
    let add = move |asked: &[String]| {
        for tenant in asked {
            root.child(tenant).expect("created, and not killed").add(requests, 1);
        }
    };
    let total = move |_: &[String]| vec![tree.root().sum(requests)];
    subjects.push(subject("submeter", Case::Lookup, add, total));
    Ok(subjects)
}

/// Finds groups in a map of the user's, the same kind in which std's atomics are found.
fn map_of_groups(tenants: &[String]) -> io::Result<Subject> {
    let (tree, requests, _) = tree()?;
    let mut by_name = HashMap::new();
    for tenant in tenants {
        let group = tree.root().create_child(tenant).map_err(io::Error::other)?;
        by_name.insert(tenant.clone(), group);
    }
    let by_name = RwLock::new(by_name);
    let add = move |asked: &[String]| {
        for tenant in asked {
            by_name.read().expect("no thread panicked")[tenant].add(requests, 1);
        }
    };
    let total = move |_: &[String]| vec![tree.root().sum(requests)];
    Ok(subject("submeter_in_map", Case::Lookup, add, total))
}

/// Charges every level and checks its limit, as a pool does.
fn charge() -> io::Result<Subject> {
    let (tree, _, quota) = tree()?;
    let leaf = tree.get_or_create(LEAF).map_err(io::Error::other)?;
    for group in levels(&leaf) {
        group.set_limit(quota, Some(1 << 60));
    }
    let held = Mutex::new(leaf.try_charge(quota, 0).map_err(io::Error::other)?);
    let own = leaf.clone();
    let add = move |asked: &[String]| {
        let mut charge = leaf.try_charge(quota, 0).expect("nothing fits");
        for _ in asked {
            charge.resize(charge.amount() + 1).expect("far below the limit");
        }
        // Once per batch; merging keeps the charge, so that nothing is released.
        held.lock().expect("no thread panicked").merge(charge);
    };
    let totals =
        move |_: &[String]| levels(&own).iter().map(|group| group.usage(quota).current).collect();
    Ok(subject("submeter_charge", Case::Levels, add, totals))
}

fn percpu_counter() -> io::Result<[Subject; 2]> {
    let held = Arc::new(PercpuCounter::new()?);
    let count = Arc::clone(&held);
    let levels: Arc<[PercpuCounter]> = PercpuCounter::many(Case::Levels.totals())?.into();
    let charge = Arc::clone(&levels);
    Ok([
        subject(
            "percpu_counter",
            Case::Held,
            move |asked| asked.iter().for_each(|_| count.add(1)),
            move |_| vec![held.sum().cast_unsigned()],
        ),
        subject(
            "percpu_counter",
            Case::Levels,
            move |asked| {
                for _ in asked {
                    charge.iter().for_each(|counter| counter.add(1));
                }
            },
            move |_| levels.iter().map(|counter| counter.sum().cast_unsigned()).collect(),
        ),
    ])
}

fn std_atomic(tenants: &[String]) -> [Subject; 3] {
    let held: Arc<[CachePadded<AtomicU64>]> = atomics(Case::Held);
    let levels = atomics(Case::Levels);
    let by_name: HashMap<String, AtomicU64> =
        tenants.iter().map(|tenant| (tenant.clone(), AtomicU64::new(0))).collect();
    let by_name = Arc::new(RwLock::new(by_name));
    let looked_up = Arc::clone(&by_name);
    let add = move |asked: &[String]| {
        for tenant in asked {
            let by_name = looked_up.read().expect("no thread panicked");
            // Relaxed: a statistic.
            by_name[tenant].fetch_add(1, Ordering::Relaxed);
        }
    };
    let total = move |_: &[String]| {
        let by_name = by_name.read().expect("no thread panicked");
        // Relaxed: a statistic, exact once the counting threads were joined.
        vec![by_name.values().map(|count| count.load(Ordering::Relaxed)).sum()]
    };
    [
        every(Case::Held, held),
        subject("std_atomic", Case::Lookup, add, total),
        every(Case::Levels, levels),
    ]
}

/// A memory pool on each level: every request takes one unit and keeps it.
fn pool_per_level() -> Subject {
    let pools = Arc::new(Pools::far(Case::Levels.totals()));
    let own = Arc::clone(&pools);
    let grow = move |asked: &[String]| {
        let path = own.path(0);
        asked.iter().for_each(|_| assert!(Pools::try_grow(path, 1), "far below the limit"));
    };
    subject("pool_per_level", Case::Levels, grow, move |_| pools.used_by_level())
}

fn atomics(case: Case) -> Arc<[CachePadded<AtomicU64>]> {
    (0..case.totals()).map(|_| CachePadded::new(AtomicU64::new(0))).collect()
}

/// Adds to each of `atomics` for every request.
fn every(case: Case, atomics: Arc<[CachePadded<AtomicU64>]>) -> Subject {
    let all = Arc::clone(&atomics);
    let add = move |asked: &[String]| {
        for _ in asked {
            // Relaxed: a statistic.
            atomics.iter().for_each(|atomic| _ = atomic.fetch_add(1, Ordering::Relaxed));
        }
    };
    // Relaxed: a statistic, exact once the counting threads were joined.
    let totals =
        move |_: &[String]| all.iter().map(|atomic| atomic.load(Ordering::Relaxed)).collect();
    subject("std_atomic", case, add, totals)
}
