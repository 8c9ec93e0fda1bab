//! The command line: commands, flags and the types of their values.

mod bank;
mod config_file;
mod doctor;
mod fleet;
mod fleet_bill;
mod fleet_limit;
mod limit;
mod load;
mod log;
mod manual;
mod page;
mod serve;
mod stat;
mod top;
mod values;
mod variables;

pub(crate) use bank::{OutageArg, ServiceArgs};
pub(crate) use config_file::ConfigFile;
pub(crate) use doctor::DoctorArgs;
pub(crate) use fleet::{
    BankServeArgs, FleetArgs, FleetCommand, FleetDemoArgs, FleetSetArgs, FleetStatusArgs,
    FleetTopArgs,
};
pub(crate) use fleet_bill::FleetBillArgs;
pub(crate) use fleet_limit::{FleetLimit, MEMORY, RATE};
pub(crate) use limit::{LimitArgs, LimitCommand};
pub(crate) use load::LoadArgs;
pub(crate) use log::{LogArgs, LogForm};
pub(crate) use manual::{CompletionsArgs, ManArgs};
pub(crate) use page::{AccessArgs, PageArgs};
pub(crate) use serve::{HeapArg, OverRateArg, ServeArgs, in_flags};
pub(crate) use stat::{Names, StatArgs};
pub(crate) use top::TopArgs;
pub(crate) use variables::misspelt;

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::builder::BoolishValueParser;
use clap::error::ErrorKind;
use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand};
use submeter_address::Address;
use submeter_terminal::one_line;

use self::config_file::Line;
use self::variables::variable;

/// The error for a request for TLS in a build without it.
pub(crate) const NO_TLS: &str =
    "this build has no TLS: build it with `cargo install submeter-cli --features tls`";

/// Accounting, limits and lifetimes for the tenants inside a process.
#[derive(Debug, Parser)]
#[command(name = "submeter", version = submeter_terminal::VERSION, max_term_width = 100, arg_required_else_help = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Serve a memcached-compatible cache in which every tenant is a group, with a live page
    // Boxed: it has twice as many flags as any other command.
    Serve(Box<ServeArgs>),
    /// Drive a memcached-compatible server with tenants drawn from production statistics
    Load(LoadArgs),
    /// Share tenants' limits between servers, and show who holds what
    Fleet(FleetArgs),
    /// Report what submeter finds on this machine, what operations cost here and how to improve it
    Doctor(DoctorArgs),
    /// Watch the tenants of a running server
    Top(TopArgs),
    /// Count events of the tenants of a running server, like `perf stat` for processes
    Stat(StatArgs),
    /// Set limits of a tenant of a running server
    Limit(LimitArgs),
    /// Print completions for a shell
    Completions(CompletionsArgs),
    /// Print the manual page
    Man(ManArgs),
}

/// Reads a command line. A flag of `serve` that is missing is taken from its variable, or else from
/// the file of `--config`.
pub(crate) fn parse(words: impl IntoIterator<Item = OsString>) -> Result<Cli, clap::Error> {
    let words = with_negatives(words);
    // Anything wrong other than the file's name is found below, with the file's words.
    let early = command().ignore_errors(true).try_get_matches_from(&words).ok();
    let said = early.as_ref().and_then(|early| early.subcommand_matches("serve"));
    let named = said.and_then(|said| Some((said, said.get_one::<PathBuf>("config")?)));
    let Some((said, path)) = named else {
        return read(&words).map_err(|error| with_places(error, &words, &[]));
    };
    let file = read_config(path)
        .map_err(|why| clap::Error::raw(ErrorKind::ValueValidation, format!("{why} (--config)")))?;
    let lines = file.lines(said);
    let all = with_lines(&words, &lines.iter().collect::<Vec<_>>());
    let mut cli = read(&all).map_err(|error| with_places(error, &words, &lines))?;
    if let Command::Serve(args) = &mut cli.command {
        args.file = Some(file);
    }
    Ok(cli)
}

/// Inserts a file's lines right after `serve`: no flag precedes them.
fn with_lines(words: &[OsString], lines: &[&Line]) -> Vec<OsString> {
    let (command, flags) = words.split_at(words.len().min(2));
    let lines = lines.iter().flat_map(|line| &line.words);
    command.iter().chain(lines).chain(flags).cloned().collect()
}

/// Reads the file of `--config`. The error is one line that names file, line and remedy.
pub(crate) fn read_config(path: &Path) -> Result<ConfigFile, String> {
    ConfigFile::read(path, &ServeArgs::augment_args(clap::Command::new("serve")))
}

/// Returns the definition of the command line, with the variables of `serve`.
pub(crate) fn command() -> clap::Command {
    command_without("")
}

/// The same as [`command`], with this variable treated as unset.
fn command_without(unset: &str) -> clap::Command {
    let named = Cli::command().mut_subcommand("serve", |serve| {
        serve.mut_args(|arg| match variable(&arg) {
            // One sentence of the help names all variables. A switch accepts any of the words that
            // mean on or off.
            Some(name) if arg.get_action().takes_values() => arg.env(name).hide_env(true),
            Some(name) => arg.env(name).hide_env(true).value_parser(BoolishValueParser::new()),
            None => arg,
        })
    });
    variables::without_empty(named, unset)
}

/// Joins a flag and a value such as `-5%`, which clap would take for another flag. The value's own
/// error then names the flag and the remedy.
fn with_negatives(words: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
    let is_negative =
        |word: &OsString| matches!(word.as_encoded_bytes(), [b'-', b'0'..=b'9' | b'.', ..]);
    let mut joined: Vec<OsString> = Vec::new();
    for word in words {
        let between = match joined.last().map(|last| last.as_encoded_bytes()) {
            _ if !is_negative(&word) => None,
            Some([b'-', b'-', _, rest @ ..]) if !rest.contains(&b'=') => Some("="),
            Some([b'-', letter]) if letter.is_ascii_alphabetic() => Some(""),
            _ => None,
        };
        match (joined.last_mut(), between) {
            (Some(flag), Some(between)) => {
                flag.push(between);
                flag.push(word);
            }
            _ => joined.push(word),
        }
    }
    joined
}

fn read(words: &[OsString]) -> Result<Cli, clap::Error> {
    Cli::from_arg_matches(&command().try_get_matches_from(words)?)
}

/// Says which word is not UTF-8; clap says only that one is. The value is left out, since it may be
/// secret.
fn not_text(words: &[OsString]) -> String {
    let named = |at: usize| {
        let word = words[at].to_string_lossy();
        let before = words[at - 1].to_string_lossy();
        match word.split_once('=') {
            Some((flag, _)) if flag.starts_with('-') => flag.to_owned(),
            _ if before.starts_with('-') => before.into_owned(),
            _ => format!("argument {at}"),
        }
    };
    let wrong = (1..words.len()).filter(|&at| words[at].to_str().is_none()).map(named);
    let variables = variables::not_text().map(|name| format!("the variable {name}"));
    let wrong: Vec<String> = wrong.chain(variables).collect();
    format!("the value of {} is not UTF-8: use UTF-8", wrong.join(" and "))
}

/// Says which variables and lines of the file an error is about: clap names flags, which the user
/// may not have written. The error is about those without which it would differ.
fn with_places(error: clap::Error, words: &[OsString], lines: &[Line]) -> clap::Error {
    if !error.use_stderr() {
        return error;
    }
    if error.kind() == ErrorKind::InvalidUtf8 {
        return clap::Error::raw(ErrorKind::InvalidUtf8, not_text(words));
    }
    let all_said = one_line(&error);
    let is_other = |command: clap::Command, words: Vec<OsString>| {
        command.try_get_matches_from(words).err().is_none_or(|error| one_line(&error) != all_said)
    };
    let all: Vec<&Line> = lines.iter().collect();
    let of_variables = variables::set(&command())
        .into_iter()
        .filter(|(_, name)| is_other(command_without(name), with_lines(words, &all)));
    let of_variables = of_variables.map(|(long, name)| format!("{long}: {name}"));
    let of_lines = (0..lines.len()).filter(|&at| {
        let others: Vec<&Line> = [&all[..at], &all[at + 1..]].concat();
        is_other(command(), with_lines(words, &others))
    });
    let places: Vec<String> =
        of_variables.chain(of_lines.map(|at| lines[at].place.clone())).collect();
    let said = without_secrets(&all_said, words);
    if places.is_empty() && said == all_said {
        return error;
    }
    let places =
        if places.is_empty() { String::new() } else { format!(" ({})", places.join(", ")) };
    clap::Error::raw(error.kind(), format!("{said}{places}"))
}

/// Returns clap's message with addresses as they may be shown: clap repeats a superfluous word.
fn without_secrets(said: &str, words: &[OsString]) -> String {
    let values =
        words.iter().filter_map(|word| word.to_str()).map(|word| match word.split_once('=') {
            Some((flag, value)) if flag.starts_with('-') => value,
            _ => word.trim_start_matches('-'),
        });
    let mut addresses: Vec<&str> =
        values.filter(|value| value.contains("://") || value.contains('@')).collect();
    // One address may be a prefix of another.
    addresses.sort_by_key(|address| std::cmp::Reverse(address.len()));
    addresses.into_iter().fold(said.to_owned(), |said, address| {
        said.replace(address, &Address::new(address).to_string())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn definitions_are_consistent() {
        Cli::command().debug_assert();
        super::command().debug_assert();
    }

    #[test]
    fn an_address_too_many_is_named_without_password() {
        for args in [
            &["submeter", "top", "h:1", "http://x:s3cret@h:2/?key=s3cret"][..],
            &["submeter", "top", "--once=http://x:s3cret@h:2", "h:1"],
            &["submeter", "top", "http://x:s3cret@h:2", "--http://x:s3cret@h:2"],
            &["submeter", "top", "http://h:2", "http://h:2/?key=s3cret"],
        ] {
            let error = parse(args.iter().map(OsString::from)).expect_err("one too many");
            let line = one_line(&error);
            assert!(!line.contains("s3cret") && line.contains("http://h:2"), "{line}");
        }
        let words = ["submeter", "top", "h:1", "x:s3cret@h:2"].map(OsString::from);
        let line = one_line(&parse(words).expect_err("one too many"));
        assert!(!line.contains("s3cret"), "{line}");
    }

    #[test]
    fn a_wrong_command_line_is_named_in_one_line() {
        for (args, named) in [
            (&["submeter", "srve"][..], "srve"),
            (&["submeter", "serve", "--lod", "6"], "--lod"),
            (&["submeter", "serve", "--memory", "lots"], "lots"),
            (&["submeter", "load", "--seconds", "-1"], "-1"),
            (&["submeter", "load", "extra"], "extra"),
            (&["submeter", "serve", "--memory", "-1"], "'--memory <SIZE>': \"-1\" is not a size"),
            (&["submeter", "serve", "--buffers", "-1k"], "'--buffers <SIZE>'"),
            (
                &["submeter", "serve", "--memory", "--value-max", "1m"],
                "value is required for '--memory",
            ),
            (&["submeter", "serve", "-c", "-1"], "'--connections <N>'"),
            (&["submeter", "serve", "--connections", "-1"], "'--connections <N>'"),
            (
                &["submeter", "stat", "-I", "-5"],
                "'--interval <MS>': use 10 to 86400000 milliseconds",
            ),
            (&["submeter", "fleet", "set", "/a", "rate=1/s", "--floors", "-5%"], "use 1% to 100%"),
            (
                &["submeter", "fleet", "set", "/a", "rate=0/s", "--per-member", "-5%"],
                "--per-member",
            ),
            (&["submeter", "serve", "--tls-cert", "c.pem"], "were not provided: --tls-key"),
        ] {
            let error = super::parse(args.iter().map(OsString::from)).expect_err("refused");
            let failure = submeter_terminal::refuse(&error).expect_err("a failure");
            assert!(failure.line().contains(named), "{failure:?} names {named}");
            assert!(!failure.line().contains('\n'), "{failure:?} is one line");
        }
    }
}
