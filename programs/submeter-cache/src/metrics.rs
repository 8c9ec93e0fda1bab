//! The metrics of each tenant.

use submeter::{
    Buckets, Bytes, Count, Counter, Gauge, Histogram, Nanoseconds, Quota, RateLimit, Schema,
    SchemaError,
};

/// The keys of every metric of the cache, with their schema.
#[derive(Clone, Debug)]
pub struct Metrics {
    /// The schema of the cache's tree.
    pub schema: Schema,
    /// Retrievals: a key of `get` or `gets`, or one `mg`. A `get` of three keys counts as three.
    pub cmd_get: Counter<Count>,
    /// Stores: `set`, `add`, `replace`, `append`, `prepend`, `cas`, `ms`, including refused ones.
    pub cmd_set: Counter<Count>,
    /// `delete` and `md`.
    pub cmd_delete: Counter<Count>,
    /// `touch`, and each key of `gat` and `gats`.
    pub cmd_touch: Counter<Count>,
    /// `incr`, `decr` and `ma`.
    pub cmd_arithmetic: Counter<Count>,
    /// `me`.
    pub cmd_debug: Counter<Count>,
    /// Retrievals (of `cmd_get` and `gat`) that found the item.
    pub get_hits: Counter<Count>,
    /// Retrievals that found nothing.
    pub get_misses: Counter<Count>,
    /// Items held.
    pub items: Gauge<Count>,
    /// Bytes of requests, including line ends and values.
    pub bytes_in: Counter<Bytes>,
    /// Bytes of answers.
    pub bytes_out: Counter<Bytes>,
    /// Memory held by items: key, value and the item's own overhead.
    pub memory: Quota<Bytes>,
    /// Memory held by connections that wait for their clients, beyond the usual buffers: incomplete
    /// requests, and answers that are not taken. Only the root has any, since a tenant that is
    /// deleted must not wait for a slow client.
    pub buffers: Quota<Bytes>,
    /// Open connections, whose number is limited. Only the root has any, since one connection may
    /// use keys of any tenant.
    pub connections: Quota<Count>,
    /// Items dropped to make room.
    pub evictions: Counter<Count>,
    /// Stores after which a tenant was above its `high` and dropped items of its own.
    pub over_high: Counter<Count>,
    /// Items dropped because they had expired.
    pub expired: Counter<Count>,
    /// Stores refused because nothing more could be evicted.
    pub store_failures: Counter<Count>,
    /// Requests with a key, limited by a tenant's rate; each key of a retrieval counts as one. The
    /// counters say how often and how long a tenant was over its rate.
    pub requests: RateLimit<Count>,
    /// CPU time that worker threads spent on requests, measured by the group switch: from the point
    /// where a request names its tenant to the point where the next one does, or where the answers
    /// of its batch are with the kernel. Reading from a socket is charged to no tenant, because the
    /// request's tenant is not known yet.
    pub cpu: Counter<Nanoseconds>,
    /// That CPU time, limited by a tenant's CPU budget, which the switch spends. The counters say
    /// how often and how long requests were held back because their tenant owed CPU time.
    pub cpu_budget: RateLimit<Nanoseconds>,
    /// The time from the moment when a request could be worked on, as far as the worker knows,
    /// until its answer is ready to send. That moment is when its last bytes could be read, the
    /// client's earlier requests were done and their answers taken, except for the few requests of
    /// one turn. A retrieval of several keys counts once per key, as in the other metrics.
    pub latency: Histogram<Nanoseconds>,
    /// The part of `latency` in which requests waited: for other connections of their worker, or
    /// for their tenant's rate. It is a sum over requests: divided by their number it is the mean
    /// wait.
    pub waited: Counter<Nanoseconds>,
}

impl Metrics {
    /// Declares all metrics.
    ///
    /// # Errors
    /// Never in practice: the names are fixed and distinct.
    pub fn new() -> Result<Metrics, SchemaError> {
        let mut s = Schema::builder();
        // First the words that each request adds to: eight, the last of them the sum of the
        // latencies. They fill a cache line; the buckets behind them begin another.
        let cmd_get = s.counter("cmd_get", "Keys requested by get, gets and mg");
        let cmd_set =
            s.counter("cmd_set", "Stores: set, add, replace, append, prepend, cas and ms");
        let get_hits = s.counter("get_hits", "Retrievals that found the item");
        let get_misses = s.counter("get_misses", "Retrievals that found nothing");
        let bytes_in = s.counter("bytes_in", "Bytes of requests");
        let bytes_out = s.counter("bytes_out", "Bytes of answers");
        let cpu = s.cpu_time("cpu", "CPU time that worker threads spent on requests");
        let latency = s.histogram(
            "latency",
            "Time from when a request can be read until its answer is ready",
            Buckets::LATENCY_NS,
        );
        let waited = s.counter("waited", "Time that requests waited before work on them began");
        let cmd_delete = s.counter("cmd_delete", "Deletions: delete and md");
        let cmd_touch = s.counter("cmd_touch", "Keys touched by touch, gat and gats");
        let cmd_arithmetic = s.counter("cmd_arithmetic", "incr, decr and ma");
        let cmd_debug = s.counter("cmd_debug", "me");
        let items = s.gauge("items", "Items held");
        let memory = s.quota("memory", "Memory held by items");
        let buffers = s.quota("buffers", "Memory held by connections that wait for their clients");
        let connections = s.quota("connections", "Open connections");
        let evictions = s.counter("evictions", "Items dropped to make room");
        let expired = s.counter("expired", "Items dropped because they had expired");
        let store_failures = s.counter("store_failures", "Stores refused for lack of memory");
        let over_high = s.counter("over_high", "Stores that found a tenant above its high limit");
        let requests = s.rate_limit("requests", "Requests over the rate of a tenant");
        let cpu_budget = s.cpu_budget("cpu_budget", "Requests of a tenant that owes CPU time");
        Ok(Metrics {
            schema: s.build()?,
            cmd_get,
            cmd_set,
            cmd_delete,
            cmd_touch,
            cmd_arithmetic,
            cmd_debug,
            get_hits,
            get_misses,
            items,
            bytes_in,
            bytes_out,
            memory,
            buffers,
            connections,
            evictions,
            over_high,
            expired,
            store_failures,
            requests,
            cpu,
            cpu_budget,
            latency,
            waited,
        })
    }
}

#[cfg(test)]
mod tests {
    use submeter::MetricKind;

    use super::*;

    #[test]
    fn a_request_adds_to_one_line_of_memory() {
        let metrics = Metrics::new().expect("the names are distinct").schema;
        let before = metrics.metrics().iter().take_while(|metric| metric.name() != "latency");
        let words: Vec<&str> = before
            .inspect(|metric| assert_eq!(metric.kind(), MetricKind::Counter, "a word"))
            .map(|metric| metric.name())
            .collect();
        // With the sum of the latencies, which precedes their buckets, these are eight words.
        let every =
            ["cmd_get", "cmd_set", "get_hits", "get_misses", "bytes_in", "bytes_out", "cpu"];
        assert_eq!(words, every);
    }
}
