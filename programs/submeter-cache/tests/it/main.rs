//! Tests that share a process. Apart is `bad_input`, which takes thousands of its descriptors.

mod clients;
mod commands;
#[path = "../common/mod.rs"]
mod common;
mod conservation;
mod differential;
mod expiry;
mod foreign;
mod limits;
mod meta;
mod statistics;
mod tenants;
mod users;
mod waiting;
