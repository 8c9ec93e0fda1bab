//! The problem that `--load` stages, so that the page has one to show: a tenant that bursts and
//! takes from the others, and a tenant over its rate.
//!
//! It is staged only with the built-in tenants: a user who names statistics wants those and nothing
//! else.

use std::time::Duration;

use submeter::Rate;
use submeter_cache::TenantLimits;
use submeter_load::burst::Burst;

use submeter::limits::GroupLimits;

/// The bursting tenant. It mostly writes, so that the others lose items as well as CPU time.
const BURSTING: usize = 2;
/// The period of the bursts. Anyone who watches for five seconds sees a burst or the end of one. A
/// burst must be unusual for the tenant, so it takes less than half of the time.
const EVERY: Duration = Duration::from_secs(8);
const LASTS: Duration = Duration::from_secs(3);
/// Twice the connections of the mix, for two thirds of the server.
const CONNECTIONS: usize = 16;

/// The limited tenant, and its limit: less than its share of the load on the slowest machine.
const LIMITED: usize = 1;
const RATE_PER_S: u64 = 1_000;

/// The conditions under which something is staged.
pub(super) struct Asked {
    pub(super) tenants: usize,
    /// Whether a file of tenants' statistics is named.
    pub(super) has_file: bool,
    /// Whether requests over a rate are refused rather than made to wait.
    pub(super) refuses: bool,
    pub(super) idle_timeout: Option<Duration>,
}

/// What is staged.
pub(super) struct Stage {
    pub(super) burst: Option<Burst>,
    /// The limit of the tenant that exceeds it, unless a file or a flag limits that tenant.
    pub(super) limit: Option<GroupLimits>,
}

impl Stage {
    pub(super) fn new(asked: Asked) -> Stage {
        let has_tenants = !asked.has_file && asked.tenants > BURSTING;
        let burst =
            Burst { tenant: BURSTING, connections: CONNECTIONS, every: EVERY, lasts: LASTS };
        // Between bursts the tenant's connections are idle, which the server may not allow.
        let may_idle = asked.idle_timeout.is_none_or(|most| most > EVERY);
        // Waiting would hold up the connections that all tenants share, and would show no refusal.
        let limit = GroupLimits { path: path(LIMITED), limits: limits() };
        Stage {
            burst: (has_tenants && may_idle).then_some(burst),
            limit: (has_tenants && asked.refuses).then_some(limit),
        }
    }

    /// Says what is staged, for the greeting. `set` are the limits of the cache.
    pub(super) fn line(&self, set: &[(String, TenantLimits)]) -> Option<String> {
        let bursts = self.burst.as_ref().map(|b| {
            let (lasts, every) = (b.lasts.as_secs(), b.every.as_secs());
            format!("{} bursts for {lasts} s out of every {every} s", path(b.tenant))
        });
        let is_set = |limit: &&GroupLimits| set.contains(&(limit.path.clone(), limit.limits));
        let limited = self.limit.as_ref().filter(is_set);
        let limited = limited.map(|limit| format!("{} is limited to {RATE_PER_S}/s", limit.path));
        let said: Vec<String> = bursts.into_iter().chain(limited).collect();
        (!said.is_empty()).then(|| said.join(", "))
    }
}

fn limits() -> TenantLimits {
    let rate = Some(Rate::new(RATE_PER_S, Duration::from_secs(1)));
    TenantLimits { rate, ..TenantLimits::default() }
}

fn path(tenant: usize) -> String {
    format!("/load/tenant{}", tenant + 1)
}
