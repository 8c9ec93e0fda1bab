//! Whatever crates already count with [`metrics`], per tenant.
//!
//! New to submeter? Its [guide](submeter::guide) has short programs, and says [which kind of metric
//! to choose](submeter::guide::kinds).
//!
//! A [`Recorder`] charges `counter!`, `gauge!` and `histogram!` of any crate to the group that the
//! calling thread works for ([`submeter::switch`]). Outside all groups, it charges one that the
//! program names, usually the root. Call sites stay as they are.
//!
#![doc = concat!("```\n", include_str!("../examples/recorder.rs"), "```")]
//!
//! # Slots
//! A tree's metrics are declared with name and kind, whereas these become known as they are used,
//! one after the other, and a tree has room for only a few sets of metrics that are added later.
//! The program therefore declares [`Slots`] beforehand. A metric (its kind, name and labels) takes
//! a slot at its first use and keeps it. A metric without a slot is not lost:
//! `metrics_unplaced_updates` counts each update of it in its group, and
//! `metrics_unplaced_increments` what `increment` would have added. Labels with many values, such
//! as a user's name, use up slots; tenants need no label, as they are groups.
//!
//! # Values
//! Words are integers, `metrics` has floats:
//! - Gauges are kept in thousandths, histograms in millionths unless [`Slots::buckets`] says
//!   otherwise. The rest is rounded.
//! - NaN, infinities, negative values of histograms, and values beyond 2^53 thousandths or 2^62
//!   millionths are dropped, and counted by `metrics_unfit_values`.
//! - `set` of a gauge sets the group's own part. The value of a group above is the sum: right for
//!   things that tenants have, such as connections, and for values set outside all groups.
//! - `absolute` of a counter adds, to the caller's group, by how much the value exceeds the highest
//!   so far. A counter that is also incremented gets both.
//!
//! # Cost
//! Through a handle that is kept, an update costs up to three times [`Group::add`]; an example of
//! this crate, `cost`, measures it. The macros look up their metric at each call, as they do with
//! any recorder: a read lock, a hash table, and a reference count that all threads share. Keep
//! handles in hot code.
//!
//! # When not to use it
//! Declare a program's own metrics in the [schema](submeter::Schema): they are typed, and cost one
//! add.
//!
//! [`Group::add`]: submeter::Group::add

#![cfg_attr(docsrs, feature(doc_cfg))]
#![forbid(unsafe_code)]

mod handles;
mod names;
mod recorder;
mod slots;
mod text;

pub use handles::GAUGE_PER_UNIT;
pub use recorder::Recorder;
pub use slots::{Declared, Named, Slot, Slots};

/// Compiles the program in the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
