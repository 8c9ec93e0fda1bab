//! Measures the cells of one table: in rounds, the variants of a group in turns.
//!
//! Variants that are compared are measured within milliseconds of each other, and each round starts with
//! another one, so that what else the machine does hits all of them alike. A sample during which the
//! machine was elsewhere is taken again, as long as the budget lasts, and left out if it stays so: a shared
//! line that others do not want just then is not what was to be measured.

use std::io;
use std::ops::ControlFlow;
use std::rc::Rc;
use std::time::{Duration, Instant};

use super::row::{Param, Params, Row, quantile, sorted};

/// How often a disturbed sample is taken before it has to do.
const TRIES: u32 = 8;
/// Rounds that a median needs, whatever the budget.
pub(crate) const ROUNDS_MIN: usize = 5;

/// What a table measures.
pub(crate) struct Plan {
    /// The table's name.
    pub(crate) table: &'static str,
    /// The unit of all samples.
    pub(crate) unit: &'static str,
    /// Cells that are compared with each other, and that nothing separates in time.
    pub(crate) groups: Vec<Vec<Cell>>,
    /// The figures that are taken of each cell's samples.
    pub(crate) figures: Figures,
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

/// What becomes of a cell's samples.
pub(crate) enum Figures {
    /// One row with the median.
    Median,
    /// A row for each of these, with its name as the parameter `quantile`.
    Quantiles(&'static [(&'static str, f64)]),
    /// What the measurements wrote down themselves, where each finds more than values of one unit.
    Own(Rc<dyn Own>),
}

/// What measurements wrote down.
pub(crate) trait Own {
    /// Returns a row for each figure.
    fn rows(&self) -> Vec<Row>;

    /// Writes the rows for people.
    fn human(&self, rows: &[Row]) -> String;
}

/// One variant under one set of parameters.
pub(crate) struct Cell {
    /// The parameters.
    pub(crate) params: Params,
    /// The variant.
    pub(crate) variant: &'static str,
    /// Takes a sample, in some milliseconds.
    pub(crate) measure: Measure,
}

/// Takes a sample.
pub(crate) type Measure = Box<dyn FnMut() -> io::Result<Sample>>;

/// What one measurement found.
#[derive(Debug)]
pub(crate) struct Sample {
    /// One value or, where distributions count, several.
    pub(crate) values: Vec<f64>,
    /// Whether a measuring thread was off its CPU meanwhile.
    pub(crate) disturbed: bool,
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
    /// The rows for people, where the table writes them itself.
    pub(crate) human: Option<String>,
}

/// Measures `plan` within about `budget`; asks `go_on`, with the number of the round, before each sample.
///
/// # Errors
/// What a measurement says, such as that threads cannot be pinned.
pub(crate) fn run(
    mut plan: Plan,
    budget: Duration,
    go_on: &mut dyn FnMut(usize) -> ControlFlow<()>,
) -> io::Result<Measured> {
    let deadline = Instant::now() + budget;
    let mut samples: Vec<Vec<Samples>> =
        plan.groups.iter().map(|group| vec![Samples::default(); group.len()]).collect();
    let (mut taken, mut disturbed, mut round) = (0, 0, 0);
    // The first round warms up: caches, the clock, the branch predictor, the CPU's frequency.
    let flow = 'measuring: loop {
        let enough = round > ROUNDS_MIN && Instant::now() >= deadline;
        if enough || round > plan.rounds_max {
            break ControlFlow::Continue(());
        }
        for (cells, samples) in plan.groups.iter_mut().zip(&mut samples) {
            for index in turns(cells.len(), round) {
                if go_on(round).is_break() {
                    break 'measuring ControlFlow::Break(());
                }
                let tries = if round == 0 { 1 } else { TRIES };
                let sample = undisturbed(&mut cells[index].measure, tries, deadline)?;
                if round > 0 {
                    taken += 1;
                    disturbed += usize::from(sample.disturbed);
                    samples[index].add(sample);
                }
            }
        }
        round += 1;
    };
    let notes = std::mem::take(&mut plan.notes);
    let absent = std::mem::take(&mut plan.absent);
    let ((rows, poor), interrupted) = (rows(&plan, &samples), flow.is_break());
    let rounds = round.saturating_sub(usize::from(!interrupted));
    let human = match &plan.figures {
        Figures::Own(own) => Some(own.human(&rows)),
        Figures::Median | Figures::Quantiles(_) => None,
    };
    Ok(Measured { rows, rounds, taken, disturbed, poor, interrupted, notes, absent, human })
}

/// What was found of one cell.
#[derive(Clone, Debug, Default)]
struct Samples {
    calm: Vec<f64>,
    disturbed: Vec<f64>,
}

impl Samples {
    fn add(&mut self, sample: Sample) {
        let to = if sample.disturbed { &mut self.disturbed } else { &mut self.calm };
        to.extend(sample.values);
    }

    /// Returns what there is to show.
    fn best(&self) -> &[f64] {
        if self.is_poor() { &self.disturbed } else { &self.calm }
    }

    fn is_poor(&self) -> bool {
        self.calm.is_empty()
    }
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

/// Returns the rows, and the places of those that are poor.
fn rows(plan: &Plan, samples: &[Vec<Samples>]) -> (Vec<Row>, Vec<usize>) {
    let (mut rows, mut poor) = (Vec::new(), Vec::new());
    let figures = match &plan.figures {
        Figures::Median => &[("", 0.5)][..],
        Figures::Quantiles(quantiles) => quantiles,
        Figures::Own(own) => return (own.rows(), poor),
    };
    for (cells, samples) in plan.groups.iter().zip(samples) {
        // All variants of one figure together, as they are read.
        for &(name, part) in figures {
            for (cell, found) in cells.iter().zip(samples) {
                let samples = found.best().to_vec();
                let Some(value) = quantile(&sorted(&samples), part) else { continue };
                let mut params = cell.params.clone();
                if !name.is_empty() {
                    params.push(("quantile", Param::Word(name)));
                }
                if found.is_poor() {
                    poor.push(rows.len());
                }
                let (table, variant, unit) = (plan.table, cell.variant, plan.unit);
                rows.push(Row { table, params, variant, value, unit, samples });
            }
        }
    }
    (rows, poor)
}

#[cfg(test)]
#[path = "runner_tests.rs"]
mod tests;
