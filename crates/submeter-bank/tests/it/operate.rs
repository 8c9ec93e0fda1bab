//! What an operator asks of an engine: the same for each.

use std::time::Duration;

use submeter_bank::{Holder, Ledger, Lent, Limit, MemoryBank, Operate, Outage, Past};

use crate::conformance::{Idle, limit, memory};

/// Sets and lists limits of a bank that has none, and whose leases last two seconds or more.
pub(crate) fn check<B: Operate>(bank: &B) {
    let acme = Limit { floors: 100, ..limit("/acme", 1000) };
    let web = Limit { per_member: Some(50), ..limit("/acme/web", 500) };
    bank.set(&web).expect("a limit");
    bank.set_if_none(&acme).expect("a limit");
    assert_eq!(bank.limits().expect("a list"), [acme.clone(), web.clone()]);

    let other = Limit { per_member: Some(1), ..limit("/acme", 1) };
    bank.set_if_none(&other).expect("not in place of another");
    let web = Limit { per_member: None, ..web };
    bank.set(&web).expect("in place of another");
    assert_eq!(bank.limits().expect("a list"), [acme.clone(), web.clone()]);
    let less = Limit { floors: 11, ..limit("/acme", 10) };
    let error = bank.set(&less).expect_err("floors beyond the limit");
    assert!(error.to_string().contains("floors of 11"), "{error}");

    assert_eq!(bank.holders(&acme.budget).expect("a list"), []);
    let mut holder = Holder::new("web-1", 7);
    holder.add(acme.budget.clone(), 400, Outage::Strict);
    // Redis and etcd first learn what may have been lent before.
    for tries in 0.. {
        let learns = bank.learns().expect("an answer");
        let answer = bank.exchange(&holder.request(Duration::ZERO, &mut Idle)).expect("an answer");
        assert!(learns || !answer.learns, "it said that it does not");
        if answer.leases[0].amount == 400 {
            assert!(!bank.learns().expect("an answer"));
            break;
        }
        assert!(tries < 600, "nothing is lent");
        std::thread::sleep(Duration::from_millis(50));
    }
    let before = bank.holders(&acme.budget).expect("a list");
    assert!(before[0].held_for < Duration::from_secs(600), "{before:?}");
    std::thread::sleep(Duration::from_millis(20));
    let again = holder.request(Duration::ZERO, &mut Idle);
    bank.exchange(&again).expect("an answer");
    let holders = bank.holders(&acme.budget).expect("a list");
    let [Lent { member, epoch: 7, amount: 400, wants: 400, held_for, ends_in, .. }] = &holders[..]
    else {
        panic!("{holders:?}")
    };
    assert_eq!(member, "web-1");
    let held = *held_for - before[0].held_for;
    assert!(held >= Duration::from_millis(20), "renewed after {held:?}, held since before");
    assert!(*ends_in > Duration::from_secs(1), "{ends_in:?}");
    assert_eq!(bank.holders(&memory("/other")).expect("a list"), []);
}

#[test]
fn an_operator_sets_limits_and_sees_holders() {
    check(&MemoryBank::from(Ledger::new(Duration::from_secs(600), Past::None)));
    let learns = MemoryBank::from(Ledger::new(Duration::from_secs(600), Past::Unknown)).learns();
    assert_eq!(learns, Ok(true));
}
