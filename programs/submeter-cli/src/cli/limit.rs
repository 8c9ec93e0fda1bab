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
    /// Set some limits of a tenant, and print the command that undoes it
    ///
    /// The server must have been started with --limits-api. It keeps the limits until its file of
    /// limits is reread. Limits that are not named stay; NAME=none lifts one.
    #[command(after_help = "\
Examples:
  # At most 500 requests per second for /acme; its other limits stay
  submeter limit set http://127.0.0.1:9411 /acme rate=500/s
  # Lift its memory limit
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
    /// Its limits: rate=500/s, cpu=500m, memory=64m, rate=none
    #[arg(value_name = "NAME=VALUE", required = true)]
    pub(crate) limits: Vec<String>,
}
