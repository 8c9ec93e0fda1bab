//! The behaviour of the crate, seen from outside. Banks on other servers are tested with their
//! features: `cargo test -p submeter-bank --features etcd,redis,tls`.

mod conformance;
mod demand;
#[cfg(feature = "etcd")]
mod etcd;
#[cfg(all(unix, feature = "etcd"))]
mod etcd_cluster;
#[cfg(all(unix, feature = "redis"))]
mod failover;
mod holder;
mod hostile;
mod ledger;
mod operate;
#[cfg(all(unix, feature = "redis"))]
mod redis;
#[cfg(all(unix, feature = "etcd", feature = "redis"))]
mod redis_cluster;
mod simulation;
mod skew;
#[cfg(unix)]
mod socket;
#[cfg(all(unix, feature = "etcd", feature = "redis", feature = "tls"))]
mod tls;
mod world;
