//! A moment of the soak test of limits that `examples/limit_soak.rs` runs for any time.

use submeter_testkit::LimitSoak;

#[test]
fn limits_that_are_always_reached_are_exact_and_serve_whoever_waits_stress() {
    let steps = if cfg!(miri) { 20 } else { 20_000 };
    let mut soak = LimitSoak::new(1);
    soak.strict(3, steps);
    soak.wild(steps / 4);
    let (pairs, cycles) = if cfg!(miri) { (1, 1) } else { (4, 20) };
    soak.exact(pairs, cycles);
    let tally = soak.tally();
    assert!(tally.granted > 0 && tally.exact > 0);
    assert!(cfg!(miri) || (tally.refused > 100 && tally.compared > 10 && tally.waited > 10));
}
