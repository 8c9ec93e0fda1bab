//! Counting in locked rows, where there are no sequences: the mode test and the add are one locked
//! instruction.
//!
//! ```text
//! row    >= 0   live: 2^62 + what this row counted. Any thread adds.
//!        < 0    dead: what is added is discarded; the adder sees the sign and counts elsewhere.
//! ```
//!
//! The mode is the sign, not a bit to mask: `lock add` sets the sign flag, so neither the previous
//! value nor an exchange is needed. A get or put is one locked instruction, as on a shared count.
//!
//! A row's second word, `collected`, holds what the row had counted when it died. It is written
//! before the row dies: a killer may vanish in a fork between any two steps, and the next one
//! continues.

use crate::sync::atomic::{AtomicI64, Ordering};

const LIVE: i64 = 1 << 62;
/// As far below zero as `LIVE` is above it: discarded adds cannot bring a row back to life in a
/// century.
const DEAD: i64 = -(1 << 62);

/// Adds `n`, if the row is live. Returns whether it counts.
#[inline(always)]
pub(super) fn add(row: &AtomicI64, n: i64) -> bool {
    // AcqRel: Release, a put's, pairs with the Acquire in `die`; Acquire, a get's, with the Release
    // in `live`, so that no thread that is served here, or receives the reference from such a
    // thread, meets the count of the previous life. This form of the sum makes the compiler use the
    // flags.
    row.fetch_add(n, Ordering::AcqRel).wrapping_add(n) >= 0
}

/// Ends the row if it is live; `collected` then holds what it counted. The lock is held.
pub(super) fn die(row: &AtomicI64, collected: &AtomicI64) {
    // Relaxed: the exchange below decides.
    let mut word = row.load(Ordering::Relaxed);
    while word >= 0 {
        // Relaxed: read with the same lock held.
        collected.store(word - LIVE, Ordering::Relaxed);
        // Acquire: pairs with the Release in `add`. Relaxed on failure: the loop retries.
        match row.compare_exchange_weak(word, DEAD, Ordering::Acquire, Ordering::Relaxed) {
            Ok(_) => return,
            Err(now) => word = now,
        }
    }
}

/// Makes a dead row look as if it had counted nothing. The lock is held, and the count is in atomic
/// mode.
pub(super) fn forget(row: &AtomicI64, collected: &AtomicI64) {
    // Relaxed: adders discard what they find; the count's bias is added afterwards, by a
    // read-modify-write with Release.
    row.store(DEAD, Ordering::Relaxed);
    // Relaxed: read with the same lock held.
    collected.store(0, Ordering::Relaxed);
}

/// Starts a row. The lock is held, and the count is already biased.
pub(super) fn live(row: &AtomicI64) {
    // Release: pairs with the Acquire in `add`: a thread that counts here comes after the bias.
    row.store(LIVE, Ordering::Release);
}

/// Returns the count of a dead row. The lock is held.
pub(super) fn collected(collected: &AtomicI64) -> i64 {
    // Relaxed: written with the same lock held.
    collected.load(Ordering::Relaxed)
}
