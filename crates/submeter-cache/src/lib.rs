//! A memcached-compatible cache whose every tenant is a [`submeter::Group`].

#![forbid(unsafe_code)]

mod config;
mod metrics;

pub use config::{Config, ConfigError};
pub use metrics::Metrics;
