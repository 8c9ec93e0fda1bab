//! Trees whose limits are leases.

mod driver;
#[cfg(unix)]
mod processes;
mod rates;
mod threads;
mod world;
