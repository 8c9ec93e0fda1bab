//! The variables that stand for flags of `serve`.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};

use clap::builder::Resettable;
use clap::{Arg, Args, Command};

use super::config_file::similar;
use super::serve::ServeArgs;

const PREFIX: &str = "SUBMETER_";

/// Flags whose values may contain any character that could separate two values in a variable.
const WITHOUT: [&str; 2] = ["tenant-limit", "limit-fleet"];

/// Variables that other parts and programs of this project read, and that are therefore not
/// misspelt.
const OTHERS: [&str; 17] = [
    "BANK_SCHEDULES",
    "BLESS",
    "CHECKPOINT_CRASH",
    "CLOCK",
    "COMMIT",
    "DATAFUSION",
    "FLEET_BANK",
    "FLEET_MEMBER",
    "FLEET_STOP",
    "GOLDENS",
    "OPTIONS",
    "OTELCOL",
    "POSTGRES",
    "RSEQ",
    "RUSTC",
    "STRESS",
    "VERSION",
];

/// Prefixes of such variables, and of those that Kubernetes sets for a service called submeter.
const OTHER_PREFIXES: [&str; 5] = ["FUZZ_", "PORT", "SERVICE_", "TEST_", "TORTURE_"];

/// Returns the variable that stands for a flag, if one does.
pub(super) fn variable(arg: &Arg) -> Option<String> {
    let long = arg.get_long().filter(|long| !WITHOUT.contains(long))?;
    Some(format!("{PREFIX}{}", long.to_uppercase().replace('-', "_")))
}

/// Flags that close a door: ignoring their empty variables would leave it open.
const DOORS: [&str; 4] = ["auth-file", "tls-cert", "tls-key", "token-file"];

/// Ignores the variable called `unset`, and each that is empty or blank: service and container
/// files leave variables without a value like that.
pub(super) fn without_empty(command: Command, unset: &str) -> Command {
    let is_ignored = |arg: &Arg, name: &OsStr| {
        let is_door = arg.get_long().is_some_and(|long| DOORS.contains(&long));
        let is_blank = |value: OsString| value.to_str().is_some_and(|text| text.trim().is_empty());
        name == unset || !is_door && std::env::var_os(name).is_some_and(is_blank)
    };
    let heeded = command.mut_args(|arg| match arg.get_env() {
        Some(name) if is_ignored(&arg, name) => arg.env(Resettable::Reset),
        _ => arg,
    });
    heeded.mut_subcommands(|command| without_empty(command, unset))
}

/// Returns the flags whose variables are set, with the variables' names.
pub(super) fn set(command: &Command) -> BTreeSet<(String, String)> {
    let own = command.get_arguments().filter_map(|arg| {
        let name = arg.get_env()?.to_str().filter(|name| std::env::var_os(name).is_some())?;
        Some((arg.get_long()?.to_owned(), name.to_owned()))
    });
    own.chain(command.get_subcommands().flat_map(set)).collect()
}

/// Returns the names of this project's variables whose values are not UTF-8.
pub(super) fn not_text() -> impl Iterator<Item = String> {
    let is_ours = |name: &OsString| name.to_str().is_some_and(|name| name.starts_with(PREFIX));
    let set =
        std::env::vars_os().filter(move |(name, value)| is_ours(name) && value.to_str().is_none());
    set.filter_map(|(name, _)| name.into_string().ok())
}

/// Returns a line for each variable of the environment that looks like one of `serve` but is not.
pub(crate) fn misspelt() -> Vec<String> {
    let serve = ServeArgs::augment_args(Command::new("serve"));
    let names = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
    let mut lines: Vec<String> = names.filter_map(|name| why_not(&name, &serve)).collect();
    lines.sort_unstable();
    lines
}

fn why_not(name: &str, serve: &Command) -> Option<String> {
    let rest = name.strip_prefix(PREFIX).filter(|rest| !rest.is_empty())?;
    let is_others = OTHERS.contains(&rest) || OTHER_PREFIXES.iter().any(|p| rest.starts_with(p));
    let flag = rest.to_lowercase().replace('_', "-");
    if WITHOUT.contains(&&*flag) {
        return Some(format!(
            "the variable {name} is not read, because tenants' names may contain any character: \
             use --{flag}, or the file of --config"
        ));
    }
    let is_known =
        serve.get_arguments().any(|arg| variable(arg).is_some_and(|known| known == name));
    if is_others || is_known {
        return None;
    }
    let similar = similar(&format!("--{flag}"), serve)?;
    let meant = if WITHOUT.contains(&&*similar) {
        format!("--{similar}, which has no variable")
    } else {
        format!("{PREFIX}{}", similar.to_uppercase().replace('-', "_"))
    };
    Some(format!("the variable {name} is not read: did you mean {meant}?"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What looks like a variable of `serve` is distinguished from another program's.
    #[test]
    fn variables_of_other_programs_are_left_alone() {
        let serve = ServeArgs::augment_args(Command::new("serve"));
        for (name, meant) in [
            ("SUBMETER_MEMROY", "did you mean SUBMETER_MEMORY?"),
            ("SUBMETER_VALUEMAX", "did you mean SUBMETER_VALUE_MAX?"),
            ("SUBMETER_TENANT_LIMIT", "use --tenant-limit, or the file of --config"),
            ("SUBMETER_TENANT_LIMITS", "did you mean --tenant-limit, which has no variable"),
        ] {
            let line = why_not(name, &serve).expect(name);
            assert!(line.contains(&format!("variable {name} is not read")), "{line}");
            assert!(line.contains(meant), "{line} names {meant}");
        }
        let others = OTHERS.iter().chain(&OTHER_PREFIXES).map(|other| format!("{PREFIX}{other}"));
        let flags = serve.get_arguments().filter_map(variable);
        let foreign = ["SUBMETER_", "SUBMETER_XYZ", "SUBMETER_PORT_11211_TCP", "MEMROY"];
        for name in others.chain(flags).chain(foreign.map(str::to_owned)) {
            assert_eq!(why_not(&name, &serve), None, "{name}");
        }
    }
}
