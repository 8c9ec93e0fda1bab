//! Chapter 1: a schema, a tree, groups, updates.
//!
//! A [`Schema`] lists the metrics that every group has. It is fixed before the tree exists, so that
//! a metric is an index and an update needs no lookup.
//!
//! ```
//! use submeter::{Buckets, Bytes, Count, Nanoseconds, Schema, Tree};
//!
//! let mut schema = Schema::builder();
//! let requests = schema.counter::<Count>("requests", "Requests answered");
//! let sent = schema.counter::<Bytes>("sent", "Bytes of answers");
//! let waiting = schema.gauge::<Count>("waiting", "Requests in the queue");
//! let latency = schema.histogram::<Nanoseconds>("latency", "Of answers", Buckets::LATENCY_NS);
//! let tree = Tree::new(schema.build()?)?;
//!
//! // A tenant is a path. Missing levels are created.
//! let web = tree.get_or_create("/acme/web")?;
//!
//! web.adjust(waiting, 1);
//! web.add(requests, 1);
//! web.add(sent, 512);
//! web.record(latency, 1_500_000);
//! web.adjust(waiting, -1);
//!
//! // Every ancestor includes it.
//! assert_eq!(tree.get("/acme").expect("created above").sum(sent), 512);
//! assert_eq!(tree.root().sum(requests), 1);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! **Keep the handle.** [`Tree::get`] is a lookup by name. A [`Group`] is a handle that can be
//! cloned and sent anywhere; a request clones it once and updates through it. In a tight loop,
//! [`Group::bound`] keeps the word of one metric as well.
//!
//! **Units are types.** A `Counter<Bytes>` cannot be used where a `Counter<Nanoseconds>` is
//! expected, and exporters name the unit. The number itself is a plain integer in the unit's base:
//! bytes, or nanoseconds.
//!
//! **Where the keys live.** Keys are `Copy`. Most programs put them into one struct next to the
//! tree:
//!
//! ```
//! use submeter::{Bytes, Count, Counter, Quota, Schema, SchemaError};
//!
//! struct Metrics {
//!     requests: Counter<Count>,
//!     memory: Quota<Bytes>,
//! }
//!
//! impl Metrics {
//!     fn declare() -> Result<(Metrics, Schema), SchemaError> {
//!         let mut schema = Schema::builder();
//!         let metrics = Metrics {
//!             requests: schema.counter("requests", "Requests answered"),
//!             memory: schema.quota("memory", "Memory held"),
//!         };
//!         Ok((metrics, schema.build()?))
//!     }
//! }
//!
//! let (metrics, schema) = Metrics::declare()?;
//! let tree = submeter::Tree::new(schema)?;
//! tree.root().add(metrics.requests, 1);
//! assert_eq!(tree.root().usage(metrics.memory).current, 0);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Next: [Reads](super::reads).
//!
//! [`Group`]: crate::Group
//! [`Group::bound`]: crate::Group::bound
//! [`Schema`]: crate::Schema
//! [`Tree::get`]: crate::Tree::get
