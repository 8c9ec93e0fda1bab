//! Blocks that are allocated before a rung is chosen, and freed after.

use std::hint::black_box;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

/// Sizes of each kind: narrow blocks, blocks with their owner in two bytes, and known blocks.
const SIZES: [usize; 7] = [1, 8, 16, 17, 500, 9_000, 100_000];

const HELD: usize = 20;

fn block(size: usize) -> Vec<u8> {
    black_box(vec![size as u8; size])
}

/// Calls `start` while threads allocate, resize and free each other's blocks. Returns its result,
/// and blocks that were allocated before.
pub(crate) fn across<T>(start: impl FnOnce() -> T) -> (T, Vec<Vec<u8>>) {
    let rounds = if cfg!(miri) { 3 } else { 1_000 };
    let held: Mutex<Vec<Vec<u8>>> = Mutex::default();
    let (over, done) = (AtomicBool::new(false), AtomicUsize::new(0));
    let before: Vec<_> = SIZES.into_iter().map(block).collect();
    let started = thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let mut random = fastrand::Rng::with_seed(1);
                // Relaxed, here and below: it ends the loop, and counts.
                while !over.load(Ordering::Relaxed) {
                    let mut own = block(SIZES[random.usize(..SIZES.len())]);
                    own.reserve_exact(random.usize(1..300));
                    let mut all = held.lock().expect("whole");
                    all.push(own);
                    let any = random.usize(..all.len());
                    let other = if all.len() > HELD { all.swap_remove(any) } else { Vec::new() };
                    drop(all);
                    assert!(other.iter().all(|byte| *byte == other.len() as u8));
                    drop(other);
                    done.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let wait_for_more = || {
            let until = done.load(Ordering::Relaxed) + rounds;
            while done.load(Ordering::Relaxed) < until {
                thread::yield_now();
            }
        };
        wait_for_more();
        let started = start();
        wait_for_more();
        over.store(true, Ordering::Relaxed);
        started
    });
    (started, before)
}
