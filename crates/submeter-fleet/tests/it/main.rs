//! Trees whose limits are leases.

mod driver;
mod rates;
mod threads;
mod world;
