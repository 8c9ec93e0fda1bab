//! Limits that are always reached. `SUBMETER_LIMIT_SOAK_SECONDS=N` sets the duration.

use std::time::{Duration, Instant};

use submeter_testkit::LimitSoak;

/// Limits that are always reached are exact, and every waiter is served.
///
/// An exceeded limit, a refusal of a charge that fits, a charge that waits in vain and a wrong
/// total are panics that name them.
#[test]
fn limits_at_their_edge_are_exact_stress() {
    let steps = if cfg!(miri) { 20 } else { 20_000 };
    let mut soak = LimitSoak::new(1);
    soak.strict(3, steps);
    soak.wild(steps / 4);
    let (pairs, cycles) = if cfg!(miri) { (1, 1) } else { (4, 20) };
    soak.exact(pairs, cycles);
    let tally = soak.tally();
    assert!(tally.granted > 0 && tally.exact > 0);
    assert!(cfg!(miri) || (tally.refused > 100 && tally.compared > 10 && tally.waited > 10));
    let Ok(seconds) = std::env::var("SUBMETER_LIMIT_SOAK_SECONDS") else { return };
    let time = Duration::from_secs(seconds.parse().expect("a whole number of seconds"));
    let (start, mut said) = (Instant::now(), Instant::now());
    while start.elapsed() < time {
        soak.strict(4, 200_000);
        soak.wild(50_000);
        soak.exact(8, 100);
        if said.elapsed() > Duration::from_secs(10) {
            said = Instant::now();
            println!("limit_soak: {:.0} s: {:?}", start.elapsed().as_secs_f64(), soak.tally());
        }
    }
    println!("limit_soak: {:.0} s: {:?}", start.elapsed().as_secs_f64(), soak.tally());
}
