//! What a member does when it loses the bank.

use std::time::Duration;

use submeter_bank::{Budget, Holder, InForce, Ledger, Member, Outage, Past, Use};

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
    // From when the request was sent, whenever the answer came.
    [7_999, 8_000].map(|ms| {
        holder.tick(Duration::from_millis(ms), &mut limit);
        (limit.0, holder.in_force(&budget))
    })
}

#[test]
fn a_member_without_bank_does_as_it_declared_and_says_so() {
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
fn an_answer_that_comes_after_its_leases_have_ended_is_of_no_use() {
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
