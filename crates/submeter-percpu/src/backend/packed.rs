//! A word for each CPU, side by side: eight to a line, for what is read far more often than added to.

use std::sync::atomic::{AtomicI64, Ordering};

use submeter_sys::Rseq;

const LINE_WORDS: usize = 8;

/// Law: word `cpu` is written by sequences on that CPU only; everybody may load it.
#[derive(Debug)]
pub(crate) struct PackedWords {
    rseq: Rseq,
    lines: Box<[Line]>,
}

/// What CPUs pass around.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Line([AtomicI64; LINE_WORDS]);

impl PackedWords {
    pub(crate) fn new(rseq: Rseq) -> PackedWords {
        let lines = (rseq.cpus() as usize).div_ceil(LINE_WORDS);
        PackedWords { rseq, lines: (0..lines).map(|_| Line::default()).collect() }
    }

    /// Adds to the running CPU's word. Returns whether it was done; it is tried once.
    #[inline]
    pub(crate) fn add(&self, n: i64) -> bool {
        let words = self.lines.as_ptr().cast_mut().cast::<i64>();
        // SAFETY: 1. The lines hold `rseq.cpus()` words at least, one after the other, and live as long as `self`.
        // 2. Only these sequences write them: Rust code has loads only. 3. They are atomics, so that they may
        // change behind a shared reference.
        unsafe { self.rseq.add_packed(words, n) }
    }

    /// Sums the words: a line for each eight CPUs.
    #[inline]
    pub(crate) fn sum(&self) -> i64 {
        let words = self.lines.iter().flat_map(|line| &line.0);
        // Relaxed: a reader that was told of an add by other means is ordered by those.
        words.map(|word| word.load(Ordering::Relaxed)).fold(0, i64::wrapping_add)
    }
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
        let (words, refused) = (PackedWords::new(rseq), AtomicI64::new(0));
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
    }
}
