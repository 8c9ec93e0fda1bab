//! What tenants may have: memory, and requests per time.

use submeter::{Group, Rate};

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
    /// With which weight it contends for the requests that its parent may make: 1 to 10,000. While
    /// siblings want more than there are, each that has a weight gets its part.
    pub weight: Option<u32>,
}

/// Limits memory alone.
impl From<u64> for TenantLimits {
    fn from(memory: u64) -> TenantLimits {
        TenantLimits { memory: Some(memory), ..TenantLimits::default() }
    }
}

impl TenantLimits {
    /// Sets all of them, those that there are not as well.
    pub(crate) fn set(&self, group: &Group, metrics: &Metrics) {
        // The whole server's is a setting of its own.
        if group.parent().is_some() {
            group.set_limit(metrics.memory, self.memory);
            group.set_high(metrics.memory, self.high);
            group.set_low(metrics.memory, self.low);
            group.set_min(metrics.memory, self.min);
        }
        let set = group.set_rate(metrics.requests, self.requests);
        set.expect("the rate was checked with the configuration");
        let set = group.set_weight(metrics.requests, self.weight);
        set.expect("the weight was checked with the configuration");
    }
}

/// What a client is told that is over its tenant's rate.
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
