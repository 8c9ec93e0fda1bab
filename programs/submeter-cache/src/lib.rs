//! A memcached-compatible cache whose every tenant is a [`submeter::Group`].

#![forbid(unsafe_code)]

mod cache;
mod clock;
mod config;
mod connections;
mod delete;
mod exec;
mod item;
mod limits;
mod metrics;
mod output;
mod protocol;
mod server;
mod statistics;
mod store;
mod tenant;
mod users;

pub use cache::Cache;
pub use config::{Config, ConfigError};
pub use connections::Crowd;
pub use delete::{DeleteError, Deletion};
pub use limits::{OverRate, TenantLimits};
pub use metrics::Metrics;
#[cfg(feature = "fuzz")]
#[doc(hidden)]
pub use protocol::outcomes::outcomes;
pub use server::{Address, Foreign, Server};
pub use tenant::TenantPlaces;
pub use users::Users;
