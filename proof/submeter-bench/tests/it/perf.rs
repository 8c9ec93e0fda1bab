//! The CPU time that groups are charged, beside the kernel's clock of their threads.

use std::collections::BTreeMap;

use submeter_program::text;

use super::BENCH;

/// By how much a thread's charges may be ahead of the kernel's clock, in ms: its next ones would be
/// so much less.
const AHEAD_MS: f64 = 1.1;

/// Groups are charged what their threads used, within the error that is counted beside it, whatever
/// the clock.
#[test]
fn charges_are_as_far_off_as_said_at_most() {
    for clock in ["ticks", "syscall", ""] {
        let output = BENCH.run_in(&["--charged"], &[("SUBMETER_CLOCK", clock)]);
        let (out, err) = (text(&output.stdout), text(&output.stderr));
        assert_eq!(output.status.code(), Some(0), "{out}{err}");
        let figures: BTreeMap<[&str; 2], f64> = out.lines().map(read).collect();
        for (group, threads) in [("one", 1.0), ("two", 2.0), ("three", 3.0)] {
            let [charged, error, inside, all] =
                ["submeter", "error", "thread_clock_inside", "thread_clock"]
                    .map(|variant| figures[&[group, variant]]);
            let most = error + AHEAD_MS * threads;
            assert!(inside > 0.0 && inside <= all, "{out}");
            let right = inside - most..=all + most;
            assert!(right.contains(&charged), "{clock:?}, {group}, {right:?}: {out}");
        }
    }
}

/// Reads a line: group, variant, ms.
fn read(line: &str) -> ([&str; 2], f64) {
    let mut words = line.split(' ');
    let mut word = || words.next().expect("three words");
    ([word(), word()], word().parse().expect("ms"))
}
