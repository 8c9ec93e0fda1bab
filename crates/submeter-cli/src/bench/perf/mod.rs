//! The `perf` table: what it costs that events follow the group switch, and whether they tell the truth.

mod accuracy;
mod cgroup;
mod design;
mod follow;
mod human;
mod record;
mod response;
mod switch;

use std::io;
use std::rc::Rc;

use super::Inputs;
use super::row::Row;
use super::runner::{Figures, Own, Plan};
use record::SharedRecord;

const TABLE: &str = "perf";
/// How often the document's table is measured in each round of the others.
const RESPONSES: usize = 4;

/// Says what to measure.
///
/// # Errors
/// When the tree of groups cannot be made.
pub(crate) fn plan(inputs: &Inputs) -> io::Result<Plan> {
    let record = SharedRecord::default();
    let mut notes = Vec::new();
    let times = if inputs.quick { 1 } else { RESPONSES };
    let mut groups = response::cells(&record, &mut notes, times);
    groups.extend(switch::cells(&record)?);
    groups.push(vec![accuracy::cell(&record, &mut notes)?]);
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
