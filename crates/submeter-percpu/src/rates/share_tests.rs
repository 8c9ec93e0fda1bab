//! The division of a rate by weight, with a simulated clock.

use std::time::Duration;

use proptest::prelude::*;

use super::bucket::Bucket;
use super::node::TokenBucket;
use super::path::take_all;
use super::rate::Rate;

const SECOND: Duration = Duration::from_secs(1);
const MS: u64 = 1_000_000;
const SECOND_NS: u64 = 1_000 * MS;

#[test]
fn a_weight_is_in_range_and_read_as_it_was_set() {
    let bucket = TokenBucket::new();
    assert_eq!(bucket.weight(), None);
    for weight in [Some(1), Some(10_000), None, Some(7)] {
        bucket.set_weight(weight).expect("in range");
        assert_eq!(bucket.weight(), weight);
    }
    for weight in [0, 10_001] {
        let error = bucket.set_weight(Some(weight)).expect_err("out of range").to_string();
        assert_eq!(error, format!("weight {weight} is out of range: use 1 to 10000"));
        assert_eq!(bucket.weight(), Some(7));
    }
}

/// A rate and the levels below it.
struct Divided {
    above: Bucket,
    below: Vec<Bucket>,
}

impl Divided {
    /// A rate of 1,000 a second, 100 at once.
    fn new(weights: &[u32]) -> Divided {
        let above = Bucket::new();
        let rate = Rate { amount: 1000, per: SECOND, burst: 100 };
        above.set(Some(rate.terms().expect("a rate that can be kept")), 0);
        let below = weights.iter().map(|&weight| {
            let bucket = Bucket::new();
            bucket.share.set_weight(weight);
            bucket
        });
        Divided { above, below: below.collect() }
    }

    fn take(&self, level: usize, n: u64, now_ns: u64) -> bool {
        let levels = [Some(&self.below[level]), Some(&self.above)];
        take_all(levels.into_iter(), n, || now_ns, drop).is_ok()
    }

    /// Returns what each level gets over a period of time, in steps of a millisecond in which each
    /// tries `tries` times to take one. The last level always goes first, and so gains most where
    /// it is first come, first served.
    fn share_out(&self, from_ns: u64, tries: &[u64]) -> Vec<u64> {
        let mut got = vec![0; self.below.len()];
        for now_ns in (from_ns..from_ns + 4 * SECOND_NS).step_by(MS as usize) {
            for level in (0..got.len()).rev() {
                got[level] +=
                    (0..tries[level]).filter(|_| self.take(level, 1, now_ns)).count() as u64;
            }
        }
        got
    }
}

/// Allows a fiftieth of the earnings, and a burst.
fn is_about(got: u64, parts: u64, of: u64) -> bool {
    got.abs_diff(4000 * parts / of) <= 180
}

#[test]
fn where_more_is_wanted_weights_decide() {
    let divided = Divided::new(&[300, 100]);
    let got = divided.share_out(0, &[10, 10]);
    assert!(is_about(got[0], 3, 4) && is_about(got[1], 1, 4), "{got:?}");
}

/// The share of an idle group goes to the others, by their weights.
#[test]
fn an_idle_share_goes_to_the_others() {
    let divided = Divided::new(&[300, 100, 400]);
    let got = divided.share_out(0, &[10, 10, 10]);
    assert!(is_about(got[0], 3, 8) && is_about(got[1], 1, 8) && is_about(got[2], 4, 8), "{got:?}");
    let got = divided.share_out(4 * SECOND_NS, &[10, 10, 0]);
    assert!(is_about(got[0], 3, 4) && is_about(got[1], 1, 4), "{got:?}");
    let got = divided.share_out(8 * SECOND_NS, &[0, 10, 0]);
    assert!(is_about(got[1], 1, 1), "{got:?}");
    let got = divided.share_out(12 * SECOND_NS, &[10, 10, 10]);
    assert!(is_about(got[0], 3, 8) && is_about(got[2], 4, 8), "it has its share again: {got:?}");
}

#[test]
fn an_unwanted_share_goes_to_the_others() {
    let divided = Divided::new(&[100, 100]);
    // There is only one take per millisecond; the first wants a quarter of them.
    let mut got = [0, 0];
    for ms in 0..4000 {
        got[1] += (0..10).filter(|_| divided.take(1, 1, ms * MS)).count();
        got[0] += usize::from(ms % 4 == 0 && divided.take(0, 1, ms * MS));
    }
    assert!(got[0] == 1000 && is_about(got[1] as u64, 3, 4), "{got:?}");
}

/// While others contend, and no longer, half a burst is not for levels without a weight.
#[test]
fn half_a_burst_is_for_those_with_a_weight() {
    let divided = Divided::new(&[1, 0]);
    assert!(divided.take(0, 1, 0) && divided.take(1, 49, 0));
    assert!(!divided.take(1, 1, 0) && divided.take(0, 30, 0));
    assert!([60, 40].iter().all(|&n| divided.take(1, n, 10 * SECOND_NS)));
}

#[test]
fn those_without_a_weight_take_what_is_left() {
    let divided = Divided::new(&[100, 0]);
    let got = divided.share_out(0, &[10, 10]);
    assert!(is_about(got[0], 1, 1), "{got:?}");
    let got = divided.share_out(4 * SECOND_NS, &[0, 10]);
    assert!(is_about(got[1], 1, 1), "nobody contends: {got:?}");
    // Without any weight, first come, first served.
    let got = Divided::new(&[0, 0]).share_out(0, &[10, 10]);
    assert!(is_about(got[1], 1, 1), "{got:?}");
}

#[test]
fn a_burst_can_be_taken_by_a_smaller_share() {
    let divided = Divided::new(&[1, 10_000, 0]);
    assert!(divided.take(1, 1, 0) && !divided.take(0, 100, 0), "99 are left");
    assert!(divided.take(0, 100, MS), "it was full");
    // Amounts left by others are not paid back.
    assert!(divided.take(0, 1, SECOND_NS) && divided.take(0, 100, 2 * SECOND_NS));
    assert!(divided.take(2, 100, 3 * SECOND_NS), "and by one without a share");
}

#[test]
fn what_others_left_is_not_owed() {
    let divided = Divided::new(&[100, 300]);
    // For four seconds the second leaves nearly everything, but contends.
    for ms in 0..4000 {
        (0..10).for_each(|_| _ = divided.take(0, 1, ms * MS));
        if ms % 50 == 0 {
            divided.take(1, 1, ms * MS);
        }
    }
    let got = divided.share_out(4 * SECOND_NS, &[10, 10]);
    assert!(is_about(got[0], 1, 4) && is_about(got[1], 3, 4), "{got:?}");
}

#[test]
fn a_small_share_grants_more_than_it_saves() {
    // Its token takes ten seconds to earn, and half a burst is earned in a twentieth of a second.
    let divided = Divided::new(&[1, 10_000]);
    let after_the_other = |now_ns| {
        divided.take(0, 0, now_ns); // it contends
        ((0..200).filter(|_| divided.take(1, 1, now_ns)).count(), divided.take(0, 1, now_ns))
    };
    assert_eq!(after_the_other(0), (99, true));
    assert_eq!(after_the_other(SECOND_NS), (99, false), "it owes nine seconds");
    assert_eq!(after_the_other(11 * SECOND_NS), (99, true));
}

#[test]
fn after_a_pause_only_who_asks_contends() {
    let divided = Divided::new(&[300, 100]);
    divided.share_out(0, &[10, 10]);
    // From a full bucket, once in a period of each parity.
    for now_ns in [10 * SECOND_NS, 20 * SECOND_NS + 100 * MS] {
        assert_eq!((0..200).filter(|_| divided.take(1, 1, now_ns)).count(), 100);
    }
}

/// Contenders for a rate with a small burst may pause for longer than that burst lasts.
#[test]
fn contenders_may_pause_longer_than_the_burst() {
    let above = Bucket::new();
    // Earned in 4 ms.
    let rate = Rate { amount: 1000, per: SECOND, burst: 4 };
    above.set(Some(rate.terms().expect("a rate that can be kept")), 0);
    let below = [Bucket::new(), Bucket::new()];
    below.iter().for_each(|bucket| bucket.share.set_weight(100));
    let divided = Divided { above, below: below.into() };
    for ms in 0..1000 {
        (0..10).for_each(|_| _ = divided.take(1, 1, ms * MS));
        let granted = ms % 9 != 0 || divided.take(0, 1, ms * MS);
        assert!(granted || ms == 0, "refused after {ms} ms");
    }
}

#[test]
fn a_refusal_by_a_share_says_when_to_try_again() {
    let divided = Divided::new(&[100, 100]);
    let take = |level: usize, n, now_ns| {
        take_all(
            [Some(&divided.below[level]), Some(&divided.above)].into_iter(),
            n,
            || now_ns,
            drop,
        )
    };
    assert_eq!(take(1, 1, 0), Ok(()), "it contends");
    assert_eq!(take(0, 49, 0), Ok(()), "of the half that is for all");
    assert_eq!(take(0, 25, 0), Ok(()), "its part of the other half");
    // A token of its share takes 2 ms. It may be 25 tokens ahead of its earnings.
    let by_share = |n, now_ns| {
        let refused = take(0, n, now_ns).expect_err("too early");
        assert!(refused.by_share && refused.levels == 1);
        refused.wait_ns
    };
    assert_eq!((by_share(10, 0), by_share(10, 20 * MS - 1)), (Some(20 * MS), Some(1)));
    assert_eq!(take(0, 10, 20 * MS), Ok(()));
    let refused = take(0, 80, 20 * MS).expect_err("the rate has 35");
    assert!(!refused.by_share);
    // 15 more become available to everyone before its share, which owes half a second, has earned
    // 40.
    assert_eq!(by_share(30, 20 * MS), Some(45 * MS));
}

#[test]
fn another_weight_counts_from_the_next_period_on() {
    let divided = Divided::new(&[300, 100]);
    divided.share_out(0, &[10, 10]);
    divided.below[1].share.set_weight(300);
    let got = divided.share_out(4 * SECOND_NS, &[10, 10]);
    assert!(is_about(got[0], 1, 2) && is_about(got[1], 1, 2), "{got:?}");
    divided.below[0].share.set_weight(0);
    let got = divided.share_out(8 * SECOND_NS, &[10, 10]);
    assert!(is_about(got[1], 1, 1), "{got:?}");
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 64,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    /// A level that keeps to its share is not refused, however much others want, and however they
    /// take turns.
    #[test]
    fn who_keeps_to_its_share_is_not_refused(
        weights in prop::collection::vec(1..50_u32, 2..6),
        order in prop::collection::vec((1..6_usize, 1..30_u64), 1..40),
    ) {
        let divided = Divided::new(&weights);
        let sum: u32 = weights.iter().sum();
        // The time for one token of its share of 1,000 a second, and a hundredth more.
        let pace_ns = SECOND_NS / 1000 * u64::from(sum) / u64::from(weights[0]) * 101 / 100 + 1;
        // A level that pauses for a period lends its share.
        prop_assume!(pace_ns < 100 * MS);
        // Until then it wants as much as it can get, like the others.
        let mut next_ns = 300 * MS + pace_ns;
        let mut turns = order.iter().cycle();
        for now_ns in (0..3000).map(|ms| ms * MS) {
            // From the first period on all levels contend.
            for level in 1..weights.len() {
                divided.take(level, 1, now_ns);
            }
            let (level, tries) = turns.next().expect("a cycle");
            for _ in 0..*tries {
                divided.take(1 + level % (weights.len() - 1), 1, now_ns);
            }
            if now_ns < 300 * MS {
                divided.take(0, 1, now_ns);
            } else if now_ns >= next_ns {
                prop_assert!(divided.take(0, 1, now_ns), "at {now_ns}, weights {weights:?}");
                next_ns = next_ns.max(now_ns) + pace_ns;
            }
        }
    }
}
