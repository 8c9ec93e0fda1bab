use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use submeter_sys::cpu::affinity;

use super::*;
use crate::bench::runner::run;

/// Every cell becomes a row and every limiter passes its checks.
#[test]
fn cells_become_rows_and_limiters_pass_checks() {
    let mut plan = plan().expect("this process may run somewhere");
    plan.rounds_max = 1;
    let cells = plan.groups.iter().flatten();
    let planned: Vec<String> = cells.map(|c| format!("{:?} {}", c.params, c.variant)).collect();
    assert_eq!(planned.iter().collect::<HashSet<_>>().len(), planned.len());
    let rates = plan.groups.iter().flatten().filter(|cell| cell.params.get("levels").is_some());
    let rates = rates.count();
    // A limiter that is wrong is an error.
    let measured = run(plan, Duration::ZERO, &mut || false);
    let measured = measured.expect("each limiter grants and refuses what it must");
    let is_rate = |row: &&crate::row::Row| row.unit.ends_with("s/s");
    assert_eq!(measured.rows.iter().filter(is_rate).count(), rates);
    assert!(measured.rows.iter().all(|row| row.value > 0.0));
    // The test program cannot weigh itself in a process of its own.
    assert!(measured.notes.iter().any(|note| note.contains("memory was not measured")));
}

#[test]
fn limits_stand_at_the_leaf_and_at_the_root() {
    let shape = Shape { leaf_limit: 2, root_limit: 5, ..Shape::far(4, 1) };
    assert_eq!([0, 1, 2, 3].map(|above| shape.limit(above)), [2, limiter::FAR, limiter::FAR, 5]);
    assert_eq!(Shape { levels: 1, ..shape }.limit(0), 2);
}

/// A limiter that grants `GRANTED` charges at once, each of which makes room for another when it is
/// released; it leaks `LEAKED` bytes.
struct Wrong<const GRANTED: u64, const LEAKED: u64>(AtomicU64);

struct Taken<'a>(&'a AtomicU64);

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        // Relaxed: it counts what is held, nothing more.
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl<const GRANTED: u64, const LEAKED: u64> Limiter for Wrong<GRANTED, LEAKED> {
    type Leaf = ();
    type Held<'a> = Taken<'a>;

    fn new(_: Shape) -> io::Result<Self> {
        Ok(Wrong(AtomicU64::new(0)))
    }

    fn leaf(&self, _: usize) -> &() {
        &()
    }

    fn charge<'a>(&'a self, (): &'a (), _: u64) -> Option<Taken<'a>> {
        // Relaxed: as in the drop.
        let taken = self.0.fetch_add(1, Ordering::Relaxed);
        let taken = (taken, Taken(&self.0));
        (taken.0 < GRANTED).then_some(taken.1)
    }

    fn used(&self) -> Vec<u64> {
        vec![LEAKED]
    }
}

/// Measures one sample of a wrong limiter at the root's limit of one charge; returns the error.
fn found<const ONE: u64, const MANY: u64, const LEAKED: u64>() -> String {
    let cpus = &affinity().expect("this process may run somewhere")[..1];
    let (subject, _) =
        limited::<Wrong<ONE, LEAKED>>("wrong", Shape::far(1, 1), Shape::far(1, 1), true)
            .expect("no memory is needed");
    let filled = Wrong::<MANY, 0>::new(Shape::far(1, 1)).expect("as above");
    let check: Check = Box::new(move |cpus| fill("wrong", &filled, cpus, true));
    let mut cell = cell(subject, &Params::default(), cpus, Expected::Half, check);
    (cell.measure)().map_or_else(|error| error.to_string(), |_| "nothing".to_owned())
}

#[test]
fn a_wrong_limiter_is_an_error_that_says_how() {
    assert_eq!(found::<1, FILL, 0>(), "nothing");
    for (said, parts) in [
        (found::<2, FILL, 0>(), ["refused 0", "beyond the limit"]),
        (found::<0, FILL, 0>(), ["granted 0", "Half was expected"]),
        (found::<1, FILL, 7>(), ["holds [7]", "after all was released"]),
        (found::<1, { FILL + 1 }, 0>(), ["granted [257]", "256 fit together"]),
        (found::<1, { FILL - 1 }, 0>(), ["granted [255]", "256 fit together"]),
    ] {
        assert!(said.starts_with("wrong ") && said.ends_with("which is a bug"), "{said}");
        assert!(parts.iter().all(|part| said.contains(part)), "{said}: {parts:?}");
    }
}

#[test]
fn expectations_know_who_else_charges() {
    let tally = |granted, refused, over| Tally { granted, refused, over };
    for (expected, right, wrong) in [
        (Expected::Granted, tally(4, 0, 0), tally(3, 1, 0)),
        (Expected::Half, tally(2, 2, 0), tally(1, 3, 0)),
        (Expected::AtMostHalf, tally(1, 3, 0), tally(3, 1, 0)),
        (Expected::AtMostHalf, tally(2, 2, 0), tally(2, 2, 1)),
    ] {
        assert!(expected.check("x", right).is_ok(), "{expected:?} {right:?}");
        assert!(expected.check("x", wrong).is_err(), "{expected:?} {wrong:?}");
    }
}
