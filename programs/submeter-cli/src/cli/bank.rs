//! Which bank lends the limits of a fleet.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use submeter_address::Address;
use submeter_bank::Holder;
use submeter_terminal::seconds;

/// The bank of a fleet, for an operator.
#[derive(Args, Clone, Debug)]
pub(crate) struct BankArgs {
    /// The bank that lends the limits: unix:/PATH of `submeter fleet bank`, or redis://… or
    /// etcd://… in a build with the feature of that name; the variable SUBMETER_BANK keeps a
    /// password out of the process list
    #[arg(long, value_name = "ADDRESS", env = "SUBMETER_BANK", hide_env = true)]
    pub(crate) bank: Address,
    #[command(flatten)]
    pub(crate) service: ServiceArgs,
}

/// What is said of a bank besides its address.
#[derive(Args, Clone, Debug)]
pub(crate) struct ServiceArgs {
    /// For rediss://… or etcds://…: trust the certificate authorities in this PEM file; for Redis,
    /// the default is the system's
    #[arg(long, value_name = "FILE")]
    pub(crate) bank_ca: Option<PathBuf>,
    /// For rediss://… or etcds://…: present this PEM certificate, followed by its chain, to a bank
    /// that asks for one
    #[arg(long, value_name = "FILE", requires = "bank_key")]
    pub(crate) bank_cert: Option<PathBuf>,
    /// The key of --bank-cert, in PEM
    #[arg(long, value_name = "FILE", requires = "bank_cert")]
    pub(crate) bank_key: Option<PathBuf>,
    /// For Redis and etcd: the name of the fleet; a server may hold several
    #[arg(long, value_name = "NAME", default_value = "submeter")]
    pub(crate) fleet: String,
    /// For Redis and etcd: how long leases last, the same for all members; otherwise the bank
    /// decides. A new or restarted bank lends nothing new for about as long, since it does not know
    /// what was lent before
    #[arg(long, value_name = "S", default_value = "15", value_parser = seconds)]
    pub(crate) lease: Duration,
}

/// A member's part in a fleet.
#[derive(Args, Clone, Debug)]
pub(crate) struct MemberArgs {
    /// Lease the limits of --limit-fleet from this bank: unix:/PATH of `submeter fleet bank`, or,
    /// in a build with the feature of that name, redis://… or etcd://…; etcd forgets nothing in a
    /// fail-over
    #[arg(long, value_name = "ADDRESS", requires = "limit_fleet")]
    pub(crate) bank: Option<Address>,
    /// A limit that all servers at the bank share: /PATH=SIZE,rate=N/s, or either of them. It is
    /// set at the bank if there is none; `submeter fleet set` changes it. May be repeated. The path
    /// ends at the first '=', so names cannot contain one
    #[arg(long, value_name = "LIMIT", requires = "bank")]
    pub(crate) limit_fleet: Vec<super::FleetLimit>,
    /// Name of this server at the bank, and for `submeter fleet bill` [default: the host's, and the
    /// cache's port]
    #[arg(long, value_name = "NAME", value_parser = member_name)]
    pub(crate) member: Option<String>,
    /// What applies while the bank is unreachable and there is no lease: strict (nothing is
    /// granted), open (the whole limit on each server, so that the fleet may exceed it), or a share
    /// of the limit such as 10%, which `submeter fleet set --floors` has reserved
    #[arg(long, value_name = "HOW", default_value = "strict", requires = "bank")]
    pub(crate) outage: OutageArg,
    #[command(flatten)]
    pub(crate) service: ServiceArgs,
}

/// Parses a member's name by the banks' own rule: banks refuse every request of a member with
/// another kind of name.
fn member_name(text: &str) -> Result<String, String> {
    Holder::check_name(text).map(|()| text.to_owned()).map_err(|error| error.to_string())
}

/// What holds without a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OutageArg {
    Strict,
    Open,
    Floor(Percent),
}

impl std::str::FromStr for OutageArg {
    type Err = String;

    fn from_str(text: &str) -> Result<OutageArg, String> {
        match text {
            "strict" => Ok(OutageArg::Strict),
            "open" => Ok(OutageArg::Open),
            part => part.parse().map(OutageArg::Floor).map_err(|_: String| {
                format!("{text:?} is not a rule: use strict, open, or a share such as 10%")
            }),
        }
    }
}

/// A part of a limit: 1% to 100%.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Percent(u8);

impl Percent {
    /// Returns this fraction of a limit, rounded down.
    pub(crate) fn of(self, limit: u64) -> u64 {
        (u128::from(limit) * u128::from(self.0) / 100) as u64
    }
}

impl std::str::FromStr for Percent {
    type Err = String;

    fn from_str(text: &str) -> Result<Percent, String> {
        let number = text.strip_suffix('%').filter(|n| n.bytes().all(|b| b.is_ascii_digit()));
        let part = number.and_then(|n| n.parse().ok()).filter(|part| (1..=100).contains(part));
        part.map(Percent).ok_or_else(|| format!("invalid share {text:?}: use 1% to 100%"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_whole_percents() {
        assert_eq!("10%".parse::<Percent>().expect("a part").of(u64::MAX), u64::MAX / 10);
        for text in ["0%", "101%", "10", "-1%", "+1%", "%", "1.5%"] {
            assert!(text.parse::<Percent>().is_err(), "{text}");
        }
    }

    #[test]
    fn members_are_called_what_a_bank_takes() {
        assert_eq!(member_name("web 1:11211").as_deref(), Ok("web 1:11211"));
        for (text, remedy) in [
            ("", "1 to 1024 bytes"),
            (&*"x".repeat(1025), "1 to 1024 bytes"),
            ("a\u{1}b", "\"a\\u{1}b\": remove the control characters"),
        ] {
            let error = member_name(text).expect_err(text);
            assert!(error.contains("member") && error.contains(remedy), "{error}");
        }
    }
}
