//! The units of metrics, in a module of their own: where [`Bytes`] means `bytes::Bytes`, write
//! `unit::Bytes`.
//!
//! ```
//! use submeter::{Counter, Schema, Tree, unit};
//!
//! let mut schema = Schema::builder();
//! let sent: Counter<unit::Bytes> = schema.counter("sent", "Bytes of answers");
//! let tree = Tree::new(schema.build()?)?;
//! tree.root().add(sent, 512);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub use crate::metric::unit::{Bytes, Count, Nanoseconds, Unit, UnitKind};
