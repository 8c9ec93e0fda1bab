//! What most programs that meter their tenants use: `use submeter::prelude::*;`.
//!
//! Where `Bytes` means `bytes::Bytes`, that import wins: write `unit::Bytes` for the unit.
//!
//! ```
//! use submeter::prelude::*;
//!
//! let mut schema = Schema::builder();
//! let sent: Counter<unit::Bytes> = schema.counter("sent", "Bytes of answers");
//! let tree = Tree::new(schema.build()?)?;
//! let tenant = tree.root().get_or_create_child("acme")?;
//! tenant.add(sent, 512);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub use crate::admission::Admission;
#[cfg(feature = "tokio")]
pub use crate::switch::Counted;
pub use crate::switch::InGroup;
pub use crate::{
    Buckets, Bytes, Charge, Count, Counter, Gauge, Group, Histogram, Killed, Metrics, Nanoseconds,
    Quota, Rate, RateLimit, Refusal, Schema, Tree, limits, switch, unit,
};
