//! The memory of a quota compared with a counter.

use std::io;
use std::thread;

use submeter::{Bytes, Count, Schema, Tree};
use submeter_sys::cpu::{affinity, set_affinity};

use super::limiter::{AMOUNT, FAR};
use crate::bench::footprint::weigh;
use crate::bench::proc_memory::anonymous_bytes;
use crate::bench::record::Reading;
use crate::bench::runner::{Cell, Sample};
use crate::row::{Param, Params};

/// Leaves of the tree: a page is less than half a byte per leaf.
const LEAVES: usize = 10_000;
/// The states that are weighed, one after the other in the same process.
const STATES: [&str; 4] = ["idle", "limited", "active_on_1", "active_on_all"];

/// Grows a tree of `size` leaves in this process, whose schema has a quota or, if not `quota`, a
/// counter; returns bytes per leaf, as a number for each of [`STATES`].
///
/// # Errors
/// One line: the tree cannot be created, or the system does not report memory.
pub(crate) fn measure_quota_memory(size: usize, quota: bool) -> Result<String, String> {
    // On a thread of its own, which is pinned.
    let weighed = || if quota { of_quotas(size) } else { of_counters(size) };
    let bytes = thread::scope(|scope| scope.spawn(weighed).join().expect("it panics nowhere"));
    let bytes = bytes.map_err(|error| format!("cannot weigh {size} groups: {error}"))?;
    Ok(bytes.map(|bytes| bytes.to_string()).join(" ") + "\n")
}

fn of_quotas(size: usize) -> io::Result<[f64; 4]> {
    let mut schema = Schema::builder();
    let quota = schema.quota::<Bytes>("memory", "Memory held");
    let tree = Tree::new(schema.build().map_err(io::Error::other)?).map_err(io::Error::other)?;
    weighed(&tree, size, &|leaf| _ = leaf.set_limit(quota, Some(FAR)), &|leaf| {
        leaf.try_charge(quota, AMOUNT).map(drop).map_err(io::Error::other)
    })
}

fn of_counters(size: usize) -> io::Result<[f64; 4]> {
    let mut schema = Schema::builder();
    let counter = schema.counter::<Count>("memory", "As many metrics as with a quota");
    let tree = Tree::new(schema.build().map_err(io::Error::other)?).map_err(io::Error::other)?;
    weighed(&tree, size, &|_| (), &|leaf| {
        leaf.add(counter, AMOUNT);
        Ok(())
    })
}

type Act<'a, T> = &'a dyn Fn(&submeter::Group) -> T;

fn weighed(
    tree: &Tree,
    size: usize,
    limit: Act<'_, ()>,
    update: Act<'_, io::Result<()>>,
) -> io::Result<[f64; 4]> {
    let cpus = affinity()?;
    let mut leaves = Vec::with_capacity(size);
    // The first charge and flush of a tree take memory that does not belong to one leaf.
    update(tree.root())?;
    tree.flush();
    let before = anonymous_bytes()?;
    let weight = || {
        let now = anonymous_bytes()?;
        io::Result::Ok(now.saturating_sub(before) as f64 / size as f64)
    };
    for number in 0..size {
        leaves.push(tree.root().create_child(&number.to_string()).map_err(io::Error::other)?);
    }
    let idle = weight()?;
    leaves.iter().for_each(limit);
    let limited = weight()?;
    set_affinity(&cpus[..1])?;
    leaves.iter().try_for_each(update)?;
    let one = weight()?;
    for &cpu in &cpus {
        set_affinity(&[cpu])?;
        leaves.iter().try_for_each(update)?;
    }
    Ok([idle, limited, one, weight()?])
}

/// Returns the cells, each of which is measured once.
pub(super) fn cells() -> Vec<Cell> {
    let cell = |(variant, quotas): (&'static str, &'static str)| {
        let params = Params::from([("groups", Param::number(LEAVES as u64))]);
        Cell::once(params, variant, move || {
            Ok(match weigh::<4>(LEAVES, &["--quotas", quotas]) {
                Ok(bytes) => {
                    let reading =
                        |(state, bytes)| Reading::of("bytes", vec![bytes]).with("state", state);
                    Sample::kept(STATES.into_iter().zip(bytes).map(reading).collect())
                }
                Err(why) => {
                    let notes = vec![format!("memory was not measured: {why}")];
                    Sample { notes, ..Sample::default() }
                }
            })
        })
    };
    [("submeter", "1"), ("counter", "0")].into_iter().map(cell).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::footprint::parse;

    #[test]
    fn a_tree_is_weighed_in_every_state() {
        for quota in [true, false] {
            let text = measure_quota_memory(500, quota).expect("a tree of 500 groups");
            assert!(parse::<4>(&text).is_some(), "{text}");
        }
    }
}
