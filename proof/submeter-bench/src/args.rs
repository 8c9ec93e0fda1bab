//! The command line.

use std::num::NonZero;
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::PossibleValuesParser;
use clap::{ArgGroup, Parser};

use crate::bench::TABLES;
use submeter_terminal::seconds;

/// Measure what counting costs, side by side with the alternatives.
#[derive(Clone, Debug, Parser)]
#[command(
    name = "submeter-bench", version = submeter_terminal::VERSION, max_term_width = 100,
    group = ArgGroup::new("report").args(["html", "markdown", "picture", "gaps"]).multiple(true),
    after_help = "All variants of a table take turns within one run, so ratios hold even on a machine that \
    does other work; absolute figures do not. Figures of a debug build are meaningless."
)]
pub(crate) struct BenchArgs {
    /// Tables to measure [default: all]
    #[arg(value_name = "TABLE", value_parser = PossibleValuesParser::new(TABLES.map(|table| table.name)))]
    pub(crate) tables: Vec<String>,
    /// Time budget of each table, instead of a full run's [default: 30 to 160, less than 15 minutes
    /// for all]
    #[arg(long, value_name = "S", value_parser = seconds)]
    pub(crate) seconds: Option<Duration>,
    /// As few rounds as a median needs: less than a minute for all tables together
    #[arg(long, conflicts_with = "seconds")]
    pub(crate) quick: bool,
    /// At most this many rounds after the one that warms up, to see what is measured, not how fast
    #[arg(long, value_name = "N")]
    pub(crate) rounds: Option<usize>,
    /// Keep each CPU busy while measuring, by a thread of the lowest priority that computes and
    /// streams through memory: what a machine that does other work adds, the same on every day
    #[arg(long)]
    pub(crate) busy: bool,
    /// Write the machine's description and all samples to a file, or to standard output with "-"
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
    /// Write a report to a file: one HTML page, to be opened, printed or mailed
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,
    /// Measure nothing: make a report from a record that --json wrote
    #[arg(long, value_name = "RECORD", requires = "report", conflicts_with_all = ["tables", "seconds", "quick", "rounds", "busy", "json", "trace", "tenants_file"])]
    pub(crate) from: Option<PathBuf>,
    /// With --from and --markdown: write only the ratios that must not become worse, with those of
    /// this other record beside them
    #[arg(long, value_name = "RECORD", requires = "markdown", conflicts_with = "html")]
    pub(crate) beside: Option<PathBuf>,
    /// With --from and --markdown: write only the figures of this table, for a document with little
    /// room
    #[arg(long, value_name = "TABLE", requires = "markdown", conflicts_with_all = ["html", "beside"])]
    pub(crate) brief: Option<String>,
    /// With --from: write the tables as Markdown to a file, or to standard output with "-"
    #[arg(long, value_name = "FILE", requires = "from")]
    pub(crate) markdown: Option<PathBuf>,
    /// With --from: write the picture of the README, of the table neighbours, to a file (SVG)
    #[arg(long, value_name = "FILE", requires = "from")]
    pub(crate) picture: Option<PathBuf>,
    /// With --from: write what the definitions lack of the record, and the record of them; fail if
    /// anything
    #[arg(long, requires = "from", conflicts_with_all = ["html", "markdown", "picture"])]
    pub(crate) gaps: bool,
    /// Measure nothing: write which gated ratios are worse in each NEW record than in the OLD one
    /// before it; fail if any is in every pair
    #[arg(long, value_names = ["OLD", "NEW"], num_args = 2, conflicts_with_all = ["tables", "from", "json", "html"])]
    pub(crate) regress: Vec<PathBuf>,
    /// Measure nothing: write the table of what README claims, for the project in this directory;
    /// fail if a record says otherwise
    #[arg(long, value_name = "DIRECTORY", conflicts_with_all = ["tables", "from", "json", "html", "regress"])]
    pub(crate) claims: Option<PathBuf>,
    /// For rstat: replay this recording (zstd, format submeter-trace-1) in place of the built-in,
    /// one thread for each of its CPUs, as fast as possible, each flush at its recorded position
    #[arg(long, value_name = "FILE")]
    pub(crate) trace: Option<PathBuf>,
    /// For rstat: replay the trace on submeter and write every group's totals
    #[arg(long, value_name = "OUT.csv", requires = "trace")]
    pub(crate) totals: Option<PathBuf>,
    /// For end_to_end: statistics (CSV) to draw tenants from, instead of the built-in ones
    #[arg(long, value_name = "FILE")]
    pub(crate) tenants_file: Option<PathBuf>,
    /// Measures the memory of a tree with GROUPS groups in this process, for the table groups
    #[arg(long, value_name = "GROUPS", hide = true)]
    pub(crate) weigh: Option<usize>,
    /// With --weigh: of groups with so many quotas, for the table limits
    #[arg(long, value_name = "QUOTAS", hide = true, requires = "weigh", value_parser = clap::value_parser!(u8).range(..=1))]
    pub(crate) quotas: Option<u8>,
    /// Measures what groups are charged in this process, for the table perf
    #[arg(long, hide = true)]
    pub(crate) charged: bool,
    /// Serves the cache with THREADS threads in this process, for the table end_to_end
    #[arg(long, value_name = "THREADS", hide = true)]
    pub(crate) serve: Option<NonZero<usize>>,
    /// With --serve: without metering
    #[arg(long, hide = true, requires = "serve")]
    pub(crate) plain: bool,
    /// With --serve: with a limit on this tenant
    #[arg(long, value_name = "TENANT", hide = true, requires = "serve")]
    pub(crate) limited: Vec<String>,
    /// Enters a world first; without --serve, measures in it what standard input asks for, for the
    /// table worlds
    #[arg(long, value_name = "WORLD", hide = true)]
    pub(crate) world: Option<String>,
    /// Measures the one named table in this process, on behalf of the process that started it,
    /// until standard input ends
    #[arg(long, hide = true, conflicts_with_all = ["json", "html", "totals"])]
    pub(crate) alone: bool,
}
