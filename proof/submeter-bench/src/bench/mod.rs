//! The tables of `submeter-bench`: what is measured, and how.

mod admission;
mod alloc;
mod asked;
mod busy;
mod count;
mod end_to_end;
mod footprint;
mod groups;
mod kill;
mod limits;
mod machine;
mod neighbours;
mod part;
mod percpu_counter;
mod percpu_ref;
mod perf;
mod proc_memory;
mod rcuref;
mod record;
mod rstat;
mod runner;
mod threads;
mod warnings;
mod worlds;

use std::io::{self, IsTerminal};
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

use runner::Plan;

pub(crate) use busy::Busy;
pub(crate) use end_to_end::serve;
pub(crate) use groups::measure_memory;
pub(crate) use limits::measure_quota_memory;
pub(crate) use machine::Machine;
pub(crate) use part::{Part, record};
pub(crate) use perf::charged;
pub(crate) use rstat::{Trace, write_totals};
pub(crate) use worlds::{enter, measure_in_world};

/// A table that can be measured. Its definition explains it.
#[derive(Debug)]
pub(crate) struct Table {
    /// Its name on the command line and in each of its rows.
    pub(crate) name: &'static str,
    /// Its seconds in a full run: less than a quarter of an hour for all tables, with the largest
    /// share for those with long rounds and small differences.
    full: u64,
    /// Seconds that the fewest rounds take on two CPUs, for the estimate of a quick run.
    quick: u64,
    plan: fn(&Inputs) -> io::Result<Plan>,
}

impl Table {
    /// Returns its time budget beyond the minimum of rounds.
    fn budget(&self, mode: Mode) -> Duration {
        match mode {
            Mode::Quick => Duration::ZERO,
            Mode::Full => Duration::from_secs(self.full),
            Mode::Each(budget) => budget,
        }
    }

    /// Returns an estimate of how long it will take.
    fn estimate(&self, mode: Mode) -> Duration {
        self.budget(mode).max(Duration::from_secs(self.quick))
    }
}

/// How much is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// The fewest rounds that a median needs: less than a minute for all tables.
    Quick,
    /// Long enough to show small differences: less than a quarter of an hour for all tables.
    Full,
    /// This time budget for each table.
    Each(Duration),
}

impl Mode {
    /// Returns its name in records.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Mode::Quick => "quick",
            Mode::Full => "full",
            Mode::Each(_) => "seconds",
        }
    }
}

/// The command line's inputs for the tables, apart from their names and their time.
#[derive(Debug, Default)]
pub(crate) struct Inputs {
    /// A recording that `rstat` replays, instead of the one that comes with the program.
    pub(crate) trace: Option<Rc<Trace>>,
    /// Statistics that `end_to_end` draws tenants from, instead of the built-in ones.
    pub(crate) tenants: Option<PathBuf>,
    /// Whether this is a quick run.
    pub(crate) quick: bool,
    /// The maximum of rounds; by default, the table's own.
    pub(crate) rounds: Option<usize>,
}

/// All tables, in the order in which they are measured.
pub(crate) const TABLES: [Table; 14] = [
    Table { name: "rcuref", full: 30, quick: 1, plan: |_| rcuref::plan() },
    Table { name: "percpu_ref", full: 60, quick: 2, plan: |_| percpu_ref::plan() },
    Table { name: "kill", full: 30, quick: 1, plan: |_| kill::plan() },
    Table { name: "percpu_counter", full: 60, quick: 2, plan: |_| percpu_counter::plan() },
    // Before rstat, whose trees leave a heap in which the groups of later tables are scattered.
    Table { name: "perf", full: 160, quick: 5, plan: perf::plan },
    Table { name: "rstat", full: 130, quick: 3, plan: rstat::plan },
    Table { name: "count", full: 60, quick: 4, plan: |_| count::plan() },
    Table { name: "limits", full: 60, quick: 4, plan: |_| limits::plan() },
    Table { name: "admission", full: 40, quick: 7, plan: |_| admission::plan() },
    Table { name: "groups", full: 60, quick: 3, plan: groups::plan },
    Table { name: "neighbours", full: 40, quick: 7, plan: |_| Ok(neighbours::plan()) },
    Table { name: "end_to_end", full: 60, quick: 7, plan: end_to_end::plan },
    Table { name: "worlds", full: 45, quick: 3, plan: |_| worlds::plan() },
    Table { name: "alloc", full: 40, quick: 3, plan: |_| alloc::plan() },
];

/// Measures `table` in this process, for about its budget or until `stopped` is set.
///
/// # Errors
/// Why a table cannot be measured at all, with its name.
pub(crate) fn measure(
    table: &Table,
    mode: Mode,
    inputs: &Inputs,
    stopped: &dyn Fn() -> bool,
) -> Result<Part, String> {
    // For a person at a terminal; a log needs only results.
    if io::stderr().is_terminal() {
        eprintln!("{}: about {} s", table.name, table.estimate(mode).as_secs());
    }
    let found = (table.plan)(inputs).and_then(|mut plan| {
        plan.rounds_max = plan.rounds_max.min(inputs.rounds.unwrap_or(usize::MAX));
        runner::run(plan, table.budget(mode), &mut || stopped())
    });
    let found = found.map_err(|error| {
        let name = table.name;
        format!("cannot measure {name}: {error}; other tables may work: submeter-bench --help")
    })?;
    Part::new(table, mode, &found).map_err(|error| format!("cannot write JSON: {error}"))
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn tables_have_own_names_and_a_comparison() {
        let names: HashSet<&str> = TABLES.iter().map(|table| table.name).collect();
        assert_eq!(names.len(), TABLES.len());
        for table in &TABLES {
            let plan = (table.plan)(&Inputs::default()).expect("this process may run somewhere");
            assert_eq!(plan.table, table.name);
            // Tables with mixed figures compare other variants too.
            let definition = crate::report::definition(table.name);
            for cells in &plan.groups {
                let variants: HashSet<&str> = cells.iter().map(|cell| cell.variant).collect();
                assert_eq!(variants.len(), cells.len(), "{}", table.name);
                assert!(
                    plan.mixed || definition.compares(&variants, &cells[0].params),
                    "{}",
                    table.name
                );
                assert!(cells.iter().all(|cell| cell.params == cells[0].params), "{}", table.name);
            }
        }
    }

    /// A full run takes less than a quarter of an hour, a quick one less than a minute.
    #[test]
    fn runs_take_the_time_that_they_promise() {
        let all = |mode| TABLES.iter().map(|table| table.estimate(mode)).sum::<Duration>();
        assert!(all(Mode::Full) < Duration::from_secs(880), "{:?}", all(Mode::Full));
        assert!(all(Mode::Quick) < Duration::from_secs(55), "{:?}", all(Mode::Quick));
        let five = Duration::from_secs(5);
        assert_eq!(TABLES[0].budget(Mode::Each(five)), five);
    }

    #[test]
    fn a_stopped_run_measures_nothing_and_says_so() {
        let part = measure(&TABLES[0], Mode::Quick, &Inputs::default(), &|| true);
        let part = part.expect("not begun");
        assert!(part.interrupted && part.rows.is_empty(), "{part:?}");
    }
}
