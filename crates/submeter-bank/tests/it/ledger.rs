//! The ledger's rules, one at a time.

use std::time::Duration;

use submeter_bank::{Budget, Holder, Ledger, Member, Outage, Past, Request, Use};

const TTL: Duration = Duration::from_secs(10);

fn budget(path: &str) -> Budget {
    Budget::new(path, "memory").expect("a name")
}

/// Lets a new member ask once.
struct Asks;

impl Member for Asks {
    fn set(&mut self, _: &Budget, _: u64) -> Use {
        Use::default()
    }
}

fn request(epoch: u64, wants: &[(&str, u64)]) -> Request {
    let mut holder = Holder::new("web", epoch);
    for &(path, least) in wants {
        holder.add(budget(path), least, Outage::Strict);
    }
    holder.request(Duration::ZERO, &mut Asks)
}

fn ledger(limits: &[(&str, u64)]) -> Ledger {
    let mut ledger = Ledger::new(TTL, Past::None);
    for &(path, limit) in limits {
        ledger.set_limit(&budget(path), limit, 0).expect("no floors");
    }
    ledger
}

fn amounts(ledger: &mut Ledger, request: &Request) -> Vec<u64> {
    let answer = ledger.exchange(Duration::ZERO, request).expect("a request");
    answer.leases.iter().map(|lease| lease.amount).collect()
}

#[test]
fn of_three_units_not_all_five_members_get_none() {
    let mut ledger = ledger(&[("/", 3)]);
    let lent: u64 = (0..5).map(|epoch| amounts(&mut ledger, &request(epoch, &[("/", 1)]))[0]).sum();
    assert_eq!(lent, 3);
}

#[test]
fn the_odd_unit_goes_to_the_smaller_wish() {
    let mut ledger = ledger(&[("/", 1)]);
    let (mut larger, mut smaller) = (request(1, &[("/", 2)]), request(2, &[("/", 1)]));
    assert_eq!(amounts(&mut ledger, &larger), [1]);
    assert_eq!(amounts(&mut ledger, &smaller), [0], "none is free");
    // Now both wishes are known: the larger is asked to return its unit, and does.
    (larger.sequence, larger.wants[0].has) = (2, 1);
    assert_eq!(amounts(&mut ledger, &larger), [0]);
    (larger.sequence, larger.wants[0].has) = (3, 0);
    assert_eq!(amounts(&mut ledger, &larger), [0]);
    smaller.sequence = 2;
    assert_eq!(amounts(&mut ledger, &smaller), [1]);
}

/// A repeated request gets the same answer and prolongs nothing.
#[test]
fn a_repeated_request_gets_the_same_answer() {
    let mut ledger = ledger(&[("/", 100)]);
    let (first, mut second) = (request(1, &[("/", 100)]), request(2, &[("/", 100)]));
    assert_eq!(amounts(&mut ledger, &first), [100]);
    assert_eq!(amounts(&mut ledger, &second), [0]);
    // The member may already use the 100, though the request still says that it has nothing.
    let later = Duration::from_secs(1);
    let again = ledger.exchange(later, &first).expect("the same request");
    assert_eq!(again.leases[0].amount, 100);
    let lent = ledger.lent(&budget("/")).next().expect("still lent");
    assert_eq!((lent.amount, lent.ends_in), (100, TTL - later));
    second.sequence = 2;
    let answer = ledger.exchange(later, &second).expect("a new request");
    assert_eq!(answer.leases[0].amount, 0, "all is lent to the first");
}

/// A lease is no larger than that of the nearest ancestor.
#[test]
fn a_lease_is_no_larger_than_an_ancestors() {
    let mut ledger = ledger(&[("/", 100), ("/acme", 60), ("/acme/web", 1_000)]);
    let wants = [("/", 80), ("/acme", 70), ("/acme/web", 90)];
    assert_eq!(amounts(&mut ledger, &request(1, &wants)), [80, 60, 60]);
}

#[test]
fn a_budget_without_limit_is_not_lent() {
    assert_eq!(amounts(&mut ledger(&[]), &request(1, &[("/", 5)])), [0]);
}

#[test]
fn what_a_request_does_not_list_is_returned() {
    let mut ledger = ledger(&[("/a", 10), ("/b", 10)]);
    amounts(&mut ledger, &request(1, &[("/a", 10), ("/b", 10)]));
    let mut second = request(1, &[("/b", 10)]);
    second.sequence = 2;
    amounts(&mut ledger, &second);
    assert_eq!(ledger.lent(&budget("/a")).count(), 0);
    assert_eq!(ledger.lent(&budget("/b")).next().expect("still lent").amount, 10);
}

/// A member that claims more than was lent to it takes only what is free.
#[test]
fn excess_claims_take_only_what_is_free() {
    let mut ledger = ledger(&[("/", 100)]);
    assert_eq!(amounts(&mut ledger, &request(1, &[("/", 70)])), [70]);
    let mut liar = request(2, &[("/", 10)]);
    liar.wants[0].has = u64::MAX;
    amounts(&mut ledger, &liar);
    let lent: Vec<_> = ledger.lent(&budget("/")).map(|lent| lent.amount).collect();
    assert_eq!(lent, [70, 30]);
}

/// A lowered limit takes nothing from the count that members still use.
#[test]
fn a_lowered_limit_keeps_what_is_in_use() {
    let mut ledger = ledger(&[("/", 100)]);
    amounts(&mut ledger, &request(1, &[("/", 60)]));
    amounts(&mut ledger, &request(2, &[("/", 40)]));
    ledger.set_limit(&budget("/"), 50, 0).expect("no floors");
    let mut renewed = request(1, &[("/", 60)]);
    (renewed.sequence, renewed.wants[0].has) = (2, 60);
    assert_eq!(amounts(&mut ledger, &renewed), [25], "half of it, as each wants more");
    assert_eq!(ledger.lent(&budget("/")).next().expect("lent").amount, 60);
}

/// A ledger with shorter leases than before still learns for as long as the old ones last.
#[test]
fn shorter_leases_still_learn_for_the_old_ones() {
    let (short, long) = (Duration::from_secs(1), Duration::from_secs(15));
    for (past, until) in [(Past::LentFor(long), long), (Past::LentFor(short / 5), short)] {
        let mut ledger = Ledger::new(short, past);
        ledger.set_limit(&budget("/"), 100, 0).expect("no floors");
        for (now, lent) in [(Duration::ZERO, 0), (until - Duration::from_millis(1), 0), (until, 9)]
        {
            let request = request(now.as_millis() as u64, &[("/", 9)]);
            let answer = ledger.exchange(now, &request).expect("in order");
            assert_eq!(answer.leases[0].amount, lent, "{past:?} after {now:?}");
        }
    }
}

/// An older request and a budget listed twice are refused, and change nothing.
#[test]
fn old_and_doubled_requests_change_nothing() {
    let mut ledger = ledger(&[("/", 100)]);
    let mut newer = request(1, &[("/", 60)]);
    newer.sequence = 9;
    amounts(&mut ledger, &newer);
    let older = request(1, &[("/", 5)]);
    let error = ledger.exchange(Duration::ZERO, &older).expect_err("older");
    assert_eq!(error.to_string(), "request 1 of \"web\" arrived after request 9: send a new one");
    let mut twice = request(2, &[("/", 5)]);
    twice.wants.push(twice.wants[0].clone());
    let error = ledger.exchange(Duration::ZERO, &twice).expect_err("twice");
    assert_eq!(error.to_string(), "memory of / is listed twice: list it once");
    let lent: Vec<_> = ledger.lent(&budget("/")).map(|lent| (lent.epoch, lent.amount)).collect();
    assert_eq!(lent, [(1, 60)]);
}

#[test]
fn floors_beyond_the_limit_are_refused() {
    let error = ledger(&[]).set_limit(&budget("/"), 10, 11).expect_err("too many floors");
    assert_eq!(
        error.to_string(),
        "memory of /: floors of 11 in total exceed the limit of 10: raise the limit or lower the \
         floors"
    );
}

/// Computes the parts of a limit by max-min fairness, unit by unit.
fn parts(limit: u64, wishes: &[u64]) -> Vec<u64> {
    let mut parts = vec![0; wishes.len()];
    for _ in 0..limit {
        let hungry = (0..wishes.len()).filter(|&at| parts[at] < wishes[at]);
        let Some(least) = hungry.min_by_key(|&at| parts[at]) else { break };
        parts[least] += 1;
    }
    parts
}

/// Makes members hold as much as they can of a limit, lowers it, and makes them renew in some
/// order. Returns what each holds when all have come down.
fn lowered(held: &[u64], to: u64, mut order: impl FnMut(usize) -> usize) -> Vec<u64> {
    let mut ledger = ledger(&[("/", held.iter().sum())]);
    let wish = |at: usize| held[at] + held[at].div_ceil(4);
    let mut has = vec![0; held.len()];
    let ask = |ledger: &mut Ledger, has: &mut [u64], sequence, at: usize, wants| {
        let mut asks = request(at as u64, &[("/", wants)]);
        (asks.sequence, asks.wants[0].has) = (sequence, has[at]);
        has[at] = amounts(ledger, &asks)[0];
    };
    for (at, &wants) in held.iter().enumerate() {
        ask(&mut ledger, &mut has, 1, at, wants);
    }
    assert_eq!(has, held);
    // All want more before the limit falls.
    for at in 0..held.len() {
        ask(&mut ledger, &mut has, 2, at, wish(at));
    }
    ledger.set_limit(&budget("/"), to, 0).expect("no floors");
    let wishes: Vec<_> = (0..held.len()).map(wish).collect();
    let parts = parts(to, &wishes);
    let mut counted: u64 = held.iter().sum();
    for sequence in 3..3 + 4 * held.len() as u64 {
        let at = order(held.len());
        let before = has[at];
        ask(&mut ledger, &mut has, sequence, at, wish(at));
        // Any member may get the odd unit.
        assert!(has[at] + 1 >= before.min(parts[at]), "{held:?} to {to}: {has:?}, of {parts:?}");
        let now: u64 = ledger.lent(&budget("/")).map(|lent| lent.amount).sum();
        assert!(now <= counted.max(to), "{held:?} to {to}: {counted} became {now}");
        assert!(has.iter().sum::<u64>() <= now, "{has:?} of {now}");
        counted = now;
    }
    has
}

/// A lowered limit leaves each member its part, in whatever order they ask.
#[test]
fn a_lowered_limit_leaves_each_its_part() {
    let in_turn = |mut at: usize| {
        move |members: usize| {
            at += 1;
            at % members
        }
    };
    for first in 0..3 {
        assert_eq!(lowered(&[300, 300, 300], 150, in_turn(first)), [50, 50, 50]);
        // 55 is less than a part.
        let held = lowered(&[366, 366, 55], 400, in_turn(first));
        assert!(held[2] >= 55 && held.iter().sum::<u64>() == 400, "{held:?}");
        assert!(held[0].abs_diff(held[1]) <= 1, "{held:?}");
        assert_eq!(lowered(&[5, 6, 7], 0, in_turn(first)), [0, 0, 0]);
    }
}

/// Lowered limits are finally kept, and sums only fall until then.
#[test]
fn lowered_limits_are_reached_by_falling_sums() {
    let mut rng = fastrand::Rng::with_seed(28);
    for _ in 0..500 {
        let held: Vec<_> = (0..rng.usize(1..6)).map(|_| rng.u64(0..40)).collect();
        let to = rng.u64(0..=held.iter().sum());
        let (mut turn, mut later) = (0, rng.clone());
        // Some ask often before others ask at all; in the end all have asked.
        let order = |members: usize| {
            turn += 1;
            if turn > 2 * members { turn % members } else { later.usize(..members) }
        };
        let has = lowered(&held, to, order);
        assert!(has.iter().sum::<u64>() <= to, "{held:?} to {to}: {has:?}");
        rng.u64(..);
    }
}
