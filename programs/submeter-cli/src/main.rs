//! The `submeter` command.

#![forbid(unsafe_code)]

mod cli;
mod commands;
mod fleet;
mod logger;
mod secrets;
mod stat;
#[cfg(feature = "tls")]
mod tls;
mod top;
mod unserved;

use std::alloc::System;
use std::process::ExitCode;

use crate::cli::Command;
use submeter_alloc::Chosen;
use submeter_terminal::Failure;

/// Attributes blocks to tenants if `serve --heap` asks for it; otherwise only passes allocations
/// on.
#[global_allocator]
static HEAP: Chosen<System> = Chosen::new(System);

/// Where to find what used to be a command of this program.
const BENCH: &str = "the bench is a separate program in the sources: cargo run --release -p \
                     submeter-bench -- --help";

fn main() -> ExitCode {
    // Not a command: one would be suggested to those who mistype another.
    if std::env::args_os().nth(1).is_some_and(|word| word == "bench") {
        return Failure::new(BENCH).report();
    }
    let result = match cli::parse(std::env::args_os()) {
        Ok(cli) => run(cli.command),
        Err(error) => submeter_terminal::refuse(&error),
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
        Command::Fleet(args) => fleet::run(&args.command),
        Command::Load(args) => commands::load::run(&args),
        Command::Top(args) => top::run(&args),
        Command::Stat(args) => stat::run(&args),
        Command::Limit(args) => commands::limit::run(&args.command),
        Command::Completions(args) => commands::manual::completions(&args),
        Command::Man(args) => commands::manual::man(&args),
    }
}
