//! The `submeter-bench` program: measures what counting costs, side by side with the alternatives,
//! and reports it.

#![forbid(unsafe_code)]

mod args;
mod bench;
mod command;
mod process;
mod report;
mod reports;
mod row;

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    let result = match args::BenchArgs::try_parse() {
        Ok(args) => command::run(&args),
        Err(error) => submeter_terminal::refuse(&error),
    };
    match result {
        Ok(code) => code,
        Err(failure) => failure.report(),
    }
}
