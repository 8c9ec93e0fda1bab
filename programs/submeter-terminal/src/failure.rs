//! The failure of a command: one line that names the input and the remedy, and exit code 2.

use std::borrow::Cow;
use std::fmt::Display;
use std::process::ExitCode;

use anstyle::{AnsiColor, Style};

use crate::{plain, print, tell};

/// The line that is printed when a command fails.
#[derive(Debug, PartialEq, Eq)]
pub struct Failure(String);

impl Failure {
    /// Makes a failure from a line that names the input and the remedy. The line contains inputs
    /// and answers, and every character of it must be visible: see [`plain`].
    pub fn new(line: impl Display) -> Failure {
        Failure(plain(&line.to_string()).into_owned())
    }

    /// Returns the line.
    pub fn line(&self) -> &str {
        &self.0
    }

    /// Prints the line on standard error and returns the exit code of bad input, 2.
    pub fn report(&self) -> ExitCode {
        const RED: Style = AnsiColor::Red.on_default().bold();
        tell(&format!("{RED}error:{RED:#} {}\n", self.0));
        ExitCode::from(2)
    }
}

/// Handles a command line that clap did not accept: help and version are printed, anything else is
/// a failure.
///
/// clap's own report has several lines; scripts and logs need only one.
pub fn refuse(error: &clap::Error) -> Result<ExitCode, Failure> {
    if !error.use_stderr() {
        let text = error.render().ansi().to_string();
        return print(&text).map(|()| ExitCode::SUCCESS).map_err(Failure::new);
    }
    if error.kind() == clap::error::ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        tell(&error.render().ansi().to_string());
        return Ok(ExitCode::from(2));
    }
    Err(Failure::new(format_args!("{} (see --help)", one_line(error))))
}

/// Writes clap's report of several lines as one, without its prefix and its usage text.
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
        joined.push_str(&without_middle(part));
    }
    joined
}

/// Maximum number of characters of an input that an error repeats.
const SHOWN: usize = 200;

/// Shortens the input that an error repeats; it may be a whole file of another kind.
pub fn short(text: &str) -> Cow<'_, str> {
    match text.char_indices().nth(SHOWN) {
        None => Cow::Borrowed(text),
        Some((end, _)) => {
            Cow::Owned(format!("{}… ({} characters)", &text[..end], text.chars().count()))
        }
    }
}

/// Shortens a line from clap, which repeats whole values: the problem comes before them, and the
/// remedy after.
fn without_middle(line: &str) -> Cow<'_, str> {
    const REMEDY: usize = 3 * SHOWN;
    let last = line.char_indices().rev().nth(REMEDY - 1).map_or(0, |(start, _)| start);
    match line.char_indices().nth(SHOWN) {
        Some((end, _)) if end < last => {
            let n = line.chars().count();
            Cow::Owned(format!("{}… ({n} characters) …{}", &line[..end], &line[last..]))
        }
        _ => Cow::Borrowed(line),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_long_is_shortened_and_its_length_said() {
        assert_eq!(short("/acme"), "/acme");
        let long = "租".repeat(SHOWN + 1);
        assert_eq!(short(&long), format!("{}… (201 characters)", "租".repeat(SHOWN)));
        assert_eq!(short(&long[3..]), long[3..]);
        let line = format!("invalid value '{}' for '--memory': no size", "租".repeat(900));
        let shown = without_middle(&line);
        assert!(shown.starts_with("invalid value '租") && shown.ends_with("no size"), "{shown}");
        assert!(shown.contains("(940 characters)") && shown.chars().count() < 850, "{shown}");
        let whole = "x".repeat(4 * SHOWN);
        assert_eq!(without_middle(&whole), whole);
    }
}
