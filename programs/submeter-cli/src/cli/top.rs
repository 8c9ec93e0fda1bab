//! `submeter top`.

use clap::Args;

use super::page::PageArgs;

/// Arguments of `submeter top`.
#[derive(Args, Clone, Debug)]
#[command(after_help = "\
Examples:
  # The tenants of this machine's server
  submeter top
  # What each holds and was refused, by column keys; an unknown key lists the known ones
  submeter top --columns requests_per_s,memory_bytes,refused_per_s
  # Those of another program with a page, once, for a log
  submeter top --once http://127.0.0.1:9411
  # One object per second for a script, from a server that requires a token
  submeter top --json --token-file /etc/submeter.token")]
pub(crate) struct TopArgs {
    /// Print one table and exit
    #[arg(long)]
    pub(crate) once: bool,
    /// Print JSON: one object per second, or a single one with --once
    #[arg(long)]
    pub(crate) json: bool,
    /// Show these columns, in this order
    #[arg(long, value_name = "KEY,...", value_delimiter = ',', conflicts_with = "json")]
    pub(crate) columns: Vec<String>,
    /// Leave the mouse to the terminal, for selecting text
    #[arg(long)]
    pub(crate) no_mouse: bool,
    #[command(flatten)]
    pub(crate) page: PageArgs,
}
