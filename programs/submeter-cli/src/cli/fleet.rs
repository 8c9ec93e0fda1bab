//! `submeter fleet`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use submeter_terminal::seconds;

use super::bank::{BankArgs, Percent};
use super::page::AccessArgs;
use super::values::file_mode;
use super::{FleetBillArgs, FleetLimit, LogArgs};

/// Arguments of `submeter fleet`.
#[derive(Args, Clone, Debug)]
#[command(after_help = "\
Examples:
  # Three servers that share the limits of a tenant, under load that moves between them
  submeter fleet demo
  # The same by hand: a bank, two servers that share the limits of a tenant, and who holds what
  submeter fleet bank --listen unix:/run/bank.sock
  submeter serve --bank unix:/run/bank.sock --limit-fleet /acme=memory=64m,rate=100k/s
  submeter serve --bank unix:/run/bank.sock --limit-fleet /acme=memory=64m,rate=100k/s \\
    --listen 127.0.0.1:11212 --http 127.0.0.1:9412
  submeter fleet status --bank unix:/run/bank.sock
  # What tenants use now, on both servers
  submeter fleet top 127.0.0.1:9411 127.0.0.1:9412
  # What tenants used on both servers, across restarts
  submeter fleet bill 127.0.0.1:9411 127.0.0.1:9412 --file bill --sum")]
pub(crate) struct FleetArgs {
    #[command(subcommand)]
    pub(crate) command: FleetCommand,
}

#[derive(Debug, Clone, Subcommand)]
pub(crate) enum FleetCommand {
    /// Read what servers have counted, for an invoice that includes each count once
    Bill(FleetBillArgs),
    /// Serve a bank to the processes of this host
    Bank(BankServeArgs),
    /// Run three servers that share one limit, under load that moves between them
    Demo(FleetDemoArgs),
    /// Set what all servers together may use
    Set(FleetSetArgs),
    /// Show who holds which leases, since when and until when
    Status(FleetStatusArgs),
    /// Show the tenants of all servers in this terminal: in total, and per server
    Top(FleetTopArgs),
}

/// Arguments of `submeter fleet bank`.
#[derive(Args, Clone, Debug)]
#[command(after_help = "\
On disk, a bank keeps only how long its leases last, in a file beside its socket that ends in \
.lock. A restarted bank lends nothing new for that long, because it does not know what was lent \
before. Servers send it the limits again as they were, at most half a minute old; limits that no \
server has must be set again with `submeter fleet set`.

Examples:
  # For processes of this user
  submeter fleet bank --listen unix:/run/bank.sock
  # For all users of a group, each with their own name, and with a limit from the start
  submeter fleet bank --listen unix:/run/bank.sock --unix-mode 660 --limit /acme=memory=8g,rate=100k/s")]
pub(crate) struct BankServeArgs {
    /// Socket of the bank: unix:/PATH
    #[arg(long, value_name = "ADDR", value_parser = socket)]
    pub(crate) listen: PathBuf,
    /// Permissions of the socket. If users other than its owner may write to it, a member's name is
    /// its user's name
    #[arg(long, value_name = "OCTAL", default_value = "600", value_parser = file_mode)]
    pub(crate) unix_mode: u32,
    /// How long leases last; servers renew them three times in between
    #[arg(long, value_name = "S", default_value = "15", value_parser = seconds)]
    pub(crate) lease: Duration,
    /// A limit to start with: /PATH=SIZE,rate=N/s. May be repeated. The path ends at the first '=';
    /// use `submeter fleet set` for names that contain one
    #[arg(long, value_name = "LIMIT")]
    pub(crate) limit: Vec<FleetLimit>,
    /// Stop after this time
    #[arg(long, value_name = "S", value_parser = seconds)]
    pub(crate) seconds: Option<Duration>,
    #[command(flatten)]
    pub(crate) log: LogArgs,
}

fn socket(text: &str) -> Result<PathBuf, String> {
    let path = text.strip_prefix("unix:").filter(|path| !path.is_empty());
    path.map(PathBuf::from).ok_or_else(|| {
        format!("{text:?} is not a socket: use unix:/PATH, as in unix:/run/bank.sock")
    })
}

/// Arguments of `submeter fleet top`.
#[derive(Args, Clone, Debug)]
#[command(after_help = "\
A tenant's figures cover all servers that answer, and its limit is the sum of their leases; \
quantiles are those of the worst server, and shares are weighted by requests. Below each tenant \
are its figures per server.

Examples:
  # Until q or Ctrl-C
  submeter fleet top 10.0.0.1:9411 10.0.0.2:9411
  # Once, for a log
  submeter fleet top --once 10.0.0.1:9411 10.0.0.2:9411")]
pub(crate) struct FleetTopArgs {
    /// Addresses of the servers' pages, their --http
    #[arg(value_name = "URL", required = true)]
    pub(crate) urls: Vec<submeter_address::Address>,
    /// Print one table and exit
    #[arg(long)]
    pub(crate) once: bool,
    /// Show these columns, in this order
    #[arg(long, value_name = "KEY,...", value_delimiter = ',')]
    pub(crate) columns: Vec<String>,
    /// Leave the mouse to the terminal, for selecting text
    #[arg(long)]
    pub(crate) no_mouse: bool,
    #[command(flatten)]
    pub(crate) access: AccessArgs,
}

/// Arguments of `submeter fleet demo`.
#[derive(Args, Clone, Debug)]
#[command(after_help = "\
Examples:
  # Until Ctrl-C, with the addresses of three pages
  submeter fleet demo
  # For a script: exit code 1 if the limit was exceeded
  submeter fleet demo --seconds 20")]
pub(crate) struct FleetDemoArgs {
    /// Stop after this time
    #[arg(long, value_name = "S", value_parser = seconds)]
    pub(crate) seconds: Option<Duration>,
}

/// Arguments of `submeter fleet set`.
#[derive(Args, Clone, Debug)]
#[command(after_help = "\
A limit below what is lent takes effect as leases are renewed, within their duration.

Examples:
  # Eight GiB and 100,000 requests per second for /acme, over all servers
  submeter fleet set /acme memory=8g rate=100k/s --bank unix:/run/bank.sock
  # At most half of it per server, and 30 % reserved for servers that lose the bank
  submeter fleet set /acme memory=8g --per-member 50% --floors 30% --bank unix:/run/bank.sock
  # In Redis, with the password out of the process list
  SUBMETER_BANK=redis://:secret@db:6379/0 submeter fleet set /acme rate=100k/s")]
pub(crate) struct FleetSetArgs {
    /// Group to limit
    #[arg(value_name = "PATH")]
    pub(crate) path: String,
    /// memory=SIZE, rate=N/s, or both
    #[arg(value_name = "LIMIT", required = true)]
    pub(crate) limits: Vec<String>,
    /// The most that one server may have of each of these limits [default: no cap]
    #[arg(long, value_name = "PART")]
    pub(crate) per_member: Option<Percent>,
    /// The share that is never lent: the sum of all servers' --outage
    #[arg(long, value_name = "PART")]
    pub(crate) floors: Option<Percent>,
    #[command(flatten)]
    pub(crate) bank: BankArgs,
}

/// Arguments of `submeter fleet status`.
#[derive(Args, Clone, Debug)]
#[command(after_help = "\
Examples:
  # Who holds what of each limit
  submeter fleet status --bank unix:/run/bank.sock
  # For a script: one object
  submeter fleet status --bank unix:/run/bank.sock --json")]
pub(crate) struct FleetStatusArgs {
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) bank: BankArgs,
}
