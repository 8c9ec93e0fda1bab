//! A tenant's traffic: the statistics that requests are drawn from.

use std::time::Duration;

use serde::Serialize;

use super::verb::Verb;

/// Six clusters of Twitter's production caches, chosen to differ: a large read-mostly one with
/// compare-and-swap, one of counters, one that mostly writes, one that deletes, one that prepends
/// to lists, and one of large values.
///
/// Source: Yang, Yue, Vinayak: "A large scale analysis of hundreds of in-memory cache clusters at
/// Twitter", OSDI 2020; per-cluster statistics of March 2020, CC BY 4.0.
pub const BUILT_IN: &str = "\
tenant,key_bytes,value_bytes,request_rate_kqps,zipf_alpha,wss_mb_no_ttl,wss_mb,operations,ttls
cluster52,20,273,24.25,1.2117,14057,12583,get=0.91;add=0.04;gets=0.02;cas=0.02,1d:0.65;14d:0.27;12h:0.07
cluster23,35,224,8.69,0.274,93931,91,set=0.31;get=0.36;incr=0.3;delete=0.02,120s:0.93;2700s:0.05;5s:0.03
cluster12,44,1030,4.36,0.3048,612397,986,set=0.8;get=0.2,300s:0.98;299s:0.02
cluster14,96,414,5.81,1.2959,18333,8732,get=0.65;delete=0.22;set=0.13,1d:1.00
cluster53,36,9213,1.38,1.2061,4122,4122,get=0.89;set=0.03;prepend=0.09,30d:0.66;21d:0.34
cluster50,18,67485,0.24,1.2816,101492,153,get=0.52;set=0.48,900s:0.73;1200s:0.24;1199s:0.03
";

/// Maximum number of keys per tenant. Production working sets reach terabytes, but the skew is what
/// matters.
const KEYS_MAX: f64 = 100_000.0;
/// Minimum number of keys: with fewer, every request would hit the same few items.
const KEYS_MIN: f64 = 1_000.0;
/// The number of keys if the working set is unknown.
const KEYS_UNKNOWN: f64 = 10_000.0;

/// One tenant's traffic.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Profile {
    /// The cluster that the figures come from.
    pub source: String,
    /// Mean length of a key, including the tenant's prefix.
    pub key_bytes: u32,
    /// Mean length of a value.
    pub value_bytes: u32,
    /// Share of the whole load, in thousands of requests per second.
    pub rate_kqps: f64,
    /// Skew of the keys' popularity; 0 is uniform.
    pub zipf_alpha: f64,
    /// Size of all keys and values, in megabytes; 0 if unknown.
    pub working_set_mb: f64,
    /// Commands and their shares.
    pub operations: Vec<(Verb, f64)>,
    /// Times to live in seconds and their shares; empty if items do not expire.
    pub ttls_s: Vec<(u64, f64)>,
}

impl Profile {
    /// Returns the medians of the study's 54 clusters, for figures that are missing from a file.
    pub fn typical(source: &str) -> Profile {
        Profile {
            source: source.to_owned(),
            key_bytes: 36,
            value_bytes: 224,
            rate_kqps: 5.26,
            zipf_alpha: 1.21,
            working_set_mb: 0.0,
            operations: vec![(Verb::Get, 0.9), (Verb::Set, 0.1)],
            ttls_s: Vec::new(),
        }
    }

    /// Returns the number of the tenant's keys.
    pub fn keys(&self) -> u32 {
        let item = f64::from(self.key_bytes + self.value_bytes).max(1.0);
        let keys =
            if self.working_set_mb > 0.0 { self.working_set_mb * 1e6 / item } else { KEYS_UNKNOWN };
        keys.clamp(KEYS_MIN, KEYS_MAX) as u32
    }

    /// Replaces the mix by stores and retrievals. Values stay as the profile's own commands make
    /// them: runs with and without the replacement accept each other's values, and `incr` finds the
    /// numbers that it counts.
    pub fn set_ratio(&mut self, set: f64, get: f64) {
        self.operations.retain(|(verb, _)| !matches!(verb, Verb::Set | Verb::Get));
        self.operations.iter_mut().for_each(|(_, share)| *share = 0.0);
        self.operations.extend([(Verb::Set, set), (Verb::Get, get)]);
    }

    /// Returns whether any of `verbs` determines the form of values, whether it is used or not.
    pub fn knows(&self, verbs: &[Verb]) -> bool {
        self.operations.iter().any(|(verb, _)| verbs.contains(verb))
    }

    /// Returns whether any of `verbs` is in the mix.
    pub fn uses(&self, verbs: &[Verb]) -> bool {
        self.operations.iter().any(|(verb, share)| *share > 0.0 && verbs.contains(verb))
    }
}

/// Returns the exptime for `ttl_s` at the wall-clock time `now`: the protocol interprets more than
/// 30 days as a date.
pub fn exptime(ttl_s: u64, now: Duration) -> u64 {
    const RELATIVE_MAX_S: u64 = 30 * 24 * 3600;
    if ttl_s > RELATIVE_MAX_S { now.as_secs() + ttl_s } else { ttl_s }
}
