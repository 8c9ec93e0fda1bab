//! The soak, which `torture` runs for any length of time, here without disturbances.

use std::sync::atomic::AtomicBool;

use submeter_testkit::Soak;

/// Updates, flushes, kills and creations conserve every total.
///
/// Several rounds, so that comparisons also come in the middle of groups' lives.
#[test]
fn updates_and_kills_conserve_totals_stress() {
    // Builds with injected delays stay longer in each sequence, so that a flush often has to wait.
    #[cfg(submeter_inject)]
    submeter_sys::inject::delay(submeter_sys::inject::Point::BeforeCommit, 30_000);
    let (groups, steps, rounds) = match () {
        () if cfg!(miri) => (20, 60, 1),
        () if cfg!(submeter_inject) => (300, 15_000, 3),
        () => (3_000, 50_000, 3),
    };
    let mut soak = Soak::new(groups, 3, 1);
    for _ in 0..rounds {
        soak.round(steps, &AtomicBool::new(false), |_| ());
        let comparison = soak.compare();
        assert_eq!(comparison.groups, groups);
        assert_eq!(comparison.differences, []);
    }
    let progress = soak.progress();
    assert!(progress.updates > 0 && progress.flushes > 0);
    assert!(cfg!(miri) || (progress.killed > 10 && progress.charges > 10));
    assert!(steps < 50_000 || progress.refused > 0, "the limits were never reached");
    assert_eq!(soak.settle(), groups, "only live groups are left");
}
