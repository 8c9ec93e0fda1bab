//! `submeter fleet set`.

use std::process::ExitCode;

use submeter_bank::{Limit, Operate};
use submeter_terminal::{self as show, Failure};

use super::Engine;
use super::status::amount;
use crate::cli::{FleetLimit, FleetSetArgs};

/// Runs the command.
pub(super) fn run(args: &FleetSetArgs) -> Result<ExitCode, Failure> {
    let given = FleetLimit::new(&args.path, &args.limits.join(",")).map_err(Failure::new)?;
    let engine = Engine::new(&args.bank.bank, &args.bank.service)?;
    let mut text = String::new();
    for (budget, most) in given.budgets {
        let floors = args.floors.map_or(0, |part| part.of(most));
        let per_member = args.per_member.map(|part| part.of(most));
        let limit = Limit { budget, most, floors, per_member };
        engine.set(&limit).map_err(Failure::new)?;
        let (budget, most) = (&limit.budget, amount(&limit.budget, limit.most));
        let budget = budget.to_string();
        text.push_str(&format!("{}: {most} for the fleet\n", show::plain(&budget)));
    }
    show::print(&text).map_err(Failure::new)?;
    Ok(ExitCode::SUCCESS)
}
