//! The problem that `--load` stages, so that the page has one to show: a tenant that bursts and
//! takes from the others, and one over its rate.
//!
//! Only with the built-in tenants: who names statistics of their own wants those, and nothing else.

use std::time::Duration;

use submeter::Rate;
use submeter_cache::TenantLimits;
use submeter_load::burst::Burst;

use crate::cli::{OverRateArg, ServeArgs, TenantLimit};

/// The one that bursts mostly writes, so that the others lose items as well as processors.
const BURSTING: usize = 2;
/// Five seconds of watching see a burst, or the end of one; it is what the tenant does not usually
/// do, so less than half of the time.
const EVERY: Duration = Duration::from_secs(8);
const LASTS: Duration = Duration::from_secs(3);
/// Twice the connections of the mix, for two thirds of the server.
const CONNECTIONS: usize = 16;

/// The one that is limited, and to what: less than its share of the load on the slowest machine.
const LIMITED: usize = 1;
const RATE_PER_S: u64 = 1_000;

/// Returns the bursts of a load of so many tenants.
pub(super) fn burst(args: &ServeArgs, tenants: usize) -> Option<Burst> {
    let burst = Burst { tenant: BURSTING, connections: CONNECTIONS, every: EVERY, lasts: LASTS };
    // Between bursts its connections are idle, which the server may not allow.
    let may_idle = args.idle_timeout.is_none_or(|most| most > EVERY);
    (args.tenants_file.is_none() && tenants > BURSTING && may_idle).then_some(burst)
}

/// Returns the limit of the tenant that is over it, unless `given` says something about it.
pub(super) fn limit(args: &ServeArgs, given: &[TenantLimit]) -> Option<TenantLimit> {
    let tenants = usize::from(args.load?);
    // Waiting would hold up the connections that all tenants share, and show no refusal.
    let is_refused = matches!(args.over_rate, OverRateArg::Refuse);
    let path = path(LIMITED);
    let is_staged = args.tenants_file.is_none() && tenants > BURSTING && is_refused;
    if !is_staged || given.iter().any(|limit| limit.path == path) {
        return None;
    }
    Some(TenantLimit { path, limits: limits() })
}

/// Says what is staged, for the greeting. `set` are the limits of the cache.
pub(super) fn line(args: &ServeArgs, set: &[(String, TenantLimits)]) -> Option<String> {
    let bursts = args.load.and_then(|tenants| burst(args, usize::from(tenants))).map(|b| {
        let (lasts, every) = (b.lasts.as_secs(), b.every.as_secs());
        format!("{} bursts for {lasts} s of each {every} s", path(b.tenant))
    });
    let is_set = limit(args, &[]).is_some_and(|limit| set.contains(&(limit.path, limit.limits)));
    let limited = is_set.then(|| format!("{} is limited to {RATE_PER_S}/s", path(LIMITED)));
    let said: Vec<String> = bursts.into_iter().chain(limited).collect();
    (!said.is_empty()).then(|| said.join(", "))
}

fn limits() -> TenantLimits {
    let requests = Some(Rate::new(RATE_PER_S, Duration::from_secs(1)));
    TenantLimits { requests, ..TenantLimits::default() }
}

fn path(tenant: usize) -> String {
    format!("/load/tenant{}", tenant + 1)
}
