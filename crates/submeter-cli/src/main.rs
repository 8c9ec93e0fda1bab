//! The `submeter` command.

#![forbid(unsafe_code)]

mod bench;
mod cli;
mod commands;
mod dashboard;
mod load;
mod report;
mod show;
mod stat;
mod top;

use std::process::ExitCode;

use clap::Parser;

use crate::cli::{Cli, Command, Failure};

fn main() -> ExitCode {
    let result = match Cli::try_parse() {
        Ok(cli) => run(cli.command),
        Err(error) => cli::refuse(&error),
    };
    match result {
        Ok(code) => code,
        Err(failure) => failure.report(),
    }
}

fn run(command: Command) -> Result<ExitCode, Failure> {
    match command {
        Command::Doctor(args) => commands::doctor::run(&args),
        Command::Serve(args) => commands::serve::run(&args),
        Command::Load(args) => commands::load::run(&args),
        Command::Top(args) => top::run(&args),
        Command::Stat(args) => stat::run(&args),
        Command::Bench(args) => commands::bench::run(&args),
    }
}
