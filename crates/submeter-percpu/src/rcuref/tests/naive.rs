//! A model that is too simple to be wrong, and random sequences on which both must agree.

use std::cell::RefCell;

use proptest::prelude::*;

use crate::rcuref::count::{Count, DEAD, MAXREF, NOREF, Notice};

/// The document's description in words, one operation at a time, without any zone arithmetic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Naive {
    Held(u64),
    Pinned,
    Dead,
}

/// The maximum number of references, according to the document.
const MOST: u64 = 2_147_483_648;

impl Naive {
    fn get(&mut self) -> (bool, Option<Notice>) {
        match *self {
            Naive::Held(MOST) => {
                *self = Naive::Pinned;
                (true, Some(Notice::Saturated))
            }
            Naive::Held(refs) => {
                *self = Naive::Held(refs + 1);
                (true, None)
            }
            Naive::Pinned => (true, None),
            Naive::Dead => (false, None),
        }
    }

    fn put(&mut self) -> (bool, Option<Notice>) {
        match *self {
            Naive::Held(1) => {
                *self = Naive::Dead;
                (true, None)
            }
            Naive::Held(refs) => {
                *self = Naive::Held(refs - 1);
                (false, None)
            }
            Naive::Pinned => (false, None),
            Naive::Dead => (false, Some(Notice::ExcessPuts(1))),
        }
    }

    fn read(self) -> Option<u64> {
        match self {
            Naive::Held(refs) => Some(refs),
            Naive::Pinned => None,
            Naive::Dead => Some(0),
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum Operation {
    Get,
    GetOrdered,
    Put,
}

/// Runs one operation on the count; returns its result and its notice.
fn run(count: &Count, operation: Operation) -> (bool, Option<Notice>) {
    let told = RefCell::new(None);
    let notify = |notice| assert_eq!(told.replace(Some(notice)), None, "told of twice");
    let result = match operation {
        Operation::Get => count.get(notify),
        Operation::GetOrdered => count.get_ordered(notify),
        Operation::Put => count.put(notify),
    };
    (result, told.into_inner())
}

fn operations() -> impl Strategy<Value = Vec<Operation>> {
    use Operation::{Get, GetOrdered, Put};
    prop::collection::vec(prop::sample::select(vec![Get, GetOrdered, Put, Put]), 0..60)
}

/// Yields starts near an edge of the valid zone, where something can happen within sixty
/// operations.
fn starts() -> impl Strategy<Value = u64> {
    prop_oneof![1..20_u64, MOST - 10..=MOST]
}

/// Halves of puts and whole gets, in any order: the interleavings of threads, one step at a time.
#[derive(Clone, Copy, Debug)]
enum Step {
    Get,
    Decrement,
    PutSlow,
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: if cfg!(miri) { 8 } else { 512 },
        // No file of failures: Miri has no file system for it.
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn rcuref_agrees_with_the_naive_twin(start in starts(), operations in operations()) {
        let count = Count::new(u32::try_from(start).expect("at most 2^31"));
        let mut naive = Naive::Held(start);
        for operation in operations {
            let expected = match operation {
                Operation::Put => naive.put(),
                Operation::Get | Operation::GetOrdered => naive.get(),
            };
            prop_assert_eq!(run(&count, operation), expected, "{:?}", operation);
            prop_assert_eq!(count.is_dead(), naive == Naive::Dead);
            match naive.read() {
                Some(refs) => prop_assert_eq!(u64::from(count.read()), refs),
                None => prop_assert!(u64::from(count.read()) > MOST),
            }
        }
    }

    #[test]
    fn rcuref_frees_once_however_puts_interleave(
        start in 1..4_u32,
        steps in prop::collection::vec(
            prop::sample::select(vec![Step::Get, Step::Decrement, Step::PutSlow]), 0..40),
    ) {
        let count = Count::new(start);
        let unexpected = |notice: Notice| panic!("told of misuse where there was none: {notice:?}");
        let (mut held, mut slow, mut wins) = (start, 0_u32, 0_u32);
        // After the random part, every reference held is put and every put finishes.
        let finish = std::iter::repeat_n(Step::Decrement, 50)
            .chain(std::iter::repeat_n(Step::PutSlow, 50));
        for step in steps.into_iter().chain(finish) {
            match step {
                Step::Get => {
                    let got = count.get(unexpected);
                    prop_assert_eq!(got, wins == 0, "fails on the dead, and only there");
                    held += u32::from(got);
                }
                Step::Decrement if held > 0 => {
                    held -= 1;
                    slow += u32::from(count.decrement());
                }
                Step::PutSlow if slow > 0 => {
                    slow -= 1;
                    let won = count.put_slow(unexpected);
                    prop_assert!(!won || held == 0, "freed under a holder");
                    wins += u32::from(won);
                }
                Step::Decrement | Step::PutSlow => {}
            }
        }
        prop_assert_eq!((wins, held, count.word()), (1, 0, DEAD));
    }
}

#[test]
fn zones_are_where_the_document_has_them() {
    assert_eq!((Count::new(1).word(), Count::new(0).word()), (0, NOREF));
    assert_eq!(u64::from(MAXREF) + 1, MOST);
}
