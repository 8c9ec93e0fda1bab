//! The tables of `submeter bench`: what is measured, and how.

mod groups;
mod json;
mod kill;
mod machine;
mod percpu_counter;
mod percpu_ref;
mod perf;
mod progress;
mod rcuref;
mod report;
mod row;
mod rstat;
mod runner;
mod threads;

use std::io;
use std::ops::ControlFlow;
use std::rc::Rc;
use std::time::Duration;

use machine::Machine;
use progress::Progress;
use row::Row;
use runner::{Measured, Plan};

pub(crate) use groups::weigh;
pub(crate) use json::json;
pub(crate) use report::{human, warnings};
pub(crate) use rstat::{Trace, write_totals};

/// A table that can be measured.
#[derive(Debug)]
pub(crate) struct Table {
    /// What it is called on the command line and in each of its rows.
    pub(crate) name: &'static str,
    /// What it measures, for its heading.
    about: &'static str,
    /// The variant that others are compared with.
    baseline: &'static str,
    /// What follows from all its rows together.
    conclusion: fn(&[Row]) -> Option<String>,
    plan: fn(&Inputs) -> io::Result<Plan>,
}

/// What the command line tells the tables, beside their names and their time.
#[derive(Debug, Default)]
pub(crate) struct Inputs {
    /// A recording that `rstat` replays.
    pub(crate) trace: Option<Rc<Trace>>,
    /// Whether the least will do.
    pub(crate) quick: bool,
}

/// All tables, in the order in which they are measured.
pub(crate) const TABLES: [Table; 7] = [
    Table {
        name: "rcuref",
        about: "a get and a put on one shared count",
        baseline: "inc_not_zero",
        conclusion: |_| None,
        plan: |_| rcuref::plan(),
    },
    Table {
        name: "percpu_ref",
        about: "take a reference, copy bytes into a buffer of the CPU's, put it",
        baseline: "atomic",
        conclusion: |_| None,
        plan: |_| percpu_ref::plan(),
    },
    Table {
        name: "kill",
        about: "time of a kill, next to the barrier that it is made of",
        baseline: "membarrier",
        conclusion: kill::per_reference,
        plan: |_| kill::plan(),
    },
    Table {
        name: "percpu_counter",
        about: "the three tests with which percpu_counter was taken off its lock",
        baseline: "lock_fold",
        conclusion: percpu_counter::conclusion,
        plan: |_| percpu_counter::plan(),
    },
    Table {
        name: "rstat",
        about: "statistics of a tree: updates while a flusher works, by five designs of Linux's and others",
        baseline: "submeter",
        conclusion: |_| None,
        plan: rstat::plan,
    },
    Table {
        name: "perf",
        about: "events that follow the group switch: what it costs, and whether they tell the truth",
        baseline: "submeter",
        conclusion: |_| None,
        plan: perf::plan,
    },
    Table {
        name: "groups",
        about: "what each operation on a group costs, in trees of ten groups and of a million",
        baseline: "submeter",
        conclusion: |_| None,
        plan: groups::plan,
    },
];

/// What came of all tables.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) machine: Machine,
    /// Each table that was begun.
    pub(crate) tables: Vec<(&'static Table, Measured)>,
    /// How long each was given.
    pub(crate) budget: Duration,
}

/// Measures `tables` one after the other, each for about `budget`, until `stopped` says so.
///
/// # Errors
/// What a table says that cannot be measured at all, with its name.
pub(crate) fn measure(
    tables: &[&'static Table],
    budget: Duration,
    inputs: &Inputs,
    stopped: &dyn Fn() -> bool,
) -> Result<Outcome, String> {
    let machine = Machine::gather();
    let mut progress = Progress::new(tables.len(), budget);
    let mut measured = Vec::new();
    for &table in tables {
        progress.begin(table.name);
        let go_on = &mut |round| {
            progress.round(round);
            if stopped() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        };
        let found = (table.plan)(inputs).and_then(|plan| runner::run(plan, budget, go_on));
        let found = found.map_err(|error| {
            let name = table.name;
            format!("cannot measure {name}: {error}; other tables may work: submeter bench --help")
        })?;
        let interrupted = found.interrupted;
        measured.push((table, found));
        if interrupted {
            break;
        }
    }
    Ok(Outcome { machine, tables: measured, budget })
}

impl Outcome {
    /// Returns the cells of all tables.
    fn rows(&self) -> impl Iterator<Item = &Row> {
        self.tables.iter().flat_map(|(_, measured)| &measured.rows)
    }

    /// Returns whether it was stopped before it was done.
    fn interrupted(&self) -> bool {
        self.tables.last().is_some_and(|(_, measured)| measured.interrupted)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn tables_have_names_of_their_own_and_their_baseline() {
        let names: HashSet<&str> = TABLES.iter().map(|table| table.name).collect();
        assert_eq!(names.len(), TABLES.len());
        for table in &TABLES {
            let plan = (table.plan)(&Inputs::default()).expect("this process may run somewhere");
            assert_eq!(plan.table, table.name);
            for cells in &plan.groups {
                let variants: HashSet<&str> = cells.iter().map(|cell| cell.variant).collect();
                assert_eq!(variants.len(), cells.len(), "{}", table.name);
                assert!(variants.contains(table.baseline), "{}", table.name);
                assert!(cells.iter().all(|cell| cell.params == cells[0].params), "{}", table.name);
            }
        }
    }

    #[test]
    fn stopped_it_measures_no_further_table() {
        let all: Vec<&Table> = TABLES.iter().collect();
        let outcome =
            measure(&all, Duration::ZERO, &Inputs::default(), &|| true).expect("not begun");
        assert_eq!(outcome.tables.len(), 1);
        assert!(outcome.interrupted());
        assert_eq!(outcome.rows().count(), 0);
    }
}
