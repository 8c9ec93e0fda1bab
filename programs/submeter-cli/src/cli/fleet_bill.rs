//! `submeter fleet bill`.

use std::path::PathBuf;

use clap::Args;
use submeter_address::Address;

use super::page::AccessArgs;

/// Arguments of `submeter fleet bill`.
#[derive(Args, Clone, Debug)]
#[command(after_help = "\
Reads what each server has counted since it started, and keeps the last reading of each run of a \
server. Running it twice, late or again after a crash counts nothing twice. What a run counted \
after it was last read, and after its last checkpoint, is reported as unknown. A group's total is \
what it counted itself plus what groups below it counted between their last reading and their \
deletion, so that the totals of all groups add up.

Examples:
  # Every minute, from a timer
  submeter fleet bill 10.0.0.1:9411 10.0.0.2:9411 --file /var/lib/submeter/bill
  # The invoice
  submeter fleet bill --file /var/lib/submeter/bill --sum
  # For a script: one object
  submeter fleet bill --file /var/lib/submeter/bill --sum --json
  # In PostgreSQL, where the view submeter_invoice shows the same
  SUBMETER_POSTGRES=postgres://bill:secret@db/billing submeter fleet bill 10.0.0.1:9411")]
pub(crate) struct FleetBillArgs {
    /// Addresses of the servers' pages, their --http; none with --sum uses what was read before
    #[arg(value_name = "URL")]
    pub(crate) urls: Vec<Address>,
    /// Keep what was read in this file, which is created if missing
    #[arg(long, value_name = "PATH", conflicts_with = "postgres")]
    pub(crate) file: Option<PathBuf>,
    /// Keep what was read in this database, postgres://USER@HOST/DATABASE, in tables that are
    /// created if missing; without this and --file, the variable SUBMETER_POSTGRES is used, which
    /// keeps a password out of the process list
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) postgres: Option<Address>,
    /// Print the invoice: the sums over all servers and their runs
    #[arg(long)]
    pub(crate) sum: bool,
    /// Print the invoice as JSON
    #[arg(long, requires = "sum")]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) access: AccessArgs,
}
