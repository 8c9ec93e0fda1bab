//! Bounds what has left the store but waits for its grace period.
//!
//! The epoch collector looks for what is due once in many guards, and frees a handful of batches
//! then. A connection holds one guard for a whole batch of requests, so that stores would produce
//! more than that frees. Hence each thread counts the bytes that it let go, and has the collector
//! work whenever that reaches [`DUE_BYTES`]; the bound that results is a small multiple of it for
//! each thread, besides what a thread that stays inside a batch holds up for as long.

use std::cell::Cell;

use submeter::percpu::rcuref::pin;

/// So many bytes are let go between two calls of the collector. As many of the smallest items are
/// fewer than it frees in one call (eight batches of 64 in crossbeam-epoch 0.9), so it keeps up.
const DUE_BYTES: u64 = 64 << 10;

/// How often the collector is called when there is time: clears what a `flush_all` left in seconds.
const CLEAR_ROUNDS: usize = 64;

thread_local! {
    static LET_GO_BYTES: Cell<u64> = const { Cell::new(0) };
}

/// Counts an item that is about to be let go.
pub(super) fn count(bytes: u64) {
    LET_GO_BYTES.set(LET_GO_BYTES.get() + bytes);
}

/// Has the collector work if enough was let go. Without effect while the thread holds a guard.
#[inline]
pub(crate) fn collect_if_due() {
    if LET_GO_BYTES.get() >= DUE_BYTES {
        LET_GO_BYTES.set(0);
        pin().flush();
    }
}

/// Has the collector work for a while.
pub(super) fn clear() {
    LET_GO_BYTES.set(0);
    for _ in 0..CLEAR_ROUNDS {
        pin().flush();
    }
}
