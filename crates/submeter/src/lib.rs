//! Accounting, limits and lifetimes for the tenants inside a process.

#![forbid(unsafe_code)]

mod error;
pub mod export;
mod group;
mod histogram;
mod limit;
mod path;
mod reading;
mod rstat;
mod schema;
mod snapshot;
mod tree;
mod unit;

pub use error::Error;
pub use group::Group;
pub use histogram::{Buckets, HistogramSnapshot};
pub use limit::{Charge, LimitError, Usage};
pub use path::{DEPTH_MAX, NAME_MAX};
pub use reading::{Reading, Scalar};
pub use rstat::FlushReport;
pub use schema::{
    Counter, Gauge, Histogram, Metric, MetricKind, Resource, Schema, SchemaBuilder, SchemaError,
    WORDS_MAX,
};
pub use snapshot::{GroupValues, Snapshot, Value};
pub use tree::{GROUPS_MAX_DEFAULT, Tree, TreeBuilder};
pub use unit::{Bytes, Count, Nanoseconds, Unit, UnitKind};
