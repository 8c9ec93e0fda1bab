//! `submeter completions` and `submeter man`: what a package installs beside the binary. Both are
//! generated from the definition that parses the command line, so they cannot disagree with it.

#[cfg(feature = "manual")]
use std::io;
#[cfg(feature = "manual")]
use std::path::Path;
use std::process::ExitCode;

use submeter_terminal::Failure;

#[cfg(feature = "manual")]
use crate::cli;
use crate::cli::{CompletionsArgs, ManArgs};

/// Prints a shell's completions.
#[cfg(feature = "manual")]
pub(crate) fn completions(args: &CompletionsArgs) -> Result<ExitCode, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut cli::command(), "submeter", &mut script);
    print(&script)
}

/// Prints the manual page of the command, or writes the pages of all its commands to a folder.
#[cfg(feature = "manual")]
pub(crate) fn man(args: &ManArgs) -> Result<ExitCode, Failure> {
    if let Some(folder) = &args.out {
        let mut command = cli::command().disable_help_subcommand(true);
        command.build();
        return pages(command, folder).map(|()| ExitCode::SUCCESS).map_err(|error| {
            let folder = folder.display();
            Failure::new(format_args!(
                "cannot write to {folder}: {error}; use an existing folder (--out)"
            ))
        });
    }
    let mut page = Vec::new();
    dated(cli::command())
        .render(&mut page)
        .map_err(|error| Failure::new(format_args!("cannot make the manual page: {error}")))?;
    print(&page)
}

/// Writes a page for a command and for each command below it.
#[cfg(feature = "manual")]
fn pages(command: clap::Command, folder: &Path) -> io::Result<()> {
    for below in command.get_subcommands().filter(|below| !below.is_hide_set()) {
        pages(below.clone(), folder)?;
    }
    dated(command).generate_to(folder).map(drop)
}

/// Supplies the date: tools complain of a page without one.
#[cfg(feature = "manual")]
fn dated(command: clap::Command) -> clap_mangen::Man {
    let page = clap_mangen::Man::new(command);
    submeter_terminal::DATE.into_iter().fold(page, clap_mangen::Man::date)
}

#[cfg(feature = "manual")]
fn print(text: &[u8]) -> Result<ExitCode, Failure> {
    // Both are made from this program's own texts.
    let text = String::from_utf8_lossy(text);
    submeter_terminal::print(&text).map(|()| ExitCode::SUCCESS).map_err(Failure::new)
}

#[cfg(not(feature = "manual"))]
pub(crate) fn completions(args: &CompletionsArgs) -> Result<ExitCode, Failure> {
    absent(format_args!("completions for {}", args.shell))
}

#[cfg(not(feature = "manual"))]
pub(crate) fn man(args: &ManArgs) -> Result<ExitCode, Failure> {
    let folder = args.out.as_ref().map(|folder| format!(" for {}", folder.display()));
    absent(format_args!("manual pages{}", folder.unwrap_or_default()))
}

#[cfg(not(feature = "manual"))]
fn absent(what: std::fmt::Arguments<'_>) -> Result<ExitCode, Failure> {
    Err(Failure::new(format_args!(
        "this build has no {what}: build it with `cargo install submeter-cli --features manual`"
    )))
}
