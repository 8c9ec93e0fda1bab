//! Waiting charges.

use super::*;

/// Runs `act` after `start`, with `others` before each of its accesses in turn. Asserts that no
/// charge that fits is left waiting.
pub(super) fn nothing_waits_that_fits(start: &[Act], act: Act, others: &'static [Act]) {
    let mut run = 0;
    for accesses in 0.. {
        let tree = Tree::new();
        start.iter().for_each(|act| tree.perform(*act).expect("a start has room"));
        let (other, ran) = (Rc::clone(&tree), Rc::new(Cell::new(false)));
        let told = Rc::clone(&ran);
        arm(accesses, move || {
            if other.is_free() {
                told.set(true);
                others.iter().for_each(|act| _ = other.perform(*act));
            }
        });
        _ = tree.perform(act);
        let over = !disarm();
        if !tree.stuck.get() {
            run += u32::from(ran.get());
            tree.check(&format!("{act:?} with {others:?} before access {accesses}"));
        }
        if over {
            break;
        }
    }
    assert!(run > 0, "{act:?} with {others:?}: there was no place for them");
}

/// Full, with the leaves closed: 100 of 100.
const FULL: [Act; 2] = [Limit(100), Rest];

#[test]
fn a_new_wait_misses_no_release() {
    for others in [
        &[Uncharge(1, 9)] as &[Act],
        &[Limit(200)],
        &[Mode(LimitMode::Soft)],
        &[Limit(1000), Charge(1, 1), Uncharge(1, 1), Limit(105), Uncharge(0, 4)],
        &[Uncharge(0, 60), Charge(1, 1), Uncharge(1, 2), Charge(0, 40), Uncharge(0, 1)],
    ] {
        nothing_waits_that_fits(&start(&FULL), Wait(0, 9), others);
    }
    for act in [Uncharge(1, 9), Limit(200), Uncharge(0, 64), Charge(1, 1)] {
        nothing_waits_that_fits(&start(&FULL), act, &[Wait(0, 9)]);
        nothing_waits_that_fits(&start(&[FULL[0], Wait(0, 30), Rest]), act, &[Wait(1, 9)]);
        nothing_waits_that_fits(&start(&[FULL[0], Wait(0, 30), Rest]), act, &[GiveUp, Wait(1, 9)]);
    }
}

/// While a charge waits, no leaf opens and no barrier is issued.
#[test]
fn while_one_waits_no_leaf_opens() {
    let tree = Tree::new();
    let perform = |act| tree.perform(act).expect("granted");
    start(&[FULL[0], Wait(0, 70), Uncharge(0, 50)]).into_iter().for_each(perform);
    let before = tree.machine.barriers.get();
    for _ in 0..10 {
        [Rest, Charge(1, 1), Uncharge(1, 1)].into_iter().for_each(perform);
        assert_eq!(tree.leaves.each_ref().map(Leaf::phase), [Phase::Closed; 4]);
    }
    assert_eq!(tree.machine.barriers.get(), before);
    [GiveUp, Rest, Charge(1, 1)].into_iter().for_each(perform);
    assert_eq!(tree.leaves[1].phase(), Phase::Open, "nobody waits any more");
}

#[test]
fn open_leaves_keep_nothing_from_a_new_wait() {
    let far = start(&[Limit(1000), Charge(0, 895), Rest]);
    let others = &[Wait(1, 20), Charge(1, 1), Charge(1, 2)];
    nothing_waits_that_fits(&far, Uncharge(0, 800), others);
    nothing_waits_that_fits(&far, Wait(1, 20), &[Uncharge(0, 2), Uncharge(0, 20)]);
}

#[test]
fn those_that_wait_are_granted_in_order() {
    let tree = Tree::new();
    let perform = |act| tree.perform(act).expect("granted");
    start(&[FULL[0], Wait(0, 10), Wait(1, 1), Wait(0, 2)]).into_iter().for_each(perform);
    perform(Uncharge(0, 9));
    assert_eq!((tree.harvest(), tree.root.held()), (3, 91), "the first does not fit");
    perform(Uncharge(0, 2));
    assert_eq!((tree.harvest(), tree.root.held()), (1, 100), "the first two fit");
    perform(Uncharge(0, 2));
    assert_eq!((tree.harvest(), tree.root.held()), (0, 100));
    tree.check("at the end");
    // And for a limit below the root's.
    perform(Limit(1000));
    set_limit(&at(&tree, 1), &tree.own[1], tree.own[1].held());
    [Wait(1, 10), Wait(1, 1), Uncharge(1, 1)].into_iter().for_each(perform);
    assert_eq!(tree.harvest(), 2, "the first does not fit");
}

#[test]
fn a_charge_that_gives_up_lets_others_pass() {
    let tree = Tree::new();
    let perform = |act| tree.perform(act).expect("granted");
    start(&[FULL[0], Wait(0, 10), Wait(1, 1), Uncharge(0, 5)]).into_iter().for_each(perform);
    assert_eq!((tree.harvest(), tree.root.held()), (2, 95));
    perform(GiveUp);
    assert_eq!((tree.harvest(), tree.root.held()), (0, 96));
    perform(Charge(0, 4));
    perform(Wait(0, 3));
    perform(Uncharge(0, 3));
    perform(GiveUp); // the charge was granted, and not taken yet
    assert_eq!(tree.root.held(), 97);
    tree.check("at the end");
}

#[test]
fn a_charge_waits_for_its_own_limits_only() {
    let tree = Tree::new();
    let own = |leaf: usize, limit| {
        set_limit(&at(&tree, leaf), &tree.own[leaf], limit);
    };
    start(&[Limit(1000)]).into_iter().for_each(|act| tree.perform(act).expect("granted"));
    own(0, 66);
    [Wait(0, 10), Wait(1, 10)].map(|act| tree.perform(act).expect("granted")).iter().for_each(drop);
    assert_eq!(tree.harvest(), 1, "the second has room");
    assert!(tree.own[0].is_awaited() && !tree.root.is_awaited());
    // Then it waits for another.
    tree.perform(Limit(112)).expect("a limit");
    own(0, 90);
    assert!(!tree.own[0].is_awaited() && tree.root.is_awaited());
    assert_eq!(tree.harvest(), 1);
    tree.perform(Uncharge(1, 8)).expect("granted");
    assert_eq!(tree.harvest(), 0);
}

#[test]
fn what_can_never_be_granted_does_not_wait() {
    let tree = Tree::new();
    let perform = |act| tree.perform(act).expect("granted");
    start(&[FULL[0], Wait(0, 101)]).into_iter().for_each(perform);
    assert_eq!(tree.harvest(), 0, "more than the limit");
    perform(Wait(0, 60));
    assert_eq!(tree.harvest(), 1);
    perform(Limit(50));
    assert_eq!(tree.harvest(), 0, "more than the limit is now");
    perform(Mode(LimitMode::Soft));
    perform(Wait(0, 60));
    assert_eq!((tree.harvest(), tree.root.held()), (0, 160), "a soft limit grants it");
}

#[test]
fn what_never_fits_does_not_wait_behind_others() {
    let tree = Tree::new();
    let perform = |act| tree.perform(act).expect("granted");
    start(&[FULL[0], Wait(0, 10), Wait(1, 101)]).into_iter().for_each(perform);
    assert_eq!(tree.harvest(), 1, "more than the limit");
    perform(Wait(1, 60));
    assert_eq!(tree.harvest(), 2);
    perform(Limit(50));
    assert_eq!(tree.harvest(), 1, "more than the limit is now");
    perform(Uncharge(0, 60));
    assert_eq!(tree.harvest(), 0);
    tree.check("at the end");
}

/// A charge that can never fit within a limit further up does not wait.
#[test]
fn what_a_limit_above_never_grants_does_not_wait() {
    let tree = Tree::new();
    let perform = |act| tree.perform(act).expect("granted");
    start(&[Limit(1000)]).into_iter().for_each(perform);
    set_limit(&at(&tree, 0), &tree.own[0], 66);
    perform(Wait(0, 60));
    perform(Mode(LimitMode::Soft));
    perform(Limit(50));
    assert_eq!(tree.harvest(), 1, "a soft limit refuses nothing");
    perform(Mode(LimitMode::Enforced));
    assert_eq!(tree.harvest(), 0);
    perform(Limit(1000));
    perform(Wait(0, 60));
    assert_eq!(tree.harvest(), 1);
    perform(Limit(50));
    assert_eq!(tree.harvest(), 0);
    assert!(!tree.own[0].is_awaited());
}

#[test]
fn where_leaves_cannot_be_visited_nobody_waits() {
    let tree = Tree::new();
    let perform = |act| tree.perform(act).expect("granted");
    // 3 of 103 lie in stock, and releases go there as well.
    start(&[Limit(103), Interrupt]).into_iter().for_each(perform);
    let push = |queue: &mut Queue<At>| {
        let number = queue.push(at(&tree, 0), 3, Waker::noop().clone());
        queue.serve(at(&tree, 0).levels(), &mut Vec::new());
        queue.poll(number, &mut Waker::noop().clone())
    };
    let polled = tree.queue(push).expect("nobody has it");
    let refused = Failure::limit((2, Refusal { held: 103, limit: 103 }));
    assert!(matches!(polled, Polled::Done(Err(failure)) if failure == refused));
    assert!(!tree.root.is_awaited());
}

#[test]
fn what_was_held_briefly_keeps_nobody_waiting() {
    // The act finds room for 4 at all levels. It takes that at its own level, where a charge of 3
    // then waits; is refused by the root, of which another took 1; and gives it back.
    for accesses in 0..100 {
        let tree = Tree::new();
        let full = start(&FULL).into_iter().chain([Uncharge(1, 4)]);
        full.for_each(|act| tree.perform(act).expect("granted"));
        set_limit(&at(&tree, 0), &tree.own[0], 70);
        let other = Rc::clone(&tree);
        arm(accesses, move || {
            if other.is_free() {
                _ = other.perform(Charge(1, 1));
                other.perform(Wait(0, 3)).expect("it waits, or is granted");
            }
        });
        let granted = try_charge(&at(&tree, 0), 4).is_ok();
        _ = disarm();
        tree.charged[0].set(tree.charged[0].get() + if granted { 4 } else { 0 });
        tree.check(&format!("before access {accesses}"));
    }
}

#[test]
fn while_one_waits_its_groups_holding_is_noted() {
    // The root is full except for 10, and leaf 0 is empty, where a charge of 50 waits.
    const START: [Act; 5] = [On(0), Charge(1, 90), Limit(90), Limit(100), Wait(0, 50)];
    const GROWS: &[Act] = &[Charge(0, 10)];
    const EMPTIES: &[Act] = &[Uncharge(0, 4)];
    const PASSES: &[Act] = &[Charge(0, 6), Uncharge(0, 6)];
    for (more, act, others) in [
        (None, Charge(0, 45), GROWS),
        (None, Charge(0, 45), PASSES),
        (None, Charge(0, 4), PASSES),
        (None, Charge(0, 45), &[Uncharge(1, 10), Charge(0, 20)]),
        (None, Uncharge(1, 10), GROWS),
        (Some(Charge(0, 4)), Charge(0, 45), EMPTIES),
        (Some(Charge(0, 4)), Charge(0, 1), EMPTIES),
        (Some(Charge(0, 4)), Uncharge(0, 4), GROWS),
        (Some(Charge(0, 4)), Charge(0, 45), &[Uncharge(0, 4), Charge(0, 3)]),
        (Some(Charge(0, 4)), Charge(0, 45), &[Uncharge(0, 4), Charge(0, 3), Uncharge(0, 3)]),
    ] {
        for accesses in 0.. {
            let tree = Tree::new();
            let start = START.into_iter().chain(more);
            start.for_each(|act| tree.perform(act).expect("a start has room"));
            assert_eq!(tree.harvest(), 1);
            let other = Rc::clone(&tree);
            arm(accesses, move || {
                if other.is_free() {
                    others.iter().for_each(|act| _ = other.perform(*act));
                }
            });
            _ = tree.perform(act);
            let over = !disarm();
            if !tree.stuck.get() {
                assert_eq!(
                    tree.noted.get(),
                    tree.holders(),
                    "{more:?}, {act:?} with {others:?} before {accesses}"
                );
            }
            if over {
                break;
            }
        }
    }
}
