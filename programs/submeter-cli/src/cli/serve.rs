//! `submeter serve`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::size::{Size, TenantLimit, delimiter, file_mode, host_name};
use submeter_cache::Address;
use submeter_terminal::seconds;

/// Arguments of `submeter serve`.
#[derive(Args, Clone, Debug)]
pub(crate) struct ServeArgs {
    /// Address of the cache, or unix:/PATH of a socket; port 0 picks a free one
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:11211")]
    pub(crate) listen: Address,
    /// Permissions of the socket of --listen unix:/PATH
    #[arg(long, value_name = "OCTAL", default_value = "700", value_parser = file_mode)]
    pub(crate) unix_mode: u32,
    /// Serve only the users of a file of lines "USER:PASSWORD", each confined to the tenant /USER,
    /// or "USER:PASSWORD /TENANT"; the user of / may do everything
    #[arg(long, value_name = "FILE", conflicts_with = "load")]
    pub(crate) auth_file: Option<PathBuf>,
    /// Address of the page, /metrics and the API; port 0 picks a free one
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:9411")]
    pub(crate) http: SocketAddr,
    /// Encrypt both ports with this certificate, in PEM, those that lead to its authority after it
    #[arg(long, value_name = "FILE", requires = "tls_key", conflicts_with = "load")]
    pub(crate) tls_cert: Option<PathBuf>,
    /// Private key of --tls-cert, in PEM
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub(crate) tls_key: Option<PathBuf>,
    /// Answer on --http only who sends the token of this file, as a bearer or as the password that
    /// a browser asks for
    #[arg(long, value_name = "FILE")]
    pub(crate) token_file: Option<PathBuf>,
    /// Another name by which the page is reached, besides address and localhost; may be repeated
    #[arg(long, value_name = "NAME", value_parser = host_name)]
    pub(crate) http_host: Vec<String>,
    /// Separates the tenants' names at the front of a key
    #[arg(long, value_name = "CHAR", default_value = ":", value_parser = delimiter)]
    pub(crate) delimiter: u8,
    /// Drive the server over loopback with this many sibling tenants under /load
    #[arg(long, value_name = "TENANTS", value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub(crate) load: Option<u16>,
    /// End by itself after this time
    #[arg(long, value_name = "S", value_parser = seconds)]
    pub(crate) seconds: Option<Duration>,
    /// The most memory that items may hold in all
    #[arg(long, value_name = "SIZE", default_value = "64m")]
    pub(crate) memory: Size,
    /// The largest value
    #[arg(long, value_name = "SIZE", default_value = "1m")]
    pub(crate) value_max: Size,
    /// Refuse a store that finds no room, rather than drop items that have not expired
    #[arg(long)]
    pub(crate) no_evictions: bool,
    /// Refuse `flush_all`, which drops every tenant's items
    #[arg(long)]
    pub(crate) no_flush_all: bool,
    /// Let clients end the server with the command `shutdown`
    #[arg(long)]
    pub(crate) enable_shutdown: bool,
    /// The most connections to the cache at once; one more is told so and closed
    #[arg(short = 'c', long, value_name = "N", default_value_t = 1024,
          value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) connections: u32,
    /// The most memory that requests which are not whole and answers which are not taken may hold
    /// in all [default: 64m, or more if --value-max needs it]
    #[arg(long, value_name = "SIZE")]
    pub(crate) buffers: Option<Size>,
    /// Close a connection whose request is not whole, or whose answer is not taken, after this time
    /// and a second for each 64 KiB
    #[arg(long, value_name = "S", default_value = "60", value_parser = seconds)]
    pub(crate) request_timeout: Duration,
    /// Close a connection that makes no request for this time [default: never]
    #[arg(long, value_name = "S", value_parser = seconds)]
    pub(crate) idle_timeout: Option<Duration>,
    /// How long requests that are under way at the end may take to finish
    #[arg(long, value_name = "S", default_value = "2", value_parser = seconds)]
    pub(crate) drain_seconds: Duration,
    /// Limit the memory of a tenant; may be repeated
    #[arg(long, value_name = "/PATH=SIZE")]
    pub(crate) tenant_limit: Vec<TenantLimit>,
    /// Read limits of tenants from a file of lines "/PATH SIZE"
    #[arg(long, value_name = "FILE")]
    pub(crate) limits: Option<PathBuf>,
    /// Statistics (CSV) that --load draws its tenants from, instead of those built in
    #[arg(long, value_name = "FILE", requires = "load")]
    pub(crate) tenants_file: Option<PathBuf>,
    /// Seed of what --load sends
    #[arg(long, value_name = "N", default_value_t = 1, requires = "load")]
    pub(crate) seed: u64,
    /// Count nothing (memory is charged all the same: limits need it), to see what metering costs
    #[arg(long)]
    pub(crate) no_metering: bool,
    /// Worker threads of the server [default: one a CPU]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) threads: Option<u16>,
}
