//! Every interleaving of takes with each other and with a new rate; the clock stands still.

use loom::sync::Arc;
use loom::thread;

use super::bucket::{AHEAD_NS, Bucket, Terms};
use super::path::{spend_all, take_all};
use crate::models::{Note, explore_all, witness};

fn terms(burst: u64) -> Terms {
    let refill_ns = burst * 10;
    Terms { amount: 1, per_ns: 10, burst, refill_ns, token_ns: 10 }
}

fn bucket(burst: u64) -> Bucket {
    let bucket = Bucket::new();
    bucket.set(Some(terms(burst)), 0);
    bucket
}

#[test]
fn loom_takes_are_granted_by_both_levels_or_none() {
    explore_all(|| {
        let levels = Arc::new([bucket(4), bucket(4), bucket(3)]);
        let take = |levels: &[Bucket; 3], leaf: usize| {
            take_all([Some(&levels[leaf]), Some(&levels[2])].into_iter(), 2, || 0, drop).is_ok()
        };
        let other = Arc::clone(&levels);
        let other = thread::spawn(move || take(&other, 1));
        let granted = [take(&levels, 0), other.join().unwrap()];
        witness("the one take granted", granted[0]);
        witness("the other take granted", granted[1]);
        let left = levels.each_ref().map(|level| level.balance(0).unwrap());
        let taken = granted.map(|granted| if granted { 2 } else { 0 });
        assert!(granted[0] != granted[1], "3 are there: one of two takes fits");
        assert_eq!(left, [4 - taken[0], 4 - taken[1], 1]);
    });
}

/// A take uses one consistent rate while others are set.
#[test]
fn loom_a_take_goes_by_a_whole_rate() {
    explore_all(|| {
        let (bucket, sets) = (Arc::new(bucket(3)), Note::default());
        let (setter, set) = (Arc::clone(&bucket), sets.clone());
        let setter = thread::spawn(move || {
            // Both slots are written again.
            setter.set(Some(terms(1)), 0);
            set.take();
            setter.set(Some(terms(5)), 0);
            set.take();
        });
        let before = sets.count();
        let taken = take_all([Some(&*bucket)].into_iter(), 1, || 0, drop).is_ok();
        witness("a take that meets both sets", before == 0 && sets.count() == 2);
        let refused = take_all([Some(&*bucket)].into_iter(), 4, || 0, drop);
        assert!(refused.is_err(), "at most 3 were there");
        setter.join().unwrap();
        assert!(taken);
        // The second rate keeps 1, whether that was the rest of it or not.
        assert!(bucket.balance(0).unwrap() <= 1);
    });
}

#[test]
fn loom_no_take_is_free_before_a_removal() {
    explore_all(|| {
        let bucket = Arc::new(bucket(3));
        let taker = Arc::clone(&bucket);
        let taker = thread::spawn(move || {
            let free = take_all([Some(&*taker)].into_iter(), 4, || 0, drop).is_ok();
            witness("a free take", free);
            witness("a take that a rate refuses", !free);
            if free {
                assert_eq!(taker.terms(), None, "a rate refuses 4");
            }
        });
        bucket.set(Some(terms(2)), 0);
        // Written to the slot of the first rate.
        bucket.set(None, 0);
        taker.join().unwrap();
    });
}

/// An amount spent beside takes is owed. Broken by a due time that is stored instead of exchanged,
/// and by a debt that `set` forgets.
#[test]
fn loom_what_is_spent_beside_takes_is_owed() {
    explore_all(|| {
        let (bucket, taken) = (Arc::new(bucket(3)), Note::default());
        let (other, took) = (Arc::clone(&bucket), taken.clone());
        let other = thread::spawn(move || {
            let granted = take_all([Some(&*other)].into_iter(), 2, || 0, drop).is_ok();
            took.take();
            other.set(Some(terms(5)), 0);
            took.take();
            granted
        });
        assert_eq!(taken.count(), 0, "the other thread begins with the first load");
        spend_all([Some(&*bucket)].into_iter(), 4, || 0);
        witness("a spend that meets a take", taken.count() == 1);
        witness("a spend that meets another rate, too", taken.count() == 2);
        let granted = other.join().unwrap();
        witness("a take that comes first", granted);
        witness("a take that comes too late", !granted);
        let left = if granted { 3 - 2 - 4 } else { 3 - 4 };
        assert_eq!(bucket.balance(0), Some(left));
    });
}

/// Every contender of a period is weighed once.
#[test]
fn loom_all_contenders_are_weighed_once() {
    explore_all(|| {
        let levels = Arc::new([Bucket::new(), Bucket::new(), bucket(64)]);
        levels[0].share.set_weight(1);
        levels[1].share.set_weight(2);
        let take = |levels: &[Bucket; 3], leaf: usize| {
            let path = [Some(&levels[leaf]), Some(&levels[2])];
            take_all(path.into_iter(), 0, || 0, drop).expect("nothing is asked for");
        };
        let (others, taken) = (Arc::clone(&levels), Note::default());
        let took = taken.clone();
        let others = thread::spawn(move || {
            [1, 0].map(|leaf| {
                take(&others, leaf);
                took.take();
            })
        });
        let before = taken.count();
        take(&levels, 0);
        witness("a take that meets another", before < taken.count());
        others.join().unwrap();
        // Half of it is for everyone, and a third of the other half belongs to the first.
        let path = || [Some(&levels[0]), Some(&levels[2])].into_iter();
        for (n, fits) in [(32, true), (5, true), (5, true), (1, false)] {
            assert_eq!(take_all(path(), n, || 0, drop).is_ok(), fits, "{n}");
        }
    });
}

/// Concurrent refusals report no moment twice. Broken if the reported time is stored instead of
/// exchanged, and if the refused time is published before it is reported.
#[test]
fn loom_refusals_at_once_report_no_moment_twice() {
    explore_all(|| {
        let bucket = Arc::new(bucket(1));
        let refusal = |bucket: &Bucket, now_ns| {
            let refused = take_all([Some(bucket)].into_iter(), 1, || now_ns, drop);
            refused.expect_err("it owes").throttled_ns
        };
        // Ten seconds; neither reports beyond the sixth.
        spend_all([Some(&*bucket)].into_iter(), AHEAD_NS, || 0);
        let other = Arc::clone(&bucket);
        let other = thread::spawn(move || refusal(&other, 5 * AHEAD_NS));
        let reported = refusal(&bucket, 5 * AHEAD_NS + 7) + other.join().unwrap();
        witness("a refusal that goes on where the other ended", reported == AHEAD_NS + 7);
        witness("a refusal that finds all reported", reported == AHEAD_NS);
        assert!(reported <= AHEAD_NS + 7, "{reported}");
    });
}
