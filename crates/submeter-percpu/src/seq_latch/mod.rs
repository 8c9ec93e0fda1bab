//! Words that one thread writes and any thread reads as a consistent snapshot.

#[cfg(all(test, loom))]
mod loom_models;

use std::sync::Arc;

use crate::sync::atomic::{AtomicU64, Ordering, fence};

/// The latest values of some words that one thread publishes together.
///
/// There are two copies. The writer fills the copy to which readers are not directed, then directs
/// them there; a reader that was overtaken detects it. The writer never waits, and a reader never
/// waits for a writer that was stopped half-way. A lock of any kind would make it wait, and so
/// would a sequence counter of odd and even numbers: in a forked child, forever.
///
/// A write costs some stores, none of them locked, and a read a load for each word and two more.
/// Clones share the words. For one word, or for words that need not agree, plain atomics are
/// enough.
///
/// # Differences from Linux
/// Its `seqcount_latch` makes the reader loop; here a read reports that it was overtaken, and the
/// caller decides.
///
/// # Examples
/// ```
/// use std::sync::atomic::Ordering::Relaxed;
/// use submeter_percpu::SeqLatch;
///
/// let latest = SeqLatch::new(2);
/// latest.write(|words| {
///     words[0].store(3, Relaxed);
///     words[1].store(30, Relaxed);
/// });
/// let mut seen = Vec::new();
/// assert!(latest.try_read(|words| seen = words.iter().map(|word| word.load(Relaxed)).collect()));
/// assert_eq!(seen, [3, 30]);
/// ```
#[derive(Clone, Debug)]
pub struct SeqLatch {
    /// The number of writes, whose lowest bit names the current copy; then the two copies. They are
    /// one allocation, since a writer stores to all of it.
    words: Arc<[AtomicU64]>,
}

impl SeqLatch {
    /// Makes two copies of `words` words, all 0.
    #[must_use]
    pub fn new(words: usize) -> SeqLatch {
        SeqLatch { words: (0..1 + 2 * words).map(|_| AtomicU64::new(0)).collect() }
    }

    /// Calls `fill` to store all words, and then directs readers there. Only one thread may call
    /// it: two concurrent writers would mix their words.
    ///
    /// `fill` finds the words as the second-last write left them.
    ///
    /// # Ordering
    /// `fill` may store with Relaxed: a reader that sees the version sees the words.
    #[inline]
    pub fn write(&self, fill: impl FnOnce(&[AtomicU64])) {
        // Relaxed: written by this thread only.
        let version = self.version().load(Ordering::Relaxed) + 1;
        // Release: pairs with the Acquire fence in `try_read`, so that a reader that sees a word
        // stored below also sees the last version, and knows that its copy is no longer current.
        fence(Ordering::Release);
        fill(self.copy(version));
        // Release: pairs with the Acquire in `try_read`, which then sees these words.
        self.version().store(version, Ordering::Release);
    }

    /// Calls `take` to load the words of the last write. Returns whether they are a consistent
    /// snapshot: if not, the writer wrote twice in between, and each word is from one of a few
    /// moments.
    ///
    /// # Ordering
    /// `take` may load with Relaxed.
    #[inline]
    pub fn try_read(&self, take: impl FnOnce(&[AtomicU64])) -> bool {
        // Acquire: pairs with the Release in `write`: the words are those of this version or later.
        let version = self.version().load(Ordering::Acquire);
        take(self.copy(version));
        // Acquire: pairs with the Release fence in `write`, so that a reader that loads a word of a
        // later write also sees the later version.
        fence(Ordering::Acquire);
        // Relaxed: ordered by the fence.
        self.version().load(Ordering::Relaxed) == version
    }

    #[inline]
    fn version(&self) -> &AtomicU64 {
        &self.words[0]
    }

    #[inline]
    fn copy(&self, version: u64) -> &[AtomicU64] {
        let (even, odd) = self.words[1..].split_at(self.words.len() / 2);
        if version.is_multiple_of(2) { even } else { odd }
    }
}
