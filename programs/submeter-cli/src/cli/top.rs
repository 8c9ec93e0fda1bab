//! `submeter top`.

use clap::Args;

/// Arguments of `submeter top`.
#[derive(Args, Clone, Debug)]
pub(crate) struct TopArgs {
    /// Print one table and exit
    #[arg(long)]
    pub(crate) once: bool,
    /// Print JSON: one object per second, or a single one with --once
    #[arg(long)]
    pub(crate) json: bool,
    /// Address of the server's page
    #[arg(value_name = "URL", default_value = "http://127.0.0.1:9411")]
    pub(crate) url: String,
}
