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
    /// Log on standard error what the server does, besides warnings
    #[arg(short, long)]
    pub(crate) verbose: bool,
    /// Form of the log's lines: json has an object a line, with the time
    #[arg(long, value_name = "FORM", default_value = "plain")]
    pub(crate) log: LogForm,
}
