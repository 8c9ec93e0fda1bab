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
mod theme;
mod view;
#[cfg(test)]
mod view_tests;

use std::ffi::OsString;
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
        (false, false) => {
            can_be_drawn_on("--once for one table, or --json for one object per second")?;
            terminal::run(Source::Server(client), &args.columns, !args.no_mouse)
        }
    }
}

/// Runs `fleet top`.
pub(crate) fn run_fleet(args: &FleetTopArgs) -> Result<ExitCode, Failure> {
    let fleet = Source::Fleet(Client::distinct(&args.access, &args.urls)?);
    match args.once {
        true => once::run(&fleet, &args.columns),
        false => {
            can_be_drawn_on("--once for one table")?;
            terminal::run(fleet, &args.columns, !args.no_mouse)
        }
    }
}

/// Refuses an output on which frames cannot be drawn, and says what to add.
fn can_be_drawn_on(remedy: &str) -> Result<(), Failure> {
    if !std::io::stdout().is_terminal() {
        return Err(Failure::new(format_args!("the output is not a terminal: add {remedy}")));
    }
    match dumb(std::env::var_os("TERM")) {
        Some(why) => Err(Failure::new(format_args!("{why}: add {remedy}"))),
        None => Ok(()),
    }
}

/// Says why a terminal of this kind moves no cursor: it would show the control codes as text.
fn dumb(term: Option<OsString>) -> Option<&'static str> {
    match term {
        Some(term) if term == "dumb" => Some("the terminal cannot move the cursor (TERM is dumb)"),
        Some(term) if !term.is_empty() => None,
        _ => Some("the terminal type is unknown (TERM is not set)"),
    }
}
