//! `submeter top`.

use clap::Args;

use super::page::PageArgs;

/// Arguments of `submeter top`.
#[derive(Args, Clone, Debug)]
pub(crate) struct TopArgs {
    /// Print one table and exit
    #[arg(long)]
    pub(crate) once: bool,
    /// Print JSON: one object per second, or a single one with --once
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) page: PageArgs,
}
