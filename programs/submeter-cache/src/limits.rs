//! The limits of tenants: memory, requests per second and CPU time per second.

use submeter::{Group, LimitMode, Rate};

use crate::metrics::Metrics;

/// The limits of one tenant.
///
/// # Examples
/// ```
/// use submeter::Rate;
/// use submeter_cache::TenantLimits;
///
/// let memory = TenantLimits::from(64 << 20);
/// let rate = Rate::new(20_000, std::time::Duration::from_secs(1));
/// let both = TenantLimits { requests: Some(rate), ..memory };
/// assert_eq!(both.memory, Some(64 << 20));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TenantLimits {
    /// The most memory that its items may hold, in bytes.
    pub memory: Option<u64>,
    /// Above this its stores drop items of its own, down to it, and are never refused for it: it
    /// makes room ahead of `memory`, or alone keeps a tenant small that may be larger for a while.
    pub high: Option<u64>,
    /// Items that hold no more than this are dropped for other tenants only when no other is left
    /// that has more than its own.
    pub low: Option<u64>,
    /// Items that hold no more than this are never dropped for other tenants.
    pub min: Option<u64>,
    /// How many requests with a key it may make per time.
    pub requests: Option<Rate>,
    /// How much CPU time it may use per time, in nanoseconds. What it uses is known afterwards: it
    /// may owe some, and none of its requests begins until that is earned.
    pub cpu: Option<Rate>,
    /// With which weight it contends for the requests and the CPU time that its parent may have: 1
    /// to 10,000. While siblings want more than there are, each that has a weight gets its part.
    pub weight: Option<u32>,
    /// The effect of `memory`, `requests` and `cpu`: an excess is refused unless this is
    /// [`LimitMode::Soft`], which grants it and counts it.
    pub mode: Option<LimitMode>,
}

/// Limits memory alone.
impl From<u64> for TenantLimits {
    fn from(memory: u64) -> TenantLimits {
        TenantLimits { memory: Some(memory), ..TenantLimits::default() }
    }
}

impl TenantLimits {
    /// Sets those that there are, in place of those before. What neither says is somebody else's,
    /// such as a fleet's lease, and stays as it is.
    pub(crate) fn replace(&self, before: TenantLimits, group: &Group, metrics: &Metrics) {
        let is_set = |now: Option<u64>, before: Option<u64>| now.or(before).is_some();
        // The whole server's is a setting of its own.
        if group.parent().is_some() {
            if is_set(self.memory, before.memory) {
                group.set_limit(metrics.memory, self.memory);
            }
            if is_set(self.high, before.high) {
                group.set_high(metrics.memory, self.high);
            }
            if is_set(self.low, before.low) {
                group.set_low(metrics.memory, self.low);
            }
            if is_set(self.min, before.min) {
                group.set_min(metrics.memory, self.min);
            }
        }
        if self.mode.or(before.mode).is_some() {
            let mode = self.mode.unwrap_or_default();
            if group.parent().is_some() {
                group.set_limit_mode(metrics.memory, mode);
            }
            group.set_rate_mode(metrics.requests, mode);
            group.set_rate_mode(metrics.cpu_budget, mode);
        }
        if self.requests.or(before.requests).is_some() {
            let set = group.set_rate(metrics.requests, self.requests);
            set.expect("the rate was checked with the configuration");
        }
        if self.cpu.or(before.cpu).is_some() {
            let set = group.set_rate(metrics.cpu_budget, self.cpu);
            set.expect("the rate was checked with the configuration");
        }
        if self.weight.or(before.weight).is_some() {
            let checked = "the weight was checked with the configuration";
            group.set_weight(metrics.requests, self.weight).expect(checked);
            group.set_weight(metrics.cpu_budget, self.weight).expect(checked);
        }
    }
}

/// The answer to a client over its tenant's rate, or whose tenant owes CPU time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OverRate {
    /// `SERVER_ERROR`, and when to try again.
    #[default]
    Refuse,
    /// Nothing: its connection waits, for as long as a request may take to arrive. What would take
    /// longer is refused at once, unless nobody knows how long it takes: a server without a lease
    /// of its fleet's rate is waited for.
    Wait,
}
