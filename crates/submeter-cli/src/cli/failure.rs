//! How a command fails: one line that names the input and the remedy, and exit code 2.

use std::fmt::Display;
use std::process::ExitCode;

use anstyle::{AnsiColor, Style};

/// Holds the one line that is printed when a command cannot do what it was asked.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Failure(String);

impl Failure {
    /// Makes a failure from a line that names the input and the remedy.
    pub(crate) fn new(line: impl Display) -> Failure {
        Failure(line.to_string())
    }

    /// Returns the line.
    pub(crate) fn line(&self) -> &str {
        &self.0
    }

    /// Prints the line on standard error and returns the exit code of bad input, 2.
    pub(crate) fn report(&self) -> ExitCode {
        const RED: Style = AnsiColor::Red.on_default().bold();
        anstream::eprintln!("{RED}error:{RED:#} {}", self.0);
        ExitCode::from(2)
    }
}

/// Answers a command line that clap did not take: help and version are answers, the rest failures.
///
/// clap's own report is several lines; scripts and logs want the one that matters.
pub(crate) fn refuse(error: &clap::Error) -> Result<ExitCode, Failure> {
    if !error.use_stderr() {
        // The reader may have gone (`submeter --help | head -1`); nothing is lost.
        let _ = error.print();
        return Ok(ExitCode::SUCCESS);
    }
    if error.kind() == clap::error::ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        let _ = error.print();
        return Ok(ExitCode::from(2));
    }
    let text = error.render().to_string();
    let wanted = text.lines().map(str::trim).take_while(|line| !line.starts_with("Usage:"));
    let parts: Vec<&str> = wanted
        .filter(|line| !line.is_empty() && !line.starts_with("For more information"))
        .map(|line| line.strip_prefix("error: ").unwrap_or(line))
        .collect();
    Err(Failure::new(format_args!("{} (see --help)", parts.join("; "))))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::cli::Cli;

    #[test]
    fn a_wrong_command_line_is_one_line_that_names_the_input() {
        for (args, named) in [
            (&["submeter", "srve"][..], "srve"),
            (&["submeter", "serve", "--lod", "6"], "--lod"),
            (&["submeter", "serve", "--memory", "lots"], "lots"),
            (&["submeter", "load", "--seconds", "-1"], "-1"),
            (&["submeter", "load", "extra"], "extra"),
        ] {
            let error = Cli::try_parse_from(args).expect_err("refused");
            let failure = refuse(&error).expect_err("a failure");
            assert!(failure.0.contains(named), "{failure:?} names {named}");
            assert!(!failure.0.contains('\n'), "{failure:?} is one line");
        }
    }
}
