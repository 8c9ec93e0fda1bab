//! What the cache is told at start.

use std::fmt;

/// Configures a cache.
#[derive(Clone, Debug)]
pub struct Config {
    /// The byte that separates the names of nested tenants at the front of a key: with `:`,
    /// `acme:web:k` belongs to `/acme/web`. A key without it belongs to the root.
    pub delimiter: u8,
    /// The deepest tenant; what lies deeper is part of the key.
    pub depth_max: usize,
    /// The most tenants; keys of further ones are accounted to their parent's child `other`.
    pub tenants_max: usize,
    /// The most memory that items may hold in all, in bytes.
    pub memory_max: u64,
    /// The largest value, in bytes.
    pub value_max: usize,
    /// Memory limits of tenants: group path and bytes.
    pub tenant_limits: Vec<(String, u64)>,
    /// Whether requests are metered. Memory is charged all the same: limits need it.
    pub metering: bool,
}

impl Default for Config {
    /// memcached's own defaults where it has them: 64 MiB of items, values up to 1 MiB.
    fn default() -> Self {
        Config {
            delimiter: b':',
            depth_max: 4,
            tenants_max: 10_000,
            memory_max: 64 << 20,
            value_max: 1 << 20,
            tenant_limits: Vec::new(),
            metering: true,
        }
    }
}

/// Says which setting cannot be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError(pub(crate) String);

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for ConfigError {}
