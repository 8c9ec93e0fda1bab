//! `submeter stat`.

use std::time::Duration;

use clap::Args;

use super::page::PageArgs;

/// Arguments of `submeter stat`.
#[derive(Args, Clone, Debug)]
#[command(after_help = "\
As with perf, the groups of -G belong to the events of -e in their order, an empty name stands for \
the whole process, and a single name is for all events: `-e task-clock,context-switches -G acme,acme`, \
or `-G acme`. Events that are left over count the whole process. A group counts for all below it.

What is counted is what threads of the server do while they work for a group; `<not supported>` is what \
this machine or its kernel cannot count, `<not counted>` what no thread has done yet or found no counter for.")]
pub(crate) struct StatArgs {
    /// Events, in perf's syntax: cycles,instructions:u,{cycles,instructions},task-clock:D
    #[arg(short, long = "event", value_name = "EVENTS", required = true)]
    pub(crate) events: Vec<String>,
    /// Groups of the tree, for the events in their order
    #[arg(short = 'G', long = "group", value_name = "GROUP,...", value_delimiter = ',')]
    pub(crate) groups: Vec<String>,
    /// Count all events for each of these groups
    #[arg(long, value_name = "GROUP,...", value_delimiter = ',', conflicts_with = "groups")]
    pub(crate) for_each_group: Vec<String>,
    /// Print what was counted each MS milliseconds, and at Ctrl-C what came since
    #[arg(short = 'I', long, value_name = "MS", value_parser = interval)]
    pub(crate) interval: Option<Duration>,
    /// Stop after MS milliseconds instead of at Ctrl-C
    #[arg(long, value_name = "MS", value_parser = interval)]
    pub(crate) timeout: Option<Duration>,
    /// Print fields separated by SEP: [time,]value,unit,event,group,run time in ns,percent
    #[arg(short = 'x', long, value_name = "SEP", conflicts_with = "json")]
    pub(crate) field_separator: Option<String>,
    /// Print an object a line
    #[arg(short = 'j', long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) page: PageArgs,
}

/// The shortest interval: threads make known what they have counted each 4 ms.
const INTERVAL_MIN_MS: u64 = 10;
/// The longest: a day.
const INTERVAL_MAX_MS: u64 = 86_400_000;

fn interval(text: &str) -> Result<Duration, String> {
    let fits = |ms: &u64| (INTERVAL_MIN_MS..=INTERVAL_MAX_MS).contains(ms);
    text.parse().ok().filter(fits).map(Duration::from_millis).ok_or_else(|| {
        format!("give milliseconds, from {INTERVAL_MIN_MS} to {INTERVAL_MAX_MS}, as in 1000")
    })
}
