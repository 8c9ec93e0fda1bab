//! What may be typed: commands, flags and the types of their values.

mod bench;
mod doctor;
mod failure;
mod load;
mod serve;
mod size;
mod stat;
mod top;

pub(crate) use bench::BenchArgs;
pub(crate) use doctor::DoctorArgs;
pub(crate) use failure::{Failure, refuse};
pub(crate) use load::LoadArgs;
pub(crate) use serve::ServeArgs;
pub(crate) use size::TenantLimit;
pub(crate) use stat::StatArgs;
pub(crate) use top::TopArgs;

use clap::{Parser, Subcommand};

/// Accounting, limits and lifetimes for the tenants inside a process.
#[derive(Debug, Parser)]
#[command(name = "submeter", version, max_term_width = 100, arg_required_else_help = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Serve a memcached-compatible cache whose every tenant is a group, with a live page
    Serve(ServeArgs),
    /// Drive a memcached-compatible server with tenants drawn from production statistics
    Load(LoadArgs),
    /// Say what this machine offers, what was decided, and what an add costs either way
    Doctor(DoctorArgs),
    /// Watch the tenants of a running server
    Top(TopArgs),
    /// Count events of the tenants of a running server, as `perf stat` does of processes
    Stat(StatArgs),
    /// Measure what counting costs, next to what else people use
    Bench(BenchArgs),
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::Cli;

    #[test]
    fn definitions_are_consistent() {
        Cli::command().debug_assert();
    }
}
