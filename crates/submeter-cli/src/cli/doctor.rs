//! `submeter doctor`.

use clap::Args;

/// What `submeter doctor` is told.
#[derive(Args, Clone, Debug)]
pub(crate) struct DoctorArgs {
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}
