//! The behaviour of the crate, seen from outside.

mod conformance;
mod demand;
mod etcd;
#[cfg(unix)]
mod etcd_cluster;
#[cfg(unix)]
mod failover;
mod holder;
mod hostile;
mod ledger;
mod operate;
#[cfg(unix)]
mod redis;
#[cfg(unix)]
mod redis_cluster;
mod simulation;
mod skew;
#[cfg(unix)]
mod socket;
#[cfg(unix)]
mod tls;
mod world;
