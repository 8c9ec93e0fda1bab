//! A word for each CPU, side by side, eight to a line: for what is read far more often than added
//! to.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use submeter_sys::Rseq;

const LINE_WORDS: usize = 8;

/// One word per CPU of one counter.
///
/// Invariant: word `cpu` is written by sequences on that CPU only; every thread may load it.
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

    /// Adds to the running CPU's word. Returns whether it was done; it is tried once.
    #[inline]
    pub(crate) fn add(&self, n: i64) -> bool {
        let words = self.own().as_ptr().cast_mut().cast::<i64>();
        // SAFETY: 1. `own` holds `rseq.cpus()` words at least, one after the other, which live as
        // long as `self`. 2. Only these sequences write them: Rust code has loads only. 3. They are
        // atomics, so that they may change behind a shared reference.
        unsafe { self.rseq.add_packed(words, n) }
    }

    /// Sums the words: a line for each eight CPUs.
    #[inline]
    pub(crate) fn sum(&self) -> i64 {
        let words = self.own().iter().flat_map(|line| &line.0);
        // Relaxed: a reader that learned of an add by other means is ordered by those.
        words.map(|word| word.load(Ordering::Relaxed)).fold(0, i64::wrapping_add)
    }
}

fn lines_of(rseq: Rseq) -> usize {
    (rseq.cpus() as usize).div_ceil(LINE_WORDS)
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
                            if !words.add(n) {
                                // Relaxed: a statistic, read after the threads were joined.
                                refused.fetch_add(n, Ordering::Relaxed);
                            }
                        }
                    }
                });
            }
        });
        // Five adds come to 160: 0, 32, 64, 96 and 128, less 32 each.
        assert_eq!(words.sum() + refused.into_inner(), 4 * 8 * 20_000 / 5 * 160);
        assert!(all.iter().all(|neighbour| neighbour.sum() == 0));
    }
}
