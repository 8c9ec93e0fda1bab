//! `submeter limit`.

use clap::{Args, Subcommand};
use submeter_address::Address;

use super::page::AccessArgs;

/// Arguments of `submeter limit`.
#[derive(Args, Clone, Debug)]
pub(crate) struct LimitArgs {
    #[command(subcommand)]
    pub(crate) command: LimitCommand,
}

/// What is done with limits.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum LimitCommand {
    /// Set some limits of a tenant, and say what would undo it
    ///
    /// The server takes it where it was started with --limits-api, and keeps it until its file of
    /// limits is read again. What is not named stays; NAME=none lifts one.
    #[command(after_help = "\
Examples:
  # At most 500 requests a second for /acme, whatever else limits it
  submeter limit set http://127.0.0.1:9411 /acme rate=500/s
  # No limit of memory any more
  submeter limit set http://127.0.0.1:9411 /acme memory=none")]
    Set(LimitSetArgs),
}

/// Arguments of `submeter limit set`.
#[derive(Args, Clone, Debug)]
pub(crate) struct LimitSetArgs {
    #[command(flatten)]
    pub(crate) access: AccessArgs,
    /// Address of the server's page
    #[arg(value_name = "URL")]
    pub(crate) url: Address,
    /// The tenant, as in /acme
    #[arg(value_name = "PATH")]
    pub(crate) path: String,
    /// Its limits, as the server writes them: rate=500/s, cpu=500m, memory=64m, rate=none
    #[arg(value_name = "NAME=VALUE", required = true)]
    pub(crate) limits: Vec<String>,
}
