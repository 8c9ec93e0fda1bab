//! When a member asks, and what it does when it loses the bank.

use std::time::Duration;

use submeter_bank::{Answer, Budget, Holder, InForce, Lease, Ledger, Member, Outage, Past, Use};

const TTL: Duration = Duration::from_secs(10);

#[derive(Default)]
struct Limit(u64);

impl Member for Limit {
    fn set(&mut self, _: &Budget, amount: u64) -> Use {
        self.0 = amount;
        Use { used: 30, refused: 0 }
    }
}

/// Returns what is in force before 0.8 of the time to live, and after it.
fn cut_off_after_one_answer(outage: Outage) -> [(u64, Option<InForce>); 2] {
    let budget = Budget::new("/", "memory").expect("a name");
    let mut ledger = Ledger::new(TTL, Past::None);
    ledger.set_limit(&budget, 100, 10).expect("floors below the limit");
    let (mut holder, mut limit) = (Holder::new("web", 1), Limit::default());
    holder.add(budget.clone(), 50, outage);
    let request = holder.request(Duration::ZERO, &mut limit);
    let answer = ledger.exchange(Duration::from_secs(1), &request).expect("a request");
    assert!(holder.accept(Duration::from_secs(2), &answer, &mut limit));
    // Counted from when the request was sent, whenever the answer came.
    [7_999, 8_000].map(|ms| {
        holder.tick(Duration::from_millis(ms), &mut limit);
        (limit.0, holder.in_force(&budget))
    })
}

/// A member without a bank does as it declared, and reports so.
#[test]
fn a_member_without_bank_does_as_declared() {
    let lease = Some(InForce::Lease);
    assert_eq!(cut_off_after_one_answer(Outage::Strict), [(50, lease), (0, Some(InForce::Strict))]);
    // Its floor is a part of the 50 that it wants.
    assert_eq!(
        cut_off_after_one_answer(Outage::Floor(10)),
        [(50, lease), (10, Some(InForce::Floor))]
    );
    assert_eq!(cut_off_after_one_answer(Outage::Open(5)), [(50, lease), (50, Some(InForce::Open))]);
}

#[test]
fn a_member_goes_on_without_bank_while_idle() {
    struct Idle(u64);
    impl Member for Idle {
        fn set(&mut self, _: &Budget, amount: u64) -> Use {
            self.0 = amount;
            Use::default()
        }
    }
    let budget = Budget::new("/", "memory").expect("a name");
    let (mut holder, mut limit) = (Holder::new("web", 1), Idle(0));
    holder.add(budget.clone(), 50, Outage::Open(80));
    for second in 0..60 {
        let request = holder.request(Duration::from_secs(second), &mut limit);
        assert_eq!((limit.0, request.wants[0].has), (80, 80), "after {second} s");
    }
}

/// An answer that arrives after its leases have ended is useless.
#[test]
fn an_answer_after_its_leases_is_of_no_use() {
    let budget = Budget::new("/", "memory").expect("a name");
    let mut ledger = Ledger::new(TTL, Past::None);
    ledger.set_limit(&budget, 100, 0).expect("no floors");
    let (mut holder, mut limit) = (Holder::new("web", 1), Limit::default());
    holder.add(budget.clone(), 50, Outage::Strict);
    let request = holder.request(Duration::ZERO, &mut limit);
    let answer = ledger.exchange(Duration::ZERO, &request).expect("a request");
    assert!(!holder.accept(Duration::from_secs(8), &answer, &mut limit));
    assert_eq!((limit.0, holder.in_force(&budget)), (0, Some(InForce::Strict)));
}

/// Minimum time from one exchange to the next.
const URGENT: Duration = Duration::from_millis(50);

/// Exchanges at `now`, and is lent `amount`.
fn exchange(holder: &mut Holder, now: Duration, amount: u64) {
    let request = holder.request(now, &mut Limit::default());
    let leases = request.wants.into_iter().map(|want| Lease { budget: want.budget, amount });
    let answer =
        Answer { sequence: request.sequence, ttl: TTL, learns: false, leases: leases.collect() };
    assert!(holder.accept(now, &answer, &mut Limit::default()));
}

fn root() -> Budget {
    Budget::new("/", "memory").expect("a name")
}

fn holder_lent(amount: u64) -> Holder {
    let mut holder = Holder::new("web", 1);
    holder.add(root(), 50, Outage::Strict);
    exchange(&mut holder, Duration::ZERO, amount);
    holder
}

/// A member that loses a part of its lease reports at once that it is free.
#[test]
fn what_is_taken_is_returned_at_once() {
    let mut holder = holder_lent(50);
    let now = Duration::from_secs(1);
    assert!(holder.next() > now, "nothing is urgent after it was lent what it wants");
    exchange(&mut holder, now, 20);
    assert_eq!(holder.next(), now + URGENT);
}

/// After a refusal the bank is asked at once, unless the last refusal brought nothing more.
#[test]
fn a_refusal_asks_at_once() {
    let mut holder = holder_lent(50);
    holder.refused(&root());
    assert_eq!(holder.next(), URGENT);
    exchange(&mut holder, URGENT, 50);
    let in_turn = holder.next();
    assert!(in_turn > URGENT * 2);
    holder.refused(&root());
    assert_eq!(holder.next(), in_turn);
    exchange(&mut holder, in_turn, 50);
    assert!(holder.next() > in_turn + URGENT, "refused all the time");
    // A request without a refusal before it.
    let later = holder.next();
    exchange(&mut holder, later, 50);
    holder.refused(&root());
    assert_eq!(holder.next(), later + URGENT, "the first refusal after a pause");
}

/// A budget of which there is no more does not keep another's refusal waiting.
#[test]
fn vain_refusals_do_not_delay_another_budgets() {
    let mut holder = holder_lent(50);
    let other = Budget::new("/other", "memory").expect("a name");
    holder.add(other.clone(), 50, Outage::Strict);
    holder.refused(&root());
    exchange(&mut holder, URGENT, 50);
    holder.refused(&root());
    assert!(holder.next() > URGENT * 2, "it was in vain");
    holder.refused(&other);
    assert_eq!(holder.next(), URGENT * 2);
}

/// Budgets of which there is no more are asked for once a period, in whatever turn they refuse.
#[test]
fn refusals_in_turn_do_not_hurry_without_end() {
    for every in [14, 50, 100] {
        let budgets = ["/a", "/b", "/c"].map(|path| Budget::new(path, "rate").expect("a name"));
        let mut ledger = Ledger::new(TTL, Past::None);
        let mut holder = Holder::new("web", 1);
        for budget in &budgets {
            ledger.set_limit(budget, 100, 0).expect("no floors");
            holder.add(budget.clone(), 100, Outage::Strict);
        }
        let mut requests = 0;
        for step in 0..6_000 {
            let now = Duration::from_millis(step * 10);
            if step > 100 && step % every == 0 {
                holder.refused(&budgets[(step / every % 3) as usize]);
            }
            if holder.tick(now, &mut Everything) {
                let answer = ledger.exchange(now, &holder.request(now, &mut Everything));
                holder.accept(now, &answer.expect("it lends"), &mut Everything);
                requests += 1;
            }
        }
        assert!(requests < 30, "{requests} in twelve periods, a refusal each {every}0 ms");
    }
}

/// A member that uses all that it has.
struct Everything;

impl Member for Everything {
    fn set(&mut self, _: &Budget, amount: u64) -> Use {
        Use { used: amount, refused: 0 }
    }
}

/// A member that uses one budget in bursts, while another's refusals hurry its requests.
#[derive(Default)]
struct Bursts {
    limit: u64,
    used: u64,
    refused: u64,
}

impl Member for Bursts {
    fn set(&mut self, budget: &Budget, amount: u64) -> Use {
        if budget.path() == "/noisy" {
            return Use { used: amount / 5 * 4, refused: 10 };
        }
        self.limit = amount;
        Use { used: self.used.min(amount), refused: std::mem::take(&mut self.refused) }
    }
}

/// A lease falls only by the demand of a whole period, however often the bank is asked meanwhile,
/// and it does fall two periods after the last use.
#[test]
fn a_lease_falls_by_a_whole_periods_demand() {
    const BURST: u64 = 80;
    let [quiet, noisy] = ["/quiet", "/noisy"].map(|path| Budget::new(path, "memory").expect("it"));
    let mut ledger = Ledger::new(TTL, Past::None);
    ledger.set_limit(&quiet, 100, 0).expect("no floors");
    ledger.set_limit(&noisy, u64::MAX / 2, 0).expect("no floors");
    let (mut holder, mut limit) = (Holder::new("web", 1), Bursts::default());
    holder.add(quiet, 1, Outage::Strict);
    holder.add(noisy.clone(), 1, Outage::Strict);
    let (period, bursts_end) = (TTL / 3, TTL * 3);
    let mut exchanges = 0;
    for ms in (0..).step_by(10) {
        let now = Duration::from_millis(ms);
        let wished = if now < bursts_end && ms % 500 < 100 { BURST } else { 0 };
        limit.used = wished.min(limit.limit);
        limit.refused += wished - limit.used;
        holder.refused(&noisy);
        if holder.tick(now, &mut limit) {
            exchanges += 1;
            let request = holder.request(now, &mut limit);
            let answer = ledger.exchange(now, &request).expect("a request");
            holder.accept(now, &answer, &mut limit);
        }
        if now >= period && now < bursts_end {
            assert!(limit.limit >= BURST, "{} are lent after {now:?}", limit.limit);
        }
        if now > bursts_end + period * 2 {
            break;
        }
    }
    assert!(limit.limit <= 1, "{} are lent for nothing", limit.limit);
    assert!(exchanges > 500, "only {exchanges} requests were hurried");
}

/// Returns when this many members know that a restarted ledger on a wall clock lends.
fn learnt_by(members: u64) -> Duration {
    let budget = Budget::new("/", "memory").expect("a name");
    let mut ledger = Ledger::new(TTL, Past::Unknown).on_wall_clock();
    ledger.set_limit(&budget, 100, 0).expect("no floors");
    let mut fleet: Vec<_> =
        (0..members).map(|epoch| (Holder::new("web", epoch), Limit::default())).collect();
    for (holder, _) in &mut fleet {
        holder.add(budget.clone(), 10, Outage::Strict);
    }
    (0..60_000)
        .step_by(10)
        .map(Duration::from_millis)
        .find(|&now| {
            for (holder, limit) in &mut fleet {
                if holder.tick(now, limit) {
                    let request = holder.request(now, limit);
                    let answer = ledger.exchange(now, &request).expect("a request");
                    holder.accept(now, &answer, limit);
                }
            }
            fleet.iter().all(|(holder, _)| holder.ends().is_some() && !holder.learns())
        })
        .expect("it never stops learning")
}

/// A bank on a wall clock learns for hardly longer than a lease, even if many ask.
#[test]
fn learning_takes_hardly_longer_than_a_lease() {
    for members in [1, 2, 3, 10] {
        let took = learnt_by(members);
        assert!(took >= TTL && took <= TTL * 5 / 4, "{members} members: {took:?}");
    }
}
