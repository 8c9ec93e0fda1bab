//! Measures the cells of one table: in rounds, the variants of a group in turns.
//!
//! Variants that are compared are measured within milliseconds of each other, and each round starts
//! with another one, so that what else the machine does hits all of them alike. A sample during
//! which the machine was elsewhere is taken again, as long as the budget lasts, and left out if it
//! stays so: a shared line that others do not want just then is not what was to be measured.

use std::io;
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use super::record::{Reading, Record};
use crate::row::{Params, Row};

/// How often a disturbed sample is taken before it has to do.
const TRIES: u32 = 8;
/// Rounds that a median needs, whatever the budget.
pub(crate) const ROUNDS_MIN: usize = 5;

/// What a table measures.
pub(crate) struct Plan {
    /// The table's name.
    pub(crate) table: &'static str,
    /// Cells that are compared with each other, and that nothing separates in time.
    pub(crate) groups: Vec<Vec<Cell>>,
    /// Whether its figures are of several kinds, of which some are never steady: then a wide spread
    /// is nothing to warn of.
    pub(crate) mixed: bool,
    /// Rounds that say all there is to say.
    pub(crate) rounds_max: usize,
    /// What to know about the figures.
    pub(crate) notes: Vec<String>,
    /// Variants that cannot be measured here.
    pub(crate) absent: Vec<Absent>,
}

/// A variant that cannot be measured here: named, since nobody misses what is not mentioned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Absent {
    /// The variant.
    pub(crate) variant: &'static str,
    /// What it lacks and, where that can be helped, how to get it.
    pub(crate) reason: String,
}

/// One variant under one set of parameters.
pub(crate) struct Cell {
    /// The parameters.
    pub(crate) params: Params,
    /// The variant.
    pub(crate) variant: &'static str,
    /// Takes a sample, in some milliseconds.
    pub(crate) measure: Measure,
    /// Whether one sample says all there is to say, and a second one would be wrong.
    once: bool,
}

impl Cell {
    /// Makes one that is measured in each round.
    pub(crate) fn new(
        params: Params,
        variant: &'static str,
        measure: impl FnMut() -> io::Result<Sample> + 'static,
    ) -> Cell {
        Cell { params, variant, measure: Box::new(measure), once: false }
    }

    /// Makes one that is measured in the first round alone, which warms up the others: memory that
    /// a first sample gave back would be there for the second.
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

/// What one measurement found.
#[derive(Debug, Default)]
pub(crate) struct Sample {
    /// Its figures.
    pub(crate) readings: Vec<Reading>,
    /// Whether a measuring thread was off its CPU meanwhile.
    pub(crate) disturbed: bool,
    /// What to know about the figures, of what was not known before.
    pub(crate) notes: Vec<String>,
}

impl Sample {
    /// Makes that of one figure, whose row is the median.
    pub(crate) fn of(unit: &'static str, value: f64, disturbed: bool) -> Sample {
        let readings = vec![Reading::of(unit, vec![value])];
        Sample { readings, disturbed, notes: Vec::new() }
    }

    /// Makes that of several figures, which is never taken again: what disturbs it is part of what
    /// is measured.
    pub(crate) fn kept(readings: Vec<Reading>) -> Sample {
        Sample { readings, ..Sample::default() }
    }
}

/// What came of a plan.
#[derive(Debug)]
pub(crate) struct Measured {
    /// The cells that have samples.
    pub(crate) rows: Vec<Row>,
    /// Rounds that were begun, the one that warms up apart.
    pub(crate) rounds: usize,
    /// Samples that were to be taken.
    pub(crate) taken: usize,
    /// Those among them that were disturbed at each try.
    pub(crate) disturbed: usize,
    /// Rows that have only such samples, by their place.
    pub(crate) poor: Vec<usize>,
    /// Whether it was told to stop before it was done.
    pub(crate) interrupted: bool,
    /// What to know about the figures.
    pub(crate) notes: Vec<String>,
    /// Variants that could not be measured.
    pub(crate) absent: Vec<Absent>,
    /// As the plan says.
    pub(crate) mixed: bool,
}

/// Measures `plan` within about `budget`; asks `go_on`, with the number of the round, before each
/// sample.
///
/// # Errors
/// What a measurement says, such as that threads cannot be pinned.
pub(crate) fn run(
    mut plan: Plan,
    budget: Duration,
    go_on: &mut dyn FnMut(usize) -> ControlFlow<()>,
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
    let flow = 'measuring: loop {
        let enough = round > ROUNDS_MIN && Instant::now() >= deadline;
        if enough || round > plan.rounds_max {
            break ControlFlow::Continue(());
        }
        for (cells, &group) in plan.groups.iter_mut().zip(&numbers) {
            for index in turns(cells.len(), round) {
                let cell = &mut cells[index];
                if cell.once && round > 0 {
                    continue;
                }
                if go_on(round).is_break() {
                    break 'measuring ControlFlow::Break(());
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
    let ((rows, poor), interrupted) = (record.rows(plan.table), flow.is_break());
    let rounds = round.saturating_sub(usize::from(!interrupted));
    let Plan { absent, mixed, .. } = plan;
    Ok(Measured { rows, rounds, taken, disturbed, poor, interrupted, notes, absent, mixed })
}

/// Returns the order in which a round takes `cells` cells: each round starts with another one.
fn turns(cells: usize, round: usize) -> impl Iterator<Item = usize> {
    (0..cells).map(move |turn| (turn + round) % cells)
}

/// Takes samples until one is undisturbed, there were `tries`, or the time is up.
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
