//! `submeter completions` and `submeter man`.

use std::path::PathBuf;

use clap::Args;
#[cfg(feature = "manual")]
use clap_complete::Shell;
#[cfg(not(feature = "manual"))]
type Shell = String;

/// Arguments of `submeter completions`.
#[derive(Args, Clone, Debug)]
pub(crate) struct CompletionsArgs {
    /// The shell to complete for
    pub(crate) shell: Shell,
}

/// Arguments of `submeter man`.
#[derive(Args, Clone, Debug)]
pub(crate) struct ManArgs {
    /// Write a page for each command to this folder, instead of printing the main page
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
}
