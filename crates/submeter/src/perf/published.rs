//! What one thread has counted, where any thread may read it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering, fence};

/// The counts of an event group on one thread, written by that thread alone.
///
/// The words of one moment must be read together: a value beside a running time of another moment would be scaled to
/// nonsense. So there are two copies, and the writer fills the one that nobody is sent to, then sends readers
/// there. A reader that was overtaken reads again. The writer never waits, and neither does a reader for a writer that
/// was stopped half-way, which a lock of any kind (a sequence of odd and even numbers too) would make it do: in a forked
/// child, for ever.
#[derive(Clone, Debug)]
pub(super) struct Published {
    /// How often it was written; the lowest bit says which copy is the current one. Then two copies of: error, enabled,
    /// running, values. In one piece, as a switch writes it.
    words: Arc<[AtomicU64]>,
}

/// The words of a copy before the values.
const HEAD: usize = 3;

/// How often a reader begins again. It is overtaken only by a thread that switches twice meanwhile.
const ATTEMPTS: usize = 1000;

/// A copy of [`Published`].
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Copied {
    pub(super) error: bool,
    pub(super) enabled_ns: u64,
    pub(super) running_ns: u64,
    pub(super) values: Vec<u64>,
}

impl Published {
    pub(super) fn new(events: usize) -> Published {
        Published { words: (0..1 + 2 * (HEAD + events)).map(|_| AtomicU64::new(0)).collect() }
    }

    #[inline]
    fn version(&self) -> &AtomicU64 {
        &self.words[0]
    }

    /// Makes counts known. By the thread that they are of, and no other.
    #[inline]
    pub(super) fn write(
        &self,
        error: bool,
        enabled_ns: u64,
        running_ns: u64,
        values: impl Iterator<Item = u64>,
    ) {
        // Relaxed: written by this thread only.
        let version = self.version().load(Ordering::Relaxed) + 1;
        // Release: pairs with the Acquire fence in `try_read`: who sees a word that is stored below sees the last
        // version too, and knows that the copy it reads is not the current one any more.
        fence(Ordering::Release);
        let head = [u64::from(error), enabled_ns, running_ns];
        let (to_head, to_values) = self.copy(version).split_at(HEAD);
        for (word, value) in to_head.iter().zip(head) {
            // Relaxed: published by the version.
            word.store(value, Ordering::Relaxed);
        }
        for (word, value) in to_values.iter().zip(values) {
            // Relaxed: as above.
            word.store(value, Ordering::Relaxed);
        }
        // Release: pairs with the Acquire in `try_read`, who then sees these words.
        self.version().store(version, Ordering::Release);
    }

    pub(super) fn read(&self) -> Copied {
        let mut copied = Copied::default();
        for _ in 0..ATTEMPTS {
            if self.try_read(&mut copied) {
                break;
            }
        }
        // Of two moments, if it was overtaken each time: a few switches apart, and no word goes back.
        copied
    }

    fn try_read(&self, to: &mut Copied) -> bool {
        // Acquire: pairs with the Release in `write`: the words are those of this version, or later ones.
        let version = self.version().load(Ordering::Acquire);
        // Relaxed: checked below.
        let mut words = self.copy(version).iter().map(|word| word.load(Ordering::Relaxed));
        let mut next = || words.next().unwrap_or_default();
        (to.error, to.enabled_ns, to.running_ns) = (next() != 0, next(), next());
        to.values.clear();
        to.values.extend(words);
        // Acquire: pairs with the Release fence in `write`.
        fence(Ordering::Acquire);
        // Relaxed: ordered by the fence.
        self.version().load(Ordering::Relaxed) == version
    }

    fn copy(&self, version: u64) -> &[AtomicU64] {
        let (even, odd) = self.words[1..].split_at(self.words.len() / 2);
        if version.is_multiple_of(2) { even } else { odd }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use super::*;

    #[test]
    fn what_is_read_is_of_one_moment() {
        const WRITES: u64 = if cfg!(miri) { 200 } else { 200_000 };
        let published = Published::new(2);
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for n in 1..=WRITES {
                    published.write(n % 2 == 1, 3 * n, 2 * n, [n, 5 * n].into_iter());
                }
                // Relaxed: the reader only stops some time after.
                done.store(true, Ordering::Relaxed);
            });
            let (mut last, mut copied) = (0, Copied::default());
            // Relaxed: see above.
            while !done.load(Ordering::Relaxed) {
                // This writer does nothing else, and may overtake a reader more often than `read` tries.
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
