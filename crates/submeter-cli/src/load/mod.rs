//! A load generator that draws from production statistics and checks every value that it reads.
//!
//! [`profile`] says what a tenant is like, [`stream`] draws its requests, [`pattern`] makes and
//! checks its values, [`connection`] drives one connection and counts, [`drive`] runs them all,
//! [`report`] shows what came of it.

pub(crate) mod answer;
pub(crate) mod connection;
pub(crate) mod drive;
pub(crate) mod pattern;
pub(crate) mod profile;
pub(crate) mod progress;
pub(crate) mod report;
pub(crate) mod stream;
pub(crate) mod tally;
pub(crate) mod tenants_file;
pub(crate) mod verb;
