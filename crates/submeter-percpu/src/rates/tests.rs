//! Buckets compared with a naive oracle, with a simulated clock.

use std::cell::Cell;
use std::time::Duration;

use proptest::prelude::*;

use super::bucket::{Bucket, Refused};
use super::path::take_all;
use super::rate::Rate;

fn bucket(rate: Rate) -> Bucket {
    let bucket = Bucket::new();
    bucket.set(Some(rate.terms().expect("a rate that can be kept")), 0);
    bucket
}

fn take(bucket: &Bucket, n: u64, now_ns: u64) -> Result<(), Refused> {
    take_all([Some(bucket)].into_iter(), n, || now_ns, drop)
}

/// The grants and their times; a take fits if no window that ends with it holds too much.
struct Oracle {
    rate: Rate,
    granted: Vec<(u64, u64)>,
}

impl Oracle {
    /// Returns whether a take fits. `rounded` allows the rounding of a bucket: of each cost, and of
    /// each full bucket's cost.
    fn fits(&self, n: u64, now_ns: u64, rounded: bool) -> bool {
        let Rate { amount, per, burst } = self.rate;
        let mut sum = u128::from(n);
        let mut fits = sum <= u128::from(burst);
        for (takes, (at_ns, taken)) in (2_u128..).zip(self.granted.iter().rev()) {
            sum += u128::from(*taken);
            // A nanosecond for each token, or for each take and each full bucket.
            let each = if per.as_nanos() / u128::from(amount) >= 10_000 { sum } else { takes };
            let late_ns = if rounded { each + 2 + sum / u128::from(burst) } else { 0 };
            let [earned, late] =
                [u128::from(now_ns - at_ns), late_ns].map(|ns| ns * u128::from(amount));
            fits &= sum * per.as_nanos() + late <= u128::from(burst) * per.as_nanos() + earned;
        }
        fits
    }
}

#[derive(Clone, Debug)]
struct Step {
    pause_ns: u64,
    n: u64,
}

fn rates() -> impl Strategy<Value = Rate> {
    let per = prop_oneof![Just(1_000_000_u64), Just(1_000_000_000), 1_000..10_000_000_000_u64];
    (1..50_000_u64, per, 1..200_u64).prop_map(|(amount, per_ns, burst)| Rate {
        amount,
        per: Duration::from_nanos(per_ns),
        burst,
    })
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = (0..12_u32, 0..1000_u64, 0..8_u64);
    let step = step.prop_map(|(scale, pause, n)| Step { pause_ns: pause * 4_u64.pow(scale), n });
    let length = if cfg!(miri) { 4 } else { 120 };
    prop::collection::vec(step, 1..length)
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: if cfg!(miri) { 1 } else { 256 },
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn no_window_grants_more_than_burst_and_rate(rate in rates(), steps in steps()) {
        prop_assume!(rate.terms().is_ok());
        let (bucket, mut oracle) = (bucket(rate), Oracle { rate, granted: Vec::new() });
        let mut now_ns = 5;
        for Step { pause_ns, n } in steps {
            now_ns += pause_ns;
            match take(&bucket, n, now_ns) {
                Ok(()) => {
                    prop_assert!(oracle.fits(n, now_ns, false), "{n} at {now_ns} is too much");
                    oracle.granted.push((now_ns, n));
                }
                Err(refused) => {
                    prop_assert!(!oracle.fits(n, now_ns, true), "{n} at {now_ns} would fit");
                    retries_exactly(&bucket, n, now_ns, refused)?;
                }
            }
        }
    }
}

/// A take at the time that the refusal names is granted, and none before.
fn retries_exactly(
    bucket: &Bucket,
    n: u64,
    now_ns: u64,
    refused: Refused,
) -> Result<(), TestCaseError> {
    let Some(wait_ns) = refused.wait_ns else {
        prop_assert!(n > bucket.terms().unwrap().burst);
        return Ok(());
    };
    let early = take(bucket, n, now_ns + wait_ns - 1).expect_err("it is too early");
    prop_assert_eq!(early.wait_ns, Some(1));
    let n = i64::try_from(n).expect("at most a burst");
    prop_assert!(bucket.balance(now_ns + wait_ns - 1) < Some(n));
    prop_assert!(bucket.balance(now_ns + wait_ns) >= Some(n));
    Ok(())
}

const SECOND: Duration = Duration::from_secs(1);
const MS: u64 = 1_000_000;

#[test]
fn a_burst_can_be_taken_and_is_earned_again() {
    // 3 does not divide a second.
    let bucket = bucket(Rate { amount: 3, per: SECOND, burst: 7 });
    assert_eq!(take(&bucket, 7, 0), Ok(()));
    let refused = take(&bucket, 3, 0).expect_err("it is empty");
    assert_eq!(refused.wait_ns, Some(1_000_000_002));
    assert_eq!(take(&bucket, 3, 1_000_000_002), Ok(()));
    assert_eq!(bucket.balance(u64::MAX >> 5), Some(7), "no more than a burst");
    assert_eq!(take(&bucket, 8, u64::MAX >> 5).unwrap_err().wait_ns, None);
}

#[test]
fn a_burst_is_as_much_in_parts_as_at_once() {
    let bucket = bucket(Rate { amount: 3, per: SECOND, burst: 7 });
    let granted = (0..9).filter(|_| take(&bucket, 1, 0).is_ok());
    assert_eq!(granted.count(), 7);
}

#[test]
fn large_products_do_not_overflow() {
    let year = Duration::from_secs(365 * 24 * 3600);
    let bucket = bucket(Rate::new(u64::MAX, year));
    assert_eq!(bucket.balance(0), Some(i64::MAX), "as much as fits");
    assert_eq!(take(&bucket, u64::MAX / 2, 0), Ok(()));
    assert!(take(&bucket, u64::MAX / 2 + 2, 0).is_err());
    // A nanosecond earns 584 tokens.
    let left = bucket.balance(0).expect("there is a rate");
    assert!(i64::MAX - left < 600, "{left}");
}

#[test]
fn the_clock_is_not_read_without_a_rate() {
    let [below, above] = [Bucket::new(), Bucket::new()];
    let clock = || -> u64 { panic!("read") };
    assert_eq!(take_all([Some(&below), Some(&above)].into_iter(), 9, clock, drop), Ok(()));
}

#[test]
fn another_rate_keeps_what_can_be_taken() {
    let terms = |amount, burst| Some(Rate { amount, per: SECOND, burst }.terms().unwrap());
    let bucket = bucket(Rate { amount: 10, per: SECOND, burst: 100 });
    assert_eq!(take(&bucket, 70, 0), Ok(()));
    bucket.set(terms(10, 100), 50 * MS);
    assert_eq!(bucket.balance(100 * MS), Some(31), "no part of a token is lost");
    assert_eq!(take(&bucket, 1, 100 * MS), Ok(()));
    for (amount, burst, kept) in [(10, 100, 30), (1000, 50, 30), (1000, 7, 7), (1, 400, 7)] {
        bucket.set(terms(amount, burst), 100 * MS);
        assert_eq!(bucket.balance(100 * MS), Some(kept), "{amount} and {burst}");
    }
    bucket.set(None, 0);
    assert_eq!((bucket.balance(0), take(&bucket, u64::MAX, 0)), (None, Ok(())));
    bucket.set(terms(1, 5), 3);
    assert_eq!(bucket.balance(3), Some(5), "the first rate fills it");
}

#[test]
fn the_slowest_level_is_named_and_nothing_taken() {
    let rate = |amount| Rate { amount, per: SECOND, burst: 10 };
    let levels = [bucket(rate(10)), Bucket::new(), bucket(rate(2)), bucket(rate(5))];
    let take = |n, now_ns| take_all(levels.iter().map(Some), n, || now_ns, drop);
    assert_eq!(take(10, 0), Ok(()));
    let refused = take(1, 0).expect_err("all are empty");
    assert_eq!((refused.levels, refused.wait_ns), (2, Some(500_000_000)));
    let second = 1_000_000_000;
    let refused = take(6, second).expect_err("the third has 2");
    assert_eq!((refused.levels, refused.wait_ns), (2, Some(2 * second)));
    let left = levels.each_ref().map(|level| level.balance(second));
    assert_eq!(left, [Some(10), None, Some(2), Some(5)]);
}

#[test]
fn of_equally_slow_levels_the_lowest_is_named() {
    let levels = [(); 3].map(|()| bucket(Rate { amount: 10, per: SECOND, burst: 10 }));
    let take = |n| take_all(levels.iter().map(Some), n, || 0, drop);
    assert_eq!(take(10), Ok(()));
    assert_eq!(take(1).expect_err("all are empty").levels, 0);
}

#[test]
fn a_token_bucket_goes_by_its_clock() {
    use super::{TestClock, TokenBucket};
    use crate::LimitMode;

    let clock = TestClock::new();
    clock.advance(5 * SECOND);
    let bucket = TokenBucket::with_clock(&clock);
    let levels = || [None, Some(&bucket)].into_iter();
    let rate = Rate { amount: 10, per: SECOND, burst: 20 };
    assert_eq!((bucket.rate(), bucket.balance()), (None, None));
    bucket.set_rate(Some(rate)).expect("it can be kept");
    assert_eq!((bucket.rate(), bucket.balance()), (Some(rate), Some(20)));
    assert!(format!("{bucket:?}").contains("amount: 10"), "{bucket:?}");
    TokenBucket::try_take(levels(), 5, drop).expect("it has 20");
    assert_eq!(bucket.balance(), Some(15));
    TokenBucket::spend(levels(), 25);
    assert_eq!(bucket.balance(), Some(-10));
    let refused = TokenBucket::try_take(levels(), 1, drop).expect_err("it owes 10");
    assert_eq!((refused.levels, refused.retry_after_ns), (1, Some(1_100 * MS)));
    assert_eq!((refused.rate, refused.by_share), (rate, false));
    TokenBucket::admit(levels(), drop).expect_err("it owes 10");
    bucket.set_mode(LimitMode::Soft);
    let mut over = Vec::new();
    TokenBucket::admit(levels(), |level| over.push(level)).expect("it is soft");
    assert_eq!(over, [1]);
    clock.advance(2 * SECOND);
    assert_eq!(bucket.balance(), Some(10));
}

#[test]
fn throttled_time_is_counted_once() {
    let bucket = bucket(Rate { amount: 10, per: SECOND, burst: 10 });
    assert_eq!(take(&bucket, 10, 0), Ok(()));
    let throttled = |n, now_ns| take(&bucket, n, now_ns).expect_err("too early").throttled_ns / MS;
    assert_eq!(throttled(1, 0), 100);
    assert_eq!(throttled(1, 40 * MS), 0, "until 100 it is known");
    assert_eq!(throttled(2, 50 * MS), 100, "until 200");
    assert_eq!(throttled(11, 60 * MS), 0, "nobody waits for what never comes");
    assert_eq!(throttled(9, 500 * MS), 400);
}

/// A rate of nothing refuses everything, names no time, and leaves the next rate an empty bucket.
#[test]
fn a_rate_of_nothing_refuses_all() {
    let rate = Rate { amount: 10, per: SECOND, burst: 10 };
    let nothing = || Some(Rate::NOTHING.terms().expect("it can be kept"));
    let [below, above] = [bucket(rate), bucket(rate)];
    below.set(nothing(), 0);
    assert_eq!(below.terms().map(Rate::from), Some(Rate::NOTHING));
    assert_eq!(below.balance(0), Some(0));
    assert_eq!(take(&below, 0, 0), Ok(()), "nothing is asked for");
    for now_ns in [0, MS, 1_000_000 * MS] {
        // Together with a level that names a time.
        assert_eq!(take(&above, 10, now_ns), Ok(()));
        for n in [1, 5, u64::MAX] {
            let both = [Some(&below), Some(&above)].into_iter();
            let refused = take_all(both, n, || now_ns, drop).expect_err("nothing is granted");
            assert_eq!((refused.wait_ns, refused.throttled_ns, refused.levels), (None, 0, 0));
            assert_eq!(Rate::from(refused.terms).to_string(), "nothing");
        }
        above.set(nothing(), now_ns);
        above.set(None, now_ns);
        above.set(Some(rate.terms().expect("it can be kept")), now_ns);
    }
    // Later refusals are counted as usual.
    below.set(Some(rate.terms().expect("it can be kept")), 1_000_000 * MS);
    assert_eq!(below.balance(1_000_000 * MS), Some(0));
    let refused = take(&below, 1, 1_000_000 * MS).expect_err("nothing is earned yet");
    assert_eq!((refused.wait_ns, refused.throttled_ns), (Some(100 * MS), 100 * MS));
    assert_eq!(take(&below, 1, 1_000_100 * MS), Ok(()));
}

/// Takes from two levels while `other` happens between the check of both and the take from the
/// upper one.
fn take_while(levels: [&Bucket; 2], n: u64, clock: &Cell<u64>, other: impl Fn()) -> bool {
    let visits = Cell::new(0);
    let each = levels.into_iter().inspect(|_| {
        visits.set(visits.get() + 1);
        if visits.get() == 4 {
            other();
        }
    });
    take_all(each.map(Some), n, || clock.get(), drop).is_ok()
}

fn two_levels() -> [Bucket; 2] {
    [10, 10].map(|amount| bucket(Rate { amount, per: SECOND, burst: 10 }))
}

#[test]
fn a_refusal_above_gives_back_below() {
    let [below, above] = two_levels();
    let clock = Cell::new(0);
    let other = || take(&above, 10, 0).expect("it is full");
    assert!(!take_while([&below, &above], 5, &clock, other));
    assert_eq!(below.balance(0), Some(10));
}

/// A soft level that is used up amid a take is reported, and refuses nothing.
#[test]
fn a_soft_level_refuses_nothing_amid_a_take() {
    let [below, above] = two_levels();
    above.set_soft(true);
    let other = || take(&above, 10, 0).expect("it is full");
    assert!(take_while([&below, &above], 5, &Cell::new(0), other));
    assert_eq!([&below, &above].map(|bucket| bucket.balance(0)), [Some(5), Some(0)]);
}

#[test]
fn a_late_return_is_not_on_top_of_a_burst() {
    let [below, above] = two_levels();
    let clock = Cell::new(0);
    let other = || {
        clock.set(300 * MS);
        take(&above, 10, 300 * MS).expect("it is full");
        take(&below, 8, 300 * MS).expect("5 are left, 3 were earned");
    };
    assert!(!take_while([&below, &above], 5, &clock, other));
    // Without the take it would have been full, and 8 of 10 are taken.
    assert_eq!(below.balance(300 * MS), Some(2));
}

/// Setting a rate before it has earned a token loses no part of that token.
#[test]
fn setting_a_rate_loses_no_part_of_a_token() {
    let rates = [(7, 5), (3, 2)].map(|(amount, burst)| Rate { amount, per: SECOND, burst });
    let bucket = bucket(rates[0]);
    take(&bucket, 5, 0).expect("it is full");
    let mut granted = 0;
    // Ten seconds either way. The interpreter takes fewer steps, and still several to a token.
    let step_ms = if cfg!(miri) { 50 } else { 1 };
    for step in 1..=10_000 / step_ms {
        let now_ns = step * step_ms * MS;
        bucket.set(Some(rates[step as usize % 2].terms().expect("it can be kept")), now_ns);
        granted += u64::from(take(&bucket, 1, now_ns).is_ok());
    }
    assert!((49..=50).contains(&granted), "{granted}: 5 a second on average, for ten seconds");
}

#[test]
fn takes_of_an_earlier_rate_do_not_come_back() {
    let [below, above] = two_levels();
    let clock = Cell::new(0);
    let other = || {
        take(&above, 10, 0).expect("it is full");
        let rate = Rate { amount: 100, per: SECOND, burst: 20 };
        below.set(Some(rate.terms().expect("it can be kept")), 0);
    };
    assert!(!take_while([&below, &above], 4, &clock, other));
    assert_eq!(below.balance(0), Some(6));
}

#[test]
fn a_take_that_meets_another_rate_goes_by_it() {
    let [below, above] = two_levels();
    let clock = Cell::new(0);
    let other = || above.set(Some(Rate::new(3, SECOND).terms().expect("it can be kept")), 0);
    assert!(!take_while([&below, &above], 4, &clock, other));
    assert_eq!([below.balance(0), above.balance(0)], [Some(10), Some(3)]);
}

#[test]
fn an_impossible_rate_is_refused_with_a_remedy() {
    let rate = |amount, per, burst| Rate { amount, per, burst };
    let year = Duration::from_secs(366 * 24 * 3600);
    for (rate, remedy) in [
        (rate(0, SECOND, 1), "set a limit of 0 instead"),
        (rate(1, Duration::ZERO, 1), "use a time such as a second"),
        (rate(1, SECOND, 0), "use at least 1"),
        (rate(1, year * 2, 1), "use a smaller amount per shorter time"),
        (rate(1, Duration::MAX, 1), "use a smaller amount per shorter time"),
        (rate(1, SECOND, u64::MAX), "lower it"),
        (rate(1, year, 2), "lower it"),
        (rate(10_000_000_000, SECOND, 1000), "raise it"),
    ] {
        let error = rate.check().expect_err("it cannot be kept").to_string();
        assert!(error.contains(&rate.to_string()) && error.contains(remedy), "{error}");
    }
    assert!(rate(1, year, 1).terms().is_ok());
    assert!(rate(1_000_000_000, SECOND, 1000).terms().is_ok(), "a microsecond is long enough");
}

/// All threads together get no more than the burst and the rate.
#[test]
fn threads_get_no_more_than_the_rate_stress() {
    use std::time::Instant;

    use super::TokenBucket;
    use crate::witness::Witness;

    let [own, other, above] = [(); 3].map(|()| TokenBucket::new());
    // Less than any machine takes.
    let rate = Rate { amount: 100_000, per: SECOND, burst: 2000 };
    let start = Instant::now();
    above.set_rate(Some(rate)).expect("it can be kept");
    own.set_rate(Some(Rate { burst: 1500, ..rate })).expect("it can be kept");
    let (takes, witness) = (if cfg!(miri) { 20 } else { 200_000 }, Witness::new());
    let work = |leaf| {
        let levels = [Some(leaf), None, Some(&above)];
        let take = |n| {
            let taken = TokenBucket::try_take(levels.into_iter(), n, drop);
            witness.met(taken.is_err());
            taken.map_or(0, |()| n)
        };
        (0..).take_while(|&n| witness.goes_on(n, takes)).map(|n| take(n % 3)).sum::<u64>()
    };
    let granted: u64 = std::thread::scope(|scope| {
        let threads = [&own, &own, &other].map(|leaf| scope.spawn(move || work(leaf)));
        threads.into_iter().map(|thread| thread.join().expect("no panic")).sum()
    });
    let earned = start.elapsed().as_micros() as u64 / 10 + 1;
    witness.assert_met();
    assert!(granted <= 2000 + earned, "{granted} of 2000 and {earned}");
    assert!(granted >= if cfg!(miri) { 1 } else { 2000 }, "{granted}");
}
