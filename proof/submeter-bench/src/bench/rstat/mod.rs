//! The `rstat` table: what the statistics of a tree cost its updaters and its readers.
//!
//! Linux's designs, which submeter is compared with, were written from the patches' description,
//! for this table only.

mod clock;
mod cost;
mod designs;
mod run;
mod synthetic;
mod team;
mod times;
mod trace;

use std::io;
use std::rc::Rc;

use submeter_sys::cpu::affinity;

use super::Inputs;
use super::record::Reading;
use super::runner::{Cell, Measure, Plan, Sample};
use crate::row::{Param, Params};
use designs::{
    Before, Control, Design, DoublyLinked, Patch1, Patch1To2, Patch1To3, Submeter, WalkUp,
};
use synthetic::{Load, Synthetic};

pub(crate) use trace::{Trace, write_totals};

const TABLE: &str = "rstat";
/// Notes that a reader needs to understand the rows.
const LEGEND: [&str; 3] = [
    "control and barrier update nothing, and a flush of barrier is only submeter's barrier; the waits that \
     they show come from the timestamps and the machine",
    "a node is a group on one CPU's list; submeter has no lists and counts each group once",
    "in the workloads flush, synthetic and trace, totals were checked against a count of the updates after \
     every sample",
];

/// Returns the table's plan.
///
/// # Errors
/// When the CPUs of this process cannot be determined.
pub(crate) fn plan(inputs: &Inputs) -> io::Result<Plan> {
    let cpus = affinity()?;
    // First, because memory that other cells freed would make a group look free.
    let (mut groups, mut notes) = cost::groups(inputs.quick)?;
    notes.extend(LEGEND.map(str::to_owned));
    if cpus.len() > 1 {
        for load in [Load::Free, Load::Equal] {
            groups.push(synthetic(&cpus, load));
        }
    } else {
        notes.push("no synthetic workload: a flusher and an updater need a CPU each".to_owned());
    }
    let trace = inputs.trace.clone().unwrap_or_else(|| Rc::new(Trace::shipped()));
    notes.push(trace.about());
    groups.push(trace::cells(&cpus, &trace));
    Ok(Plan { mixed: true, notes, ..Plan::new(TABLE, groups) })
}

/// Makes the cells of a group.
fn cells(params: &Params, variants: Vec<(&'static str, Measure)>) -> Vec<Cell> {
    let cell = |(variant, measure)| Cell::new(params.clone(), variant, measure);
    variants.into_iter().map(cell).collect()
}

/// Makes a reading of `measure`, whose row is the median.
fn reading(measure: &'static str, unit: &'static str, value: f64) -> Reading {
    Reading::of(unit, vec![value]).with("measure", measure)
}

/// The designs side by side, each measured by `$measure`, whose first argument says whether the
/// design keeps totals to check.
macro_rules! variants {
    ($measure:ident $(, $argument:expr)*) => {
        vec![
            ("before", $measure::<Before>(true $(, $argument)*)),
            ("patch_1", $measure::<Patch1>(true $(, $argument)*)),
            ("patch_1_2", $measure::<Patch1To2>(true $(, $argument)*)),
            ("patch_1_2_3", $measure::<Patch1To3>(true $(, $argument)*)),
            ("list_head", $measure::<DoublyLinked>(true $(, $argument)*)),
            ("walk_up", $measure::<WalkUp>(true $(, $argument)*)),
            ("submeter", $measure::<Submeter>(true $(, $argument)*)),
            ("control", $measure::<Control<false>>(false $(, $argument)*)),
            ("barrier", $measure::<Control<true>>(false $(, $argument)*)),
        ]
    };
}
use variants;

fn synthetic(cpus: &[usize], load: Load) -> Vec<Cell> {
    let params =
        Params::from([("workload", Param::word("synthetic")), ("load", Param::word(load.name()))]);
    cells(&params, variants!(synthetic_of, cpus, load))
}

fn synthetic_of<D: Design>(counts: bool, cpus: &[usize], load: Load) -> Measure {
    let (cpus, mut workload) = (cpus.to_vec(), None);
    Box::new(move || {
        if workload.is_none() {
            workload = Some(Synthetic::<D>::new(counts)?);
        }
        workload.as_mut().expect("made above").sample(&cpus, load).map(Sample::kept)
    })
}
