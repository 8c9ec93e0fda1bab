//! Reads of 64 bits are never torn. The test matters on 32-bit machines and runs everywhere.

use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use submeter_percpu::{Area, LimitedCounter, PercpuCounter};

use crate::common::{on_every_backend, rounds};
use crate::met::until_met;
use crate::stop::StopOnDrop;

const READS: u32 = rounds(if cfg!(miri) { 1_000 } else { 200_000 });

/// Adds cross 2^32 in both directions: a torn read is off by 2^32.
const STEP: i64 = 16;
const MIDDLE: i64 = 1 << 32;

/// Returns whether `value` is untorn: within a few steps of 0 or 2^32, because an adder that moves
/// to another CPU during a sum shifts it by a step each time.
fn is_whole(value: i64) -> bool {
    value.abs_diff(MIDDLE) < 1 << 31
}

fn watch(add: impl Fn(i64) + Sync, read: impl Fn() -> [i64; 2]) {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let stopping = StopOnDrop(&stop);
        scope.spawn(|| {
            while !stop.load(SeqCst) {
                add(-STEP);
                add(STEP);
            }
        });
        // Values on both sides of the boundary, of which a torn value would consist.
        let (mut below, mut above) = (false, false);
        until_met(READS, || {
            for value in read() {
                assert!(is_whole(value), "torn: {value:#x}");
                (below, above) = (below | (value < MIDDLE), above | (value >= MIDDLE));
            }
            below && above
        });
        drop(stopping);
    });
}

#[test]
fn no_torn_read_as_adds_cross_2_pow_32_stress() {
    let test = |area: &Area| {
        let counter = PercpuCounter::with_batch(area, STEP as u64).expect("room");
        counter.add(MIDDLE);
        // Each add crosses a batch boundary, so that the shared part crosses 2^32 too. On another
        // CPU the adder's word alternates between 0 and -16, which also changes both halves.
        watch(|n| counter.add(n), || [counter.read().low(), counter.sum()]);
        assert_eq!(counter.sum(), MIDDLE);
    };
    test(&Area::simulated(1).expect("address space"));
    on_every_backend(test);
}

#[test]
fn no_torn_read_as_charges_cross_2_pow_32_stress() {
    let one = Area::simulated(1).expect("address space");
    let counter = LimitedCounter::with_batch(&one, STEP as u64, i64::MAX).expect("room");
    counter.try_add(MIDDLE).expect("fits");
    let add = |n| counter.try_add(n).expect("fits");
    watch(add, || [counter.read().low(), counter.sum()]);
    assert_eq!(counter.sum(), MIDDLE);
}

/// The check above can fail: halves that are written separately are read torn. This is shown on one
/// thread, in every order.
#[test]
fn halves_of_two_moments_are_noticed() {
    let (before, after) = ((MIDDLE - STEP) as u64, MIDDLE as u64);
    let torn = |high: u64, low: u64| (high >> 32 << 32 | low & u64::from(u32::MAX)) as i64;
    assert!(!is_whole(torn(before, after)) && !is_whole(torn(after, before)));
    assert!(is_whole(torn(before, before)) && is_whole(torn(after, after)));
}
