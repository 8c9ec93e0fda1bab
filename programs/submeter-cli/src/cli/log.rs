//! The log of a server.

use clap::{Args, ValueEnum};

/// How the lines of the log are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogForm {
    Plain,
    Json,
}

/// What is logged, and how.
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct LogArgs {
    /// Also log what the server does, not only warnings, to standard error
    #[arg(short, long)]
    pub(crate) verbose: bool,
    /// Format of log lines: json writes one object per line, with the time
    #[arg(long, value_name = "FORM", default_value = "plain")]
    pub(crate) log: LogForm,
}
