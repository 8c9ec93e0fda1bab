//! Accounting, limits and lifetimes for the tenants *inside* a process, built on the machinery that
//! Linux uses for control groups.
//!
//! New here? [The guide](guide) has short programs. [Which kind of metric](guide::kinds)? [Which
//! exporter](guide::exporting)? [Which answer](guide::answers) to a client? [How to
//! test](guide::testing)? [What does it cost](guide::costs)?
//!
//! A [`Tree`] holds [`Group`]s, one for each tenant and each level of tenants. A request charges
//! its group, and the totals of every ancestor include it:
//!
//! ```
//! use submeter::{Bytes, Count, Schema, Tree};
//!
//! // What is measured; the unit is part of the type.
//! let mut schema = Schema::builder();
//! let answered = schema.counter::<Count>("answered", "Requests answered");
//! let sent = schema.counter::<Bytes>("sent", "Bytes of answers");
//! let memory = schema.quota::<Bytes>("memory", "Memory held");
//! let tree = Tree::new(schema.build()?)?;
//!
//! // Look up a group once and keep the handle.
//! let web = tree.get_or_create("/acme/web")?;
//! web.add(answered, 1);
//! web.add(sent, 512);
//!
//! // A limit holds for everything below it, and is never exceeded.
//! tree.get("/acme").expect("made above").set_limit(memory, Some(1 << 20));
//! let held = web.try_charge(memory, 4096)?;
//! assert!(web.try_charge(memory, 1 << 20).is_err());
//! drop(held);
//!
//! assert_eq!(tree.root().sum(answered), 1);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # What it costs
//! - **An update** ([`Group::add`]) is an add to the running CPU's own word, by a restartable
//!   sequence where the kernel has them: no lock, no locked instruction, no system call, no
//!   allocation, and no waiting for readers. One in 1,024, and each of 128 KiB or more of bytes,
//!   completes a *batch* and takes sixteen times as long, because it raises the error bounds of all
//!   ancestors.
//! - **A read** comes at three prices: [`Group::read`] is O(1) and states its error bound and its
//!   age ([`Group::read_within`] flushes if those are too large). [`Group::sum`] is exact and costs
//!   a *flush*, which visits the descendants that changed and reads one word for each 64 lines (of
//!   64 bytes) that changed anywhere. [`Tree::snapshot`] copies the whole tree at one point in
//!   time.
//! - **A charge** ([`Group::try_charge`]) and its release cost about three adds, because each CPU
//!   has *stock* that was charged in advance; near a limit, a compare-and-swap for each level up to
//!   the first that still has stock.
//! - **A take** from a rate ([`Group::try_take`]) costs a read of the clock, and a compare-and-swap
//!   for each rate on its way: about 100 ns with one.
//! - [The guide](guide::costs) has a figure for every operation.
//! - **An idle group** costs a few hundred bytes, and nothing per CPU: per-CPU pages are allocated
//!   when they are first written.
//!
//! # When not to use it
//! - A handful of uncontended counters is enough, or every update needs the new total: atomics are
//!   simpler.
//! - The process may not reserve address space (1 GiB per row, several rows per CPU, for each
//!   [section](SchemaBuilder::section)).
//!
//! For a single number, [`counter::PercpuCounter`] counts without a tree, and
//! [`counter::LimitedCounter`] never exceeds a limit. [`refs`] has the reference counts that groups
//! are built on.
//!
//! # Environment
//! Linux 5.10 or newer on x86-64 and aarch64 has restartable sequences; [`backend`] says which
//! backend this process uses, and why. Elsewhere, or with `SUBMETER_RSEQ=off`, updates are atomic
//! adds to words that CPUs rarely share; results are the same. [Platforms](guide::platforms) covers
//! kernels, systems, `RUSTFLAGS` for few threads and for plugins, and operation.
//!
//! # Features
//! `aggregator`, `export` and `perf` are on by default. With `default-features = false`, counting,
//! limits and reads remain. `futures`, `http-body` and `rayon` carry groups into streams, bodies
//! and parallel iterators, as futures do without any; `tokio` counts a connection's bytes. The
//! crate `submeter-http` has tower layers, which count and limit requests. `thread-context` shows
//! profilers the group of each thread (`switch::thread_context`). `checkpoint` saves totals for the
//! next process. `derive` makes a struct of keys declare its metrics ([`Metrics`]). `serde`
//! serializes the results of reads in these shapes:
//!
//! - [`Reading`]: `{"value": …, "max_error": 4095, "age_ns": 1200}`
//! - [`Usage`]: `{"current": 60, "peak": 80, "peak_low": 80, "limit": 100, "refused": 0,
//!   "overdrafts": 0, "mode": "enforced", "high": null, "min": null, "low": null, "paused": 0,
//!   "postponed": 0, "reclaimed": 0, "reclaimed_low": 0, "panics": 0}`
//! - [`HistogramSnapshot`]: `{"count": 3, "sum": 15000, "buckets": [[5120, 3]]}`; each non-empty
//!   bucket has the largest value in it (null for the last one) and its count
//! - [`Value`]: a number, or the shape of a histogram or usage
//! - [`GroupValues`]: `{"path": "/acme", "values": {"answered": 3}}`
//! - [`Snapshot`]: `{"unix_ms": 1700000000000, "groups": […]}`
//! - [`FlushReport`]: `{"groups": 3, "lines": 5, "duration_ns": 41000, "joined": false}`
//! - [`MetricKind`] and [`UnitKind`]: as they are displayed

// On docs.rs, each item shows the feature that it needs.
#![cfg_attr(docsrs, feature(doc_cfg))]
#![forbid(unsafe_code)]
#![cfg_attr(
    not(all(feature = "aggregator", feature = "export", feature = "perf")),
    allow(
        rustdoc::broken_intra_doc_links,
        reason = "docs are of the whole, and link to all of it"
    )
)]

pub mod admission;
#[cfg(feature = "aggregator")]
pub mod aggregator;
mod backend;
pub mod counter;
mod error;
pub mod guide;
pub mod limits;
mod metric;
mod out;
mod path;
#[cfg(feature = "perf")]
pub mod perf;
pub mod prelude;
pub mod refs;
mod refusal;
mod retry;
mod stats;
pub mod switch;
mod tree;
pub mod unit;
mod until;
mod visible;

#[cfg(feature = "aggregator")]
pub use aggregator::{
    Aggregate, AggregateReport, Aggregated, Aggregator, AggregatorError, Attached, Origin,
};
pub use backend::{Backend, backend};
pub use error::Error;
pub use limits::charge::{
    Amount, Charge, Charging, LimitError, LimitMode, Pressure, Protection, Reclaimable, Stall,
};
pub use limits::rate::RateError;
pub use limits::rate_state::RateState;
pub use metric::histogram::{Buckets, HistogramSnapshot};
pub use metric::reading::{Reading, Scalar, Tolerance};
pub use metric::schema::{
    Counter, Gauge, Histogram, METRICS_MAX, Metric, MetricKey, MetricKind, Metrics, Quota,
    RateLimit, SECTIONS_MAX, Schema, SchemaBuilder, SchemaError, Section, WORDS_MAX,
};
pub use metric::totals::{GroupTotals, Totals};
pub use metric::unit::{Bytes, Count, Nanoseconds, Unit, UnitKind};
pub use metric::usage::{Usage, UsageCounts};
#[cfg(feature = "checkpoint")]
pub use out::checkpoint;
#[cfg(feature = "export")]
pub use out::export;
pub use out::snapshot::{GroupValues, Snapshot, Value};
pub use path::{DEPTH_MAX, NAME_MAX};
pub use refusal::Refusal;
pub use stats::rstat::FlushReport;
#[cfg(feature = "derive")]
pub use submeter_derive::Metrics;
pub use submeter_percpu::{InvalidRateError, InvalidWeightError, Rate, TestClock, WEIGHTS};
pub use tree::flusher::{Flusher, FlusherBuilder};
pub use tree::group::creation::OnCreate;
pub use tree::group::{Group, WhenKilled};
pub use tree::killed::Killed;
pub use tree::tree::{GROUPS_MAX_DEFAULT, Tree, TreeBuilder};
pub use visible::{Visible, is_hidden, visible};
