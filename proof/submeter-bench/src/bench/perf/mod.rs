//! The `perf` table: what it costs to make events follow the group switch, and how accurate they
//! are.

mod accuracy;
mod cgroup;
mod design;
mod follow;
mod hop;
mod priced;
mod response;
mod switch;

use std::io;

pub(crate) use accuracy::charged;

use super::Inputs;
use super::runner::Plan;

const TABLE: &str = "perf";
/// How often the document's table is measured in each round of the other cells.
const RESPONSES: usize = 4;

/// Returns the table's plan.
///
/// # Errors
/// When the tree of groups cannot be created.
pub(crate) fn plan(inputs: &Inputs) -> io::Result<Plan> {
    let mut notes = Vec::new();
    let times = if inputs.quick { 1 } else { RESPONSES };
    let mut groups = response::cells(&mut notes, times);
    groups.extend(switch::cells()?);
    groups.push(hop::cells(&mut notes)?);
    groups.push(vec![accuracy::cell(&mut notes)?]);
    groups.push(vec![accuracy::cell_of_ticks()]);
    Ok(Plan { mixed: true, notes, ..Plan::new(TABLE, groups) })
}

/// Measures cells in the shortest run that yields rows.
#[cfg(test)]
fn measured_once(groups: Vec<Vec<super::runner::Cell>>) -> super::runner::Measured {
    let (notes, absent) = (Vec::new(), Vec::new());
    let plan = Plan { table: TABLE, groups, mixed: true, rounds_max: 1, notes, absent };
    super::runner::run(plan, std::time::Duration::ZERO, &mut || false).expect("measured")
}
