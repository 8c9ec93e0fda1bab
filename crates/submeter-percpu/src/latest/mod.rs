//! Words that one thread writes and any thread reads, all of one moment.

#[cfg(all(test, loom))]
mod loom_models;

use std::sync::Arc;

use crate::sync::atomic::{AtomicU64, Ordering, fence};

/// Keeps the latest of what one thread has to say in some words.
///
/// There are two copies, and the writer fills the one that nobody is sent to, then sends readers there. A reader that was
/// overtaken is told so. The writer never waits, and neither does a reader for a writer that was stopped half-way, which a
/// lock of any kind (a sequence of odd and even numbers too) would make it do: in a forked child, for ever.
///
/// Costs the writer some stores, none of them locked; a reader a load for each word and two more. Clones share the
/// words. For one word, or for words that need not agree, plain atomics are enough.
///
/// # Examples
/// ```
/// use std::sync::atomic::Ordering::Relaxed;
/// use submeter_percpu::Latest;
///
/// let latest = Latest::new(2);
/// latest.write(|words| {
///     words[0].store(3, Relaxed);
///     words[1].store(30, Relaxed);
/// });
/// let mut seen = Vec::new();
/// assert!(latest.try_read(|words| seen = words.iter().map(|word| word.load(Relaxed)).collect()));
/// assert_eq!(seen, [3, 30]);
/// ```
#[derive(Clone, Debug)]
pub struct Latest {
    /// How often it was written; the lowest bit says which copy is the current one. Then the two copies. In one piece, as
    /// a writer stores it.
    words: Arc<[AtomicU64]>,
}

impl Latest {
    /// Makes two copies of so many words, all 0.
    #[must_use]
    pub fn new(words: usize) -> Latest {
        Latest { words: (0..1 + 2 * words).map(|_| AtomicU64::new(0)).collect() }
    }

    /// Has `fill` store all words, and then sends readers there. By one thread, and no other: two that write at once
    /// mix what they say.
    ///
    /// The words hold what was written the time before the last.
    ///
    /// # Ordering
    /// `fill` may store with Relaxed: who sees the version sees the words.
    #[inline]
    pub fn write(&self, fill: impl FnOnce(&[AtomicU64])) {
        // Relaxed: written by this thread only.
        let version = self.version().load(Ordering::Relaxed) + 1;
        // Release: pairs with the Acquire fence in `try_read`: who sees a word that is stored below sees the last
        // version too, and knows that the copy it reads is not the current one any more.
        fence(Ordering::Release);
        fill(self.copy(version));
        // Release: pairs with the Acquire in `try_read`, who then sees these words.
        self.version().store(version, Ordering::Release);
    }

    /// Has `take` load the words of the last write. Returns whether they are of one moment: if not, the writer came by
    /// twice meanwhile, and each is of one of a few moments.
    ///
    /// # Ordering
    /// `take` may load with Relaxed.
    #[inline]
    pub fn try_read(&self, take: impl FnOnce(&[AtomicU64])) -> bool {
        // Acquire: pairs with the Release in `write`: the words are those of this version, or later ones.
        let version = self.version().load(Ordering::Acquire);
        take(self.copy(version));
        // Acquire: pairs with the Release fence in `write`.
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
