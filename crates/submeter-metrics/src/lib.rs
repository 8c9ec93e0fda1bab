//! What crates already count with [`metrics`], per tenant.
//!
//! New to submeter? Its [guide](submeter::guide) has short programs, and says [which kind of metric
//! when](submeter::guide::kinds).
//!
//! A [`Recorder`] charges `counter!`, `gauge!` and `histogram!` of any crate to the group that the
//! calling thread works for ([`submeter::switch`]), and outside of all groups to one that the
//! program names, usually the root. Call sites stay as they are.
//!
#![doc = concat!("```\n", include_str!("../examples/recorder.rs"), "```")]
//!
//! # Slots
//! Metrics are declared with their name and kind, whereas these become known as they are used, one
//! after the other, and a tree has room for a few sets that come later. So the program declares
//! [`Slots`] beforehand, and a metric (its kind, name and labels) takes one at its first use and
//! keeps it. What finds none is not lost: every update of it is counted in its group by
//! `metrics_unplaced_updates`, and what `increment` would have added by
//! `metrics_unplaced_increments`. Labels with many values, such as a user's name, use slots up;
//! tenants need no label, as they are groups.
//!
//! # Values
//! Words are integers, `metrics` has floats:
//! - Gauges are kept in thousandths, histograms in millionths unless [`Slots::buckets`] says
//!   otherwise. The rest is rounded.
//! - NaN, infinities, negative values of histograms, and values beyond 2^53 thousandths or 2^62
//!   millionths are left out, and counted by `metrics_unfit_values`.
//! - `set` of a gauge sets the group's own part. The value of a group above is the sum: right for
//!   what tenants have, such as connections, and for what is set outside of all groups.
//! - `absolute` of a counter adds by how much the value is above the highest so far, to the group
//!   of the caller. A counter that is also incremented gets both.
//!
//! # Cost
//! With a handle that is kept, an update costs up to three times [`Group::add`]; an example of
//! this crate, `cost`, measures it. The macros look their metric up at each call, as they do with
//! any recorder: a read lock, a hash table, and a reference count that all threads share. Keep
//! handles in hot code.
//!
//! # When not to use it
//! For a program's own metrics, declare them in the [schema](submeter::Schema): they are typed, and
//! cost one add.
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
