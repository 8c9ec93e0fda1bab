//! The limits of tenants: memory, requests per second and CPU time per second.

use submeter::Group;
pub use submeter::limits::Limits as TenantLimits;

use crate::metrics::Metrics;

/// Sets the limits in `now`, in place of those in `before`. A limit in neither belongs to something
/// else, such as a fleet's lease, and stays as it is.
pub(crate) fn replace(now: TenantLimits, before: TenantLimits, group: &Group, metrics: &Metrics) {
    let is_set = |now: Option<u64>, before: Option<u64>| now.or(before).is_some();
    // The limit of the whole server is a setting of its own.
    if group.parent().is_some() {
        if is_set(now.memory, before.memory) {
            group.set_limit(metrics.memory, now.memory);
        }
        if is_set(now.high, before.high) {
            group.set_high(metrics.memory, now.high);
        }
        if is_set(now.low, before.low) {
            group.set_low(metrics.memory, now.low);
        }
        if is_set(now.min, before.min) {
            group.set_min(metrics.memory, now.min);
        }
    }
    if now.mode.or(before.mode).is_some() {
        let mode = now.mode.unwrap_or_default();
        if group.parent().is_some() {
            group.set_limit_mode(metrics.memory, mode);
        }
        group.set_rate_mode(metrics.requests, mode);
        group.set_rate_mode(metrics.cpu_budget, mode);
    }
    if now.rate.or(before.rate).is_some() {
        let set = group.set_rate(metrics.requests, now.rate);
        set.expect("the rate was checked with the configuration");
    }
    if now.cpu.or(before.cpu).is_some() {
        let set = group.set_rate(metrics.cpu_budget, now.cpu);
        set.expect("the rate was checked with the configuration");
    }
    if now.weight.or(before.weight).is_some() {
        let checked = "the weight was checked with the configuration";
        group.set_weight(metrics.requests, now.weight).expect(checked);
        group.set_weight(metrics.cpu_budget, now.weight).expect(checked);
    }
}

/// The answer to a client over its tenant's rate, or whose tenant owes CPU time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OverRate {
    /// `SERVER_ERROR`, and when to retry.
    #[default]
    Refuse,
    /// Nothing: its connection waits, for as long as a request may take to arrive. A longer wait is
    /// refused at once, unless its length is unknown: a client of a server without a lease of its
    /// fleet's rate is made to wait.
    Wait,
}
