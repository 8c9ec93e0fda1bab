//! Charges near a leaf's own limit, which take the amounts for the levels above it from their
//! stock.

use super::*;

/// Leaf 0 at its own limit, and the level above it open, with 3 of 4 in stock on CPU 0: 100 are
/// charged.
const ABOVE: [Act; 8] = [
    On(0),
    Own(0, 64),
    Charge(0, 64),
    Uncharge(0, 2),
    Charge(0, 1),
    Charge(1, 32),
    Charge(1, 5),
    Limit(1000),
];

fn above(more: &[Act]) -> Vec<Act> {
    ABOVE.iter().chain(more).copied().collect()
}

fn phases(tree: &Tree) -> [Phase; 4] {
    tree.leaves.each_ref().map(Leaf::phase)
}

#[test]
fn at_a_leafs_limit_only_its_own_word_is_locked() {
    let tree = Tree::new();
    above(&[]).into_iter().for_each(|act| tree.perform(act).expect("granted"));
    assert_eq!(phases(&tree), [Phase::Closed, Phase::Open, Phase::Open, Phase::Closed]);
    let held = || [tree.own[0].held(), tree.between.held(), tree.root.held()];
    let stocked = || tree.leaves[BETWEEN].stocked();
    let (before, stock) = (held(), stocked());
    assert!(stock >= 1, "{stock}");
    tree.perform(Charge(0, 1)).expect("it fits");
    assert_eq!((held(), stocked()), ([before[0] + 1, before[1], before[2]], stock - 1));
    tree.perform(Charge(0, 1)).expect_err("64 of 64 are charged");
    assert_eq!((held(), stocked()), ([before[0] + 1, before[1], before[2]], stock - 1));
    tree.perform(Uncharge(0, 1)).expect("granted");
    assert_eq!((held(), stocked()), (before, stock));
    tree.check("at the end");
}

#[test]
fn a_full_word_above_gives_half_back() {
    let tree = Tree::new();
    above(&[Uncharge(0, 9)]).into_iter().for_each(|act| tree.perform(act).expect("granted"));
    let held = tree.between.held();
    tree.perform(Uncharge(0, 9)).expect("granted");
    assert_eq!(tree.between.held(), held - 9, "more than a word has room for");
    let before = held - 9;
    for _ in 0..=CAP {
        tree.perform(Uncharge(0, 1)).expect("granted");
        if tree.between.held() != before {
            break;
        }
    }
    assert_eq!(tree.between.held(), before - 1 - CAP / 2, "the one without room, and the half");
    tree.check("at the end");
}

/// A charge at a leaf's limit beside a fold above takes no stock twice.
#[test]
fn at_a_leafs_limit_no_stock_is_taken_twice() {
    for others in [
        &[Charge(1, 898)] as &[Act],
        &[Charge(1, 899)],
        &[Limit(101)],
        &[Limit(100), Limit(1000), Rest, Charge(0, 1)],
        &[On(1), Charge(0, 1), Limit(90)],
        &[Uncharge(0, 3), Limit(100), Rest],
    ] {
        for n in [1, 2] {
            at_every_step(&above(&[]), Charge(0, n), others);
        }
        for act in [Uncharge(0, 1), Uncharge(0, 5), Limit(101), Charge(1, 899)] {
            at_every_step(&above(&[]), act, others);
        }
    }
}

#[test]
fn what_a_leafs_limit_refuses_goes_back_above() {
    // Both see room for one; the stock taken by the slower one is not lost.
    for others in [&[Charge(0, 1)] as &[Act], &[Own(0, 63)], &[Charge(0, 1), Limit(101)]] {
        at_every_step(&above(&[]), Charge(0, 1), others);
        at_every_step(&above(&[On(1)]), Charge(0, 1), others);
    }
}

/// A charge that waits for a leaf's limit misses no release into the stock above.
#[test]
fn a_wait_at_a_leafs_limit_misses_no_release() {
    waits::nothing_waits_that_fits(&above(&[]), Wait(0, 3), &[Uncharge(0, 3)]);
    waits::nothing_waits_that_fits(&above(&[]), Uncharge(0, 3), &[Wait(0, 3)]);
    waits::nothing_waits_that_fits(&above(&[]), Uncharge(0, 9), &[Wait(0, 3)]);
    waits::nothing_waits_that_fits(&above(&[Limit(101)]), Uncharge(0, 3), &[Wait(1, 3)]);
    waits::nothing_waits_that_fits(&above(&[]), Wait(1, 901), &[Uncharge(0, 3)]);
    waits::nothing_waits_that_fits(&above(&[]), Uncharge(0, 3), &[Wait(1, 901)]);
    // Another thread may wait for the amount that is taken and put back.
    waits::nothing_waits_that_fits(&above(&[]), Charge(0, 1), &[Own(0, 63), Wait(1, 900)]);
}

/// A level above opens once all levels have room and have rested.
#[test]
fn a_level_above_opens_once_all_have_rested() {
    let tree = Tree::new();
    let perform = |act| tree.perform(act).expect("granted");
    above(&[Limit(100), Limit(116)]).into_iter().for_each(perform);
    assert_eq!(phases(&tree), [Phase::Closed; 4]);
    [Uncharge(0, 1), Charge(0, 1)].into_iter().for_each(perform);
    assert_eq!(phases(&tree), [Phase::Closed; 4], "it has not rested");
    [Rest, Uncharge(0, 1), Charge(0, 1), Uncharge(1, 1)].into_iter().for_each(perform);
    assert_eq!(phases(&tree), [Phase::Closed, Phase::Closed, Phase::Open, Phase::Closed]);
}

#[test]
fn a_refusal_above_refuses_nobody_below() {
    for accesses in 0..100 {
        let tree = Tree::new();
        start(&[Limit(100), Limit(130)]).into_iter().for_each(|act| {
            tree.perform(act).expect("a start has room");
        });
        set_limit(&at(&tree, 0), &tree.own[0], 110);
        let other = Rc::clone(&tree);
        arm(accesses, move || {
            if other.is_free() {
                // 86 of 110, and 120 of 130.
                try_charge(&at(&other, 0), 20).expect("it fits");
            }
        });
        // 106 of 110, but 140 of 130.
        try_charge(&at(&tree, 0), 40).expect_err("beyond the root's limit");
        _ = disarm();
    }
}

#[test]
fn while_a_leafs_level_rests_the_one_above_opens() {
    let tree = Tree::new();
    let perform = |act| tree.perform(act).expect("granted");
    [On(0), Charge(0, 60), Own(0, 59), Own(0, 200), Charge(0, 2)].into_iter().for_each(perform);
    assert_eq!(phases(&tree), [Phase::Closed, Phase::Closed, Phase::Open, Phase::Closed]);
    [Rest, Charge(0, 2)].into_iter().for_each(perform);
    assert_eq!(phases(&tree), [Phase::Open, Phase::Closed, Phase::Open, Phase::Closed]);
}

#[test]
fn no_leaf_opens_without_room_above_open_stock() {
    let tree = Tree::new();
    let perform = |act| tree.perform(act).expect("granted");
    above(&[Own(0, 200), Limit(115), Rest]).into_iter().for_each(perform);
    [Uncharge(0, 1), Charge(0, 1)].into_iter().for_each(perform);
    let [leaf, _, between, _] = phases(&tree);
    assert_eq!((leaf, between), (Phase::Closed, Phase::Open));
}

/// A charge larger than a word raises no peak above if its own limit refuses it.
#[test]
fn a_large_charge_raises_no_peak_if_refused() {
    let mut refused = 0;
    for accesses in 0..100 {
        let tree = Tree::new();
        // 63 of 70, of which 5 are charged twice; a word has room for 4.
        above(&[Own(0, 70)]).into_iter().for_each(|act| tree.perform(act).expect("granted"));
        assert_eq!(phases(&tree)[..3], [Phase::Closed, Phase::Open, Phase::Open]);
        let most = tree.root.held() + 5;
        let other = Rc::clone(&tree);
        arm(accesses, move || {
            if other.is_free() {
                _ = try_charge(&at(&other, 0), 5);
            }
        });
        refused += u32::from(try_charge(&at(&tree, 0), 5).is_err());
        _ = disarm();
        let peak = tree.root.record().peak;
        assert!(peak <= most, "before access {accesses}: {peak} of {most}");
    }
    assert!(refused > 0, "there was no place for the other");
}
