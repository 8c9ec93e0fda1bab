//! The `count` table: what it costs to count a request for a tenant, by submeter and by what a user
//! would pick instead of it.
//!
//! Each variant does what its documentation shows for the case, and is asked after each sample what
//! it counted: one that loses a request is an error of the run, and no row.

mod builtin;
#[cfg_attr(not(feature = "peers"), path = "no_peers.rs")]
mod peers;

use std::io;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::runner::{Cell, Plan, Sample};
use super::threads::{rates, settings};
use crate::row::{Param, Params};
use crossbeam_utils::CachePadded;
use peers::Peers;

/// Tenants among which requests are spread where each is looked up: fewer than the attributes that
/// OpenTelemetry keeps apart, and more than a core's first cache holds counters of.
const TENANTS: usize = 1000;
/// What is counted a second.
const UNIT: &str = "requests/s";
/// Between a tenant and the next one that asks: no order that a prefetcher could guess.
const STRIDE: usize = 617;

/// What is at hand when a request is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Case {
    /// The counter of the one tenant.
    Held,
    /// The tenant's name, another one each time.
    Lookup,
    /// The one tenant's counter, and those of three levels above it.
    Levels,
}

const CASES: [Case; 3] = [Case::Held, Case::Lookup, Case::Levels];

impl Case {
    fn name(self) -> &'static str {
        match self {
            Case::Held => "held",
            Case::Lookup => "lookup",
            Case::Levels => "levels",
        }
    }

    /// Requests between two looks at the clock: many where each is short, few where a batch would
    /// hide that its thread was off its CPU.
    fn batch(self) -> u32 {
        match self {
            Case::Held => 512,
            Case::Lookup => 64,
            Case::Levels => 256,
        }
    }

    /// Totals that must all be right: of the leaf and of each level above it.
    fn totals(self) -> usize {
        match self {
            Case::Held | Case::Lookup => 1,
            Case::Levels => 4,
        }
    }
}

/// A way to count, in one case.
struct Subject {
    variant: &'static str,
    case: Case,
    count: Count,
    totals: Totals,
}

/// Counts a request for each of these tenants; where the tenant is at hand, so many for that one.
type Count = Box<dyn Fn(&[String]) + Send + Sync>;

/// Tells what was counted for these tenants together, a total a level.
type Totals = Box<dyn Fn(&[String]) -> Vec<u64> + Send + Sync>;

/// Says what to measure.
///
/// # Errors
/// When the CPUs of this process cannot be asked for, or memory for a variant.
pub(crate) fn plan() -> io::Result<Plan> {
    let tenants = Rc::new(Tenants::new());
    let peers = Peers::new();
    let mut groups = Vec::new();
    let settings = settings()?;
    for case in CASES {
        for (name, cpus) in &settings {
            // Each cell has counters of its own, so that what it counted is what it was asked to.
            let mut subjects = builtin::subjects(&tenants.names)?;
            subjects.extend(peers.subjects());
            subjects.retain(|subject| subject.case == case);
            let cells = subjects.into_iter().map(|subject| cell(subject, name, cpus, &tenants));
            groups.push(cells.chain(peers.cells(case, name, cpus)).collect());
        }
    }
    Ok(Plan {
        table: "count",
        groups,
        mixed: false,
        rounds_max: usize::MAX,
        notes: Vec::new(),
        absent: peers.absent,
    })
}

/// The tenants, and the order in which they ask.
struct Tenants {
    names: Vec<String>,
    /// All of them in their order, and the first ones again, so that a batch may begin anywhere.
    ring: Vec<String>,
}

impl Tenants {
    fn new() -> Tenants {
        let names: Vec<String> = (0..TENANTS).map(|n| format!("tenant-{n:04}")).collect();
        let longest = CASES.map(Case::batch).into_iter().max().unwrap_or_default() as usize;
        let nth = |n: usize| names[n * STRIDE % TENANTS].clone();
        let ring = (0..TENANTS + longest).map(nth).collect();
        Tenants { names, ring }
    }

    /// Returns the tenants of the requests that follow the so manieth.
    fn after(&self, asked: u64, requests: u32) -> &[String] {
        let begin = (asked % TENANTS as u64) as usize;
        &self.ring[begin..begin + requests as usize]
    }
}

/// Makes a cell that measures the requests a second of all `cpus`, and checks that none was lost.
fn cell(subject: Subject, name: &'static str, cpus: &[usize], tenants: &Rc<Tenants>) -> Cell {
    let (cpus, tenants) = (cpus.to_vec(), Rc::clone(tenants));
    // What each CPU asked for. They begin at tenants apart from each other, as clients would.
    let apart = |place: usize| (place * TENANTS / cpus.len()) as u64;
    let asked: Vec<_> =
        (0..cpus.len()).map(|place| CachePadded::new(AtomicU64::new(apart(place)))).collect();
    let begun: u64 = (0..cpus.len()).map(apart).sum();
    let (variant, case) = (subject.variant, subject.case);
    let measure = move || {
        let (ring, count) = (&*tenants, &subject.count);
        let (rates, disturbed) = rates(&cpus, case.batch(), &|place, requests| {
            let asked = &*asked[place];
            // Relaxed: this thread's own; threads of samples follow each other by joins.
            let so_far = asked.load(Ordering::Relaxed);
            count(ring.after(so_far, requests));
            // Relaxed: as above.
            asked.store(so_far + u64::from(requests), Ordering::Relaxed);
        })?;
        // Relaxed: their writers were joined.
        let asked: u64 = asked.iter().map(|asked| asked.load(Ordering::Relaxed)).sum();
        counted(variant, case, asked - begun, &(subject.totals)(&tenants.names))?;
        Ok(Sample::of(UNIT, rates.iter().sum::<f64>().round(), disturbed))
    };
    Cell::new(params(case, name), variant, measure)
}

fn params(case: Case, cpus: &'static str) -> Params {
    Params::from([("case", Param::word(case.name())), ("cpus", Param::word(cpus))])
}

/// Makes sure that each level counted all that was asked.
fn counted(variant: &str, case: Case, asked: u64, totals: &[u64]) -> io::Result<()> {
    if totals.len() == case.totals() && totals.iter().all(|&total| total == asked) {
        return Ok(());
    }
    let name = case.name();
    Err(io::Error::other(format!(
        "{variant} ({name}) counted {totals:?} of {asked} requests: it loses some, which is a bug"
    )))
}

#[cfg(test)]
mod tests {
    use super::super::runner::run;
    use super::*;
    use std::ops::ControlFlow;
    use std::time::Duration;

    #[test]
    fn every_variant_counts_what_it_is_asked_on_all_cpus() {
        let mut plan = plan().expect("this process may run somewhere");
        plan.rounds_max = 1;
        let cells: usize = plan.groups.iter().map(Vec::len).sum();
        let measured = run(plan, Duration::ZERO, &mut |_| ControlFlow::Continue(()));
        // A wrong total would be an error.
        let measured = measured.expect("each counts right");
        assert_eq!(measured.rows.len(), cells);
        assert!(measured.rows.iter().all(|row| row.value > 0.0));
        assert!(measured.absent.iter().all(|absent| !absent.reason.is_empty()));
    }

    #[test]
    fn a_variant_that_loses_a_request_is_an_error_that_names_it() {
        assert!(counted("x", Case::Held, 7, &[7]).is_ok());
        assert!(counted("x", Case::Levels, 7, &[7; 4]).is_ok());
        for (case, totals) in
            [(Case::Held, &[6][..]), (Case::Levels, &[7, 7, 7]), (Case::Levels, &[7, 7, 7, 8])]
        {
            let error = counted("x", case, 7, totals).expect_err("wrong").to_string();
            assert!(error.starts_with("x (") && error.contains("of 7 requests"), "{error}");
        }
    }

    #[test]
    fn every_tenant_asks_in_each_thousand_requests() {
        let tenants = Tenants::new();
        let mut asked: Vec<&String> = Vec::new();
        for begin in (0..TENANTS as u64).step_by(50) {
            asked.extend(tenants.after(3 * TENANTS as u64 + begin, 50));
        }
        asked.sort();
        asked.dedup();
        assert_eq!(asked.len(), TENANTS);
        assert_eq!(tenants.after(TENANTS as u64 - 1, 512).len(), 512);
    }
}
