//! The `rstat` table: what keeping the statistics of a tree costs those who update it, and those who read it.
//!
//! The designs of Linux's that it is measured against are written from the patches' description, for this table only.

mod clock;
mod cost;
mod designs;
mod human;
mod record;
mod run;
mod synthetic;
mod team;
mod trace;

use std::cell::RefCell;
use std::io;
use std::rc::Rc;

use submeter_sys::cpu::affinity;

use super::Inputs;
use super::row::{Param, Params, Row};
use super::runner::{Cell, Figures, Own, Plan, Sample};
use designs::{
    Before, Control, Design, DoublyLinked, Patch1, Patch1To2, Patch1To3, Submeter, WalkUp,
};
use record::{Reading, Record};
use synthetic::{Load, Synthetic};

pub(crate) use trace::{Trace, write_totals};

const TABLE: &str = "rstat";
/// What people cannot guess.
const LEGEND: [&str; 3] = [
    "control updates nothing, nor does barrier, whose flushes are submeter's barriers alone; what \
     they show of waits is the stamps and the machine",
    "a node is a group on one CPU's list; submeter has no lists, and counts a group once",
    "in the workloads flush, synthetic and trace totals were compared with a count of the updates after \
     every sample",
];

/// Says what to measure.
///
/// # Errors
/// When the CPUs of this process cannot be asked for.
pub(crate) fn plan(inputs: &Inputs) -> io::Result<Plan> {
    let cpus = affinity()?;
    let record = Rc::new(RefCell::new(Record::default()));
    // First, as memory that others gave back would make a group look free.
    let (mut groups, mut notes) = cost::groups(&record, inputs.quick)?;
    notes.extend(LEGEND.map(str::to_owned));
    if cpus.len() > 1 {
        for load in [Load::Free, Load::Equal] {
            groups.push(synthetic(&record, &cpus, load));
        }
    } else {
        notes.push("no synthetic workload: a flusher and an updater want a CPU each".to_owned());
    }
    if let Some(trace) = &inputs.trace {
        groups.push(trace::cells(&record, &cpus, trace));
    }
    Ok(Plan {
        table: TABLE,
        unit: "",
        groups,
        figures: Figures::Own(Rc::new(Found(record))),
        rounds_max: usize::MAX,
        notes,
        absent: Vec::new(),
    })
}

/// The figures of all cells.
struct Found(SharedRecord);

impl Own for Found {
    fn rows(&self) -> Vec<Row> {
        self.0.borrow().rows(TABLE)
    }

    fn human(&self, rows: &[Row]) -> String {
        human::human(rows)
    }
}

/// Takes one sample of everything that a cell measures.
type Measure = Box<dyn FnMut() -> io::Result<Readings>>;

/// What a sample found.
struct Readings {
    all: Vec<Reading>,
    /// Whether it is to be taken again, because a thread was off its CPU. Where that is what the figures are
    /// about, it never is.
    disturbed: bool,
}

impl Readings {
    fn kept(all: Vec<Reading>) -> Readings {
        Readings { all, disturbed: false }
    }
}

/// The record that all cells write.
type SharedRecord = Rc<RefCell<Record>>;

/// Makes the cells of a group. The first sample of each, which warms up, is not taken down.
fn cells(
    record: &SharedRecord,
    params: &Params,
    variants: Vec<(&'static str, Measure)>,
) -> Vec<Cell> {
    let names = variants.iter().map(|(variant, _)| *variant).collect();
    let group = record.borrow_mut().group(params.clone(), names);
    let cell = |(variant, mut measure): (&'static str, Measure)| {
        let (record, mut warm) = (Rc::clone(record), false);
        let measure = move || {
            let Readings { all, disturbed } = measure()?;
            if warm {
                record.borrow_mut().add(group, variant, all, disturbed);
            }
            warm = true;
            Ok(Sample { values: Vec::new(), disturbed })
        };
        Cell { params: params.clone(), variant, measure: Box::new(measure) }
    };
    variants.into_iter().map(cell).collect()
}

/// The designs side by side, each with what `measure` makes of it; its argument says whether totals can be checked.
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

fn synthetic(record: &SharedRecord, cpus: &[usize], load: Load) -> Vec<Cell> {
    let params = vec![("workload", Param::Word("synthetic")), ("load", Param::Word(load.name()))];
    cells(record, &params, variants!(synthetic_of, cpus, load))
}

fn synthetic_of<D: Design>(counts: bool, cpus: &[usize], load: Load) -> Measure {
    let (cpus, mut workload) = (cpus.to_vec(), None);
    Box::new(move || {
        if workload.is_none() {
            workload = Some(Synthetic::<D>::new(counts)?);
        }
        workload.as_mut().expect("made above").sample(&cpus, load).map(Readings::kept)
    })
}
