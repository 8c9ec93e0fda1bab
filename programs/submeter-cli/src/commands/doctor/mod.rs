//! `submeter doctor`: what was found, what was decided and why, what would improve it, and what
//! operations cost here.

mod advice;
mod facts;
mod measure;
mod operations;
mod report;
mod surroundings;

use std::process::ExitCode;

use crate::cli::DoctorArgs;
use submeter_terminal as show;
use submeter_terminal::Failure;

/// Runs the command. A machine without sequences is not a failure: everything works, but more
/// slowly.
pub(crate) fn run(args: &DoctorArgs) -> Result<ExitCode, Failure> {
    let facts = facts::Facts::gather();
    let (operations, no_operations) = match operations::measured() {
        Ok(operations) => (operations, None),
        Err(error) => (Vec::new(), Some(error)),
    };
    let diagnosis = report::Diagnosis {
        world: advice::world(&facts),
        remedies: advice::remedies(&facts),
        warnings: advice::warnings(&facts),
        operations,
        no_operations,
        facts,
    };
    let text = if args.json {
        let json = serde_json::to_string_pretty(&diagnosis);
        json.map_err(|error| Failure::new(format_args!("cannot write JSON: {error}")))? + "\n"
    } else {
        report::human(&diagnosis)
    };
    show::print(&text).map_err(Failure::new)?;
    Ok(ExitCode::SUCCESS)
}
