//! `submeter top`: the tree of a running server in the terminal, or as text for scripts.
//!
//! [`state`] decides what is shown and in which order, independently of a terminal; [`view`] draws
//! it where [`layout`] says, and [`terminal`] reads the keys and the mouse.

pub(crate) mod client;
mod columns;
mod figures;
mod fleet;
mod graph;
mod layout;
mod once;
mod pane;
mod popup;
mod screen;
mod source;
mod state;
#[cfg(test)]
mod state_tests;
mod stream;
mod terminal;
mod view;
#[cfg(test)]
mod view_tests;

use std::io::IsTerminal;
use std::process::ExitCode;

use self::client::Client;
use self::source::Source;
use crate::cli::{FleetTopArgs, TopArgs};
use submeter_terminal::Failure;

/// Runs the command.
pub(crate) fn run(args: &TopArgs) -> Result<ExitCode, Failure> {
    let client = Client::new(&args.page)?;
    match (args.once, args.json) {
        (true, true) => stream::once(&client),
        (true, false) => once::run(&Source::Server(client), &args.columns),
        (false, true) => stream::run(client),
        (false, false) if !std::io::stdout().is_terminal() => Err(Failure::new(
            "the output is not a terminal: add --once for one table, or --json for one object per \
             second",
        )),
        (false, false) => terminal::run(Source::Server(client), &args.columns, !args.no_mouse),
    }
}

/// Runs `fleet top`.
pub(crate) fn run_fleet(args: &FleetTopArgs) -> Result<ExitCode, Failure> {
    let fleet = Source::Fleet(Client::distinct(&args.access, &args.urls)?);
    match args.once {
        true => once::run(&fleet, &args.columns),
        false if !std::io::stdout().is_terminal() => {
            Err(Failure::new("the output is not a terminal: add --once for one table"))
        }
        false => terminal::run(fleet, &args.columns, !args.no_mouse),
    }
}
