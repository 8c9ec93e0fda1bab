//! Setting a counter: a sum, and an add of the difference.

use crate::fork_lock::ForkLock;

/// A lock that lets one set happen at a time. A set that a fork left behind has either added or
/// not: the next set adds what is lacking by then.
///
/// For words that are added to and never stored, as those of each CPU are. Two bytes.
#[derive(Debug)]
pub struct Setter(ForkLock);

impl Setter {
    /// Makes one for words that nobody sets yet.
    #[must_use]
    #[expect(clippy::new_without_default, reason = "its lock watches forks from then on")]
    pub fn new() -> Setter {
        Setter(ForkLock::new())
    }

    /// Adds the difference between `sum` and `value`. Two threads that did so at once would add it
    /// twice.
    pub fn set(&self, value: i64, sum: impl FnOnce() -> i64, add: impl FnOnce(i64)) {
        let _alone = self.0.lock();
        add(value.wrapping_sub(sum()));
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn a_child_of_a_fork_amid_a_set_sets() {
        let (setter, word) = (Setter::new(), Cell::new(3));
        setter.0.abandon();
        setter.set(7, || word.get(), |lacking| word.set(word.get() + lacking));
        assert_eq!(word.get(), 7);
    }
}
