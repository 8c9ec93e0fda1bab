//! The `rcuref` table: pairs of a get and a put on one count that never drops to zero.
//!
//! Every variant counts references to one object that all CPUs share, and never drops the last one:
//! the table shows the cost of counting, not of freeing.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering, fence};

use crossbeam_utils::CachePadded;
use submeter::refs::{RcuRef, pin};

use super::runner::Plan;
use super::threads::{Work, rate_cell, settings};

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
    Ok(Plan {
        table: "rcuref",
        groups: settings()?.map(cells).into(),
        mixed: false,
        rounds_max: usize::MAX,
        notes: Vec::new(),
        absent: Vec::new(),
    })
}

/// Returns the variants with their loops.
///
/// No `black_box`: no compiler merges or removes atomic operations, and its store would delay every
/// locked instruction and level out the differences.
fn variants() -> [(&'static str, Work); 6] {
    let rcuref = CachePadded::new(RcuRef::new());
    let refcount = CachePadded::new(AtomicU32::new(1));
    let plain = CachePadded::new(AtomicU32::new(1));
    let arc = Arc::new(CachePadded::new(0_u8));
    let strong = Arc::new(CachePadded::new(0_u8));
    let weak = Arc::downgrade(&strong);
    let triomphe = triomphe::Arc::new(CachePadded::new(0_u8));
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
        assert_eq!(cells, [6, 6]);
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
