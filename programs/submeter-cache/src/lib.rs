//! A memcached-compatible cache whose every tenant is a [`submeter::Group`].
//!
//! # How it uses the library
//! - **Tenants.** The prefix of a key is the path of a group. The resolver looks it up in
//!   copy-on-write tables, which it reads under an epoch guard without a lock; the lookup ends in a
//!   clone that fails once the group was killed. The cache's own data of a tenant is attached to
//!   the group by `Group::data_or_init`, so that there is one tree, which eviction walks.
//! - **Requests.** A worker is in the group of the request that it executes, from reading the key
//!   to sending the answer. In a batch with several tenants the last one pays for sending all
//!   answers. Reading from a socket belongs to no tenant, because it is not yet known whose request
//!   it is. A batch of requests holds its groups; an idle connection holds none.
//! - **Memory.** Items are shared by `RcuArc` and hold charges, so that memory is limited
//!   hierarchically. A tenant over its limit loses its own items first; under a limit that several
//!   tenants share, those that hold the most above their protection lose items
//!   (`store/victims.rs`).
//! - **Deletion** (`delete.rs`) kills the subtree behind one barrier, drops its items a few at a
//!   time, and waits for the release. Totals stay in the parent.
//! - **Places.** Tenants, connections and buffers are bounded in number and size, so that no client
//!   takes the places of others (`tenant/places.rs`, `connections/places.rs`,
//!   `connections/mod.rs`). A connection records what it waits for with one store; the server scans
//!   all connections a few times a second, so that no batch of requests arms a timer.
//! - **Access** is decided on parsed lines, before anything is executed (`protocol/access.rs`): a
//!   new command does not compile until that file lists it.
//! - **Large answers** are documents that clients share and read in small parts
//!   (`submeter-documents`): an old version is withdrawn, even from clients that still read it.

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
pub use connections::ConnectionPlaces;
pub use delete::{DeleteError, Deletion};
pub use limits::{OverRate, TenantLimits};
pub use metrics::Metrics;
#[cfg(feature = "fuzz")]
#[doc(hidden)]
pub use protocol::outcomes::outcomes;
pub use server::{Address, Foreign, Server};
pub use tenant::TenantPlaces;
pub use users::Users;
