//! The `groups` table: what each operation on a group costs, in trees of ten groups and of a million.
//!
//! And what depends on the number of CPUs but not on their speed (error bounds, memory, the work of a flush), on
//! simulated ones.

mod crowd;
mod human;
mod memory;
mod operations;
mod simulated;

use std::cell::RefCell;
use std::io;
use std::rc::Rc;
use std::thread;
use std::time::Instant;

use submeter_sys::cpu::{affinity, set_affinity};

use super::Inputs;
use super::row::{Param, Params, Row, quantile, sorted};
use super::runner::{Cell, Figures, Own, Plan, Sample};
use super::threads::Preemptions;
use crowd::Crowd;

pub(crate) use memory::weigh;

const TABLE: &str = "groups";
const VARIANT: &str = "submeter";

/// Leaves of the trees. The last only with time and memory for it.
const SIZES: [usize; 4] = [10, 1_000, 100_000, 1_000_000];
/// What the largest tree, the process that weighs one, and everybody else take together, generously.
const MEMORY_BYTES_MIN: u64 = 4 << 30;

/// Says what to measure.
///
/// # Errors
/// When the CPUs of this process cannot be asked for.
pub(crate) fn plan(inputs: &Inputs) -> io::Result<Plan> {
    let cpu = affinity()?[0];
    let mut notes = LEGEND.map(str::to_owned).to_vec();
    let mut sizes = SIZES.to_vec();
    if inputs.quick {
        sizes.pop();
        notes.push("no tree of 1,000,000 groups: leave out --quick for it".to_owned());
    } else if memory::available_bytes().is_some_and(|bytes| bytes < MEMORY_BYTES_MIN) {
        sizes.pop();
        notes.push("no tree of 1,000,000 groups, as less than 4 GiB of memory are free".to_owned());
    }
    let found = Rc::new(Found::default());
    let mut groups = Vec::new();
    for &size in &sizes {
        groups.extend(memory::cells(&found, size));
        groups.extend(operations::cells(&found, cpu, &Rc::new(Crowd::new(size))));
    }
    simulated::cells(&found, cpu, inputs.quick, &mut groups);
    Ok(Plan {
        table: TABLE,
        unit: "",
        groups,
        figures: Figures::Own(found),
        rounds_max: usize::MAX,
        notes,
        absent: Vec::new(),
    })
}

/// What people cannot guess.
const LEGEND: [&str; 4] = [
    "a group has 8 metrics, CPU time among them; `any` is another group each time, in no order, found by a \
     handle that is held; all on one pinned thread, with nobody else in the tree",
    "enter_*: to the group and back, two switches, each charged with its CPU time; sum_any: an exact read after an \
     add to the same group; flush_all: for each of the groups, after an add to each",
    "memory_*: growth of a fresh process for each group, its share of the tree included, without handles; updated: \
     after one add and a flush",
    "simulated CPUs are rows of one real CPU, written and read by it: right for bounds, memory and how much a flush has to \
     visit, and silent about what it costs CPUs to take lines from each other",
];

// ---- what cells find ---------------------------------------------------------------------------

/// The figures of all cells, in their order: of several units, which the runner's own are not.
#[derive(Default)]
struct Found {
    figures: RefCell<Vec<Figure>>,
    /// Why memory could not be weighed.
    unweighed: RefCell<Option<String>>,
}

struct Figure {
    params: Params,
    unit: &'static str,
    calm: Vec<f64>,
    /// Taken while the thread was off its CPU: shown only where there is nothing else.
    disturbed: Vec<f64>,
}

impl Found {
    /// Makes the cell of one figure. Its first sample warms up, and is not taken down unless there is to be one only.
    fn cell(
        self: &Rc<Found>,
        params: Params,
        unit: &'static str,
        mut measure: impl FnMut() -> io::Result<Option<(f64, bool)>> + 'static,
    ) -> Vec<Cell> {
        let figure =
            Figure { params: params.clone(), unit, calm: Vec::new(), disturbed: Vec::new() };
        self.figures.borrow_mut().push(figure);
        let (found, index) = (Rc::clone(self), self.figures.borrow().len() - 1);
        let measure = move || {
            let mut sample = Sample { values: Vec::new(), disturbed: false };
            if let Some((value, disturbed)) = measure()? {
                let figure = &mut found.figures.borrow_mut()[index];
                let to = if disturbed { &mut figure.disturbed } else { &mut figure.calm };
                to.push(value);
                sample.disturbed = disturbed;
            }
            Ok(sample)
        };
        vec![Cell { params, variant: VARIANT, measure: Box::new(measure) }]
    }

    /// Makes the cell of a figure that a thread pinned to `cpu` measures again and again.
    fn timed(
        self: &Rc<Found>,
        params: Params,
        unit: &'static str,
        cpu: usize,
        measure: impl Fn() -> io::Result<f64> + Send + Sync + 'static,
    ) -> Vec<Cell> {
        let mut warm = false;
        self.cell(params, unit, move || {
            let found = pinned(cpu, &measure)?;
            Ok(std::mem::replace(&mut warm, true).then_some(found))
        })
    }
}

impl Own for Found {
    fn rows(&self) -> Vec<Row> {
        let row = |figure: &Figure| {
            let poor = figure.calm.is_empty();
            let samples = if poor { &figure.disturbed } else { &figure.calm }.clone();
            let (params, unit) = (figure.params.clone(), figure.unit);
            let value = quantile(&sorted(&samples), 0.5)?;
            Some(Row { table: TABLE, params, variant: VARIANT, value, unit, samples })
        };
        self.figures.borrow().iter().filter_map(row).collect()
    }

    fn human(&self, rows: &[Row]) -> String {
        let mut text = human::human(rows);
        if let Some(why) = &*self.unweighed.borrow() {
            text.push_str(&format!("memory was not weighed: {why}\n"));
        }
        text
    }
}

/// Measures on a thread of its own, pinned to `cpu`. Returns also whether it was off its CPU meanwhile.
fn pinned(cpu: usize, measure: &(dyn Fn() -> io::Result<f64> + Sync)) -> io::Result<(f64, bool)> {
    let work = || {
        set_affinity(&[cpu])?;
        let preemptions = Preemptions::count();
        let value = measure()?;
        Ok((value, preemptions.any()))
    };
    thread::scope(|scope| scope.spawn(work).join().expect("a measuring thread panicked"))
}

/// Returns how many nanoseconds it is since `start`, for each of `times`.
fn ns_each(start: Instant, times: usize) -> f64 {
    start.elapsed().as_nanos() as f64 / times.max(1) as f64
}

fn params(operation: &'static str, of: &'static str, number: usize) -> Params {
    vec![("operation", Param::Word(operation)), (of, Param::Number(number as u64))]
}

#[cfg(test)]
mod tests;
