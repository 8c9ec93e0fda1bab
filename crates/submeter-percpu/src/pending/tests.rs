//! Sums whose collections begin, fail and wrap around, on one thread.

use std::cell::Cell;

use super::*;

#[derive(Default)]
struct Words {
    words: [AtomicI64; 2],
    /// The number of the last collection that began.
    begun: Cell<u64>,
}

impl Words {
    /// Runs `test` with words that take turns, starting with either, and with one word used
    /// throughout.
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
/// This is where the words take turns.
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
        // By a thread that had not seen it begin.
        add(number, number, 100);
        let sums = [0, 1, 2].map(|later| words.sum(number + later));
        assert_eq!(sums, [left + 116, 5, 0]);
    }
}

/// No less than the amount added counts, whatever the turn and whatever fails.
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

/// A failed collection makes more count, until two have completed.
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
fn too_much_stays_too_much_until_covered() {
    Words::check(|words, add| {
        for n in [u32::MAX - 1, 1, 5, u32::MAX, 1] {
            add(3, 3, n);
        }
        add(4, 3, 1);
        assert_eq!(words.sum(3), u32::MAX);
        assert!(words.sum(4) >= 1 && words.sum(5) == 0);
    });
}

/// Small amounts never reach the number, however many come: they are added beside it, not into it.
#[test]
fn what_is_small_reaches_no_number() {
    Words::check(|words, add| {
        add(7, 6, u32::MAX - 3);
        // As many as it would take to reach the number from there.
        let adds = if cfg!(miri) { 100 } else { MANY / (SMALL - 1) + 1 };
        (0..adds).for_each(|_| add(7, 6, SMALL - 1));
        assert_eq!((words.sum(7), words.sum(8)), (u32::MAX, 0));
    });
}

/// Nothing counts too little, however far apart collections are.
///
/// This happens where billions of flushes are of other parts.
#[test]
fn nothing_counts_too_little_after_a_long_time() {
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

#[test]
fn a_number_is_that_of_the_last_collection() {
    let numbers = Numbers::default();
    for begun in 0..3 {
        assert_eq!((numbers.ask(), numbers.begun()), (begun, begun));
        assert_eq!(numbers.begin(), begun + 1);
    }
}

#[test]
fn what_a_collector_notes_is_what_others_find() {
    let words: [AtomicI64; 3] = Default::default();
    let (noted, updated) = (Noted(words.each_ref()), Updated::fenced(-5));
    assert_eq!(updated.batches(), -5);
    for number in 3..6 {
        let covered = noted.covered();
        noted.begin(number);
        let expected = Collections { begun: number, covered, turn: number - 2 };
        assert_eq!(noted.collections(&updated), expected);
        noted.complete(number);
        assert_eq!(noted.covered(), number);
    }
}
