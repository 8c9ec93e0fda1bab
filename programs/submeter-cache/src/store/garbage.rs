//! A bound on what has left the store and waits for its grace period.
//!
//! The epoch collector looks for due memory once in many guards, and then frees a few batches. A
//! connection holds one guard for a whole batch of requests, so that stores would produce more than
//! that frees. Hence each thread counts the bytes that it releases, ends a batch of requests that
//! reach [`DUE_BYTES`], and runs the collector then.
//!
//! That frees nothing while any thread is inside a guard, and the system may take the CPU from a
//! thread there for as long as it likes: on a busy machine the others would replace a gigabyte
//! meanwhile. So the released bytes are summed up, and a connection that released some goes on only
//! while the sum is at most a part of the memory for items. It waits without blocking its thread,
//! and the other thread may get the CPU.
//!
//! The sum is of all stores of the process, as the collector is. Rejected: to keep an item's charge
//! until its memory is free. An eviction would make no room for the store that it is for.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use submeter::refs::pin;

/// Bytes that a thread releases between two runs of the collector. If all are of the smallest
/// items, these are fewer than one run frees (eight batches of 64 in crossbeam-epoch 0.9), so that
/// it keeps up.
const DUE_BYTES: u64 = 64 << 10;

/// Runs of the collector when there is time: they clear what a `flush_all` left within seconds.
const CLEAR_ROUNDS: usize = 64;

/// The part of the memory for items that may wait to be freed: one in so many.
const PART: u64 = 8;

/// The bytes that may wait in any case: several threads' due bytes.
const WAITING_MIN: u64 = 1 << 20;

/// The time between two looks whether a thread has left its guard.
const LOOK_EVERY: Duration = Duration::from_millis(1);

thread_local! {
    static LET_GO_BYTES: Cell<u64> = const { Cell::new(0) };
}

/// The bytes that wait to be freed, but for those that each thread has not handed over: less than
/// [`DUE_BYTES`] and what it releases at once.
static WAITING_BYTES: AtomicU64 = AtomicU64::new(0);

/// The bytes that may wait to be freed before a connection that releases more has to wait.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bound(u64);

impl Bound {
    /// Returns the bound of a store for items of so many bytes.
    pub(super) fn of(memory_max: u64) -> Bound {
        Bound((memory_max / PART).max(WAITING_MIN))
    }

    fn is_exceeded(self) -> bool {
        waiting() > self.0
    }

    /// Waits until the bytes to be freed are within the bound. Must not be called within a guard.
    pub(super) async fn keep(self) {
        let mut before = waiting();
        while self.is_exceeded() {
            pin().flush();
            let now = waiting();
            if now < before {
                tokio::task::yield_now().await;
            } else {
                tokio::time::sleep(LOOK_EVERY).await;
            }
            before = now;
        }
    }
}

fn waiting() -> u64 {
    // Relaxed, here and below: a sum, of no order with what it is of.
    WAITING_BYTES.load(Ordering::Relaxed)
}

/// Counts an item that is about to be released.
pub(super) fn count(bytes: u64) {
    LET_GO_BYTES.set(LET_GO_BYTES.get() + bytes);
}

/// Returns how much the thread has released since it last ran the collector.
#[inline]
pub(crate) fn let_go() -> u64 {
    LET_GO_BYTES.get()
}

/// Returns whether the thread is to leave its guard, and to run the collector.
#[inline]
pub(crate) fn is_due() -> bool {
    let_go() >= DUE_BYTES
}

/// Runs the collector if enough was released. Must not be called within a guard.
#[inline]
pub(crate) fn collect_if_due() {
    if is_due() {
        hand_over();
    }
}

/// Runs the collector for a while.
pub(super) fn clear() {
    hand_over();
    for _ in 1..CLEAR_ROUNDS {
        pin().flush();
    }
}

/// Adds the thread's released bytes to the sum, and has them taken off once they are free.
fn hand_over() {
    let bytes = LET_GO_BYTES.replace(0);
    // Relaxed: see `waiting`.
    WAITING_BYTES.fetch_add(bytes, Ordering::Relaxed);
    let guard = pin();
    // The collector keeps a thread's order: when this runs, those bytes are free, or another
    // thread frees them at this moment.
    guard.defer(move || _ = WAITING_BYTES.fetch_sub(bytes, Ordering::Relaxed));
    guard.flush();
}
