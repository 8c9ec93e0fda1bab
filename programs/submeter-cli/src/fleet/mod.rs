//! `submeter fleet`: a bank for the processes of a host, and what an operator asks of any bank.

mod bank;
mod bill;
mod demo;
mod engine;
mod log;
mod set;
mod status;

use std::process::ExitCode;

use submeter_terminal::Failure;

pub(crate) use self::engine::{Certificates, Engine, EngineError};
use crate::cli::FleetCommand;

/// Runs the command.
pub(crate) fn run(command: &FleetCommand) -> Result<ExitCode, Failure> {
    match command {
        FleetCommand::Bill(args) => bill::run(args),
        FleetCommand::Bank(args) => bank::run(args),
        FleetCommand::Demo(args) => demo::run(args),
        FleetCommand::Set(args) => set::run(args),
        FleetCommand::Status(args) => status::run(args),
        FleetCommand::Top(args) => crate::top::run_fleet(args),
    }
}
