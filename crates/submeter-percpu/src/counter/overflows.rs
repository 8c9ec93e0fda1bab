//! The shared part of a counter: what crossed batch boundaries.

use super::Approximate;
#[cfg(not(loom))]
use crate::backend::packed::PackedWords;
use crate::sync::atomic::{AtomicI64, AtomicU64, Ordering};

/// With more, a read would visit more than eight lines: then one word that is added to by locked
/// instruction is the better bargain.
#[cfg(not(loom))]
const PACKED_CPUS_MAX: u32 = 64;

/// The overflows of a counter. An add that crosses no boundary neither reads nor writes them.
#[derive(Debug)]
pub(super) struct Overflows {
    /// Where overflows are posted without a locked instruction. `None` without sequences, or with
    /// too many CPUs.
    #[cfg(not(loom))]
    packed: Option<PackedWords>,
    /// Bits: a sum of multiples of the batch. Writers: overflows that no sequence posted, by locked
    /// add only.
    posted: AtomicI64,
    /// Bits: the widest batch that a caller brought; 0 until one did. Writers: those callers,
    /// before they use it; only grows.
    widest: AtomicU64,
}

impl Default for Overflows {
    fn default() -> Overflows {
        Overflows {
            #[cfg(not(loom))]
            packed: None,
            posted: AtomicI64::new(0),
            widest: AtomicU64::new(0),
        }
    }
}

impl Overflows {
    /// Makes those of `count` counters, with one allocation for all of them.
    #[cfg(not(loom))]
    pub(super) fn many(
        rseq: Option<submeter_sys::Rseq>,
        count: usize,
    ) -> impl Iterator<Item = Overflows> {
        let rseq = rseq.filter(|rseq| rseq.cpus() <= PACKED_CPUS_MAX);
        let mut packed = rseq.map(|rseq| PackedWords::many(rseq, count));
        let packed = move || packed.as_mut().and_then(Iterator::next);
        std::iter::repeat_with(packed)
            .take(count)
            .map(|packed| Overflows { packed, ..Overflows::default() })
    }

    #[inline]
    pub(super) fn post(&self, overflow: i64) {
        // One attempt: a sequence is disturbed so rarely that asking why would cost more.
        #[cfg(not(loom))]
        if self.packed.as_ref().is_some_and(|packed| packed.add(overflow)) {
            return;
        }
        // Relaxed: `read` promises nothing about adds that race with it, and a reader that learned
        // of an add by other means is ordered by those.
        self.posted.fetch_add(overflow, Ordering::Relaxed);
    }

    /// Leaves `overflow` in `pending` until `batch` has gathered there; returns what is to be
    /// posted then.
    ///
    /// Taken from `pending` first, posted by the caller after: the other order would post twice
    /// what two callers find at once.
    pub(super) fn gather(&self, pending: &AtomicI64, overflow: i64, batch: u64) -> i64 {
        // Relaxed: a hint that spares the exchange.
        if self.widest.load(Ordering::Relaxed) < batch {
            // Relaxed: before the add below, which a reader knows of by other means, or not at all.
            self.widest.fetch_max(batch, Ordering::Relaxed);
        }
        // Relaxed: as in `post`, a racing reader is promised nothing.
        let gathered = pending.fetch_add(overflow, Ordering::Relaxed).wrapping_add(overflow);
        if gathered.unsigned_abs() < batch {
            return 0;
        }
        // Relaxed: as in `post`; a swap, so that each overflow is taken by one caller only.
        pending.swap(0, Ordering::Relaxed)
    }

    /// The posted sum, and how far below and above it the truth may be: `missing` for what words
    /// keep below their boundary, and what is pending in `rows`.
    pub(super) fn read(&self, missing: u64, rows: u64) -> Approximate {
        // Relaxed: written before the add that needs it, see `gather`.
        let pending = rows * self.widest.load(Ordering::Relaxed).saturating_sub(1);
        // Relaxed: as in `post`, a racing add may be in or not.
        let posted = self.posted.load(Ordering::Relaxed);
        #[cfg(not(loom))]
        let posted = posted.wrapping_add(self.packed.as_ref().map_or(0, PackedWords::sum));
        // What a word has beyond a boundary is missing, never too much; what is pending may be
        // either.
        Approximate::new(posted.wrapping_sub_unsigned(pending), missing + 2 * pending)
    }
}
