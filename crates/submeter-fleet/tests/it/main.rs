//! Trees whose limits are leases. Processes on other servers are tested with their features:
//! `cargo test -p submeter-fleet --features etcd,redis`.

mod driver;
#[cfg(unix)]
mod processes;
mod rates;
mod threads;
mod world;
