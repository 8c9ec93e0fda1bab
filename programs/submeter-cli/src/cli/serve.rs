//! `submeter serve`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use submeter::limits::{GroupLimits, size};

use super::bank::MemberArgs;
use super::config_file::ConfigFile;
use super::log::LogArgs;
use super::values::{delimiter, file_mode, host_name, ip_and_port};
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
Each flag except --tenant-limit and --limit-fleet may also be set by a variable, \
SUBMETER_MEMORY=4g for --memory 4g or SUBMETER_NO_EVICTIONS=1, and each except --tenant-limit by \
a line of the file of --config, memory = \"4g\" or limit-fleet = [\"/acme=64m\"]. Flags override \
variables, and variables override the file. An empty or blank variable counts as unset, except \
those for files that restrict access or encrypt, which are refused. The file's table [limits] has \
lines such as \"/acme\" = \"64m,rate=20000/s\".

SIGHUP rereads the limits of --limits or --config, and the files of --auth-file, --token-file, \
--tls-cert, --tls-key, --bank-ca, --bank-cert and --bank-key. A bad file changes nothing and \
causes a warning. Connections stay, except those of users who no longer exist or have another \
tenant.

Examples:
  # A demo: six tenants, one of which bursts, and a page that shows them
  submeter serve --load 6
  # A cache of 4 GiB with one tenant limited to its share of memory and requests
  submeter serve --memory 4g --tenant-limit /acme=512m,rate=20000/s
  # A tenant with half a CPU, and one with a trial rate that refuses nothing
  submeter serve --tenant-limit /acme=cpu=500m --tenant-limit /web=rate=200/s,mode=soft
  # A tenant that others cannot push below 32 MiB, however much they write
  submeter serve --memory 1g --tenant-limit /acme=low=32m
  # Limits from a file, which SIGHUP rereads; over its rate a tenant waits
  submeter serve --limits /etc/submeter.limits --over-rate wait
  # A file of flags and limits; flags given here override it
  submeter serve --config /etc/submeter.toml --memory 2g
  # One of several servers that share a tenant's limits, leased from a bank
  submeter serve --bank unix:/run/bank.sock --limit-fleet /acme=memory=64m,rate=100k/s
  # Totals of tenants that survive restarts of the server
  submeter serve --checkpoint /var/lib/submeter.totals
  # A socket that only its owner and group may use, and a page with a token
  submeter serve --listen unix:/run/cache.sock --unix-mode 660 --token-file /etc/submeter.token")]
pub(crate) struct ServeArgs {
    /// Read flags that are not given here from this TOML file
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
    /// Serve only users in this file, with lines "USER:PASSWORD", each confined to the tenant
    /// /USER, or "USER:PASSWORD /TENANT"; a user of / may do everything
    #[arg(long, value_name = "FILE", conflicts_with = "load")]
    pub(crate) auth_file: Option<PathBuf>,
    /// Address of the page, /metrics and the API; port 0 picks a free one
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:9411", value_parser = ip_and_port)]
    pub(crate) http: SocketAddr,
    /// Encrypt both ports with this PEM certificate, followed by its chain of authorities
    #[arg(long, value_name = "FILE", requires = "tls_key", conflicts_with = "load")]
    pub(crate) tls_cert: Option<PathBuf>,
    /// Private key of --tls-cert, in PEM
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub(crate) tls_key: Option<PathBuf>,
    /// On --http, answer only requests with the token in this file, as a bearer token or as the
    /// password in a browser's login prompt
    #[arg(long, value_name = "FILE")]
    pub(crate) token_file: Option<PathBuf>,
    /// Another host name of the page, besides its address and localhost; may be repeated
    #[arg(long, value_name = "NAME", value_delimiter = ',', value_parser = host_name)]
    pub(crate) http_host: Vec<String>,
    /// Send all metrics every minute to this OpenTelemetry receiver, http://HOST:4318, or
    /// http://HOST:4317 with gRPC; the variables OTEL_… apply too. At the end, the server waits for
    /// at most 5 s for the last export, and warns of what did not arrive
    #[arg(long, value_name = "URL")]
    pub(crate) otlp: Option<submeter_address::Address>,
    /// Protocol for --otlp; http/protobuf unless OTEL_EXPORTER_OTLP_PROTOCOL says otherwise
    #[arg(long, value_name = "PROTOCOL", requires = "otlp", value_parser = ["http/protobuf", "grpc"])]
    pub(crate) otlp_protocol: Option<String>,
    /// Character between the names of tenants at the start of a key
    #[arg(long, value_name = "CHAR", default_value = ":", value_parser = delimiter)]
    pub(crate) delimiter: u8,
    /// Drive the server over loopback with this many sibling tenants under /load. Of three or more
    /// built-in ones, the third bursts, and the second is limited unless limits are given for it
    #[arg(long, value_name = "TENANTS", value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub(crate) load: Option<u16>,
    /// Stop after this time
    #[arg(long, value_name = "S", value_parser = seconds)]
    pub(crate) seconds: Option<Duration>,
    /// Maximum memory of all items. With glibc, each worker thread may keep additional free memory
    /// that items of other workers cannot use; MALLOC_ARENA_MAX=1 in the environment makes all
    /// workers share it
    #[arg(long, value_name = "SIZE", default_value = "64m", value_parser = size)]
    pub(crate) memory: u64,
    /// Maximum size of a value
    #[arg(long, value_name = "SIZE", default_value = "1m", value_parser = size)]
    pub(crate) value_max: u64,
    /// Refuse stores for lack of room, instead of dropping items that have not expired
    #[arg(long)]
    pub(crate) no_evictions: bool,
    /// Refuse `flush_all`, which drops every tenant's items
    #[arg(long)]
    pub(crate) no_flush_all: bool,
    /// Allow clients to stop the server with the command `shutdown`
    #[arg(long)]
    pub(crate) enable_shutdown: bool,
    /// Maximum number of tenants. Those with limits or users always have a place, and a part of the
    /// other places is reserved for tenants below them. Of the remaining places, the tenants below
    /// one of them, or below any other first name, may together have as many as they leave to
    /// others. Requests for a tenant without a place count to ":other" below its parent, a name
    /// that no key has
    #[arg(long, value_name = "N", default_value_t = 10_000,
          value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) tenants_max: u32,
    /// Maximum number of connections to the cache; more are refused with a message. With several
    /// users in --auth-file, none may have all: each has at most seven times as many as are left
    /// free
    #[arg(short = 'c', long, value_name = "N", default_value_t = 1024,
          value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) connections: u32,
    /// Maximum memory of all incomplete requests and unread answers [default: 64m, or more if
    /// --value-max needs it]. With several users in --auth-file, none may have all, as with
    /// --connections
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub(crate) buffers: Option<u64>,
    /// Close a connection that has not finished the TLS handshake (--tls-cert) and logged in
    /// (--auth-file) after this time; once --connections is reached, the one that has waited
    /// longest is closed for a new one
    #[arg(long, value_name = "S", default_value = "10", value_parser = seconds)]
    pub(crate) login_timeout: Duration,
    /// Close a connection with an incomplete request or an unread answer after this time, plus a
    /// second per 64 KiB
    #[arg(long, value_name = "S", default_value = "60", value_parser = seconds)]
    pub(crate) request_timeout: Duration,
    /// Close a connection after this time without requests [default: never]
    #[arg(long, value_name = "S", value_parser = seconds)]
    pub(crate) idle_timeout: Option<Duration>,
    /// How long requests in progress may take to finish at shutdown
    #[arg(long, value_name = "S", default_value = "2", value_parser = seconds)]
    pub(crate) drain_seconds: Duration,
    /// Limit or protect a tenant, as in /acme=64m,low=32m,rate=20000/s; may be repeated. The path
    /// ends at the first '=': for a tenant with '=' in its name, use --limits or --config. SIZE is
    /// the most that its items may hold. Above high=SIZE, each of its stores drops twice its size
    /// of the tenant's own items, until the tenant is down to that; no store is refused for it.
    /// What it holds up to low=SIZE is dropped for other tenants only when nothing else is left,
    /// and up to min=SIZE never; this reserves no memory, and expired items can always be dropped.
    /// rate=N/s limits its requests, and burst=N how many may come at once [default: the N of the
    /// rate]. cpu=500m, or 0.5 or 2, limits its CPUs: its use is known only afterwards, so it may
    /// owe CPU time, and none of its requests begins until that is earned. weight=N is its share of
    /// the requests and CPU time of the tenant above it (of the whole server: /=rate=N/s,cpu=2)
    /// while tenants with weights want more than there is. mode=soft grants what its size, rate and
    /// cpu would refuse, and counts it
    #[arg(long, value_name = "/PATH=SIZE,low=SIZE,rate=N/s,cpu=N")]
    pub(crate) tenant_limit: Vec<GroupLimits>,
    /// Read limits of tenants from this file, with lines "/PATH SIZE,rate=N/s", and again on
    /// SIGHUP; they replace those of --config. Quote a path that contains a blank as in JSON:
    /// "/a b" 64m. What a tenant holds above a lowered limit is dropped soon after, unless
    /// --no-evictions is given
    #[arg(long, value_name = "FILE")]
    pub(crate) limits: Option<PathBuf>,
    /// Allow programs on this machine to replace the limits of --limits or --config: POST
    /// /api/limits on --http, with lines as in the file of --limits and the header X-Submeter: 1.
    /// The page and `submeter limit set` can then also change those of one tenant
    #[arg(long)]
    pub(crate) limits_api: bool,
    /// What happens to requests over a tenant's rate or cpu: they get a SERVER_ERROR that says when
    /// to try again, or their connection waits, for at most --request-timeout, including what other
    /// tenants send on it. A wait ends with an error when the tenant is deleted
    #[arg(long, value_name = "HOW", default_value = "refuse")]
    pub(crate) over_rate: OverRateArg,
    /// Statistics (CSV) to draw the tenants of --load from, instead of the built-in ones
    #[arg(long, value_name = "FILE", requires = "load")]
    pub(crate) tenants_file: Option<PathBuf>,
    /// Seed for the requests of --load
    #[arg(long, value_name = "N", default_value_t = 1, requires = "load")]
    pub(crate) seed: u64,
    /// Keep totals in this file from one run to the next: the tenants with their counters and
    /// histograms, but no items of the cache and no limits. They are restored at the start if the
    /// file exists, and saved every 10 s and at the end; what a killed server counted after its
    /// last save is lost. /metrics and --otlp report what this run counted
    #[arg(long, value_name = "FILE")]
    pub(crate) checkpoint: Option<PathBuf>,
    /// How often they are saved, for tests
    #[arg(long, hide = true, value_name = "S", default_value = "10", value_parser = seconds)]
    pub(crate) checkpoint_seconds: Duration,
    /// Charge tenants for the heap memory that their requests allocated and that is not freed yet:
    /// items, as the allocator sees them, and memory for answers. `sampled` estimates it from a
    /// sample per 64 KiB, and shows the error; `exact` counts every byte, at a few nanoseconds per
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
    /// Threads that serve requests; if there are as many as CPUs, each is pinned to its own
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
        // This one has no flag.
        "depth_max" => "the maximum of",
        word => word,
    };
    text.split(' ').map(flag).collect::<Vec<_>>().join(" ")
}
