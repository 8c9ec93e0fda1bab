//! `submeter serve`.

use std::process::ExitCode;

use crate::cli::{Failure, ServeArgs};

/// Runs the command.
pub(crate) fn run(args: &ServeArgs) -> Result<ExitCode, Failure> {
    Err(Failure::new(format_args!("not in this build yet: {args:?}")))
}
