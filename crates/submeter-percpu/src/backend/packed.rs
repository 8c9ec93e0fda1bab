//! Words for each CPU, side by side, eight to a line: for values that are read far more often than
//! they are added to.

use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use submeter_sys::Rseq;

use crate::counter::cpu_words::{CpuWord, CpuWords};

const LINE_WORDS: usize = 8;

/// The per-CPU words of one counter: an array of them for each [`CpuWord`].
///
/// Invariant: word `cpu` of an array is written only by the sequences of that row; every thread may
/// load it.
#[derive(Debug)]
pub(crate) struct PackedWords {
    rseq: Rseq,
    /// The counter's own words: `CpuWord::COUNT` arrays of `rseq.cpus()` words, one after the
    /// other. Not the index of a line: checking it would cost as much as a sequence.
    words: NonNull<AtomicI64>,
    /// Keeps the words. Shared with the counters that were made together.
    _lines: Arc<[Line]>,
}

/// A line, the unit that CPUs transfer. 64 bytes, not the 128 of `CachePadded`: neighbours hold
/// words of the same counter, and a read would visit twice as much memory.
#[derive(Debug, Default)]
#[repr(C, align(64))]
struct Line([AtomicI64; LINE_WORDS]);

// SAFETY: 1. The words are atomics, and `_lines` keeps them. 2. The other fields are `Send` by
// themselves.
unsafe impl Send for PackedWords {}
// SAFETY: 1 and 2 as for `Send`; only sequences write the words, which are made for that.
unsafe impl Sync for PackedWords {}

impl PackedWords {
    /// Makes the words of `count` counters in one allocation.
    pub(crate) fn many(rseq: Rseq, count: usize) -> impl Iterator<Item = PackedWords> {
        let each = lines_of(rseq);
        let lines: Arc<[Line]> = (0..each * count).map(|_| Line::default()).collect();
        (0..count).map(move |at| {
            let words = NonNull::from(&lines[at * each..][..each]).cast();
            PackedWords { rseq, words, _lines: Arc::clone(&lines) }
        })
    }

    /// Returns the number of words in an array.
    #[inline(always)]
    pub(crate) fn cpus(&self) -> usize {
        self.rseq.cpus() as usize
    }

    /// Returns an array.
    #[inline(always)]
    fn words(&self, kept: CpuWord) -> &[AtomicI64] {
        let cpus = self.cpus();
        // SAFETY: 1. In bounds: `words` is the start of `lines_of(rseq)` lines, which hold
        // `CpuWord::COUNT` arrays of `cpus` words, and `kept` is below that count. Lines have no
        // padding: 8 words are 64 bytes. 2. Alive as long as `self`: `_lines`. 3. Atomics, so that
        // they may change behind a shared reference.
        unsafe { std::slice::from_raw_parts(self.words.add(kept as usize * cpus).as_ptr(), cpus) }
    }
}

impl CpuWords for PackedWords {
    #[inline(always)]
    fn add(&self, kept: CpuWord, n: i64) -> bool {
        let words = self.words(kept).as_ptr().cast_mut().cast::<i64>();
        // SAFETY: 1. `words` holds `rseq.cpus()` words, which live as long as `self`. 2. Only these
        // sequences write them: Rust code has loads only. 3. They are atomics, so that they may
        // change behind a shared reference.
        unsafe { self.rseq.add_packed(words, n) }
    }

    #[inline]
    fn sum(&self, kept: CpuWord) -> i64 {
        let words = self.words(kept).iter();
        // Acquire: ordered before whatever the caller loads next; pairs with the fence before an
        // `Ended`, see `Overflows`.
        words.map(|word| word.load(Ordering::Acquire)).fold(0, i64::wrapping_add)
    }
}

fn lines_of(rseq: Rseq) -> usize {
    (CpuWord::COUNT * rseq.cpus() as usize).div_ceil(LINE_WORDS)
}

#[cfg(test)]
mod tests {
    use submeter_sys::{cpu, probe};

    use super::*;

    /// Every add counts once, wherever it lands.
    #[test]
    fn every_add_counts_once_stress() {
        let Some(rseq) = probe().rseq() else {
            eprintln!("skipped: no sequences here: {}", probe().reason);
            return;
        };
        let mut all: Vec<PackedWords> = PackedWords::many(rseq, 3).collect();
        let (words, refused) = (all.remove(1), AtomicI64::new(0));
        let cpus = cpu::affinity().expect("readable");
        std::thread::scope(|scope| {
            for thread in 0..4_usize {
                let (words, refused, cpus) = (&words, &refused, &cpus);
                scope.spawn(move || {
                    for round in 0..8 {
                        let to = cpus[(thread + round) % cpus.len()];
                        cpu::set_affinity(&[to]).expect("allowed");
                        for n in (0..20_000).map(|i| 32 * (i % 5) - 32) {
                            if !words.add(CpuWord::Begun, n) {
                                // Relaxed: a statistic, read after the threads were joined.
                                refused.fetch_add(n, Ordering::Relaxed);
                            }
                        }
                    }
                });
            }
        });
        // Five adds sum to 160: 0, 32, 64, 96 and 128, less 32 each.
        assert_eq!(words.sum(CpuWord::Begun) + refused.into_inner(), 4 * 8 * 20_000 / 5 * 160);
        assert_eq!(
            (words.sum(CpuWord::Posted), words.sum(CpuWord::Ended)),
            (0, 0),
            "each by itself"
        );
        assert!(all.iter().all(|neighbour| neighbour.sum(CpuWord::Begun) == 0));
    }
}
