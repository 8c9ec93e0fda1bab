//! A sum of the amounts added since a collection began, without a reset by the collector.
//!
//! The alternative, a counter that updaters raise and a collector subtracts from, costs the
//! collector a visit of each counter that was raised. Here each sum carries the number of the
//! collection since which it counts, and a complete collection takes all earlier additions out of
//! the count. The collector only stores one number at its beginning and one at its end, however
//! many sums there are.
//!
//! # The protocol
//! Collections are numbered upward, one after the other. A collector stores its number as *begun*,
//! collects, and stores it as *covered* once what it collected is where readers find it. One that
//! fails never stores the latter.
//!
//! - **An updater** makes its update visible, then takes a full fence ([`Updated`]), then loads
//!   *begun* and *covered* ([`Noted`]), then adds. If it misses a collection's number, then that
//!   collection, which takes a full fence behind its store, finds the update: so it collects every
//!   addition that is dated with an older number.
//! - **A reader** loads *covered*, then the sum, then what was collected. Of what an updater has
//!   dropped from the sum, as *covered* said, the reader finds the collection's result: the
//!   updater had acquired it.
//!
//! There are two words, which take turns: while a collection runs, one has what counts until it is
//! complete, the other what came since it began. By the time that a word has its turn again, what
//! it had is covered, unless a collection has failed, or an updater had not seen one begin; then it
//! counts for longer than it need.
//!
//! A date is the lower half of a number. To learn its age, a thread loads the date, and then the
//! number of a collection that began no earlier. That gives the age modulo 2^32, so that an older
//! sum may count again. A sum is too small only if an updater is stopped between two instructions
//! and, 2^32 collections later, finds the word as it was.

mod collector;
#[cfg(all(test, loom))]
mod loom_models;

pub use collector::{Noted, Numbers, Updated};

use crate::sync::atomic::{AtomicI64, Ordering};

/// A sum in two words, which are zero at first: see the [module](self).
///
/// The sum is in units of the caller's. From 2^31 on it is only known to be as much.
///
/// Costs an adder a locked instruction, and one more for the first of each collection; a reader two
/// loads, and one more where there is anything. For sums that are to be exact, and for those that
/// each update adds to, use a counter.
///
/// # Examples
/// ```
/// use std::sync::atomic::AtomicI64;
/// use submeter_percpu::pending::{Collections, Pending};
///
/// let words = [AtomicI64::new(0), AtomicI64::new(0)];
/// let pending = Pending([&words[0], &words[1]]);
/// // Collection 1 is complete; then collection 2 begins.
/// let one = Collections { begun: 1, covered: 1, turn: 1 };
/// pending.add(one, 3, || one);
/// let two = Collections { begun: 2, covered: 1, turn: 2 };
/// pending.add(two, 5, || two);
/// assert_eq!(pending.sum(1, || 2), 8, "until it is complete");
/// assert_eq!(pending.sum(2, || 2), 5);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Pending<'a>(pub [&'a AtomicI64; 2]);

/// The collection numbers that an updater loaded after its update and a fence.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Collections {
    /// The number of the last that began. Loaded with Acquire, before `turn`.
    pub begun: u64,
    /// The number of the last that is complete. Loaded with Acquire.
    pub covered: u64,
    /// How many began, stored before `begun`: which of the words has its turn. By a wrong one more
    /// counts, and no less.
    pub turn: u64,
}

/// Less is added without a look at what is there.
const SMALL: u32 = 1 << 16;
/// As much and more. It would take 2^15 threads, each between two instructions, to get from here to
/// the date beside it.
const MANY: u32 = 1 << 31;

/// The number of the collection that had begun, as far as there is room for it, and how much was
/// added since.
#[derive(Clone, Copy)]
struct Slot {
    date: u32,
    n: u32,
}

impl Slot {
    fn of(word: i64) -> Slot {
        let word = word.cast_unsigned();
        Slot { date: (word >> 32) as u32, n: word as u32 }
    }

    fn word(self) -> i64 {
        (u64::from(self.date) << 32 | u64::from(self.n)).cast_signed()
    }

    /// Returns whether it counts though a collection is complete. `begun` is the number of one that
    /// began no earlier than the date says.
    fn is_after(self, covered: u64, begun: u64) -> bool {
        let age = (begun as u32).wrapping_sub(self.date);
        u64::from(age) <= begun.saturating_sub(covered)
    }
}

impl Pending<'_> {
    /// Adds `n`. `again` loads once more what there is of collections, where that is not as it was.
    ///
    /// Tries again where another thread dates the word at the same time, at most once for each and
    /// for each collection. An amount of 2^16 or more is tried again whenever others add in
    /// between.
    ///
    /// # Ordering
    /// SeqCst: a reader that loads the sum after the caller returned finds it.
    #[inline]
    pub fn add(self, collections: Collections, n: u32, again: impl Fn() -> Collections) {
        // At once: to look first would take the line from another CPU twice.
        if !self.add_at_once(collections, n) {
            self.add_by_looking(collections, n, again);
        }
    }

    fn word(&self, turn: u64) -> &AtomicI64 {
        self.0[turn as usize % 2]
    }

    /// Returns whether it is where it counts.
    #[inline]
    fn add_at_once(&self, Collections { begun, turn, .. }: Collections, n: u32) -> bool {
        if n >= SMALL {
            return false;
        }
        // SeqCst: as in `add_by_looking`.
        let before = Slot::of(self.word(turn).fetch_add(n.into(), Ordering::SeqCst));
        before.date == begun as u32 && before.n < MANY
    }

    /// An amount that was added at once, and in vain, is dropped here together with the old amount,
    /// or counts twice.
    #[cold]
    #[inline(never)]
    fn add_by_looking(self, mut collections: Collections, n: u32, again: impl Fn() -> Collections) {
        loop {
            let word = self.word(collections.turn);
            // Acquire: before `begun`, which is then no earlier than the date.
            let before = word.load(Ordering::Acquire);
            let turn = collections.turn;
            collections = again();
            if collections.turn % 2 != turn % 2 {
                continue;
            }
            let (slot, Collections { begun, covered, .. }) = (Slot::of(before), collections);
            // Dated by another thread meanwhile.
            if slot.date == begun as u32 && slot.n < MANY && self.add_at_once(collections, n) {
                return;
            }
            // Covered amounts are dropped. An amount that still counts, though it should not, is
            // kept.
            let kept = if slot.is_after(covered, begun) { slot.n } else { 0 };
            let next = Slot { date: begun as u32, n: kept.saturating_add(n).min(MANY) }.word();
            // SeqCst: before the caller returns; pairs with the loads in `sum`. It passes on what
            // the loads of `covered` and `begun` acquired. Relaxed on failure: the loop looks
            // again.
            let exchanged =
                word.compare_exchange(before, next, Ordering::SeqCst, Ordering::Relaxed);
            if exchanged.is_ok() {
                return;
            }
        }
    }

    /// Returns the sum of the additions since the collection `covered` began; that number was
    /// loaded before, and its collection is complete. `begun` loads the number of one that began no
    /// earlier than any that an adder had loaded. `u32::MAX` stands for as much and more.
    ///
    /// # Ordering
    /// SeqCst: every addition that this sum leaves out has been collected, and is in the totals
    /// that are loaded after it.
    #[inline]
    #[must_use]
    pub fn sum(self, covered: u64, begun: impl FnOnce() -> u64) -> u32 {
        // SeqCst: pairs with `add`: an add that returned is found. This acquires also what the
        // updater had acquired when it dropped something or loaded the date.
        let slots = self.0.map(|word| Slot::of(word.load(Ordering::SeqCst)));
        if slots[0].n | slots[1].n == 0 {
            return 0;
        }
        let begun = begun();
        let count = |slot: Slot| if slot.is_after(covered, begun) { slot.n } else { 0 };
        let sum = count(slots[0]).saturating_add(count(slots[1]));
        if sum < MANY { sum } else { u32::MAX }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[derive(Default)]
    struct Words {
        words: [AtomicI64; 2],
        /// The number of the last collection that began.
        begun: Cell<u64>,
    }

    impl Words {
        /// Adds where the words take turns, from either on, and where one is taken for all.
        fn check(test: impl Fn(&Self, &dyn Fn(u64, u64, u32))) {
            for (by_number, turn) in [(true, 0), (true, 1), (false, 0), (false, 1)] {
                let words = Words::default();
                let add = |begun: u64, covered: u64, n: u32| {
                    let turn = if by_number { begun + turn } else { turn };
                    words.add(Collections { begun, covered, turn }, n);
                };
                test(&words, &add);
            }
        }

        fn pending(&self) -> Pending<'_> {
            Pending([&self.words[0], &self.words[1]])
        }

        fn add(&self, collections: Collections, n: u32) {
            self.begun.set(self.begun.get().max(collections.begun));
            let again = || Collections { begun: self.begun.get(), ..collections };
            self.pending().add(collections, n, again);
        }

        fn sum(&self, covered: u64) -> u32 {
            self.pending().sum(covered, || self.begun.get().max(covered))
        }
    }

    /// An add counts until a collection that began after it is complete.
    ///
    /// Where the words take turns.
    #[test]
    fn an_add_counts_until_a_later_collection() {
        let words = Words::default();
        let add = |begun: u64, covered: u64, n: u32| {
            words.add(Collections { begun, covered, turn: begun }, n);
        };
        for number in 1..20_u64 {
            let left = u32::from(number > 1) * 5;
            // Before and after `number + 1` begins.
            add(number, number, 10);
            add(number, number, 1);
            assert_eq!(words.sum(number), left + 11);
            add(number + 1, number, 2);
            add(number + 1, number, 3);
            // By a thread that had not seen that it began.
            add(number, number, 100);
            let sums = [0, 1, 2].map(|later| words.sum(number + later));
            assert_eq!(sums, [left + 116, 5, 0]);
        }
    }

    /// No less than what was added counts, whatever the turn and whatever fails.
    #[test]
    fn no_turn_and_no_failure_counts_less() {
        // Failures by 3 and by 7 meet in all ways; fewer do where each step takes long.
        let collections = if cfg!(miri) { 10 } else { 50 };
        Words::check(|words, add| {
            let (mut covered, mut since) = (0, vec![0; 64]);
            for begun in 0..collections {
                for n in 1..=3 {
                    add(begun as u64, covered as u64, n);
                    since[begun] += n;
                    let due: u32 = since[covered..].iter().sum();
                    assert!(words.sum(covered as u64) >= due, "{begun}: less than {due}");
                }
                // Some fail.
                if begun % 3 == 0 || begun % 7 < 2 {
                    covered = begun;
                }
            }
            assert_eq!(words.sum(collections as u64), 0);
        });
    }

    /// A collection that fails makes more count, until two have been complete.
    #[test]
    fn what_a_failure_keeps_is_dropped_in_the_end() {
        let words = Words::default();
        let add = |begun: u64, covered: u64| {
            words.add(Collections { begun, covered, turn: begun }, 100);
        };
        add(1, 1);
        // Neither 2 nor 3 is complete.
        add(2, 1);
        add(3, 1);
        assert!(words.sum(1) >= 300);
        for number in 4..7 {
            add(number, number - 1);
            add(number, number);
        }
        assert_eq!(words.sum(6), 200);
    }

    #[test]
    fn what_is_too_much_stays_too_much_until_it_is_covered() {
        Words::check(|words, add| {
            for n in [u32::MAX - 1, 1, 5, u32::MAX, 1] {
                add(3, 3, n);
            }
            add(4, 3, 1);
            assert_eq!(words.sum(3), u32::MAX);
            assert!(words.sum(4) >= 1 && words.sum(5) == 0);
        });
    }

    /// However many small ones come: they are added beside the number, not into it.
    #[test]
    fn what_is_small_reaches_no_number() {
        Words::check(|words, add| {
            add(7, 6, u32::MAX - 3);
            // As many as would get from there to the number.
            let adds = if cfg!(miri) { 100 } else { MANY / (SMALL - 1) + 1 };
            (0..adds).for_each(|_| add(7, 6, SMALL - 1));
            assert_eq!((words.sum(7), words.sum(8)), (u32::MAX, 0));
        });
    }

    /// As where billions of flushes are of other parts.
    #[test]
    fn nothing_counts_too_little_however_far_apart_collections_are() {
        let half = 1_u64 << 31;
        for gap in [1, half - 1, half, half + 5, 2 * half - 1, 2 * half, 2 * half + 1, 5 * half] {
            for first in [1, half, 2 * half - 3] {
                let words = Words::default();
                let add = |begun: u64, covered: u64, turn: u64, n: u32| {
                    words.add(Collections { begun, covered, turn }, n);
                };
                add(first - 1, first - 1, 0, 7);
                add(first, first - 1, 1, 10);
                add(first, first, 1, 20);
                assert!(words.sum(first) >= 30);
                let second = first + gap;
                // It has begun, and is complete.
                add(second, first, 2, 40);
                assert!(words.sum(first) >= 70, "{first} and {second}");
                let left = words.sum(second);
                assert!(left >= 40 && (left == 40 || gap >= 2 * half - 1), "{left}: {gap}");
            }
        }
    }

    #[test]
    fn numbers_wrap_around_at_32_bits() {
        Words::check(|words, add| {
            let last = u64::from(u32::MAX);
            for number in last - 3..last + 4 {
                add(number, number, 1);
                add(number + 1, number, 2);
                assert!(words.sum(number) >= 3);
                assert!(words.sum(number + 1) >= 2, "{number:#x}");
                assert_eq!(words.sum(number + 2), 0);
            }
        });
    }
}
