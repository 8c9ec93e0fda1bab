//! The handful of figures that a tenant's row shows, from two snapshots a second apart.

use std::time::Duration;

use submeter::{Count, Counter, GroupValues, Unit};
use submeter_cache::Metrics;

use super::wire::Overview;

/// Computes a row. `before` is the same group one sample earlier, or `None` for a new one, which
/// then has counted since nothing: what it did within its first second is this second's rate.
pub(super) fn overview(
    metrics: &Metrics,
    now: &GroupValues,
    before: Option<&GroupValues>,
    window: Duration,
) -> Overview {
    let rates = Rates { now, before, seconds: window.as_secs_f64() };
    let hits = rates.delta(metrics.get_hits);
    let lookups = hits + rates.delta(metrics.get_misses);
    let latency = now.histogram(metrics.latency);
    let recent = match before {
        Some(before) => latency.since(&before.histogram(metrics.latency)),
        None => latency,
    };
    let memory = now.usage(metrics.memory);
    let refused =
        memory.refused.saturating_sub(before.map_or(0, |b| b.usage(metrics.memory).refused));
    Overview {
        requests_per_s: requests(metrics).map(|counter| rates.rate(counter)).iter().sum(),
        hit_ratio: (lookups > 0).then(|| hits as f64 / lookups as f64),
        memory_bytes: memory.current,
        memory_limit_bytes: memory.limit,
        p99_ns: recent.quantile(0.99),
        // Nanoseconds a second: 1e9 of them are one processor fully used.
        cpu_cores: rates.rate(metrics.cpu) / 1e9,
        evictions_per_s: rates.rate(metrics.evictions),
        refused_per_s: rates.per_second(refused),
        items: now.gauge(metrics.items),
        bytes_in_per_s: rates.rate(metrics.bytes_in),
        bytes_out_per_s: rates.rate(metrics.bytes_out),
    }
}

/// The counters whose sum is the number of requests: each request counts in exactly one.
fn requests(metrics: &Metrics) -> [Counter<Count>; 6] {
    [
        metrics.cmd_get,
        metrics.cmd_set,
        metrics.cmd_delete,
        metrics.cmd_touch,
        metrics.cmd_arithmetic,
        metrics.cmd_debug,
    ]
}

struct Rates<'a> {
    now: &'a GroupValues,
    before: Option<&'a GroupValues>,
    seconds: f64,
}

impl Rates<'_> {
    /// Saturates: a group that was killed and made again between two samples starts from zero.
    fn delta<U: Unit>(&self, counter: Counter<U>) -> u64 {
        let before = self.before.map_or(0, |before| before.counter(counter));
        self.now.counter(counter).saturating_sub(before)
    }

    fn rate<U: Unit>(&self, counter: Counter<U>) -> f64 {
        self.per_second(self.delta(counter))
    }

    fn per_second(&self, delta: u64) -> f64 {
        if self.seconds > 0.0 { delta as f64 / self.seconds } else { 0.0 }
    }
}
