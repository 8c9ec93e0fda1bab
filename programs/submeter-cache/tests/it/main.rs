//! Tests that share a process. `bad_input` needs its own, as it takes thousands of descriptors.

mod budgets;
mod clients;
mod commands;
#[path = "../common/mod.rs"]
mod common;
mod conservation;
mod differential;
mod expiry;
mod foreign;
mod latency;
mod limits;
mod meta;
mod places;
mod protection;
mod rates;
mod statistics;
mod tenants;
mod threads;
mod users;
mod waiting;
