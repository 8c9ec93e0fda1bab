//! A load generator that draws from production statistics and checks every value that it reads.
//!
//! [`profile`] says what a tenant is like, [`stream`] draws its requests, [`pattern`] makes and
//! checks its values, [`connection`] drives one connection and counts, [`drive`] runs them all.
//!
//! The statistics are means, so some things are assumed:
//! - Value lengths spread evenly from half to one and a half of the mean; a key always has the
//!   same. Keys have the mean length, or as much more as tenant and number take.
//! - A tenant has 1,000 to 100,000 keys: as many as its working set holds, within these bounds.
//!   Production working sets reach terabytes; it is the skew that a cache feels.
//! - A miss is filled by a store, as clients of caches do, and each fill stands for one store of
//!   the mix. So a tenant whose statistics show reads only finds its items as well.
//! - A `cas` without a token from an earlier `gets` becomes that `gets`.

#![forbid(unsafe_code)]

mod answer;
pub mod connection;
pub mod drive;
pub mod pattern;
pub mod profile;
pub mod progress;
pub mod stream;
pub mod tally;
pub mod tenants_file;
pub mod verb;
