//! `submeter serve`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use submeter::limits::{GroupLimits, size};

use super::bank::MemberArgs;
use super::config_file::ConfigFile;
use super::log::LogArgs;
use super::values::{delimiter, file_mode, host_name};
use submeter_cache::{Address, OverRate};
use submeter_terminal::seconds;

/// What becomes of requests over a tenant's rate.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum OverRateArg {
    Refuse,
    Wait,
}

impl From<OverRateArg> for OverRate {
    fn from(arg: OverRateArg) -> OverRate {
        match arg {
            OverRateArg::Refuse => OverRate::Refuse,
            OverRateArg::Wait => OverRate::Wait,
        }
    }
}

/// Whether heap memory is charged to tenants.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum HeapArg {
    Off,
    Sampled,
    Exact,
}

/// Arguments of `submeter serve`.
#[derive(Args, Clone, Debug)]
#[command(after_help = "\
Each flag but --tenant-limit and --limit-fleet may also be a variable, SUBMETER_MEMORY=4g for --memory 4g or SUBMETER_NO_EVICTIONS=1, and each but \
--tenant-limit a line of the file of --config, memory = \"4g\" or limit-fleet = [\"/acme=64m\"]. Flags go before variables, and those before the file. An \
empty or blank variable is as none, except for those of files that close a door, which are refused. The file's \
table [limits] has lines such as \"/acme\" = \"64m,rate=20000/s\".

SIGHUP has the limits of --limits or --config read again, and the files of --auth-file, --token-file, --tls-cert, \
--tls-key and --bank-ca, --bank-cert and --bank-key. What is bad changes nothing and is warned of. Connections stay, but for those of users who are gone or have \
another tenant.

Examples:
  # A demonstration: six tenants, one of which bursts, and a page that shows them
  submeter serve --load 6
  # A cache of 4 GiB with one tenant held to its share of memory and requests
  submeter serve --memory 4g --tenant-limit /acme=512m,rate=20000/s
  # A tenant with half a CPU, and one whose rate is tried out and refuses nothing
  submeter serve --tenant-limit /acme=cpu=500m --tenant-limit /web=rate=200/s,mode=soft
  # A tenant that others cannot push below 32 MiB, however much they write
  submeter serve --memory 1g --tenant-limit /acme=low=32m
  # Limits of a file, which SIGHUP has read again; over its rate a tenant waits
  submeter serve --limits /etc/submeter.limits --over-rate wait
  # A file of flags and limits; what is said here goes before it
  submeter serve --config /etc/submeter.toml --memory 2g
  # One of several servers that share a tenant's limits, which a bank lends them
  submeter serve --bank unix:/run/bank.sock --limit-fleet /acme=memory=64m,rate=100k/s
  # Totals of tenants that outlive the server
  submeter serve --checkpoint /var/lib/submeter.totals
  # A socket that only its owner and group may use, and a page with a token
  submeter serve --listen unix:/run/cache.sock --unix-mode 660 --token-file /etc/submeter.token")]
pub(crate) struct ServeArgs {
    /// Read what is not said here from a file of these flags, in TOML
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// What that file says.
    #[arg(skip)]
    pub(crate) file: Option<ConfigFile>,
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
    /// Encrypt both ports with this certificate, in PEM, followed by its chain of authorities
    #[arg(long, value_name = "FILE", requires = "tls_key", conflicts_with = "load")]
    pub(crate) tls_cert: Option<PathBuf>,
    /// Private key of --tls-cert, in PEM
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub(crate) tls_key: Option<PathBuf>,
    /// On --http, answer only requests with the token in this file, as a bearer token or as the
    /// password that a browser asks for
    #[arg(long, value_name = "FILE")]
    pub(crate) token_file: Option<PathBuf>,
    /// Another host name of the page, besides its address and localhost; may be repeated
    #[arg(long, value_name = "NAME", value_delimiter = ',', value_parser = host_name)]
    pub(crate) http_host: Vec<String>,
    /// Send every metric each minute to this receiver of OpenTelemetry, http://HOST:4318, or by
    /// gRPC http://HOST:4317, besides what the variables OTEL_… say
    #[arg(long, value_name = "URL")]
    pub(crate) otlp: Option<submeter_address::Address>,
    /// Protocol of --otlp; http/protobuf unless OTEL_EXPORTER_OTLP_PROTOCOL says otherwise
    #[arg(long, value_name = "PROTOCOL", requires = "otlp", value_parser = ["http/protobuf", "grpc"])]
    pub(crate) otlp_protocol: Option<String>,
    /// Character between the names of tenants at the front of a key
    #[arg(long, value_name = "CHAR", default_value = ":", value_parser = delimiter)]
    pub(crate) delimiter: u8,
    /// Drive the server over loopback with this many sibling tenants under /load. Of three or more
    /// built-in ones the third bursts, and the second is limited unless limits of its own are given
    #[arg(long, value_name = "TENANTS", value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub(crate) load: Option<u16>,
    /// Stop after this time
    #[arg(long, value_name = "S", value_parser = seconds)]
    pub(crate) seconds: Option<Duration>,
    /// Maximum memory of all items. Where the C library is glibc, each worker thread may keep free
    /// memory beside it that items of other workers cannot use; MALLOC_ARENA_MAX=1 in the
    /// environment has all workers share it
    #[arg(long, value_name = "SIZE", default_value = "64m", value_parser = size)]
    pub(crate) memory: u64,
    /// Maximum size of a value
    #[arg(long, value_name = "SIZE", default_value = "1m", value_parser = size)]
    pub(crate) value_max: u64,
    /// Refuse a store for lack of room, instead of dropping items that have not expired
    #[arg(long)]
    pub(crate) no_evictions: bool,
    /// Refuse `flush_all`, which drops every tenant's items
    #[arg(long)]
    pub(crate) no_flush_all: bool,
    /// Let clients stop the server with the command `shutdown`
    #[arg(long)]
    pub(crate) enable_shutdown: bool,
    /// Maximum number of tenants. Those with limits or users always have a place, and a part of the
    /// others is kept for what is below them. Of the rest, what is below one of them, or below any
    /// other first name, may have as many as it leaves to others. Requests for a tenant without a
    /// place count to ":other" below its parent, a name that no key has
    #[arg(long, value_name = "N", default_value_t = 10_000,
          value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) tenants_max: u32,
    /// Maximum number of connections to the cache; more are refused with a message. Of several
    /// users of --auth-file none may have all: each has at most seven times as many as all leave
    #[arg(short = 'c', long, value_name = "N", default_value_t = 1024,
          value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) connections: u32,
    /// Maximum memory of all incomplete requests and unread answers [default: 64m, or more if
    /// --value-max needs it]
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub(crate) buffers: Option<u64>,
    /// Close a connection that has not agreed on keys (--tls-cert) and logged in (--auth-file) by
    /// then; the one that has waited for longest is closed for a new one at --connections
    #[arg(long, value_name = "S", default_value = "10", value_parser = seconds)]
    pub(crate) login_timeout: Duration,
    /// Close a connection with an incomplete request or an unread answer after this time, plus a
    /// second for each 64 KiB
    #[arg(long, value_name = "S", default_value = "60", value_parser = seconds)]
    pub(crate) request_timeout: Duration,
    /// Close a connection without requests for this time [default: never]
    #[arg(long, value_name = "S", value_parser = seconds)]
    pub(crate) idle_timeout: Option<Duration>,
    /// How long requests in progress may take to finish at shutdown
    #[arg(long, value_name = "S", default_value = "2", value_parser = seconds)]
    pub(crate) drain_seconds: Duration,
    /// Limit or protect a tenant, as in /acme=64m,low=32m,rate=20000/s; may be repeated. The path
    /// ends at the first '=': a tenant whose name has one stands in --limits or --config. SIZE is
    /// what its items may hold. Above high=SIZE each of its stores drops items of its own, twice
    /// what it stores, until it is down to that, and none is refused for it. What it holds up to
    /// low=SIZE goes for other tenants only when nothing else is left, and up to min=SIZE never; it
    /// sets nothing aside, and what has expired always goes. rate=N/s is its requests per time, and
    /// burst=N how many may come at once [default: those of the rate's time]. cpu=500m, or 0.5 or
    /// 2, is its CPUs: what it uses is known afterwards, so that it may owe some, and no request of
    /// it begins until that is earned. weight=N is its part of the requests and the CPU time of the
    /// tenant above it (of all, /=rate=N/s,cpu=2), while tenants that have a weight want more than
    /// those. mode=soft grants what its size, rate and cpu would refuse, and counts it
    #[arg(long, value_name = "/PATH=SIZE,low=SIZE,rate=N/s,cpu=N")]
    pub(crate) tenant_limit: Vec<GroupLimits>,
    /// Read limits of tenants from a file of lines "/PATH SIZE,rate=N/s", and again on SIGHUP; in
    /// place of those of --config. A path with " #" in it or a blank at its end stands in quotes,
    /// as in JSON. What a tenant holds above a limit that was lowered goes soon after, unless
    /// --no-evictions is given
    #[arg(long, value_name = "FILE")]
    pub(crate) limits: Option<PathBuf>,
    /// Let programs of this machine replace the limits of --limits or --config: POST /api/limits
    /// on --http, with lines as in the file of --limits and the header X-Submeter: 1. Then the page
    /// and `submeter limit set` change those of one tenant, too
    #[arg(long)]
    pub(crate) limits_api: bool,
    /// What becomes of requests over a tenant's rate or cpu: a SERVER_ERROR that says when to try
    /// again, or a wait of their connection of at most --request-timeout, with whatever other
    /// tenants send on it
    #[arg(long, value_name = "HOW", default_value = "refuse")]
    pub(crate) over_rate: OverRateArg,
    /// Statistics (CSV) that --load draws its tenants from, instead of the built-in ones
    #[arg(long, value_name = "FILE", requires = "load")]
    pub(crate) tenants_file: Option<PathBuf>,
    /// Seed of the requests of --load
    #[arg(long, value_name = "N", default_value_t = 1, requires = "load")]
    pub(crate) seed: u64,
    /// Keep totals in this file from one run to the next: those of each tenant's counters and
    /// histograms, with the tenants, but no items of the cache and no limits. They are restored at
    /// the start if there is a file, and saved every 10 s and at the end; what a killed server
    /// counted after its last save is lost. /metrics and --otlp have what this run counted
    #[arg(long, value_name = "FILE")]
    pub(crate) checkpoint: Option<PathBuf>,
    /// How often they are saved, for tests
    #[arg(long, hide = true, value_name = "S", default_value = "10", value_parser = seconds)]
    pub(crate) checkpoint_seconds: Duration,
    /// Charge tenants the heap memory that their requests allocated and nobody has freed yet: items
    /// as the allocator has them, and what answers take. `sampled` estimates it, with the error
    /// beside it, from a sample in each 64 KiB; `exact` is to the byte, at a few nanoseconds a
    /// block and one byte of memory for each 16
    #[arg(long, value_name = "HOW", default_value = "off", conflicts_with = "no_metering")]
    pub(crate) heap: HeapArg,
    /// Count nothing, to see what metering costs; memory is still charged, because limits need it
    #[arg(long)]
    pub(crate) no_metering: bool,
    /// End when standard input does: with the process that holds its other end.
    #[arg(long, hide = true)]
    pub(crate) end_with_stdin: bool,
    #[command(flatten)]
    pub(crate) member: MemberArgs,
    /// Threads that serve requests; where they are as many as the CPUs, each stays on its own
    /// [default: one per CPU]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) threads: Option<u16>,
    #[command(flatten)]
    pub(crate) log: LogArgs,
}

/// Replaces the cache's own names of settings by flags. What is part of a tenant's path stays.
pub(crate) fn in_flags(text: &str) -> String {
    let flag = |word| match word {
        "memory_max" => "--memory",
        "value_max" => "--value-max",
        "tenants_max" => "--tenants-max",
        "buffers_max" => "--buffers",
        word => word,
    };
    text.split(' ').map(flag).collect::<Vec<_>>().join(" ")
}
