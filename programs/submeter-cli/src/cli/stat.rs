//! `submeter stat`.

use std::convert::Infallible;
use std::time::Duration;

use clap::Args;

use super::page::PageArgs;
use submeter_terminal::Destination;

/// Arguments of `submeter stat`.
#[derive(Args, Clone, Debug)]
#[command(after_help = "\
As with perf, the groups of -G are assigned to the events of -e in order; an empty name stands \
for the whole process, and a single name applies to all events: `-e task-clock,context-switches \
-G acme,acme`, or `-G acme`. Events without a group count the whole process. A group's count \
includes its descendants. A comma in a name is written `\\,`.

Events are counted while threads of the server work for a group. `<not supported>` means that \
this machine or its kernel cannot count the event; `<not counted>` means that no thread has \
worked for the group yet, or that no counter was free.

Examples:
  # What perf counts by default, for the whole server, until Ctrl-C
  submeter stat
  # CPU time and switches of one tenant, every second
  submeter stat -e task-clock,context-switches -G acme/web -I 1000
  # One second of the server, five times
  submeter stat -r 5 --timeout 1000
  # Two tenants side by side for ten seconds, as JSON
  submeter stat -e task-clock --for-each-group acme/web,acme/api --timeout 10000 --json")]
pub(crate) struct StatArgs {
    /// Events, in perf's syntax: cycles,instructions:u,{cycles,instructions},task-clock:D
    #[arg(short, long = "event", value_name = "EVENTS", default_value = EVENTS)]
    pub(crate) events: Vec<String>,
    /// Groups of the tree, assigned to the events in order
    #[arg(short = 'G', long = "group", value_name = "GROUP,...", value_parser = names)]
    pub(crate) groups: Vec<Names>,
    /// Count all events for each of these groups
    #[arg(long, value_name = "GROUP,...", value_parser = names, conflicts_with = "groups")]
    pub(crate) for_each_group: Vec<Names>,
    /// Print the counts every MS milliseconds, and the rest at Ctrl-C
    #[arg(short = 'I', long, value_name = "MS", value_parser = interval)]
    pub(crate) interval: Option<Duration>,
    /// Stop after MS milliseconds instead of at Ctrl-C
    #[arg(long, value_name = "MS", value_parser = interval)]
    pub(crate) timeout: Option<Duration>,
    /// Count N times, each for --timeout, and print the mean and its variation
    #[arg(short = 'r', long = "repeat", value_name = "N", requires = "timeout",
          conflicts_with = "interval", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) repeat: Option<u32>,
    /// Print the counts to a file, which is created once there are some [default: standard output]
    #[arg(short = 'o', long = "output", value_name = "FILE")]
    pub(crate) output: Option<Destination>,
    /// Print fields separated by SEP: [time,]value,unit,event,group,run time in ns,percent
    #[arg(short = 'x', long, value_name = "SEP", conflicts_with = "json", value_parser = separator)]
    pub(crate) field_separator: Option<String>,
    /// Print JSON, one object per line
    #[arg(short = 'j', long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) page: PageArgs,
}

/// The default events, the same as perf's.
const EVENTS: &str = "task-clock,context-switches,cpu-migrations,page-faults,cycles,instructions,\
                      branches,branch-misses";

/// The shortest interval: threads publish their counts every 4 ms.
const INTERVAL_MIN_MS: u64 = 10;
/// The longest interval: a day.
const INTERVAL_MAX_MS: u64 = 86_400_000;

/// Parses the separator; without one, nothing separates two fields.
fn separator(text: &str) -> Result<String, String> {
    let some = Some(text.to_owned()).filter(|text| !text.is_empty());
    some.ok_or_else(|| "it is empty: use what separates fields, such as ','".to_owned())
}

/// Names between commas.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Names(pub(crate) Vec<String>);

/// Splits a list at its commas. A name may contain a comma, as a key of the cache may: `\,` stands
/// for it, `\\` for a backslash, and a backslash before anything else for itself.
fn names(list: &str) -> Result<Names, Infallible> {
    let mut names = vec![String::new()];
    let mut marks = list.chars().peekable();
    while let Some(mark) = marks.next() {
        let last = names.last_mut().expect("there is one");
        match mark {
            ',' => names.push(String::new()),
            '\\' => last.push(marks.next_if(|next| matches!(next, ',' | '\\')).unwrap_or(mark)),
            mark => last.push(mark),
        }
    }
    Ok(Names(names))
}

fn interval(text: &str) -> Result<Duration, String> {
    let fits = |ms: &u64| (INTERVAL_MIN_MS..=INTERVAL_MAX_MS).contains(ms);
    text.parse().ok().filter(fits).map(Duration::from_millis).ok_or_else(|| {
        format!("use {INTERVAL_MIN_MS} to {INTERVAL_MAX_MS} milliseconds, such as 1000")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_can_name_each_group_of_keys() {
        for (list, expected) in [
            ("", &[""][..]),
            ("acme/web,,b", &["acme/web", "", "b"]),
            (r"a\,b=c,d", &["a,b=c", "d"]),
            (r"a\\,b\,", &[r"a\", "b,"]),
            (r"a\b\", &[r"a\b\"]),
        ] {
            assert_eq!(
                names(list).map(|names| names.0),
                Ok(expected.iter().map(|&n| n.into()).collect())
            );
        }
    }
}
