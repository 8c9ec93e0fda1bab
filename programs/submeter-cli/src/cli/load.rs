//! `submeter load`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use submeter::limits::size;

use super::values::delimiter;
use submeter_terminal::{Destination, seconds};

/// Arguments of `submeter load`.
#[derive(Args, Clone, Debug)]
#[command(
    after_help = "The built-in statistics are of six clusters from Yang, Yue, Vinayak: A large \
    scale analysis of hundreds of in-memory cache clusters at Twitter, OSDI 2020 (per-cluster \
    statistics, CC BY 4.0)."
)]
pub(crate) struct LoadArgs {
    /// Server to drive
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:11211")]
    pub(crate) connect: String,
    /// Number of tenants [default: 6, or all of --tenants-file]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub(crate) tenants: Option<u16>,
    /// Duration of the run [default: 10, unless --requests is given]
    #[arg(long, value_name = "S", value_parser = seconds)]
    pub(crate) seconds: Option<Duration>,
    /// Write configuration and results to a file, or to standard output with "-"
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<Destination>,
    /// Statistics (CSV) to draw tenants from, instead of the built-in ones
    #[arg(long, value_name = "FILE")]
    pub(crate) tenants_file: Option<PathBuf>,
    /// Number of connections
    #[arg(long, value_name = "C", default_value_t = 8,
          value_parser = clap::value_parser!(u16).range(1..=10_000))]
    pub(crate) connections: u16,
    /// Stop after this many requests
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) requests: Option<u64>,
    /// Requests per second over all connections, sent on schedule [default: as fast as answers
    /// arrive]
    #[arg(long, value_name = "R", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) rate: Option<u64>,
    /// Ratio of stores to retrievals, as in 1:10, instead of each tenant's own commands
    #[arg(long, value_name = "SET:GET", value_parser = ratio)]
    pub(crate) ratio: Option<(f64, f64)>,
    /// Mean length of values, instead of each tenant's own
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub(crate) data_size: Option<u64>,
    /// Run this long before measuring
    #[arg(long, value_name = "S", value_parser = seconds, conflicts_with = "requests")]
    pub(crate) warm_up: Option<Duration>,
    /// Start the connections one after another over this time, instead of all at once
    #[arg(long, value_name = "S", value_parser = seconds)]
    pub(crate) ramp: Option<Duration>,
    /// Write latencies to a file, or to standard output with "-", in the format of HdrHistogram's
    /// tools: percentiles in milliseconds
    #[arg(long, value_name = "FILE")]
    pub(crate) hdr: Option<Destination>,
    /// Seed for keys and operations
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
    /// Requests in flight on each connection
    #[arg(long, value_name = "D", default_value_t = 8,
          value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) pipeline: u16,
    /// Character between the names of tenants at the start of a key; must match the server's
    #[arg(long, value_name = "CHAR", default_value = ":", value_parser = delimiter)]
    pub(crate) delimiter: u8,
}

/// Parses `SET:GET`.
fn ratio(text: &str) -> Result<(f64, f64), String> {
    let part = |part: &str| part.parse::<u32>().ok().map(f64::from);
    let parts = text.split_once(':').and_then(|(set, get)| Some((part(set)?, part(get)?)));
    parts.filter(|(set, get)| set + get > 0.0).ok_or_else(|| {
        format!("{:?} is not a ratio: use SET:GET, such as 1:10", submeter_terminal::short(text))
    })
}
