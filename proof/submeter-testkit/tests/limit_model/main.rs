//! Every interleaving of a protocol for limits at the price of an add: two levels, two leaves, two
//! CPUs. A program of its own, as it runs none of submeter's code: it tells which protocol to
//! build.
//!
//! - A leaf has a *stock* on each CPU, which every level above it holds as if it were used. A
//!   charge or release within it is one sequence, which tests the leaf's gate and the word.
//! - A charge that is refused *folds* the level that refused it: it closes the leaves below behind
//!   one barrier and gives their stock back. Then what the level holds is what is used, and a
//!   refusal is exact.
//! - Closed words keep what they held, as nobody writes another CPU's word. A leaf that opens again
//!   reserves that first.
//!
//! The model is sequentially consistent: what it shows is that the steps suffice in every order.
//! Each step that could be left out has a test that leaves it out, and finds what then goes wrong.

// It has no unsafe code, and an interpreter takes half an hour for its states.
#![cfg(not(miri))]

mod explore;
mod protocol;
mod steps;

use explore::explore;
use protocol::Op::{Charge, Kill, Release, SetLimit};
use protocol::{A, B, Mistake, NONE, ROOT, Scenario};

/// Two leaves, one with a limit of its own, that compete for the root.
const COMPETING: Scenario = Scenario {
    limits: [3, 2, NONE],
    threads: &[
        (0, &[Charge(A, 1), Release(A, 1), Charge(A, 2), Release(A, 1), Charge(A, 1)]),
        (1, &[Charge(B, 1), Charge(B, 1), Release(B, 1), Charge(B, 1)]),
    ],
    loosened: 2,
};

/// Both CPUs charge one leaf, which has a limit of its own.
const ONE_LEAF: Scenario = Scenario {
    limits: [3, 2, NONE],
    threads: &[
        (0, &[Charge(A, 1), Release(A, 1), Charge(A, 2)]),
        (1, &[Charge(A, 1), Charge(A, 1)]),
    ],
    loosened: 1,
};

/// Two threads on one CPU, one of which may be a handler on top of the other, and a neighbour.
const PREEMPTED: Scenario = Scenario {
    limits: [2, NONE, NONE],
    threads: &[
        (0, &[Charge(A, 1), Release(A, 1)]),
        (0, &[Charge(A, 1)]),
        (1, &[Charge(B, 1), Charge(B, 1)]),
    ],
    loosened: 1,
};

/// Limits that are lowered below what is held, and a leaf that is killed with charges out.
const CHANGING: Scenario = Scenario {
    limits: [3, NONE, NONE],
    threads: &[
        (0, &[Charge(A, 1), Charge(A, 1), Release(A, 1)]),
        (1, &[Charge(B, 1), Kill(B), Release(B, 1)]),
        (1, &[SetLimit(ROOT, 1)]),
    ],
    loosened: 1,
};

/// The first limit on a level below which there is stock already.
const FIRST_LIMIT: Scenario = Scenario {
    limits: [NONE, NONE, NONE],
    threads: &[
        (0, &[Charge(A, 1), Charge(A, 1), Charge(A, 1)]),
        (1, &[Charge(A, 1), SetLimit(A, 2), Charge(A, 1)]),
    ],
    loosened: 1,
};

fn holds(scenario: &Scenario) {
    let states = explore(scenario, Mistake::None).unwrap_or_else(|wrong| panic!("{wrong}"));
    assert!(states > 1000, "{states} states are no competition");
}

/// The mistake is found in the scenario, by what it breaks.
fn finds(mistake: Mistake, scenario: &Scenario, wrong: &str) {
    let found = explore(scenario, mistake);
    assert!(found.as_ref().is_err_and(|found| found.contains(wrong)), "not {wrong}: {found:?}");
}

#[test]
fn leaves_that_compete_never_exceed_the_limit_and_are_refused_exactly() {
    holds(&COMPETING);
}

#[test]
fn cpus_that_share_a_leaf_never_exceed_its_limit() {
    holds(&ONE_LEAF);
}

#[test]
fn a_handler_may_charge_on_top_of_a_charge() {
    holds(&PREEMPTED);
}

#[test]
fn a_limit_may_be_lowered_and_a_leaf_killed_meanwhile() {
    holds(&CHANGING);
}

#[test]
fn a_first_limit_counts_what_was_charged_before() {
    holds(&FIRST_LIMIT);
}

#[test]
fn without_the_barrier_a_charge_lands_on_stock_that_was_given_back() {
    finds(Mistake::NoBarrier, &COMPETING, "more is used than held");
}

#[test]
fn a_gate_that_is_read_outside_the_sequence_does_not_close() {
    finds(Mistake::GateOutside, &PREEMPTED, "more is used than held");
}

#[test]
fn a_fold_that_ignores_a_refill_under_way_leaks_room() {
    finds(Mistake::FoldIgnoresRefill, &FIRST_LIMIT, "room is lost");
}

#[test]
fn stock_that_is_given_back_before_it_is_known_is_used_twice() {
    finds(Mistake::LoweredEarly, &COMPETING, "more is used than held");
}

#[test]
fn a_leaf_that_reopens_without_reserving_what_its_words_hold_uses_it_twice() {
    finds(Mistake::OpenedUnreserved, &ONE_LEAF, "more is used than held");
}

#[test]
fn a_leaf_that_reopens_in_the_middle_of_a_fold_makes_refusals_inexact() {
    finds(Mistake::OpenedUnasked, &ONE_LEAF, "refused although it fits");
}

#[test]
fn a_refusal_without_a_second_look_at_the_level_is_inexact() {
    finds(Mistake::RefusedAtOnce, &ONE_LEAF, "refused although it fits");
}

#[test]
fn a_barrier_of_an_earlier_closing_is_not_enough_for_a_later_one() {
    finds(Mistake::AnyBarrier, &PREEMPTED, "more is used than held");
}

#[test]
fn a_limit_that_is_lowered_without_a_fold_is_passed() {
    finds(Mistake::LimitWithoutFold, &CHANGING, "granted beyond a limit");
}
