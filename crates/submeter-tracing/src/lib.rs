//! While a span with a field `tenant` is entered, the thread works for that tenant's group.
//!
//! New to submeter? Its [guide](submeter::guide) has short programs, and says [how the group
//! travels otherwise](submeter::guide::group_travel).
//!
#![doc = concat!("```\n", include_str!("../examples/spans.rs"), "```")]
//!
//! # Spans and threads
//! A span has the group of its own tenant, or else of its parent's tenant, even if the parent is
//! entered on no thread, as in a task with a span of its own. Spans may be entered on several
//! threads at once and left in any order; the group of the latest span still entered is current.
//! Futures with `.instrument(span)` enter for each poll, so that only their own work is charged.
//!
//! # Where a layer is not enough
//! - Work that no span covers on its thread is in no group: a `spawn_blocking` without a span, a
//!   library's own threads. [`submeter::switch`] has the means to carry a group there.
//! - A span that a filter disables does not exist, and enters no group. Give the layer no filter,
//!   and make spans of tenants at a level that is compiled in.
//! - A tenant that is [recorded](TenantLayer#method.on_record) later applies from the next time
//!   that the span is entered, and to spans that are created later.
//! - The name is what the value displays. `tenant = ?name` of a string includes the quotes: write
//!   `tenant = name` or `tenant = %name`.
//! - A layer cannot add a field to the events that other layers see. For lines of text there is
//!   `GroupPrefix`; a JSON formatter has to ask [`submeter::switch::current`] itself.
//!
//! # Cost
//! Each span costs a look at its fields or its parent, and a look-up of its tenant by name. Each
//! enter costs a look-up in the registry and a switch, and each exit another switch. For spans in
//! hot loops, enter the group outside and leave the tenant out.

#![cfg_attr(docsrs, feature(doc_cfg))]
#![forbid(unsafe_code)]

#[cfg(feature = "fmt")]
mod format;
mod layer;
mod tenants;

#[cfg(feature = "fmt")]
pub use format::GroupPrefix;
pub use layer::TenantLayer;

/// Compiles the program in the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
