//! The `rcuref` table: pairs of a get and a put on one count that never drops to zero.
//!
//! Every variant counts references to one object that all CPUs share, and never drops the last one:
//! the table shows the cost of counting, not of freeing. The part `cache` measures the same count
//! within a request of a cache.

use std::collections::HashMap;
use std::hint::black_box;
use std::io;
use std::sync::atomic::{AtomicU32, Ordering, fence};
use std::sync::{Arc, Weak};

use crossbeam_utils::CachePadded;
use submeter::refs::{Guard, RcuArc, RcuRef, RcuSlot, pin};

use super::runner::{Cell, Plan};
use super::threads::{Work, rate_cell, settings};
use crate::row::{Param, Params};

/// Items of the larger cache.
const ITEMS: u32 = 1000;
/// Bytes of an item's value, which a request copies: few, as in most caches.
const VALUE_BYTES: usize = 200;
/// Coprime to [`ITEMS`], so that steps of this size reach every item in an order that no prefetcher
/// guesses.
const STEP: u32 = 617;

/// Returns the table's plan.
///
/// # Errors
/// When the CPUs of this process cannot be determined.
pub(crate) fn plan() -> io::Result<Plan> {
    let variants = variants();
    let cells = |(name, cpus): (_, Vec<usize>)| {
        variants
            .iter()
            .map(|(variant, work)| rate_cell(name, &cpus, variant, "pairs/s", work))
            .collect()
    };
    Ok(Plan::new("rcuref", settings()?.map(cells).into_iter().chain(caches()?).collect()))
}

/// Returns the variants with their loops.
///
/// There is no `black_box`: no compiler merges or removes atomic operations, and its store would
/// delay every locked instruction and level out the differences.
fn variants() -> Vec<(&'static str, Work)> {
    ours().into_iter().chain(others()).collect()
}

fn ours() -> [(&'static str, Work); 4] {
    let rcuref = CachePadded::new(RcuRef::new());
    let rcuarc = RcuArc::new(CachePadded::new(0_u8));
    let (released, slot) = (rcuarc.clone(), RcuSlot::new(rcuarc.clone()));
    [
        (
            "rcuref",
            Arc::new(move |pairs| {
                // One guard per batch, as a request has one for all its lookups.
                let guard = pin();
                for _ in 0..pairs {
                    assert!(rcuref.get());
                    assert!(!rcuref.put(&guard));
                }
            }),
        ),
        (
            "rcuarc",
            Arc::new(move |pairs| {
                for _ in 0..pairs {
                    drop(rcuarc.clone());
                }
            }),
        ),
        ("rcuarc_released", requests(move |guard| RcuArc::release(released.clone(), guard))),
        (
            "rcuarc_peeked",
            requests(move |guard| {
                let item = slot.peek(guard).expect("the item is there");
                // The access that a reference would be taken for.
                black_box(**item);
            }),
        ),
    ]
}

/// Number of lookups per request, under one guard.
const LOOKUPS: u32 = 16;

/// Makes requests, each with a guard for its lookups.
fn requests(lookup: impl Fn(&Guard) + Send + Sync + 'static) -> Work {
    Arc::new(move |pairs| {
        let mut left = pairs;
        while left > 0 {
            let guard = pin();
            let now = left.min(LOOKUPS);
            (0..now).for_each(|_| lookup(&guard));
            left -= now;
        }
    })
}

fn others() -> [(&'static str, Work); 5] {
    let refcount = CachePadded::new(AtomicU32::new(1));
    let plain = CachePadded::new(AtomicU32::new(1));
    let arc = Arc::new(CachePadded::new(0_u8));
    let strong = Arc::new(CachePadded::new(0_u8));
    let weak = Arc::downgrade(&strong);
    let triomphe = triomphe::Arc::new(CachePadded::new(0_u8));
    [
        (
            "inc_not_zero",
            Arc::new(move |pairs| {
                for _ in 0..pairs {
                    assert!(inc_not_zero(&refcount));
                    assert!(!dec_and_test(&refcount));
                }
            }),
        ),
        (
            "weak_upgrade",
            Arc::new(move |pairs| {
                // Mentions the strong reference, or the closure would not capture it.
                let _strong = &strong;
                for _ in 0..pairs {
                    assert!(weak.upgrade().is_some());
                }
            }),
        ),
        (
            "arc",
            Arc::new(move |pairs| {
                for _ in 0..pairs {
                    drop(Arc::clone(&arc));
                }
            }),
        ),
        (
            "triomphe",
            Arc::new(move |pairs| {
                for _ in 0..pairs {
                    drop(triomphe::Arc::clone(&triomphe));
                }
            }),
        ),
        (
            "plain_atomic",
            Arc::new(move |pairs| {
                for _ in 0..pairs {
                    let count = &*plain;
                    // Relaxed, Release: the orderings of a reference count that checks and frees
                    // nothing.
                    count.fetch_add(1, Ordering::Relaxed);
                    count.fetch_sub(1, Ordering::Release);
                }
            }),
        ),
    ]
}

/// Makes the cells of the part `cache`. A request looks its item up by name, under a guard, and
/// keeps it while it copies the value. The variants differ in how the item is counted, and a `Weak`
/// leads to it through one more pointer.
fn caches() -> io::Result<Vec<Vec<Cell>>> {
    let mut groups = Vec::new();
    for items in [1, ITEMS] {
        let rcuarc = cache(
            items,
            |value| RcuSlot::new(RcuArc::new(value)),
            |slot, answer| {
                let guard = pin();
                let found = slot.peek(&guard).and_then(|item| item.try_get());
                let item = found.expect("every item is there");
                answer.copy_from_slice(&*item);
                RcuArc::release(item, &guard);
            },
        );
        let weak_upgrade = cache(
            items,
            |value| {
                let strong = Arc::new(value);
                (RcuSlot::new(RcuArc::new(Arc::downgrade(&strong))), strong)
            },
            |(slot, _strong): &(RcuSlot<Weak<Value>>, _), answer| {
                let guard = pin();
                let found = slot.peek(&guard).and_then(|item| item.upgrade());
                answer.copy_from_slice(&*found.expect("every item is there"));
            },
        );
        for (name, cpus) in settings()? {
            let cell = |(variant, work): (_, &Work)| {
                let mut cell = rate_cell(name, &cpus, variant, "requests/s", work);
                let cache =
                    [("part", Param::word("cache")), ("items", Param::number(items.into()))];
                cell.params.0.splice(0..0, Params::from(cache).0);
                cell
            };
            groups.push([("rcuarc", &rcuarc), ("weak_upgrade", &weak_upgrade)].map(cell).into());
        }
    }
    Ok(groups)
}

type Value = [u8; VALUE_BYTES];

/// Makes a cache with that many items, and requests to it.
fn cache<S: Send + Sync + 'static>(
    items: u32,
    item: impl Fn(Value) -> S,
    get: impl Fn(&S, &mut Value) + Send + Sync + 'static,
) -> Work {
    let name = |n: u32| format!("item-{n:06}");
    let names: Vec<String> = (0..items).map(name).collect();
    let index: HashMap<String, S> =
        names.iter().map(|name| (name.clone(), item([7; VALUE_BYTES]))).collect();
    Arc::new(move |requests| {
        let (mut at, mut answer) = (0, [0; VALUE_BYTES]);
        for _ in 0..requests {
            at = (at + STEP) % items;
            get(&index[&names[at as usize]], &mut answer);
            black_box(&mut answer);
        }
    })
}

/// Takes a reference unless the count is zero: the loop that a count without a grace period needs.
#[inline]
fn inc_not_zero(count: &AtomicU32) -> bool {
    // Relaxed: the exchange below decides, and only the holder of the pointer uses the reference.
    let mut now = count.load(Ordering::Relaxed);
    while now != 0 {
        // Relaxed: as above, on success and on failure.
        match count.compare_exchange_weak(now, now + 1, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => return true,
            Err(other) => now = other,
        }
    }
    false
}

/// Drops a reference; true for the last one.
#[inline]
fn dec_and_test(count: &AtomicU32) -> bool {
    // Release: pairs with the Acquire fence of the last one, so that it sees all holders' writes.
    let last = count.fetch_sub(1, Ordering::Release) == 1;
    if last {
        // Acquire: as above.
        fence(Ordering::Acquire);
    }
    last
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_variant_counts_and_releases() {
        let plan = plan().expect("this process may run somewhere");
        let cells: Vec<usize> = plan.groups.iter().map(Vec::len).collect();
        assert_eq!(cells, [9, 9, 2, 2, 2, 2]);
        // Each loop asserts that it gets what it asks for, and never the last one.
        variants().iter().for_each(|(_, pairs)| pairs(1000));
    }

    #[test]
    fn inc_not_zero_does_what_its_name_says() {
        let count = AtomicU32::new(1);
        assert!(inc_not_zero(&count) && !dec_and_test(&count) && dec_and_test(&count));
        assert!(!inc_not_zero(&count));
    }
}
