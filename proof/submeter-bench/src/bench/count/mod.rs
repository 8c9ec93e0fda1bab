//! The `count` table: what it costs to count a request for a tenant, with submeter and with the
//! libraries that a user might choose instead.
//!
//! Each variant does what its documentation shows for the case, and after each sample it is asked
//! for its count: a variant that loses a request ends the run with an error instead of a row.

mod builtin;
#[cfg(feature = "peers")]
mod peers;

use std::io;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::runner::{Absent, Cell, Plan, Sample};
use super::threads::{rates, settings};
use crate::row::{Param, Params};
use crossbeam_utils::CachePadded;

/// The number of tenants in the case `lookup`: fewer than the attribute sets that OpenTelemetry
/// keeps apart, and more than a core's L1 cache holds counters for.
const TENANTS: usize = 1000;
/// The unit of the rates.
const UNIT: &str = "requests/s";
/// The distance between a tenant and the next one: an order that no prefetcher can guess.
const STRIDE: usize = 617;

/// What the caller holds when it counts a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Case {
    /// The counter of the one tenant.
    Held,
    /// A tenant's name, a different one each time.
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

    /// Requests between two clock reads: many if each is short, few if a long batch would hide that
    /// its thread was preempted.
    fn batch(self) -> u32 {
        match self {
            Case::Held => 512,
            Case::Lookup => 64,
            Case::Levels => 256,
        }
    }

    /// The number of totals that must be right: the leaf's and each ancestor's.
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

/// Counts a request for each of these tenants; if the counter is held, as many requests for that
/// one tenant.
type Count = Box<dyn Fn(&[String]) + Send + Sync>;

/// Returns what was counted for these tenants together, one total per level.
type Totals = Box<dyn Fn(&[String]) -> Vec<u64> + Send + Sync>;

/// Returns the table's plan.
///
/// # Errors
/// When the CPUs of this process cannot be determined, or a variant gets no memory.
pub(crate) fn plan() -> io::Result<Plan> {
    let tenants = Rc::new(Tenants::new());
    let mut groups = Vec::new();
    let settings = settings()?;
    for case in CASES {
        for (name, cpus) in &settings {
            // Each cell has its own counters, so that its totals are what it was asked to count.
            let mut subjects = builtin::subjects(&tenants.names)?;
            #[cfg(feature = "peers")]
            subjects.extend(peers::subjects());
            subjects.retain(|subject| subject.case == case);
            let cells = subjects.into_iter().map(|subject| cell(subject, name, cpus, &tenants));
            groups.push(cells.collect());
        }
    }
    Ok(Plan { absent: Absent::peers().into_iter().collect(), ..Plan::new("count", groups) })
}

/// The tenants, and the order in which they send requests.
struct Tenants {
    names: Vec<String>,
    /// All tenants in order, then the first ones again, so that a batch may begin anywhere.
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

    /// Returns the tenants of the next `requests` requests after the first `asked`.
    fn after(&self, asked: u64, requests: u32) -> &[String] {
        let begin = (asked % TENANTS as u64) as usize;
        &self.ring[begin..begin + requests as usize]
    }
}

/// Makes a cell that measures the requests per second of all `cpus`, and checks that none was lost.
fn cell(subject: Subject, name: &'static str, cpus: &[usize], tenants: &Rc<Tenants>) -> Cell {
    let (cpus, tenants) = (cpus.to_vec(), Rc::clone(tenants));
    // The number of requests from each CPU. CPUs start at different tenants, as clients would.
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

/// Checks that each level counted every request.
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
    use std::time::Duration;

    #[test]
    fn every_variant_counts_as_asked_on_all_cpus() {
        let mut plan = plan().expect("this process may run somewhere");
        plan.rounds_max = 1;
        let cells: usize = plan.groups.iter().map(Vec::len).sum();
        let measured = run(plan, Duration::ZERO, &mut || false);
        // A wrong total is an error.
        let measured = measured.expect("each counts right");
        assert_eq!(measured.rows.len(), cells);
        assert!(measured.rows.iter().all(|row| row.value > 0.0));
        assert!(measured.absent.iter().all(|absent| !absent.reason.is_empty()));
    }

    /// A variant that loses a request is an error that names it.
    #[test]
    fn a_variant_that_loses_a_request_is_named() {
        assert!(counted("x", Case::Held, 7, &[7]).is_ok());
        assert!(counted("x", Case::Levels, 7, &[7; 4]).is_ok());
        for (case, totals) in
            [(Case::Held, &[6][..]), (Case::Levels, &[7, 7, 7]), (Case::Levels, &[7, 7, 7, 8])]
        {
            let error = counted("x", case, 7, totals).expect_err("wrong").to_string();
            assert!(error.starts_with("x (") && error.contains("of 7 requests"), "{error}");
        }
    }

    /// Every tenant occurs in each thousand requests.
    #[test]
    fn every_tenant_comes_up_in_1000_requests() {
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
