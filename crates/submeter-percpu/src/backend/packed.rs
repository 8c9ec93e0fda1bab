//! Words for each CPU, side by side, eight to a line: for what is read far more often than added
//! to.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use submeter_sys::Rseq;

use crate::counter::overflows::{CpuWords, Kept};

const LINE_WORDS: usize = 8;

/// The words per CPU of one counter: an array of them for each [`Kept`].
///
/// Invariant: word `cpu` of an array is written by sequences on that CPU only; every thread may
/// load it.
#[derive(Debug)]
pub(crate) struct PackedWords {
    rseq: Rseq,
    /// Shared with the counters that were made together, each of which has as many from `first` on.
    lines: Arc<[Line]>,
    first: usize,
}

/// What CPUs pass around. 64 bytes, not the 128 of `CachePadded`: neighbours hold words of the same
/// counter, and a read would visit twice as much memory.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Line([AtomicI64; LINE_WORDS]);

impl PackedWords {
    /// Makes the words of `count` counters in one allocation.
    pub(crate) fn many(rseq: Rseq, count: usize) -> impl Iterator<Item = PackedWords> {
        let each = lines_of(rseq);
        let lines: Arc<[Line]> = (0..each * count).map(|_| Line::default()).collect();
        (0..count).map(move |at| PackedWords { rseq, lines: Arc::clone(&lines), first: at * each })
    }

    #[inline]
    fn own(&self) -> &[Line] {
        &self.lines[self.first..self.first + lines_of(self.rseq)]
    }

    /// The first word of an array among all of the counter's.
    #[inline]
    fn start(&self, kept: Kept) -> usize {
        kept as usize * self.rseq.cpus() as usize
    }
}

impl CpuWords for PackedWords {
    #[inline]
    fn add(&self, kept: Kept, n: i64) -> bool {
        let words = self.own().as_ptr().cast_mut().cast::<i64>();
        // SAFETY: 1. `own` holds `Kept::COUNT` arrays of `rseq.cpus()` words, one after the other,
        // which live as long as `self`; `start` is where one of them begins. 2. Only these
        // sequences write them: Rust code has loads only. 3. They are atomics, so that they may
        // change behind a shared reference.
        unsafe { self.rseq.add_packed(words.add(self.start(kept)), n) }
    }

    #[inline]
    fn sum(&self, kept: Kept) -> i64 {
        let (own, start) = (self.own(), self.start(kept));
        let words = start..start + self.rseq.cpus() as usize;
        let words = words.map(|at| &own[at / LINE_WORDS].0[at % LINE_WORDS]);
        // Acquire: before what the caller loads next; pairs with the fence before an `Ended`, see
        // `Overflows`.
        words.map(|word| word.load(Ordering::Acquire)).fold(0, i64::wrapping_add)
    }
}

fn lines_of(rseq: Rseq) -> usize {
    (Kept::COUNT * rseq.cpus() as usize).div_ceil(LINE_WORDS)
}

#[cfg(test)]
mod tests {
    use submeter_sys::{cpu, probe};

    use super::*;

    #[test]
    fn every_add_counts_once_wherever_it_lands_stress() {
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
                            if !words.add(Kept::Begun, n) {
                                // Relaxed: a statistic, read after the threads were joined.
                                refused.fetch_add(n, Ordering::Relaxed);
                            }
                        }
                    }
                });
            }
        });
        // Five adds come to 160: 0, 32, 64, 96 and 128, less 32 each.
        assert_eq!(words.sum(Kept::Begun) + refused.into_inner(), 4 * 8 * 20_000 / 5 * 160);
        assert_eq!((words.sum(Kept::Posted), words.sum(Kept::Ended)), (0, 0), "each by itself");
        assert!(all.iter().all(|neighbour| neighbour.sum(Kept::Begun) == 0));
    }
}
