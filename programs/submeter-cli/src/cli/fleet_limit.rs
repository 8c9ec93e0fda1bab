//! Limits that the servers of a fleet share, written as those of one server's tenants:
//! `/acme=64m,rate=20000/s`.

use std::str::FromStr;
use std::time::Duration;

use submeter::Rate;
use submeter::limits::GroupLimits;
use submeter_bank::Budget;

/// The resource of a tenant's memory, and of its requests per second.
pub(crate) const MEMORY: &str = "memory";
pub(crate) const RATE: &str = "rate";

/// The limits of one tenant of a fleet: memory in bytes, requests per second, or both.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FleetLimit {
    /// At least one, each with its limit.
    pub(crate) budgets: Vec<(Budget, u64)>,
}

impl FromStr for FleetLimit {
    type Err = String;

    fn from_str(text: &str) -> Result<FleetLimit, String> {
        FleetLimit::try_from(text.parse::<GroupLimits>().map_err(|error| error.to_string())?)
    }
}

impl FleetLimit {
    /// Makes a limit from its two halves.
    pub(crate) fn new(path: &str, limits: &str) -> Result<FleetLimit, String> {
        FleetLimit::try_from(GroupLimits::new(path, limits).map_err(|error| error.to_string())?)
    }
}

impl TryFrom<GroupLimits> for FleetLimit {
    type Error = String;

    fn try_from(GroupLimits { path, limits }: GroupLimits) -> Result<FleetLimit, String> {
        let budget = |resource| Budget::new(&path, resource).map_err(|error| error.to_string());
        let own = limits.high.or(limits.low).or(limits.min).or(limits.weight.map(u64::from));
        if own.is_some() || limits.cpu.is_some() || limits.mode.is_some() {
            return Err(format!(
                "{path:?}: high, low, min, cpu, weight and mode are set on each server: use \
                 --tenant-limit"
            ));
        }
        let mut budgets = Vec::new();
        if let Some(memory) = limits.memory {
            budgets.push((budget(MEMORY)?, memory));
        }
        if let Some(rate) = limits.rate {
            budgets.push((budget(RATE)?, per_second(&path, rate)?));
        }
        Ok(FleetLimit { budgets })
    }
}

fn per_second(path: &str, rate: Rate) -> Result<u64, String> {
    if rate.burst != rate.amount {
        return Err(format!(
            "{path:?}: a fleet's rate takes no burst: leave it out; a lease allows one second's \
             worth at once"
        ));
    }
    let amount = u128::from(rate.amount) * Duration::from_secs(1).as_nanos();
    let (per_second, rest) = (amount / rate.per.as_nanos(), amount % rate.per.as_nanos());
    let whole = u64::try_from(per_second).ok().filter(|&n| n > 0 && rest == 0);
    whole.ok_or_else(|| {
        format!("{path:?}: a fleet's rate must be a whole number per second, as in 20000/s")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_has_memory_or_a_rate_or_both() {
        for (text, expected) in [
            ("/acme=64k", &[("/acme", MEMORY, 65_536)][..]),
            ("/acme=memory=64k", &[("/acme", MEMORY, 65_536)]),
            ("/acme=rate=6k/min", &[("/acme", RATE, 100)]),
            ("/a=1k,rate=100k/s", &[("/a", MEMORY, 1024), ("/a", RATE, 100_000)]),
        ] {
            let limit: FleetLimit = text.parse().expect(text);
            let found: Vec<_> = limit
                .budgets
                .iter()
                .map(|(budget, n)| (budget.path(), budget.resource(), *n))
                .collect();
            assert_eq!(found, expected, "{text}");
        }
    }

    #[test]
    fn what_no_fleet_can_share_has_a_remedy() {
        for (text, named) in [
            ("/a=1k,low=1k", "--tenant-limit"),
            ("/a=rate=5/s,burst=9", "leave it out"),
            ("/a=rate=5/min", "as in 20000/s"),
            ("/a=rate=0/s", "the amount is 0"),
            ("/a=0", "at least 1 byte"),
            ("/a=weight=5", "--tenant-limit"),
            ("/a", "/PATH=LIMITS"),
            ("/a=1k,cpu=5", "--tenant-limit"),
            ("/a=1k,mode=soft", "--tenant-limit"),
            ("/a=foo=2m", "\"foo\" is not a limit"),
            ("a=1k", "starts with '/'"),
            ("//a=1k", "write it as /acme/web"),
            ("/a/=1k", "write it as /acme/web"),
        ] {
            let error = text.parse::<FleetLimit>().expect_err(text);
            assert!(error.contains(named) && !error.contains('\n'), "{text}: {error}");
        }
    }
}
