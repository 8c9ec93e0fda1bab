//! A bound on memory that has left the store and waits for its grace period.
//!
//! The epoch collector looks for due memory once in many guards, and then frees a few batches. A
//! connection holds one guard for a whole batch of requests, so that stores would produce more
//! garbage than that frees. Each thread therefore counts the bytes that it releases, ends a batch
//! of requests that reaches [`DUE_BYTES`], and then runs the collector.
//!
//! The collector frees nothing while any thread is inside a guard, and the system may take the CPU
//! from such a thread for as long as it likes: on a busy machine the others would replace a
//! gigabyte in the meantime. The released bytes are therefore summed up, and a connection that
//! released some continues only while the sum is at most a fraction of the memory for items. It
//! waits without blocking its thread, so that the other thread may get the CPU.
//!
//! The sum covers all stores of the process, as the collector does. Rejected: keeping an item's
//! charge until its memory is free. An eviction would then make no room for the store that needs
//! it.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use submeter::refs::pin;

/// Bytes that a thread releases between two runs of the collector. Even if they all belong to the
/// smallest items, their number is less than one run frees (eight batches of 64 in crossbeam-epoch
/// 0.9), so that it keeps up.
const DUE_BYTES: u64 = 64 << 10;

/// Runs of the collector when there is time: they clear the garbage of a `flush_all` within
/// seconds.
const CLEAR_ROUNDS: usize = 64;

/// The fraction of the memory for items that may wait to be freed: one in this many.
const PART: u64 = 8;

/// The bytes that may always wait: several threads' due bytes.
const WAITING_MIN: u64 = 1 << 20;

/// Interval between two checks whether a thread has left its guard.
const LOOK_EVERY: Duration = Duration::from_millis(1);

thread_local! {
    static LET_GO_BYTES: Cell<u64> = const { Cell::new(0) };
}

/// The bytes that wait to be freed, except for those that each thread has not handed over yet: less
/// than [`DUE_BYTES`] plus what it releases at once.
static WAITING_BYTES: AtomicU64 = AtomicU64::new(0);

/// The number of bytes waiting to be freed beyond which a connection that releases more has to
/// wait.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bound(u64);

impl Bound {
    /// Returns the bound of a store for items of this many bytes.
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
    // Relaxed, here and below: a sum that is not ordered with the memory it describes.
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

/// Returns whether the thread is to leave its guard and run the collector.
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

/// Adds the thread's released bytes to the sum, and defers their subtraction until they are free.
fn hand_over() {
    let bytes = LET_GO_BYTES.replace(0);
    // Relaxed: see `waiting`.
    WAITING_BYTES.fetch_add(bytes, Ordering::Relaxed);
    let guard = pin();
    // The collector keeps a thread's order: when this runs, those bytes are free, or another thread
    // is freeing them at this moment.
    guard.defer(move || _ = WAITING_BYTES.fetch_sub(bytes, Ordering::Relaxed));
    guard.flush();
}
