//! A load generator that draws from production statistics and checks every value that it reads.
//!
//! [`profile`] describes a tenant's traffic, [`stream`] draws its requests, [`pattern`] makes and
//! checks its values, [`connection`] drives one connection and counts, and [`drive`] runs all
//! connections.
//!
//! The statistics are means, so the load makes some assumptions:
//! - Value lengths are spread evenly from half the mean to one and a half times the mean, and each
//!   key's length is fixed. Keys have the mean length, or more if the tenant's name and the key's
//!   number need it.
//! - A tenant has as many keys as its working set holds, but at least 1,000 and at most 100,000.
//!   Production working sets reach terabytes, but the skew is what matters to a cache.
//! - A miss is followed by a store, as with clients of real caches, and each such fill replaces one
//!   store of the mix. A tenant whose statistics show only reads therefore finds its items too.
//! - A `cas` without a token from an earlier `gets` becomes that `gets`.

#![forbid(unsafe_code)]

mod answer;
pub mod burst;
pub mod connection;
pub mod drive;
pub mod hdr;
pub mod pattern;
pub mod profile;
pub mod progress;
pub mod stream;
pub mod tally;
pub mod tenants_file;
pub mod verb;
