//! The failure of a command: one line that names the input and the remedy, and exit code 2.

use std::fmt::Display;
use std::process::ExitCode;

use anstyle::{AnsiColor, Style};

/// The line that is printed when a command fails.
#[derive(Debug, PartialEq, Eq)]
pub struct Failure(String);

impl Failure {
    /// Makes a failure from a line that names the input and the remedy.
    pub fn new(line: impl Display) -> Failure {
        Failure(line.to_string())
    }

    /// Returns the line.
    pub fn line(&self) -> &str {
        &self.0
    }

    /// Prints the line on standard error and returns the exit code of bad input, 2.
    pub fn report(&self) -> ExitCode {
        const RED: Style = AnsiColor::Red.on_default().bold();
        anstream::eprintln!("{RED}error:{RED:#} {}", self.0);
        ExitCode::from(2)
    }
}

/// Handles a command line that clap did not accept: help and version are printed, anything else is
/// a failure.
///
/// clap's own report has several lines; scripts and logs need only one.
pub fn refuse(error: &clap::Error) -> Result<ExitCode, Failure> {
    if !error.use_stderr() {
        // The reader may have closed the pipe (`submeter --help | head -1`); nothing is lost.
        let _ = error.print();
        return Ok(ExitCode::SUCCESS);
    }
    if error.kind() == clap::error::ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        let _ = error.print();
        return Ok(ExitCode::from(2));
    }
    Err(Failure::new(format_args!("{} (see --help)", one_line(error))))
}

/// Writes clap's report of several lines as one, without its mark and what it says of the usage.
pub fn one_line(error: &clap::Error) -> String {
    let text = error.render().to_string();
    let wanted = text.lines().map(str::trim).take_while(|line| !line.starts_with("Usage:"));
    let wanted = wanted
        .filter(|line| !line.is_empty() && !line.starts_with("For more information"))
        .map(|line| line.strip_prefix("error: ").unwrap_or(line));
    let mut joined = String::new();
    for part in wanted {
        match joined.chars().last() {
            None => {}
            // A list follows, as in "the following required arguments were not provided:".
            Some(':') => joined.push(' '),
            Some(_) => joined.push_str("; "),
        }
        joined.push_str(part);
    }
    joined
}
