//! How much is held: what was ever gained, less what was ever lost.
//!
//! Both are sums over CPUs that only grow. One sum for both would not do: it is not of a single
//! moment, so it could have what one CPU lost without what another had gained before. Of two sums,
//! the order in which a reader loads them decides on which side it errs.

#[cfg(all(test, loom))]
mod loom_models;

use crate::sync::atomic::{Ordering, fence};

/// What was gained: the number of a word.
pub const GAINED: usize = 0;
/// What was lost: the number of a word.
pub const LOST: usize = 1;

/// Words that each CPU has for itself.
pub trait Words {
    /// Adds to the running CPU's word of that number. It may be ordered with nothing.
    fn add(&self, word: usize, n: i64);

    /// Sums the words of that number over all CPUs. Loads may be ordered with nothing.
    fn sum(&self, word: usize) -> i64;
}

#[cfg(not(loom))]
impl Words for crate::Block {
    #[inline]
    fn add(&self, word: usize, n: i64) {
        crate::Block::add(self, word, n);
    }

    fn sum(&self, word: usize) -> i64 {
        crate::Block::sum(self, word)
    }
}

/// Adds what the calling thread gained, or takes off what it lost. Costs an add to a word.
///
/// # Ordering
/// A reader that finds what this adds also finds what the thread added before, and what happened
/// before that.
#[inline]
pub fn add(words: &impl Words, n: i64) {
    // Release: pairs with the Acquire fences of the readers below. Before a loss, so that its gain
    // is found with it; before a gain, so that earlier losses are.
    fence(Ordering::Release);
    words.add(if n < 0 { LOST } else { GAINED }, n.wrapping_abs());
}

/// How often is summed again while others gain and lose.
const LOOKS: usize = 4;

/// Returns what is held: exact once the adds are over. Meanwhile it never misses what is held
/// throughout, so it is 0 only if there is no such thing. The reason is that losses are read first,
/// and each loss is counted after its gain: if the sum of gains is not larger when read later, it
/// was not larger at the moment in between.
///
/// It may be too large by what is gained and lost meanwhile, which may be any amount if this thread
/// is preempted. If that was more than `slack`, it sums again, a few times, and returns the
/// smallest result. Costs two sums over CPUs, and at most seven more.
#[must_use]
pub fn sum(words: &impl Words, slack: i64) -> i64 {
    let (mut lost, mut least) = (words.sum(LOST), i64::MAX);
    for _ in 0..LOOKS {
        // Acquire: pairs with the Release in `add`, and with whatever passes a thing from the
        // thread that gained it to the one that lost it. A reader that finds the loss finds the
        // gain.
        fence(Ordering::Acquire);
        least = least.min(words.sum(GAINED).wrapping_sub(lost));
        // Acquire: losses are read again only after the gains.
        fence(Ordering::Acquire);
        let now = words.sum(LOST);
        if now.wrapping_sub(lost) <= slack {
            break;
        }
        lost = now;
    }
    least
}

/// Returns a lower bound of what is held, whatever others gain and lose meanwhile. Costs two sums
/// over CPUs.
#[must_use]
pub fn sum_at_least(words: &impl Words) -> i64 {
    let gained = words.sum(GAINED);
    // Acquire: pairs with the Release in `add`. Losses are read later, so what is gained and lost
    // in between is taken off and never left, and so is what was lost before a gain that was found.
    fence(Ordering::Acquire);
    gained.wrapping_sub(words.sum(LOST))
}
