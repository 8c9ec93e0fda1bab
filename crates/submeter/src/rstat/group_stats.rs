//! The statistics of one group: the updater's side.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use submeter_percpu::storage::LINE_WORDS;
use submeter_percpu::{Block, Word};

use super::lineage::{Lineage, upward};
use super::{Rstat, rows};
use crate::error::Error;
use crate::flush::node_table::Birth;
use crate::reading::Reading;

/// The words of a group. Dropping it hands the rest to the parent at the next flush.
#[repr(C)]
pub(crate) struct GroupStats {
    block: Block<Lineage>,
    rstat: Arc<Rstat>,
}

/// An update by this much makes bounds meaningless until the next flush, instead of the pending
/// error wrap around.
const UNBOUNDED: u64 = 1 << 47;
/// So does a pending error of this much. It cannot wrap around from here before a thread says so:
/// that takes 98,304 threads between two instructions.
const PENDING_ERROR_MAX: u64 = 1 << 62;

impl GroupStats {
    /// Takes storage for a group below `parent`.
    pub(crate) fn new(
        rstat: &Arc<Rstat>,
        parent: Option<&GroupStats>,
    ) -> Result<GroupStats, Error> {
        rstat.admit()?;
        let block = rstat.area.block(rstat.words).map_err(|cause| {
            // Relaxed: see `admit`.
            rstat.len.fetch_sub(1, Ordering::Relaxed);
            Error::storage(cause)
        })?;
        let block = block.with(Lineage {
            parent: parent.map(|parent| parent.block.block_ref().clone()),
            population: AtomicU64::new(0),
        });
        for at in upward(block.block_ref()) {
            // Relaxed: the group's own updates come later in this thread, or in one that was handed
            // the group.
            at.population.fetch_add(1, Ordering::Relaxed);
        }
        let stats = GroupStats { block, rstat: Arc::clone(rstat) };
        let (id, parent) = (stats.id(), parent.map(GroupStats::id));
        rstat.announce(Birth { id, parent, kept: stats.block.block_ref().clone() });
        Ok(stats)
    }

    /// The statistics that it is a part of.
    pub(crate) fn rstat(&self) -> &Rstat {
        &self.rstat
    }

    /// The block's number among its equals; reused once the flusher has forgotten the group.
    pub(super) fn id(&self) -> u32 {
        (self.block.first_line() / self.rstat.lines) as u32
    }

    /// Adds to the running CPU's word; raises the ancestors' pending error only when a batch
    /// boundary is crossed.
    #[inline(always)]
    pub(crate) fn add(&self, word: usize, n: i64, batch_mask: u64) {
        self.block.add_dirty(word, n, batch_mask, move |overflow| self.overflowed(word, overflow));
    }

    /// Finds a word; what overflows from an add to it goes to
    /// [`overflowed`](GroupStats::overflowed).
    #[inline]
    pub(crate) fn word(&self, word: usize) -> Word<'_> {
        self.block.word(word)
    }

    /// The sum of a word over all CPUs: this group's own part. Concurrent adds are in it or
    /// not, each for itself.
    pub(crate) fn own(&self, word: usize) -> i64 {
        self.block.sum(word)
    }

    /// Once in a batch: the price of a bound on reads.
    #[cold]
    #[inline(never)]
    pub(crate) fn overflowed(&self, word: usize, overflow: i64) {
        let overflow = overflow.unsigned_abs();
        if overflow >= UNBOUNDED {
            // SeqCst: before this update returns; pairs with the load in `read_words`.
            self.rstat.error_unbounded.fetch_add(1, Ordering::SeqCst);
        }
        let area = &self.rstat.area;
        for at in upward(self.block.block_ref()) {
            let at = at.first_word() + word;
            // Relaxed: only to find out how much is pending. Stays before the add, which releases,
            // so that what is covered is not more than what had been raised.
            let covered = area.shared(rows::COVERED_ERROR, at).load(Ordering::Relaxed);
            let raised = area.shared(rows::RAISED_ERROR, at);
            // SeqCst: before this update returns; pairs with the load in `pending_error`. Before
            // the look at the mark: a flush takes the mark, then loads.
            let before = raised.fetch_add(overflow.cast_signed(), Ordering::SeqCst);
            if before.wrapping_sub(covered).cast_unsigned() >= PENDING_ERROR_MAX {
                // SeqCst: as above.
                self.rstat.error_unbounded.fetch_add(1, Ordering::SeqCst);
            }
            area.mark_shared(rows::RAISED_ERROR, at / LINE_WORDS);
        }
    }

    /// Reads a cached total. Visits neither rows nor groups.
    pub(crate) fn read(&self, word: usize, batch_mask: u64) -> Reading<i64> {
        self.read_words(word..word + 1, batch_mask, || self.total(word))
    }

    /// Reads the cached totals of several words, whose bound is for all of them together.
    pub(crate) fn read_many(&self, words: Range<usize>, batch_mask: u64) -> Reading<Vec<u64>> {
        self.read_words(words.clone(), batch_mask, || {
            words.map(|word| self.total(word).cast_unsigned()).collect()
        })
    }

    /// Bounds what `totals` loads of `words`.
    #[inline(always)]
    fn read_words<T>(
        &self,
        words: Range<usize>,
        batch_mask: u64,
        totals: impl FnOnce() -> T,
    ) -> Reading<T> {
        let rstat = &*self.rstat;
        // Before the total, so that the total is of this flush or of a later one: an age that is
        // one flush old is a true age.
        let as_of_ns = rstat.flushes.as_of_ns().max(self.as_of_ns());
        // Before the total too: groups that have left it by now are in the total.
        let population = self.population();
        // In each row, the words of each group below, and only of lines that are marked. Counted
        // until what they hold is in the totals, so that no mark out means that all that returned
        // is in `value`.
        let spanned = (words.end.div_ceil(LINE_WORDS) - words.start / LINE_WORDS) as u64;
        let most = population.saturating_mul(spanned);
        let lines = match rstat.area.dirty_lines(most) {
            0 => 0,
            lines => lines.min(rstat.unread()),
        };
        let dirty = lines * words.len().min(LINE_WORDS) as u64;
        // Before the pending error. An add that has not posted its overflow yet keeps what others
        // add after it in the same word from overflowing: less than a batch for each.
        let in_flight = if lines == 0 { 0 } else { rstat.area.in_flight() };
        let pending = words.map(|word| self.pending_error(word)).fold(0, u64::saturating_add);
        // SeqCst: pairs with the adds in `overflowed`, which come before their updates return.
        let unbounded = rstat.error_unbounded.load(Ordering::SeqCst) != 0;
        let value = totals();
        let bound = match lines {
            0 => 0,
            _ if unbounded => u64::MAX,
            _ => pending.saturating_add((dirty + in_flight).saturating_mul(batch_mask)),
        };
        Reading::new(value, bound, rstat.flushes.age(as_of_ns))
    }

    /// The cached total.
    pub(crate) fn total(&self, word: usize) -> i64 {
        // Relaxed: in `read_words` after loads that acquire what a flush stored before it lowered
        // them; elsewhere after a flush, or with the flusher locked.
        self.shared(rows::TOTAL, word).load(Ordering::Relaxed)
    }

    /// Returns by how much the total of a word may be wrong beside what is below batch boundaries.
    /// To be called after the marks were counted and before the total is loaded.
    ///
    /// A flush stores the total, then what it covers, then releases the marks. This loads in the
    /// opposite order, so that whatever it misses of the total it still sees in the others.
    #[inline(always)]
    fn pending_error(&self, word: usize) -> u64 {
        // Acquire: pairs with the Release in `FlushState::finish`: the total that is loaded later
        // has what this covers. Before what was raised, so that it is not more.
        let covered = self.shared(rows::COVERED_ERROR, word).load(Ordering::Acquire);
        // SeqCst: pairs with the add in `overflowed`: it has the overflow of every update that
        // returned before.
        let raised = self.shared(rows::RAISED_ERROR, word).load(Ordering::SeqCst);
        raised.wrapping_sub(covered).cast_unsigned()
    }

    #[cfg(test)]
    pub(super) fn block(&self) -> &Block<Lineage> {
        &self.block
    }

    fn shared(&self, row: usize, word: usize) -> &AtomicI64 {
        self.rstat.area.shared(row, self.block.first_word() + word)
    }

    /// When the last flush of just this part began, in ns after the tree's; 0 if there was none.
    fn as_of_ns(&self) -> u64 {
        // Acquire: pairs with the Release in `Rstat::note_flushed`: the total is of that flush or
        // later.
        self.shared(rows::FLUSHED, 0).load(Ordering::Acquire).cast_unsigned()
    }

    /// Whether it is the root.
    pub(super) fn is_root(&self) -> bool {
        self.block.block_ref().parent.is_none()
    }

    fn population(&self) -> u64 {
        // Acquire: see `Lineage::leave`.
        self.block.block_ref().population.load(Ordering::Acquire)
    }
}

impl Drop for GroupStats {
    fn drop(&mut self) {
        // The flusher's clone of the block keeps the words until it has read them a last time.
        self.rstat.bury(self.id());
    }
}
