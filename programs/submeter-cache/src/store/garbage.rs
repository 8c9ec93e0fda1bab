//! A bound on what has left the store and waits for its grace period.
//!
//! The epoch collector looks for due memory once in many guards, and then frees a few batches. A
//! connection holds one guard for a whole batch of requests, so that stores would produce more than
//! that frees. Hence each thread counts the bytes that it releases, and runs the collector whenever
//! they reach [`DUE_BYTES`]. The bound is a small multiple of it for each thread, plus what a
//! thread delays while it is inside a batch.

use std::cell::Cell;

use submeter::refs::pin;

/// Bytes that a thread releases between two runs of the collector. If all are of the smallest
/// items, these are fewer than one run frees (eight batches of 64 in crossbeam-epoch 0.9), so that
/// it keeps up.
const DUE_BYTES: u64 = 64 << 10;

/// Runs of the collector when there is time: they clear what a `flush_all` left within seconds.
const CLEAR_ROUNDS: usize = 64;

thread_local! {
    static LET_GO_BYTES: Cell<u64> = const { Cell::new(0) };
}

/// Counts an item that is about to be released.
pub(super) fn count(bytes: u64) {
    LET_GO_BYTES.set(LET_GO_BYTES.get() + bytes);
}

/// Runs the collector if enough was released. Has no effect while the thread holds a guard.
#[inline]
pub(crate) fn collect_if_due() {
    if LET_GO_BYTES.get() >= DUE_BYTES {
        LET_GO_BYTES.set(0);
        pin().flush();
    }
}

/// Runs the collector for a while.
pub(super) fn clear() {
    LET_GO_BYTES.set(0);
    for _ in 0..CLEAR_ROUNDS {
        pin().flush();
    }
}
