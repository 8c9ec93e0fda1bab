//! Accounting, limits and lifetimes for the tenants *inside* a process, with the machinery that Linux uses for
//! control groups.
//!
//! A [`Tree`] holds [`Group`]s, one for each tenant and each level of tenants. A request charges its
//! group, and every ancestor learns of it:
//!
//! ```
//! use submeter::{Bytes, Count, Schema, Tree};
//!
//! // What is measured, fixed before the tree exists; the unit is part of the type.
//! let mut schema = Schema::builder();
//! let requests = schema.counter::<Count>("requests", "Requests answered");
//! let sent = schema.counter::<Bytes>("sent", "Bytes of answers");
//! let memory = schema.resource::<Bytes>("memory", "Memory held");
//! let tree = Tree::new(schema.build()?)?;
//!
//! // Resolve a group once, keep the handle.
//! let web = tree.get_or_create("/acme/web")?;
//! web.add(requests, 1);
//! web.add(sent, 512);
//!
//! // A limit holds for everything below it, and is never exceeded.
//! tree.get("/acme").expect("made above").set_limit(memory, Some(1 << 20));
//! let held = web.try_charge(memory, 4096)?;
//! assert!(web.try_charge(memory, 1 << 20).is_err());
//! drop(held);
//!
//! assert_eq!(tree.root().sum(requests), 1);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # What it costs
//! - **An update** ([`Group::add`]) is an add to the running CPU's own word, by a restartable sequence where the kernel has
//!   them: no lock, no locked instruction, no system call, no allocation, and no waiting for readers.
//! - **A read** comes in three prices: [`Group::read`] is O(1) and says how far it may be off and how
//!   old it is ([`Group::read_within`] flushes if that is too much); [`Group::sum`] is exact and costs a flush, which visits only what changed;
//!   [`Tree::snapshot`] copies the whole tree at one moment.
//! - **A charge** ([`Group::try_charge`]) costs a locked add for each level up to the root.
//! - **An idle group** costs a few hundred bytes, and nothing for each CPU: per-CPU pages appear when they are
//!   first written.
//!
//! # When not to use it
//! When a handful of counters that nobody contends for will do: an atomic is simpler. When every update needs
//! the new total. When the process may not reserve address space (1 GiB for each CPU and row, and that for each
//! set of metrics, see [`percpu::Area`]).
//!
//! Where one number is all there is, [`percpu::PercpuCounter`] counts it without a tree, and
//! [`percpu::LimitedCounter`] keeps it at or below a limit.
//!
//! # Environment
//! `SUBMETER_RSEQ=off` forces the fallback (locked adds, in words that CPUs rarely share), as does building with
//! `--cfg submeter_no_rseq`. Results are the same; `submeter doctor` shows what the difference costs.
//!
//! # Where the ideas come from
//! The tree's statistics are Linux's rstat, with marks for its list of updated groups; limits are its page_counter;
//! the words are its per-CPU counters. `ARCHITECTURE.md` in the repository has the whole story.

#![forbid(unsafe_code)]

mod children;
pub mod collector;
mod error;
pub mod export;
mod flusher;
mod group;
mod histogram;
mod killed;
mod limit;
mod meter;
mod path;
pub mod perf;
mod reading;
mod rstat;
mod schema;
mod snapshot;
mod stats;
pub mod switch;
mod tree;
mod unit;

/// The primitives below groups: per-CPU words, counters, and their storage.
pub use submeter_percpu as percpu;

pub use collector::{
    Attached, Collect, CollectReport, Collected, Collector, CollectorError, Origin,
};
pub use error::Error;
pub use flusher::{Flusher, FlusherBuilder};
pub use group::Group;
pub use histogram::{Buckets, HistogramSnapshot};
pub use killed::Killed;
pub use limit::{Charge, LimitError, Usage};
pub use meter::Meter;
pub use path::{DEPTH_MAX, NAME_MAX};
pub use reading::{Reading, Scalar, Tolerance};
pub use rstat::FlushReport;
pub use schema::{
    Counter, Gauge, Histogram, METRICS_MAX, Metric, MetricKind, MetricSet, Resource, SETS_MAX,
    Schema, SchemaBuilder, SchemaError, WORDS_MAX,
};
pub use snapshot::{GroupValues, Snapshot, Value};
pub use tree::{GROUPS_MAX_DEFAULT, Tree, TreeBuilder};
pub use unit::{Bytes, Count, Nanoseconds, Unit, UnitKind};
