//! A memcached-compatible cache whose every tenant is a [`submeter::Group`].
//!
//! # How it uses the library
//! - **Tenants.** The prefix of a key is the path of a group. The resolver looks it up in tables
//!   that are copied on write, read under an epoch guard without a lock, and ends in a clone that
//!   fails once the group was killed. What the cache keeps for a tenant hangs on the group by
//!   `Group::set_data`, so that there is one tree, and eviction walks that.
//! - **Requests.** A worker is in the group of the request that it carries out, from reading the
//!   key to sending the answer. In a batch with several tenants the last one pays for sending all
//!   answers. Reading from a socket belongs to no tenant, because nothing says yet whose request it
//!   is. A batch of requests holds its groups; an idle connection holds none.
//! - **Memory.** Items are shared by `RcuArc` and hold charges, so that memory is limited as a
//!   hierarchy. A tenant over its limit loses its own items first; under a limit that several
//!   share, those who hold most above their protection lose (`store/victims.rs`).
//! - **Deletion** (`delete.rs`) kills the subtree behind one barrier, drops its items a few at a
//!   time, and waits for the release. Totals stay in the parent.
//! - **Places.** Tenants, connections and buffers are bounded in number and size, so that no client
//!   has the places of others (`tenant/places.rs`, `connections/places.rs`, `connections/mod.rs`).
//!   A connection notes what it waits for with one store; the server looks at all of them a few
//!   times a second, so that no batch of requests arms a timer.
//! - **Access** is decided on parsed lines, before anything is executed (`protocol/access.rs`): a
//!   new command does not compile until that file lists it.
//! - **Large answers** are documents that clients share and read in small parts
//!   (`submeter-documents`): an old version is withdrawn, even from those who still read it.

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
