//! Chapter 1: a schema, a tree, groups, updates.
//!
//! A [`Schema`] lists the metrics that every group has. A tree is made with one, so that a metric
//! is an index and an update needs no lookup.
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
//! tree. With the feature `derive` the struct declares its metrics itself: names and help texts are
//! those of its fields.
//!
//! ```
//! use submeter::{Buckets, Bytes, Count, Counter, Histogram, Metrics, Nanoseconds, Quota, Schema};
//!
//! #[derive(Metrics)]
//! struct Keys {
//!     /// Requests answered
//!     requests: Counter<Count>,
//!     /// Time to answer
//!     #[metric(buckets = Buckets::LATENCY_NS)]
//!     latency: Histogram<Nanoseconds>,
//!     /// Memory held
//!     memory: Quota<Bytes>,
//! }
//!
//! let mut schema = Schema::builder();
//! let keys: Keys = schema.declare();
//! let tree = submeter::Tree::new(schema.build()?)?;
//! tree.root().add(keys.requests, 1);
//! assert_eq!(tree.root().usage(keys.memory).current, 0);
//! # let _ = keys.latency;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A library can offer such a struct, and any program declares it beside its own: see [`Metrics`].
//!
//! **Sets that come later.** Or the library declares it itself, in the tree of a program that knows
//! nothing of it: [`Tree::declare`]. It may do so again and again, from any thread.
//!
//! ```
//! use submeter::{Count, Counter, Group, Metrics, Schema, Tree};
//!
//! #[derive(Metrics)]
//! #[metrics(prefix = "db_")]
//! struct Queries {
//!     /// Queries sent
//!     queries: Counter<Count>,
//! }
//!
//! /// A library's client: it keeps the keys, which are of one tree.
//! struct Client {
//!     keys: Queries,
//! }
//!
//! impl Client {
//!     fn new(tenant: &Group) -> Result<Client, submeter::Error> {
//!         Ok(Client { keys: tenant.declare()? })
//!     }
//!
//!     fn query(&self, tenant: &Group) {
//!         tenant.inc(self.keys.queries);
//!     }
//! }
//!
//! let tree = Tree::new(Schema::builder().build()?)?;
//! let web = tree.get_or_create("/acme/web")?;
//! let clients = [Client::new(&web)?, Client::new(&web)?];
//! clients.iter().for_each(|client| client.query(&web));
//! assert_eq!(tree.root().sum(clients[0].keys.queries), 2);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Only what a tree is built around must be in the schema that it is made with: quotas, rate
//! limits, CPU time and events.
//!
//! Next: [Reads](super::reads).
//!
//! [`Group`]: crate::Group
//! [`Group::bound`]: crate::Group::bound
//! [`Metrics`]: crate::Metrics
//! [`Schema`]: crate::Schema
//! [`Tree::declare`]: crate::Tree::declare
//! [`Tree::get`]: crate::Tree::get
