//! Charges beyond a limit: forced ones, and those beyond a soft limit.

use super::*;

/// The root's limit is soft, and equal to the amount held.
const SOFT: [Act; 3] = [Limit(103), Mode(LimitMode::Soft), Rest];

/// No stock lies below a limit that a forced charge exceeds.
#[test]
fn no_stock_lies_below_a_forced_charge() {
    for others in [&[Charge(1, 1), Charge(0, 1)] as &[Act], &[Limit(50)], &[Limit(2000), Rest]] {
        at_every_step(&start(&[Limit(1000)]), Force(0, 950), others);
        at_every_step(&start(&FOLDED), Force(0, 950), others);
    }
    at_every_step(&start(&FOLDED), Force(0, 950), &[Charge(0, 40), Charge(1, 1), Charge(1, 3)]);
}

#[test]
fn no_stock_lies_below_an_exceeded_soft_limit() {
    for others in [&[Charge(1, 1), Charge(0, 1)] as &[Act], &[Limit(50)], &[Limit(2000), Rest]] {
        at_every_step(&start(&SOFT), Charge(0, 9), others);
    }
    let start = start(&[Limit(100), Mode(LimitMode::Soft), Limit(1000), Rest]);
    at_every_step(&start, Charge(0, 950), &[Charge(0, 40), Charge(1, 1), Charge(1, 3)]);
}

#[test]
fn a_limit_enforced_amid_a_charge_holds() {
    for n in [1, 9, 50] {
        at_every_step(&start(&SOFT), Charge(0, n), &[Mode(LimitMode::Enforced)]);
        let full = start(&[Limit(100), Mode(LimitMode::Soft)]);
        at_every_step(&full, Charge(0, n), &[Mode(LimitMode::Enforced)]);
        at_every_step(&full, Charge(0, n), &[Uncharge(1, 1), Mode(LimitMode::Enforced)]);
    }
}

/// A limit that is enforced while stock lies below an excess grants nothing from that stock.
///
/// A leaf opens after the charge has found its level drained; then the limit is enforced before the
/// charge has closed that leaf again.
#[test]
fn a_limit_enforced_above_stock_grants_none() {
    let start = start(&[Limit(100), Mode(LimitMode::Soft), Rest]);
    const OPEN: &[Act] = &[Uncharge(0, 60), Charge(1, 20), Charge(1, 3)];
    const ENFORCE: &[Act] = &[Mode(LimitMode::Enforced), Charge(1, 1)];
    at_two_steps(&start, Charge(0, 45), [OPEN, ENFORCE], |tree, [_, last], at| {
        assert!(last.is_err() || tree.total() <= 100, "{at}: granted beyond the limit");
    });
}

/// In a handler, a charge that would exceed a soft limit terminates.
#[test]
fn below_a_handler_a_soft_excess_ends() {
    // The root is full at first; then leaves open, and no thread can close them.
    let others = &[Rest, Uncharge(0, 60), Charge(1, 20), Charge(1, 3), Interrupt];
    at_every_step(&start(&[Limit(100), Mode(LimitMode::Soft)]), Charge(0, 70), others);
}

#[test]
fn a_soft_limit_grants_what_a_number_can_hold() {
    let tree = Tree::new();
    for act in [Charge(0, 5), Limit(5), Mode(LimitMode::Soft)] {
        tree.perform(act).expect("granted");
    }
    refuel();
    tree.perform(Charge(1, NONE)).expect_err("more than u64::MAX");
    tree.check("at the end");
}

#[test]
fn an_enforced_limit_below_a_soft_one_holds() {
    for accesses in 0..100 {
        let tree = Tree::new();
        let full = start(&[Limit(100), Mode(LimitMode::Soft)]);
        full.into_iter().for_each(|act| tree.perform(act).expect("granted"));
        // Ensures that there is no stock below: stock lies within the limits anyway.
        for limit in [50, 70] {
            set_limit(&at(&tree, 0), &tree.own[0], limit);
        }
        let other = Rc::clone(&tree);
        arm(accesses, move || {
            if other.is_free() {
                _ = try_charge(&at(&other, 0), 2);
            }
        });
        _ = try_charge(&at(&tree, 0), 3);
        _ = disarm();
        assert!(tree.own[0].held() <= 70, "before access {accesses}: {}", tree.own[0].held());
    }
}

#[test]
fn only_charges_beyond_a_soft_limit_are_counted() {
    let tree = Tree::new();
    let perform = |acts: &[Act]| acts.iter().for_each(|act| tree.perform(*act).expect("granted"));
    // 3 of 103 lie in stock: the first charge fits, the second does not.
    perform(&start(&SOFT));
    perform(&[Charge(1, 3), Charge(0, 1)]);
    assert_eq!(tree.root.record().overdrafts, 1);
    perform(&[Force(0, 1), Uncharge(0, 2), Force(0, 0)]);
    assert_eq!(tree.root.record().overdrafts, 2);
    perform(&[Mode(LimitMode::Enforced)]);
    tree.perform(Charge(0, 1)).expect_err("it is enforced again");
    tree.check("at the end");
}

/// An enforced limit above a soft one refuses and nothing is overdrawn.
#[test]
fn an_enforced_limit_above_a_soft_one_refuses() {
    let tree = Tree::new();
    tree.own[0].set_mode(LimitMode::Soft);
    tree.own[0].store_limit(10);
    tree.perform(Limit(20)).expect("a limit");
    tree.perform(Charge(0, 15)).expect("its own limit is soft");
    tree.perform(Charge(0, 6)).expect_err("beyond the root's limit");
    let records = [&tree.own[0], &tree.root].map(|level| level.record());
    assert_eq!(records.map(|record| record.overdrafts), [1, 0]);
    assert_eq!([&tree.own[0], &tree.root].map(Level::held), [15, 15]);
}

/// A forced charge is held at every level where leaves cannot be visited.
#[test]
fn a_forced_charge_is_held_at_every_level() {
    let tree = Tree::new();
    let perform = |act: Act| tree.perform(act);
    start(&[Limit(104)]).into_iter().for_each(|act| perform(act).expect("granted"));
    perform(Interrupt).expect("nothing");
    perform(Charge(0, 3)).expect_err("there is no telling whether it fits");
    perform(Force(0, 3)).expect("forced");
    let panic = std::panic::AssertUnwindSafe(|| charge_forced(&at(&tree, 0), NONE - 99));
    std::panic::catch_unwind(panic).expect_err("it does not fit a u64");
    tree.interrupted.set(false);
    assert_eq!([&tree.own[0], &tree.own[1], &tree.root].map(Level::held), [71, 35, 106]);
    assert_eq!(tree.root.record().overdrafts, 1);
    perform(Charge(0, 1)).expect("from stock, as the interrupted have not visited it");
    perform(Charge(1, 3)).expect_err("it is exceeded, and the stock is given back");
    tree.check("at the end");
}

/// A forced charge beyond `u64::MAX` panics and charges nothing.
#[test]
#[should_panic(expected = "no more than u64::MAX")]
fn a_forced_charge_beyond_all_numbers_panics() {
    let tree = Tree::new();
    tree.perform(Charge(0, 5)).expect("it fits");
    let force = std::panic::AssertUnwindSafe(|| charge_forced(&at(&tree, 1), NONE));
    let panic = std::panic::catch_unwind(force).expect_err("it does not fit a u64");
    assert_eq!([&tree.own[0], &tree.own[1], &tree.root].map(Level::held), [5, 0, 5]);
    std::panic::resume_unwind(panic);
}
