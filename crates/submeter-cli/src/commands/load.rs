//! `submeter load`.

use std::process::ExitCode;

use crate::cli::{Failure, LoadArgs};

/// Runs the command.
pub(crate) fn run(args: &LoadArgs) -> Result<ExitCode, Failure> {
    Err(Failure::new(format_args!("not in this build yet: {args:?}")))
}
