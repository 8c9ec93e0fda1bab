//! What may be typed: commands, flags and the types of their values.

mod doctor;
mod load;
mod manual;
mod page;
mod serve;
mod size;
mod stat;
mod tenant_limit;
mod top;

pub(crate) use doctor::DoctorArgs;
pub(crate) use load::LoadArgs;
pub(crate) use manual::{CompletionsArgs, ManArgs};
pub(crate) use page::PageArgs;
pub(crate) use serve::{OverRateArg, ServeArgs};
pub(crate) use stat::StatArgs;
pub(crate) use tenant_limit::TenantLimit;
pub(crate) use top::TopArgs;

use clap::{Parser, Subcommand};

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
    // Boxed: it has twice as many flags as any other.
    Serve(Box<ServeArgs>),
    /// Drive a memcached-compatible server with tenants drawn from production statistics
    Load(LoadArgs),
    /// Report what this machine offers, which backend is in use and why, and what an add costs
    Doctor(DoctorArgs),
    /// Watch the tenants of a running server
    Top(TopArgs),
    /// Count events of the tenants of a running server, as `perf stat` does of processes
    Stat(StatArgs),
    /// Print completions for a shell
    Completions(CompletionsArgs),
    /// Print the manual page
    Man(ManArgs),
    /// Says where the bench is now, for callers who look for it here
    #[command(hide = true)]
    Bench {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, num_args = 0..)]
        args: Vec<std::ffi::OsString>,
    },
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory, Parser};

    use super::Cli;

    #[test]
    fn definitions_are_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn a_wrong_command_line_is_one_line_that_names_the_input() {
        for (args, named) in [
            (&["submeter", "srve"][..], "srve"),
            (&["submeter", "serve", "--lod", "6"], "--lod"),
            (&["submeter", "serve", "--memory", "lots"], "lots"),
            (&["submeter", "load", "--seconds", "-1"], "-1"),
            (&["submeter", "load", "extra"], "extra"),
            (&["submeter", "serve", "--tls-cert", "c.pem"], "were not provided: --tls-key"),
        ] {
            let error = Cli::try_parse_from(args).expect_err("refused");
            let failure = submeter_terminal::refuse(&error).expect_err("a failure");
            assert!(failure.line().contains(named), "{failure:?} names {named}");
            assert!(!failure.line().contains('\n'), "{failure:?} is one line");
        }
    }
}
