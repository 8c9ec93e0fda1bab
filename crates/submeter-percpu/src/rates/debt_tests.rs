//! Spending beyond the balance, compared with an oracle that knows no due times.

use std::time::Duration;

use proptest::prelude::*;

use super::bucket::{Bucket, LONGEST_NS};
use super::path::{admit_all, spend_all, take_all};
use super::rate::Rate;

const SECOND: Duration = Duration::from_secs(1);
const MS: u64 = 1_000_000;

/// The bound of `Throttled::throttled_ns`.
const AHEAD_NS: u64 = 1_000 * MS;

fn bucket(rate: Rate) -> Bucket {
    let bucket = Bucket::new();
    bucket.set(Some(rate.terms().expect("a rate that can be kept")), 0);
    bucket
}

fn take(bucket: &Bucket, n: u64, now_ns: u64) -> bool {
    take_all([Some(bucket)].into_iter(), n, || now_ns, drop).is_ok()
}

fn spend(bucket: &Bucket, n: u64, now_ns: u64) {
    spend_all([Some(bucket)].into_iter(), n, || now_ns);
}

/// Returns the time after which work is admitted: 0 for at once.
fn wait_ns(bucket: &Bucket, now_ns: u64) -> u64 {
    let admitted = admit_all([Some(bucket)].into_iter(), || now_ns, drop);
    admitted.map_or_else(|refused| refused.wait_ns.expect("it is known"), |()| 0)
}

/// Returns how much throttled time a check reports, and the time after which work is admitted;
/// `None` for at once.
fn refusal(bucket: &Bucket, now_ns: u64) -> Option<(u64, u64)> {
    let refused = admit_all([Some(bucket)].into_iter(), || now_ns, drop).err()?;
    Some((refused.throttled_ns, refused.wait_ns.expect("it is known")))
}

/// Half a CPU, of which 100 ms can be used at once.
fn half_a_cpu() -> Rate {
    Rate { amount: 500 * MS, per: SECOND, burst: 100 * MS }
}

/// A level in tokens times nanoseconds of a period.
struct Oracle {
    rate: Rate,
    level: i128,
    at_ns: u64,
}

impl Oracle {
    fn new(rate: Rate) -> Oracle {
        let level = i128::from(rate.burst) * rate.per.as_nanos().cast_signed();
        Oracle { rate, level, at_ns: 0 }
    }

    fn earn(&mut self, now_ns: u64) {
        let full = i128::from(self.rate.burst) * self.per();
        let earned = i128::from(now_ns - self.at_ns) * i128::from(self.rate.amount);
        (self.level, self.at_ns) = (full.min(self.level + earned), now_ns);
    }

    fn per(&self) -> i128 {
        self.rate.per.as_nanos().cast_signed()
    }

    fn take(&mut self, n: u64) {
        self.level -= i128::from(n) * self.per();
    }

    fn balance(&self) -> i128 {
        self.level.div_euclid(self.per())
    }
}

#[derive(Clone, Debug)]
enum Step {
    Pause(u64),
    Take(u64),
    Spend(u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        (0..11_u32, 0..1000_u64).prop_map(|(scale, ns)| Step::Pause(ns * 4_u64.pow(scale))),
        (0..300_u64).prop_map(Step::Take),
        (0..300_u64).prop_map(Step::Spend),
        (0..300_000_u64).prop_map(Step::Spend),
    ];
    prop::collection::vec(step, 1..100)
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 256,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn a_balance_is_earned_less_taken_and_spent(
        amount in 1..50_000_u64,
        per_ns in prop_oneof![Just(1_000_000_u64), 1_000..10_000_000_000_u64],
        burst in 1..200_u64,
        steps in steps(),
    ) {
        let rate = Rate { amount, per: Duration::from_nanos(per_ns), burst };
        prop_assume!(rate.terms().is_ok());
        let (bucket, mut oracle, mut now_ns) = (bucket(rate), Oracle::new(rate), 0);
        // The rounding: a nanosecond for each token, or for each step and each burst.
        let mut rounded_ns = 2_u64;
        for step in steps {
            let moved = match step {
                Step::Pause(ns) => {
                    now_ns += ns;
                    0
                }
                Step::Spend(n) => {
                    spend(&bucket, n, now_ns);
                    n
                }
                Step::Take(n) => if take(&bucket, n, now_ns) { n } else { 0 },
            };
            oracle.earn(now_ns);
            oracle.take(moved);
            rounded_ns += if per_ns / amount >= 10_000 { moved } else { 2 + moved / burst };
            let error = i128::from(rounded_ns) * i128::from(amount) / oracle.per() + 2;
            let balance = i128::from(bucket.balance(now_ns).expect("there is a rate"));
            let exact = oracle.balance();
            prop_assert!(
                balance <= exact + 1 && exact <= balance + error,
                "{balance} for {exact} within {error} at {now_ns}"
            );
            let wait = wait_ns(&bucket, now_ns);
            prop_assert_eq!(wait == 0, balance > 0);
            if wait > 0 {
                prop_assert_eq!(wait_ns(&bucket, now_ns + wait - 1), 1, "not earlier");
                prop_assert_eq!(wait_ns(&bucket, now_ns + wait), 0, "and not later");
            }
        }
    }
}

#[test]
fn a_debt_is_earned_before_anything_is_granted() {
    let bucket = bucket(half_a_cpu());
    assert_eq!(wait_ns(&bucket, 0), 0);
    spend(&bucket, 350 * MS, 0);
    assert_eq!(bucket.balance(0), Some(-250_000_000));
    // 250 ms at half a CPU, and the first nanosecond.
    assert_eq!(wait_ns(&bucket, 0), 500 * MS + 2);
    assert!(!take(&bucket, 1, 500 * MS));
    assert!(take(&bucket, 1, 500 * MS + 2));
    assert_eq!(bucket.balance(100 * 1000 * MS), Some(100_000_000), "no more than a burst");
}

/// Simulates work on four CPUs for 20 s, with occasional pauses. Each piece starts once it is
/// admitted, takes 0.1 to 3 ms and is spent at its end. Calls `look` at random moments with the
/// amount used, and `end` with each piece and whether it was beyond. Returns the amount used.
fn worked(bucket: &Bucket, mut look: impl FnMut(u64, u64), mut end: impl FnMut(u64, bool)) -> u64 {
    const STEP_NS: u64 = MS / 10;
    let mut rng = fastrand::Rng::with_seed(7);
    // For each piece: when it ends, how long it is, and whether it is beyond.
    let (mut cpus, mut used, mut idle_until) = ([None::<(u64, u64, bool)>; 4], 0, 0);
    for now_ns in (0..20_000 * MS).step_by(STEP_NS as usize) {
        for cpu in &mut cpus {
            if let Some((_, work, is_beyond)) = cpu.take_if(|(ends, ..)| *ends == now_ns) {
                spend(bucket, work, now_ns);
                used += work;
                end(work, is_beyond);
            }
            let mut is_beyond = false;
            let mut ask = || admit_all([Some(bucket)].into_iter(), || now_ns, |_| is_beyond = true);
            if cpu.is_none() && now_ns >= idle_until && ask().is_ok() {
                let work = rng.u64(1..=30) * STEP_NS;
                *cpu = Some((now_ns + work, work, is_beyond));
            }
        }
        match rng.u32(0..10_000) {
            // A pause until a part of the burst, or all of it, is available again.
            0..2 => idle_until = now_ns + rng.u64(0..300) * MS,
            2..500 => look(now_ns, used),
            _ => {}
        }
    }
    used
}

/// Only work in flight exceeds a budget between any two moments, as the documented bound says: work
/// that was admitted while there was a balance runs on.
#[test]
fn work_in_flight_alone_exceeds_a_budget() {
    let (bucket, in_flight) = (bucket(half_a_cpu()), 4 * 3 * MS);
    // How far usage is ahead of the earnings of the rate: the minimum before, and the maximum
    // since.
    let (mut least, mut most) = (0, 0);
    let look = |now_ns: u64, used: u64| {
        let ahead = used.cast_signed() - (now_ns / 2).cast_signed();
        least = least.min(ahead);
        most = most.max(ahead - least);
    };
    let used = worked(&bucket, look, |_, _| ());
    assert!(used >= 8_000 * MS, "{used}: it gets what it may use");
    let [burst, bound] = [100 * MS, 100 * MS + in_flight].map(u64::cast_signed);
    assert!((burst..=bound).contains(&most), "{most} of {bound} beyond the rate");
}

/// Four CPUs that always want more get half of one, and no less, over each 10 s after the burst.
#[test]
fn half_a_cpu_is_had_to_within_two_percent() {
    let bucket = bucket(half_a_cpu());
    let (mut cpus, mut rng) = ([None::<(u64, u64)>; 4], fastrand::Rng::with_seed(7));
    let (mut used, mut at) = (0, Vec::new());
    for now_ns in (0..21_000 * MS).step_by(MS as usize / 10) {
        for cpu in &mut cpus {
            if let Some((_, work)) = cpu.take_if(|(ends, _)| *ends == now_ns) {
                spend(&bucket, work, now_ns);
                used += work;
            }
            if cpu.is_none() && wait_ns(&bucket, now_ns) == 0 {
                let work = rng.u64(1..=30) * MS / 10;
                *cpu = Some((now_ns + work, work));
            }
        }
        at.push(used);
    }
    for since in (10_000..110_000).step_by(1_000) {
        let used = at[since + 100_000] - at[since];
        assert!(used.abs_diff(5_000 * MS) <= 100 * MS, "{used} from {since}");
    }
}

/// A spent piece counts as the last one checked. Pieces counted as others are longer than average,
/// so fewer count as admitted: by at most a sixth.
#[test]
fn a_soft_budget_counts_about_as_an_enforced_one() {
    let enforced = bucket(half_a_cpu());
    let admitted = worked(&enforced, |_, _| (), |_, _| ());
    let soft = bucket(half_a_cpu());
    soft.set_soft(true);
    let mut within = 0;
    worked(&soft, |_, _| (), |work, is_beyond| within += if is_beyond { 0 } else { work });
    let part = within as f64 / admitted as f64;
    assert!((0.83..1.03).contains(&part), "{part} of what an enforced one admits");
}

/// A soft budget leaves as many milliseconds of work uncounted as an enforced one admits, although
/// all work is done.
#[test]
fn a_soft_budget_counts_what_is_not_admitted() {
    let admitted = |is_soft: bool| {
        let bucket = bucket(half_a_cpu());
        bucket.set_soft(is_soft);
        let (mut within, mut beyond) = (0_u64, 0_u64);
        for now_ms in 0..10_000 {
            let mut is_over = false;
            let over = |_| is_over = true;
            let admitted = admit_all([Some(&bucket)].into_iter(), || now_ms * MS, over);
            assert!(admitted.is_ok() || !is_soft, "a soft one refuses nothing");
            match admitted.is_err() || is_over {
                true => beyond += 1,
                false => within += 1,
            }
            if admitted.is_ok() {
                spend(&bucket, MS, (now_ms + 1) * MS);
            }
        }
        assert_eq!(within + beyond, 10_000);
        within
    };
    let [enforced, soft] = [false, true].map(admitted);
    assert!((5_000..5_200).contains(&enforced), "{enforced}");
    assert_eq!(soft, enforced);
}

/// Work that another level refuses does not count at a soft budget above.
#[test]
fn a_vain_look_leaves_a_soft_budget_as_it_was() {
    let (soft, refuses) = (bucket(half_a_cpu()), bucket(half_a_cpu()));
    soft.set_soft(true);
    let mut counted = 0;
    for bucket in [&soft, &refuses] {
        spend(bucket, 200 * MS, 0);
    }
    let levels = [Some(&refuses), Some(&soft)];
    let admitted = admit_all(levels.into_iter(), || 0, |_| counted += 1);
    assert!(admitted.is_err() && counted == 0, "{counted} would be refused above");
    spend(&soft, 100 * MS, 0);
    assert_eq!(soft.balance(0), Some(-200 * MS.cast_signed()));
    // Once the soft budget decides, it takes nothing for work that it would not have admitted.
    assert!(admit_all([Some(&soft)].into_iter(), || 0, |_| counted += 1).is_ok());
    spend(&soft, 100 * MS, 0);
    assert_eq!((soft.balance(0), counted), (Some(-200 * MS.cast_signed()), 1));
}

#[test]
fn a_debt_stays_when_the_rate_changes() {
    let terms = |rate: Rate| Some(rate.terms().expect("it can be kept"));
    let bucket = bucket(half_a_cpu());
    spend(&bucket, 300 * MS, 0);
    for (amount, burst) in [(500, 100), (50, 100), (2_000, 10), (500, 400)] {
        bucket.set(terms(Rate { amount: amount * MS, per: SECOND, burst: burst * MS }), 0);
        assert_eq!(bucket.balance(0), Some(-200_000_000), "{amount} and {burst}");
    }
}

#[test]
fn setting_a_rate_forgives_no_debt() {
    let rates = [(7, 5), (3, 2)].map(|(amount, burst)| Rate { amount, per: SECOND, burst });
    let bucket = bucket(rates[0]);
    spend(&bucket, 10, 0);
    for (from_ms, until_ms, admits) in [(1, 900, false), (901, 1_300, true)] {
        for step in from_ms..=until_ms {
            bucket.set(Some(rates[step as usize % 2].terms().expect("it can be kept")), step * MS);
        }
        assert_eq!(wait_ns(&bucket, until_ms * MS) == 0, admits, "5 owed, 5 a second, and one");
    }
}

/// A debt outlives the removal of its rate and one of nothing.
///
/// It used to be forgotten: a rate that was removed for a moment and set again granted a burst.
#[test]
fn a_debt_outlives_the_removal_of_its_rate() {
    let terms = |rate: Rate| Some(rate.terms().expect("it can be kept"));
    for between in [None, Some(Rate::NOTHING)] {
        let (bucket, between) = (bucket(half_a_cpu()), between.map(|rate| terms(rate).unwrap()));
        spend(&bucket, 300 * MS, 0);
        bucket.set(between, 0);
        // Neither of them spends anything.
        spend(&bucket, u64::MAX, 0);
        bucket.set(terms(half_a_cpu()), 0);
        assert_eq!(bucket.balance(0), Some(-200_000_000), "{between:?}");
        // Meanwhile the debt is worked off at the rate to which it was owed.
        bucket.set(between, 0);
        bucket.set(between.xor(terms(Rate::NOTHING)), 50 * MS);
        let rate = Rate { amount: 50 * MS, ..half_a_cpu() };
        bucket.set(terms(rate), 100 * MS);
        assert_eq!(wait_ns(&bucket, 100 * MS), 300 * MS + 20, "{between:?}");
        bucket.set(between, 100 * MS);
        bucket.set(terms(rate), 400 * MS);
        let full = if between.is_none() { 100_000_000 } else { 0 };
        assert_eq!(bucket.balance(400 * MS), Some(full), "{between:?}");
    }
}

#[test]
fn a_debt_has_an_end_however_much_is_spent() {
    let bucket = bucket(Rate { amount: 1, per: SECOND, burst: 3 });
    for _ in 0..3 {
        spend(&bucket, u64::MAX, 0);
    }
    let wait = wait_ns(&bucket, 0);
    assert!((LONGEST_NS..LONGEST_NS + 5_000 * MS).contains(&wait), "{wait}");
    assert_eq!(wait_ns(&bucket, wait), 0);
    // A take that is given back concurrently finds a later due time.
    spend(&bucket, u64::MAX, LONGEST_NS * 29);
    assert!(wait_ns(&bucket, LONGEST_NS * 29) > 0);
}

#[test]
fn an_earlier_look_at_the_clock_forgives_no_debt() {
    let bucket = bucket(half_a_cpu());
    spend(&bucket, u64::MAX, 5_000 * MS);
    let wait = wait_ns(&bucket, 5_000 * MS);
    spend(&bucket, 1, 0);
    assert_eq!(wait_ns(&bucket, 5_000 * MS), wait);
}

/// A debt that a bucket does not keep is not charged to a share. Otherwise the share would wait for
/// years after its bucket has earned the whole debt.
#[test]
fn a_debt_no_bucket_keeps_is_no_shares() {
    let [spends, other, above] = [Bucket::new(), Bucket::new(), bucket(half_a_cpu())];
    for contends in [&spends, &other] {
        contends.share.set_weight(100);
    }
    let levels = |of| [Some(of), Some(&above)].into_iter();
    for _ in 0..3 {
        spend_all(levels(&spends), u64::MAX, || 0);
    }
    let earned_ns = LONGEST_NS + 1_000 * MS;
    // Until less than half a burst is left, which is for shares only.
    let take = |of, ns| take_all(levels(of), ns, || earned_ns, drop).is_ok();
    assert!(take(&other, 60 * MS));
    assert!(take(&spends, 10 * MS), "its share owes no more than the bucket did");
}

/// Every level is debited, and a debt above admits nobody below.
#[test]
fn a_debt_above_admits_nobody_below() {
    let [own, other, above] = [(); 3].map(|()| bucket(half_a_cpu()));
    let admitted =
        |leaf, now_ns| admit_all([Some(leaf), None, Some(&above)].into_iter(), || now_ns, drop);
    spend_all([Some(&own), None, Some(&above)].into_iter(), 150 * MS, || 0);
    assert_eq!(
        [&own, &other, &above].map(|at| at.balance(0).unwrap() / 1_000_000),
        [-50, 100, -50]
    );
    let refused = admitted(&other, 0).expect_err("the level above owes");
    assert_eq!((refused.levels, refused.wait_ns), (2, Some(100 * MS + 2)));
    assert!(admitted(&other, 100 * MS + 2).is_ok());
    // A check takes nothing.
    assert_eq!(other.balance(0).map(|ns| ns / 1_000_000), Some(100));
}

#[test]
fn no_clock_is_read_where_nothing_has_a_rate() {
    let clock = || -> u64 { panic!("read") };
    let [below, above] = [Bucket::new(), Bucket::new()];
    spend_all([Some(&below), None, Some(&above)].into_iter(), 7, clock);
    assert!(admit_all([Some(&below), Some(&above)].into_iter(), clock, drop).is_ok());
}

/// Two tenants of weights 1 and 3 that always have work divide one CPU, of which they may use half,
/// by weight.
#[test]
fn budgets_are_divided_by_weight() {
    let [light, heavy, above] = [Bucket::new(), Bucket::new(), bucket(half_a_cpu())];
    light.share.set_weight(100);
    heavy.share.set_weight(300);
    let (mut now_ns, mut used) = (0, [0_u64; 2]);
    let mut turn = 0;
    while now_ns < 20_000 * MS {
        turn = 1 - turn;
        let tenant = [&light, &heavy][turn];
        let levels = || [Some(tenant), Some(&above)].into_iter();
        let admitted = admit_all(levels(), || now_ns, drop).is_ok();
        // Its duration is known only afterwards.
        let work = if admitted { (1 + now_ns / 1000 % 3) * MS } else { MS / 10 };
        now_ns += work;
        if admitted {
            spend_all(levels(), work, || now_ns);
            used[turn] += work;
        }
    }
    let [light, heavy] = used;
    let (share, sum) = (light as f64 / (light + heavy) as f64, light + heavy);
    assert!((0.24..0.26).contains(&share), "{share} of {sum}");
    assert!((9_900 * MS..10_200 * MS).contains(&sum), "{sum}");
}

/// A debt of minutes is reported as it passes. It used to be reported at once: ten minutes of
/// throttled time in a moment.
#[test]
fn a_debt_of_minutes_is_reported_as_it_goes_by() {
    const DEBT_NS: u64 = 600_000 * MS;
    for pause_ms in [1000, 250, 7] {
        let (bucket, mut reported) = (bucket(half_a_cpu()), 0);
        spend(&bucket, 100 * MS + DEBT_NS / 2, 0);
        let mut now_ns = 0;
        while let Some((throttled_ns, wait_ns)) = refusal(&bucket, now_ns) {
            assert_eq!(wait_ns, DEBT_NS + 2 - now_ns);
            assert!(throttled_ns <= AHEAD_NS, "{throttled_ns}");
            reported += throttled_ns;
            assert_eq!(reported, (now_ns + AHEAD_NS).min(DEBT_NS + 2), "at {now_ns}");
            now_ns += pause_ms * MS;
        }
        assert!(now_ns > DEBT_NS, "each millisecond was asked for");
    }
}

/// The next refusal reports the time that the last one left, without the time between them.
///
/// A caller that retries exactly when told is not reported to wait less.
#[test]
fn refused_time_leaves_out_the_time_between() {
    let bucket = bucket(half_a_cpu());
    spend(&bucket, 5_100 * MS, 0);
    let (reported, wait_ns) = refusal(&bucket, 0).expect("it owes");
    assert_eq!((reported, wait_ns), (AHEAD_NS, 10_000 * MS + 2));
    assert_eq!(refusal(&bucket, wait_ns), None, "as it was told");
    // The next debt comes a while later.
    let later_ns = 20_000 * MS;
    spend(&bucket, 200 * MS, later_ns);
    let (reported, next_ns) = refusal(&bucket, later_ns).expect("it owes again");
    assert_eq!(next_ns, 200 * MS + 2);
    assert_eq!(reported, wait_ns - AHEAD_NS + next_ns);
}

/// A refusal does not report what another rate would have refused.
#[test]
fn no_other_rates_refusal_is_reported() {
    let bucket = bucket(half_a_cpu());
    spend(&bucket, 5_100 * MS, 0);
    assert_eq!(refusal(&bucket, 0), Some((AHEAD_NS, 10_000 * MS + 2)));
    // Five times as much: the debt is earned in a fifth of the remaining time.
    let rate = Rate { amount: 2_500 * MS, ..half_a_cpu() };
    let set_ns = 4_000 * MS;
    bucket.set(Some(rate.terms().expect("it can be kept")), set_ns);
    assert_eq!(refusal(&bucket, 9_000 * MS), None);
    spend(&bucket, 350 * MS, 9_000 * MS);
    let (reported, wait_ns) = refusal(&bucket, 9_000 * MS).expect("it owes again");
    assert_eq!(reported, set_ns - AHEAD_NS + wait_ns, "until the rate was set, and now");
}

/// Soft buckets count at each level what enforced ones would refuse there, and hold as much: of
/// what one would refuse, none takes anything.
#[test]
fn soft_levels_count_as_enforced_ones() {
    let mut rng = fastrand::Rng::with_seed(37);
    let rates = [10, 1_000, 60].map(|amount| Rate { burst: amount, ..Rate::new(amount, SECOND) });
    let worlds = [false, true].map(|is_soft| {
        let buckets = rates.map(bucket);
        buckets.iter().for_each(|bucket| bucket.set_soft(is_soft));
        buckets
    });
    let (mut counted, mut now_ns) = ([[0; 2]; 2], 0);
    for _ in 0..20_000 {
        now_ns += rng.u64(0..2 * MS);
        let (child, n) = (rng.usize(0..2), rng.u64(1..3));
        let refused = worlds.each_ref().map(|[a, b, root]| {
            let mut over = None;
            let path = [Some([a, b][child]), Some(root)];
            let taken = take_all(path.into_iter(), n, || now_ns, |level| over = Some(level));
            taken.err().map(|refused| refused.levels).or(over)
        });
        assert_eq!(refused[0], refused[1], "of {n} at {now_ns} ns");
        if let Some(level) = refused[0] {
            counted[child][level] += 1;
        }
        let balances = worlds.each_ref().map(|world| world.each_ref().map(|it| it.balance(now_ns)));
        assert_eq!(balances[0], balances[1]);
    }
    assert!(counted[0][0] > 0 && counted[1][1] > 0, "each level refused: {counted:?}");
}

/// What a soft budget would not have admitted is spent from no soft budget above, but from an
/// enforced one: the work is done.
#[test]
fn what_a_soft_level_above_refuses_is_not_spent() {
    let buckets = [half_a_cpu(), half_a_cpu(), half_a_cpu()].map(bucket);
    buckets.iter().for_each(|bucket| bucket.set_soft(true));
    spend(&buckets[2], 200 * MS, 0);
    let (path, mut over) = (buckets.iter().map(Some), Vec::new());
    for (now_ns, spent) in [(0, 0), (10_000 * MS, 50 * MS.cast_signed())] {
        let before = buckets.each_ref().map(|bucket| bucket.balance(now_ns).expect("a rate"));
        admit_all(path.clone(), || now_ns, |level| over.push(level)).expect("it is soft");
        spend_all(path.clone(), 50 * MS, || now_ns);
        let after = buckets.each_ref().map(|bucket| bucket.balance(now_ns).expect("a rate"));
        assert_eq!(after, before.map(|balance| balance - spent), "at {now_ns}");
    }
    assert_eq!(over, [2], "and the debt is over after ten seconds");
}

/// A level that would have admitted the work is not taken for one that would not: what others
/// below it spend is spent.
#[test]
fn a_soft_level_is_beyond_by_itself_alone() {
    let [leaf, other, root] = [half_a_cpu(), half_a_cpu(), half_a_cpu()].map(bucket);
    [&leaf, &other, &root].into_iter().for_each(|bucket| bucket.set_soft(true));
    spend(&leaf, 200 * MS, 0);
    let mut over = Vec::new();
    let path = [Some(&leaf), Some(&root)].into_iter();
    admit_all(path, || 0, |level| over.push(level)).expect("it is soft");
    spend_all([Some(&other), Some(&root)].into_iter(), 50 * MS, || 0);
    let left = [&other, &root].map(|bucket| bucket.balance(0));
    assert_eq!((over, left), (vec![0], [Some(50 * MS.cast_signed()); 2]));
}

#[test]
fn what_is_not_admitted_is_not_spent_above() {
    for is_soft in [false, true] {
        let [leaf, root] = [half_a_cpu(), half_a_cpu()].map(bucket);
        leaf.set_soft(true);
        root.set_soft(is_soft);
        spend(&leaf, 200 * MS, 0);
        let (path, mut over) = ([Some(&leaf), Some(&root)], Vec::new());
        admit_all(path.into_iter(), || 0, |level| over.push(level)).expect("it is soft");
        spend_all(path.into_iter(), 50 * MS, || 0);
        assert_eq!((over, leaf.balance(0)), (vec![0], Some(-100 * MS.cast_signed())));
        assert_eq!(root.balance(0), Some(if is_soft { 100 } else { 50 } * MS.cast_signed()));
    }
}
