//! The figures, for programs.

use serde::Serialize;

use super::Outcome;
use super::machine::Machine;

/// Writes machine and rows; a row a line, so that records can be compared by line.
pub(crate) fn json(outcome: &Outcome, warnings: &[String]) -> serde_json::Result<String> {
    /// What is said of the run beside the machine.
    #[derive(Serialize)]
    struct Run<'a> {
        #[serde(flatten)]
        machine: &'a Machine,
        seconds_per_table: f64,
        interrupted: bool,
        warnings: &'a [String],
    }
    let machine = serde_json::to_string_pretty(&Run {
        machine: &outcome.machine,
        seconds_per_table: outcome.budget.as_secs_f64(),
        interrupted: outcome.interrupted(),
        warnings,
    })?;
    let rows = outcome.rows().map(serde_json::to_string).collect::<Result<Vec<_>, _>>()?;
    let rows = rows.join(",\n    ");
    Ok(format!(
        "{{\n  \"machine\": {},\n  \"rows\": [\n    {rows}\n  ]\n}}\n",
        machine.replace('\n', "\n  ")
    ))
}
