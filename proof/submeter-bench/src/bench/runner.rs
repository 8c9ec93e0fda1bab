//! Measures the cells of one table in rounds, in which the variants of a group take turns.
//!
//! Variants that are compared are measured within milliseconds of each other, and each round starts
//! with a different one, so that other work on the machine affects all of them alike. A sample
//! during which a measuring thread was preempted is retaken while the budget lasts, and left out if
//! it is disturbed every time: a shared line without contention is not what was to be measured.

use std::io;
use std::time::{Duration, Instant};

use super::record::{Reading, Record};
use crate::row::{Params, Row};

/// How often a disturbed sample is taken before it is accepted.
const TRIES: u32 = 8;
/// The minimum of rounds for a median, whatever the budget.
pub(crate) const ROUNDS_MIN: usize = 5;

/// The plan of a table's measurement.
pub(crate) struct Plan {
    /// The table's name.
    pub(crate) table: &'static str,
    /// Groups of cells that are compared with each other and measured one right after the other.
    pub(crate) groups: Vec<Vec<Cell>>,
    /// Whether its figures are of several kinds, some of which are never steady: then a wide spread
    /// needs no warning.
    pub(crate) mixed: bool,
    /// The maximum of rounds: more would add no information.
    pub(crate) rounds_max: usize,
    /// Notes on the figures.
    pub(crate) notes: Vec<String>,
    /// Variants that cannot be measured here.
    pub(crate) absent: Vec<Absent>,
}

impl Plan {
    /// Makes a plan of figures of one kind, which more rounds make more certain.
    pub(crate) fn new(table: &'static str, groups: Vec<Vec<Cell>>) -> Plan {
        let (notes, absent) = (Vec::new(), Vec::new());
        Plan { table, groups, mixed: false, rounds_max: usize::MAX, notes, absent }
    }
}

/// A variant that cannot be measured here, named so that its absence is noticed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Absent {
    /// The variant.
    pub(crate) variant: &'static str,
    /// What is missing and, if possible, how to get it.
    pub(crate) reason: String,
}

impl Absent {
    /// Returns all peers, with the command that builds them, if this program was built without.
    pub(crate) fn peers() -> Option<Absent> {
        let reason = "this program was built without peers: cargo build --release -p submeter-bench \
            --features peers";
        let absent = Absent { variant: "peers", reason: reason.to_owned() };
        (!cfg!(feature = "peers")).then_some(absent)
    }
}

/// One variant under one set of parameters.
pub(crate) struct Cell {
    /// The parameters.
    pub(crate) params: Params,
    /// The variant.
    pub(crate) variant: &'static str,
    /// Takes a sample, in some milliseconds.
    pub(crate) measure: Measure,
    /// Whether only the first sample is valid.
    once: bool,
}

impl Cell {
    /// Makes a cell that is measured in each round.
    pub(crate) fn new(
        params: Params,
        variant: &'static str,
        measure: impl FnMut() -> io::Result<Sample> + 'static,
    ) -> Cell {
        Cell { params, variant, measure: Box::new(measure), once: false }
    }

    /// Makes a cell that is measured only in the first round, which is the warm-up of the others: a
    /// second sample would reuse memory that the first one freed.
    pub(crate) fn once(
        params: Params,
        variant: &'static str,
        measure: impl FnMut() -> io::Result<Sample> + 'static,
    ) -> Cell {
        Cell { once: true, ..Cell::new(params, variant, measure) }
    }
}

/// Takes a sample.
pub(crate) type Measure = Box<dyn FnMut() -> io::Result<Sample>>;

/// The result of one measurement.
#[derive(Debug, Default)]
pub(crate) struct Sample {
    /// Its figures.
    pub(crate) readings: Vec<Reading>,
    /// Whether a measuring thread was preempted during it.
    pub(crate) disturbed: bool,
    /// Notes on the figures that only the measurement could give.
    pub(crate) notes: Vec<String>,
}

impl Sample {
    /// Makes a sample with one figure, whose row is the median.
    pub(crate) fn of(unit: &'static str, value: f64, disturbed: bool) -> Sample {
        let readings = vec![Reading::of(unit, vec![value])];
        Sample { readings, disturbed, notes: Vec::new() }
    }

    /// Makes a sample with several figures, which is never taken again: disturbances are part of
    /// what it measures.
    pub(crate) fn kept(readings: Vec<Reading>) -> Sample {
        Sample { readings, ..Sample::default() }
    }
}

/// The result of a plan.
#[derive(Debug)]
pub(crate) struct Measured {
    /// The cells that have samples.
    pub(crate) rows: Vec<Row>,
    /// Rounds that were begun, without the warm-up.
    pub(crate) rounds: usize,
    /// Samples that were to be taken.
    pub(crate) taken: usize,
    /// Those among them that were disturbed at every attempt.
    pub(crate) disturbed: usize,
    /// The indices of rows that have only disturbed samples.
    pub(crate) poor: Vec<usize>,
    /// Whether it was stopped before it had finished.
    pub(crate) interrupted: bool,
    /// Notes on the figures.
    pub(crate) notes: Vec<String>,
    /// Variants that could not be measured.
    pub(crate) absent: Vec<Absent>,
    /// As in the plan.
    pub(crate) mixed: bool,
}

/// Measures `plan` within about `budget`; asks `stopped` before each sample whether to end.
///
/// # Errors
/// The error of a measurement, such as that threads cannot be pinned.
pub(crate) fn run(
    mut plan: Plan,
    budget: Duration,
    stopped: &mut dyn FnMut() -> bool,
) -> io::Result<Measured> {
    let deadline = Instant::now() + budget;
    let mut record = Record::default();
    let variants = |cells: &Vec<Cell>| cells.iter().map(|cell| cell.variant).collect();
    plan.groups.retain(|cells| !cells.is_empty());
    let groups = plan.groups.iter().map(|cells| record.group(&cells[0].params, variants(cells)));
    let numbers: Vec<usize> = groups.collect();
    let mut notes = std::mem::take(&mut plan.notes);
    let (mut taken, mut disturbed, mut round) = (0, 0, 0);
    // The first round warms up: caches, the clock, the branch predictor, the CPU's frequency.
    let interrupted = 'measuring: loop {
        let enough = round > ROUNDS_MIN && Instant::now() >= deadline;
        if enough || round > plan.rounds_max {
            break false;
        }
        for (cells, &group) in plan.groups.iter_mut().zip(&numbers) {
            for index in turns(cells.len(), round) {
                let cell = &mut cells[index];
                if cell.once && round > 0 {
                    continue;
                }
                if stopped() {
                    break 'measuring true;
                }
                let tries = if round == 0 { 1 } else { TRIES };
                let sample = undisturbed(&mut cell.measure, tries, deadline)?;
                for note in sample.notes {
                    if !notes.contains(&note) {
                        notes.push(note);
                    }
                }
                if round > 0 || cell.once {
                    taken += 1;
                    disturbed += usize::from(sample.disturbed);
                    record.add(group, cell.variant, sample.readings, sample.disturbed);
                }
            }
        }
        round += 1;
    };
    let (rows, poor) = record.rows(plan.table);
    let rounds = round.saturating_sub(usize::from(!interrupted));
    let Plan { absent, mixed, .. } = plan;
    Ok(Measured { rows, rounds, taken, disturbed, poor, interrupted, notes, absent, mixed })
}

/// Returns the order of `cells` cells in a round: each round starts with a different one.
fn turns(cells: usize, round: usize) -> impl Iterator<Item = usize> {
    (0..cells).map(move |turn| (turn + round) % cells)
}

/// Takes samples until one is undisturbed, `tries` were made, or the time is up.
fn undisturbed(measure: &mut Measure, tries: u32, deadline: Instant) -> io::Result<Sample> {
    let mut sample = measure()?;
    for _ in 1..tries {
        if !sample.disturbed || Instant::now() >= deadline {
            break;
        }
        sample = measure()?;
    }
    Ok(sample)
}

#[cfg(test)]
#[path = "runner_tests.rs"]
mod tests;
