//! The counts of one thread, published for readers on other threads.

use std::sync::atomic::{AtomicU64, Ordering};

use submeter_percpu::SeqLatch;

/// The counts of an event group on one thread, written by that thread alone.
///
/// The words of one moment must be read together: a value with the running time of another moment
/// would be scaled wrong. [`SeqLatch`] ensures that without waiting.
#[derive(Clone, Debug)]
pub struct Published {
    /// Error, enabled, running, values.
    words: SeqLatch,
}

/// The words before the values.
const HEAD: usize = 3;

/// How often a reader retries. A retry is needed only if the thread switches twice during a read.
const ATTEMPTS: usize = 1000;

/// A copy of [`Published`].
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Copied {
    /// Whether a pinned event group found no counter, or lost one.
    pub error: bool,
    /// For how long it could have counted.
    pub enabled_ns: u64,
    /// For how long it counted.
    pub running_ns: u64,
    /// What each event counted while it did.
    pub values: Vec<u64>,
}

impl Published {
    /// Creates the counts of as many events, all 0.
    #[must_use]
    pub fn new(events: usize) -> Published {
        Published { words: SeqLatch::new(HEAD + events) }
    }

    /// Publishes counts. Only the counting thread may call it.
    #[inline]
    pub(super) fn write(
        &self,
        error: bool,
        enabled_ns: u64,
        running_ns: u64,
        values: impl Iterator<Item = u64>,
    ) {
        self.words.write(|words| {
            let head = [u64::from(error), enabled_ns, running_ns];
            let (to_head, to_values) = words.split_at(HEAD);
            store(to_head, head.into_iter());
            store(to_values, values);
        });
    }

    /// Returns the counts of one moment.
    #[must_use]
    pub fn read(&self) -> Copied {
        let mut copied = Copied::default();
        for _ in 0..ATTEMPTS {
            if self.try_read(&mut copied) {
                break;
            }
        }
        // If every attempt was overtaken, the words are from moments a few switches apart. No word
        // ever goes back.
        copied
    }

    fn try_read(&self, to: &mut Copied) -> bool {
        self.words.try_read(|words| {
            // Relaxed: as `SeqLatch` allows.
            let mut words = words.iter().map(|word| word.load(Ordering::Relaxed));
            let mut next = || words.next().unwrap_or_default();
            (to.error, to.enabled_ns, to.running_ns) = (next() != 0, next(), next());
            to.values.clear();
            to.values.extend(words);
        })
    }
}

#[inline]
fn store(words: &[AtomicU64], values: impl Iterator<Item = u64>) {
    for (word, value) in words.iter().zip(values) {
        // Relaxed: as `SeqLatch` allows.
        word.store(value, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use super::*;

    #[test]
    fn a_read_returns_the_words_of_one_moment() {
        const WRITES: u64 = if cfg!(miri) { 200 } else { 200_000 };
        let published = Published::new(2);
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for n in 1..=WRITES {
                    published.write(n % 2 == 1, 3 * n, 2 * n, [n, 5 * n].into_iter());
                }
                // Relaxed: the reader only has to stop eventually.
                done.store(true, Ordering::Relaxed);
            });
            let (mut last, mut copied) = (0, Copied::default());
            // Relaxed: see above.
            while !done.load(Ordering::Relaxed) {
                // This writer does nothing else, and may overtake a reader more often than `read`
                // retries.
                if !published.try_read(&mut copied) {
                    continue;
                }
                let n = copied.enabled_ns / 3;
                let whole = Copied {
                    error: n % 2 == 1,
                    enabled_ns: 3 * n,
                    running_ns: 2 * n,
                    values: vec![n, 5 * n],
                };
                assert_eq!(copied, whole);
                assert!(n >= last, "{n} after {last}");
                last = n;
            }
        });
        assert_eq!(published.read().values, [WRITES, 5 * WRITES]);
    }
}
